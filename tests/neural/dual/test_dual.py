"""Dual encoders: their losses by definition, what is learned, and what answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch.nn.functional import normalize

import megalabel
from megalabel import Corpus, Tagger, checkpoints, systems
from megalabel.errors import DataError, ParameterError
from megalabel.features import Concat, Projected, Tfidf
from megalabel.linear import OneVsAll
from megalabel.mixing import mix
from megalabel.neural import (
    BCE,
    BagEncoder,
    CosineLikelihood,
    DecoupledSoftmax,
    DualClassifier,
    PretrainedEncoder,
    StagedDualClassifier,
    SupervisedContrastive,
    Tokenizer,
    Trainer,
)
from megalabel.neural.dual.batches import DualBatch, DualSource
from megalabel.neural.dual.classifier import learned_cells
from megalabel.neural.dual.network import Objective, TableModel
from megalabel.neural.targets import Targets
from megalabel.preparing import examples_of
from megalabel.rankers import DualVectors

CPU = torch.device("cpu")
BAG = BagEncoder(width=8, residual=None)
LOSSES = [SupervisedContrastive(), DecoupledSoftmax()]


def trainer(**options):
    return Trainer(**({"steps": 6, "batch": 32, "learning_rate": 0.02, "device": "cpu"} | options))


# ---------------------------------------------------------------- losses of a batch
def batch_of(Y, hidden=None):
    """A batch of texts and all labels, whose vectors are given to the loss."""
    hidden = csr_matrix(Y.shape) if hidden is None else csr_matrix(hidden)
    targets = [Targets.from_csr(csr_matrix(m, dtype=np.float32), CPU) for m in (Y, hidden)]
    labels = torch.arange(Y.shape[1])
    return DualBatch(np.arange(len(Y)), [], labels, [], *targets)


@pytest.fixture
def vectors():
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (6, 5))
    return [normalize(x) for x in drawn]


Y = np.array(
    [
        [1, 0, 1, 0, 0],
        [0, 1, 0, 0, 0],
        [1, 1, 1, 1, 0],
        [0, 0, 0, 0, 0],
        [0, 0, 0, 1, 0],
        [1, 0, 0, 0, 0],
    ]
)


def by_definition(loss, scores, Y, hidden):
    """A mean over rows of means over positives, term by term."""
    s, rows = scores.numpy() / loss.temperature, []
    for i in range(len(Y)):
        positives = np.flatnonzero(Y[i])
        terms = []
        for p in positives:
            below = [
                n
                for n in range(Y.shape[1])
                if not hidden[i, n] and (n == p or loss.name == "contrastive" or not Y[i, n])
            ]
            terms.append(np.log(np.exp(s[i, below]).sum()) - s[i, p])
        if terms:
            rows.append(np.mean(terms))
    return np.mean(rows)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("hides", [False, True])
def test_losses_are_those_of_the_definition(loss, hides, vectors):
    texts, labels = vectors
    hidden = np.zeros_like(Y)
    if hides:
        hidden[0, 1] = hidden[4, 0] = 1
    batch = batch_of(Y, hidden)
    wanted = by_definition(loss, texts @ labels.T, Y, hidden)
    assert Objective(loss)(texts, labels, batch).item() == pytest.approx(wanted)
    # labels look for their texts: the same with the parts of texts and labels exchanged
    turned = by_definition(loss, labels @ texts.T, Y.T, hidden.T)
    both = Objective(loss, symmetric=True)(texts, labels, batch).item()
    assert both == pytest.approx((wanted + turned) / 2)
    more = Objective(loss, 0.3, auxiliary=BCE())(texts, labels, batch).item()
    mask = torch.tensor(hidden == 0)
    bce = BCE()(texts @ labels.T, torch.tensor(Y, dtype=torch.float64), mask=mask)
    assert more == pytest.approx(0.3 * (wanted + bce[Y.any(1)].mean().item()))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_some_labels_are_all_labels_where_every_positive_is_drawn(loss, vectors):
    texts, labels = vectors
    X, Z = csr_matrix((6, 3), dtype=np.float32), csr_matrix((5, 3), dtype=np.float32)
    truth = csr_matrix(Y, dtype=np.float32)
    for positives in (1, 4):
        source = DualSource(X, Z, truth, csr_matrix(Y.shape), positives=positives)
        batch = source.batch(np.arange(6), CPU)
        pool = batch.labels.numpy()
        some = Objective(loss)(texts, labels[batch.labels], batch).item()
        targets = torch.tensor(Y[:, pool], dtype=torch.float64)
        every = loss(texts @ labels[pool].T, targets)[Y[:, pool].any(1)].mean().item()
        assert some == pytest.approx(every)
    np.testing.assert_array_equal(pool, [0, 1, 2, 3])  # all that any text has


# ---------------------------------------------------------------- learning
def examples(corpus, features=None):
    features = Tfidf().fit(corpus) if features is None else features
    return examples_of(features, features.transform(corpus), corpus)


JOINT = {"classifier_loss": "decoupled-softmax", "auxiliary": True, "negatives": 2}
CASES = {
    "labels alone": {},
    "both": {**JOINT, "width": 6, "classifier_width": 5, "clusters": "batch", "symmetric": True},
    "classifier": {**JOINT, "answer": "classifier"},
    "products": {**JOINT, "scores": "products", "mined_by": "both", "refresh": 1},
    "all labels": {"all_labels": True, "chunk": 4},
    "over labels": {"over": "labels", "loss": CosineLikelihood()},
    "bank": {"bank": True, "clusters": [0.0, 0.5], "extra": False},
    "two encoders": {"label_encoder": BAG},
    "beside words": {**JOINT, "ranker": "one-vs-all"},
}


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_what_is_learned_answers_without_the_network(options, corpus, tmp_path):
    made = DualClassifier(BAG, trainer(), **options)
    tagger = Tagger(made, Tfidf(), None).fit(corpus)
    wanted = OneVsAll if "ranker" in options else DualVectors
    assert isinstance(tagger.classifier_, wanted)
    assert isinstance(tagger.features_, Concat if "ranker" in options else Projected)
    tagger.save(tmp_path / "model")
    again = megalabel.load(tmp_path / "model")
    direct = made.fit_examples(examples(corpus))
    expected = direct.rank(Tfidf().fit(corpus).transform(corpus), 9)
    for found in (tagger.rank(corpus, 9), again.rank(corpus, 9)):
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-6)


def test_batches_of_labels_teach_no_vectors_of_their_own(corpus):
    made = DualClassifier(BAG, trainer(), over="labels", **JOINT)
    with pytest.raises(ParameterError, match=r"over='labels' .* leave out classifier_loss"):
        made.fit_examples(examples(corpus))


def test_what_answers_learns_nothing_by_itself(corpus):
    tagger = Tagger(DualClassifier(BAG, trainer()), Tfidf(), None).fit(corpus)
    with pytest.raises(ParameterError, match="part of a trained tagger"):
        tagger.features_.fit(corpus)


@pytest.mark.parametrize("ranker", [None, "one-vs-all"])
def test_an_encoder_of_tokens(ranker, corpus, tiny_model):
    from megalabel.neural import TextViews

    tokens = Tokenizer(tiny_model, max_length=16)
    features = tokens if ranker is None else TextViews(Tfidf(), tokens)
    made = DualClassifier(PretrainedEncoder(tiny_model), trainer(steps=2), ranker, width=6)
    tagger = Tagger(made, features, None).fit(corpus)
    assert tagger.rank(corpus[:3], 4).present.all()
    with pytest.raises(DataError, match="reads"):
        made.fit(csr_matrix((3, 2)), np.eye(3), label_rows=csr_matrix((3, 2)))


def test_it_learns_the_labels_of_texts(corpus):
    encoder = BagEncoder(width=16, residual=None, dropout=0.1)
    options = {"classifier_loss": DecoupledSoftmax(temperature=1.0), "positives": 2}
    learning = trainer(steps=100, head_learning_rate=0.02)
    for answer in ("both", "labels", "classifier"):
        made = DualClassifier(encoder, learning, answer=answer, **options)
        tagger = Tagger(made, Tfidf(), None).fit(corpus[:200])
        assert tagger.evaluate(corpus[200:])["P@1"] > 0.9


def test_both_halves_answer_by_the_sum_of_two_cosines(corpus):
    data = examples(corpus)
    found = {}
    for answer in ("labels", "classifier", "both"):
        made = DualClassifier(BAG, trainer(), answer=answer, **JOINT, width=6, classifier_width=5)
        made.fit_examples(data)
        texts, labels = made.features(data.rows), made.weights_.astype(np.float32)
        found[answer] = texts @ labels.T
        for side in (texts, labels):
            lengths = np.linalg.norm(side, axis=1)
            np.testing.assert_allclose(lengths, 2**0.5 if answer == "both" else 1, atol=1e-3)
    np.testing.assert_allclose(found["both"], found["labels"] + found["classifier"], atol=1e-4)
    assert np.abs(found["both"]).max() <= 2 + 1e-3


def test_both_halves_answer_by_what_their_losses_saw(corpus):
    data, found = examples(corpus), {}
    losses = {"loss": DecoupledSoftmax(temperature=0.1)}
    losses["classifier_loss"] = DecoupledSoftmax(temperature=2.0)
    for scores in ("cosines", "products"):
        for answer in ("labels", "classifier", "both"):
            options = {**JOINT, **losses, "scores": scores, "answer": answer}
            made = DualClassifier(BAG, trainer(), **options).fit_examples(data)
            products = made.features(data.rows) @ made.weights_.astype(np.float32).T
            found[scores, answer] = products + made.bias_
            assert made.bias_.any() == (scores == "products" and answer != "labels")
    both = found["products", "labels"] + found["products", "classifier"]
    np.testing.assert_allclose(found["products", "both"], both, rtol=1e-2, atol=1e-2)
    # labels' own vectors keep their lengths
    own = DualClassifier(BAG, trainer(), **{**JOINT, **losses, "scores": "products"})
    model = own.trained(data, checkpoints.Checkpoint(own, *own.learned_from(data)))
    made = own.fit_examples(data)
    table = model.table.weight.detach().numpy()
    np.testing.assert_allclose(made.weights_[:, -8:], table / 2, atol=1e-3)
    np.testing.assert_allclose(made.bias_, model.biases.weight.detach().numpy()[:, 0] / 2)


def test_biases_begin_at_how_frequent_labels_are(corpus):
    data, still = examples(corpus), trainer(head_learning_rate=0.0)
    made = DualClassifier(BAG, still, **JOINT, scores="products").fit_examples(data)
    wanted = np.log((data.label_counts + 0.5) / (len(corpus) + 1))
    np.testing.assert_allclose(made.bias_, wanted, rtol=1e-5)


def test_a_ranker_reads_vectors_of_length_one(corpus):
    data, options = examples(corpus), {**JOINT, "ranker": "one-vs-all"}
    made = DualClassifier(BAG, trainer(), scores="products", **options).fit_examples(data)
    vectors = made.encoding(Tfidf().fit(corpus)).parts_[1].transform(corpus)
    for half in (vectors[:, :8], vectors[:, 8:]):
        lengths = np.linalg.norm(half, axis=1)
        np.testing.assert_allclose(lengths[lengths > 0], 1, atol=1e-3)
        assert (lengths > 0).mean() > 0.9


def test_labels_of_their_own_begin_as_their_texts(vectors):
    texts, labels = (x.float().numpy() for x in vectors)
    table = TableModel(labels, Objective(CosineLikelihood()))
    np.testing.assert_allclose(table.seen_labels(), labels, atol=1e-6)
    source = DualSource(texts, None, csr_matrix(Y, dtype=np.float32), csr_matrix(Y.shape))
    before = table(source.batch(np.arange(6), CPU)).item()
    torch.manual_seed(0)
    trainer(steps=40, head_learning_rate=0.1).fit(table, source)
    assert table(source.batch(np.arange(6), CPU)).item() < before
    np.testing.assert_allclose(np.linalg.norm(table.seen_labels(), axis=1), 1, atol=1e-5)


def test_a_second_stage_leaves_the_encoder_as_it_is(corpus):
    data = examples(corpus)
    dual = DualClassifier(BAG, None, seed=1)
    first = DualClassifier(BAG, trainer(), seed=1).fit_examples(data)
    second = StagedDualClassifier(dual, trainer(head_learning_rate=0.05)).fit_examples(data)
    alone = StagedDualClassifier(dual, trainer(), beta=0.0).fit_examples(data)
    for made in (second, alone):
        for name, value in first.encoder_.weights_.items():
            np.testing.assert_array_equal(made.encoder_.weights_[name], value)
    np.testing.assert_array_equal(alone.weights_, first.weights_)
    assert not np.array_equal(second.weights_, first.weights_)


# ---------------------------------------------------------------- labels that come and go
SYSTEMS = {
    "depsl": {},
    "dexml": {"chunk": 4},
    "dexml, any length": {"chunk": 4, "unit": False, "temperature": 1.0},
    "ngame": {},
    "siamesexml": {},
    "unidec": {},
    "unidec, classifier": {"answer": "classifier"},
    "unidec, cosines": {"scores": "cosines"},
    "unidec beside words": {"ranker": "one-vs-all"},
}
GONE = "kettle"


@pytest.fixture(scope="module")
def without_kettles(corpus):
    """The corpus without one of its labels, of which its texts speak all the same."""
    kept = np.flatnonzero(np.asarray(corpus.labels.ids) != GONE)
    targets = csr_matrix(corpus.targets[:, kept])
    return Corpus(corpus.texts, targets=targets, labels=corpus.labels.take(kept))


@pytest.fixture(scope="module")
def tagger_of(without_kettles):
    made: dict[str, Tagger] = {}

    def get(name: str) -> Tagger:
        if name not in made:
            options = {"epochs": 8.0, "batch": 32, "device": "cpu"} | SYSTEMS[name]
            made[name] = systems.create(name.split(",")[0].split()[0], **options)
            made[name].fit(without_kettles)
        return made[name]

    return get


def margins(tagger: Tagger, texts) -> np.ndarray:
    """What the classifier says of every label."""
    return tagger._scores(texts, len(tagger.labels)).to_csr().toarray()


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_label_joins_by_its_text(name, tagger_of, corpus, tmp_path):
    tagger = tagger_of(name)
    known = len(tagger.labels)
    more = tagger.add_labels([GONE, "qqq"])
    before, after = margins(tagger, corpus), margins(more, corpus)
    np.testing.assert_array_equal(before, after[:, :known])
    names_it = np.array(["kettle" in text for text in corpus.texts.to_pylist()])
    if name != "unidec, classifier":  # which knows no words of texts as words of labels
        above = after[names_it, known, None] > after[~names_it, known]
        assert above.mean() > 0.95
    place = 1 + (after[names_it, :known] > after[names_it, known, None]).sum(axis=1)
    assert np.median(place) <= 4
    # a label of which nothing is known is not answered
    assert (after[:, known + 1] < after.max(axis=1)).all()
    back = more.remove_labels([GONE, "qqq"])
    for one, other in ((tagger, back), (more, saved(more, tmp_path))):
        np.testing.assert_array_equal(one.rank(corpus, 5).ids, other.rank(corpus, 5).ids)
        np.testing.assert_array_equal(one.rank(corpus, 5).scores, other.rank(corpus, 5).scores)
    again = saved(tagger, tmp_path).add_labels([GONE, "qqq"])
    np.testing.assert_array_equal(again.rank(corpus, 5).scores, more.rank(corpus, 5).scores)
    assert more.rename_labels({GONE: "kettles"}).tag("a kettle to boil", k=known)


def saved(tagger: Tagger, folder) -> Tagger:
    tagger.save(folder / "model")
    return megalabel.load(folder / "model")


def test_labels_of_their_own_text_are_as_they_were_trained(corpus):
    """A label that leaves and joins again by its text has the row that it had."""
    options = {"epochs": 2.0, "batch": 32, "device": "cpu"}
    tagger = systems.create("depsl", **options).fit(corpus)
    again = tagger.remove_labels([GONE]).add_labels([GONE])
    place = tagger.labels.index(GONE)
    np.testing.assert_array_equal(margins(tagger, corpus)[:, place], margins(again, corpus)[:, -1])


@pytest.mark.parametrize("how", ["all", "text", "neighbours"])
def test_labels_with_vectors_of_their_own_are_on_one_scale(how, tagger_of, corpus):
    tagger = tagger_of("unidec, cosines")
    more, known = tagger.add_labels(["lid", "water", "spout"], how=how), len(tagger.labels)
    found = margins(more, corpus)
    assert abs(found[:, known:].mean() - found[:, :known].mean()) < 0.1
    assert (found.argmax(axis=1) >= known).mean() < 0.2


def test_a_mix_with_a_dual_member_takes_labels(tagger_of, without_kettles):
    other = systems.create("dismec").fit(without_kettles[:200])
    both = mix([tagger_of("unidec"), other], without_kettles[200:], form="means", held_out=True)
    more = both.add_labels([GONE])
    assert [len(member.labels_) for member in more.classifier_.members_] == [len(more.labels)] * 2
    assert GONE in [tag.label for tag in more.tag("a kettle to boil water in", k=3)]


def test_labels_read_by_an_encoder_of_their_own_cannot_be_added(corpus):
    made = DualClassifier(BAG, trainer(), label_encoder=BAG, **JOINT)
    tagger = Tagger(made, Tfidf(), None).fit(corpus)
    with pytest.raises(ParameterError, match="an encoder of their own"):
        tagger.add_labels(["lid"])
    tagger = Tagger(made.set_params(answer="classifier"), Tfidf(), None).fit(corpus)
    assert len(tagger.add_labels(["lid"]).labels) == len(corpus.labels) + 1


# ---------------------------------------------------------------- texts that are labels
def test_of_a_text_that_is_a_label_nothing_is_learned_about_that_label():
    texts = ["dress", "red dress", "dress gown", "blue"]
    targets = [["red"], ["dress"], ["dress"], ["blue"]]
    excluded = csr_matrix(([1.0, 1.0], ([1, 2], [1, 1])), (4, 3))
    corpus = Corpus(texts, targets=targets, excluded=excluded)  # blue, dress, red
    Y, hidden = learned_cells(examples(corpus))
    # "dress" is the label's text; "blue" too, but it carries it; "dress gown" carries an excluded
    # label; and a row keeps what is excluded where rows are taken
    assert hidden.toarray().tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert Y.toarray()[3, 0] == 1
    assert examples(corpus).at(np.array([2, 3])).excluded.toarray()[0, 1] == 1


# ---------------------------------------------------------------- interrupted
class Interrupted(Exception):
    pass


@pytest.mark.parametrize(
    "options", [CASES[name] for name in ("both", "bank", "over labels", "products")]
)
def test_an_interrupted_training_goes_on_to_the_same_end(options, corpus, tmp_path, monkeypatch):
    data, own = examples(corpus), {"epochs": 3, "batch": 64, "steps": None}

    def fitted(folder=None):
        made = DualClassifier(BAG, trainer(**own, checkpoint_seconds=0), **options | {"refresh": 1})
        with checkpoints.kept_in(folder):
            return made.fit_examples(data)

    whole, update, calls = fitted(), torch.optim.Optimizer.zero_grad, []

    def failing(self, *arguments, **more):
        calls.append(self)
        if len(calls) == 9:
            raise Interrupted
        return update(self, *arguments, **more)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", failing)
    with pytest.raises(Interrupted):
        fitted(tmp_path)
    again = fitted(tmp_path)
    np.testing.assert_array_equal(whole.weights_, again.weights_)
    np.testing.assert_array_equal(whole.bias_, again.bias_)
    for name, value in whole.encoder_.weights_.items():
        np.testing.assert_array_equal(value, again.encoder_.weights_[name])


def test_a_training_with_other_label_texts_begins_anew(corpus, tmp_path):
    """What a checkpoint is of includes the texts of labels, and the cells that are excluded."""
    data, made = examples(corpus), DualClassifier(BAG)
    words = data.label_rows
    excluded = csr_matrix(data.targets.shape, dtype=np.float32)
    others = [
        data,
        replace(data, find_label_rows=lambda: csr_matrix(words * 2)),
        replace(data, excluded=excluded),
    ]
    with checkpoints.kept_in(tmp_path):
        kept = [checkpoints.Checkpoint(made, *made.learned_from(one)) for one in others]
        assert len({one.file("training") for one in kept}) == 3
