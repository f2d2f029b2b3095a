"""Labels by their texts alone: no labelled text is looked at, and judges are asked in training."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from tests.judges.fakes import Oracle
from tests.tiny_static import write_model2vec

from megalabel import Corpus, LabelSet, checkpoints, systems
from megalabel.data import Vocabulary
from megalabel.data.concepts import Concept
from megalabel.errors import BudgetError, DataError, MissingExtraError, ParameterError
from megalabel.features import Tfidf
from megalabel.judges import Answer, Judge
from megalabel.systems.label_texts import definitions_of
from megalabel.systems.zeroshot import ZeroShot
from megalabel.tagger import Tagger

TOPICS = {  # a label's name, and words of texts about it that seldom hold the name
    "whale": "sea ocean blubber fin spout",
    "dress": "hem gown fabric sleeve skirt",
    "kettle": "boil water steam lid stove",
    "train": "rails station ticket engine carriage",
    "garden": "soil seeds spade weeds roses",
    "violin": "bow strings concert melody tune",
}


def texts_about_topics(count: int = 400, seed: int = 0) -> tuple[list[str], list[str]]:
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for number in range(count):
        label = list(TOPICS)[random.integers(len(TOPICS))]
        words = random.permutation(TOPICS[label].split())[:3].tolist()
        if random.random() < 0.3:
            words.append(label)
        texts.append(" ".join([*random.permutation(words).tolist(), f"no{number}"]))
        labels.append(label)
    return texts, labels


TEXTS, TRUTH = texts_about_topics()
CORPUS = Corpus(TEXTS, labels=list(TOPICS))
NEW, NEW_TRUTH = texts_about_topics(200, seed=1)
QUICK = {"shortlist": 4, "epochs": 10.0, "learning_rate": 0.01, "batch": 32, "rounds": 2}


@pytest.fixture(scope="module")
def vectors(tmp_path_factory) -> str:
    """A folder of word vectors that say nothing of which words belong together."""
    pytest.importorskip("tokenizers")
    words = [word for name, others in TOPICS.items() for word in (name, *others.split())]
    table = np.random.default_rng(2).normal(size=(len(words) + 2, 48)).astype(np.float32)
    folder = tmp_path_factory.mktemp("vectors")
    return write_model2vec(folder, words, {"embeddings": table}, normalize=True)


@pytest.fixture
def trained(vectors, request):
    """Makes a tagger that is trained by a judge."""
    pytest.importorskip("torch")
    request.getfixturevalue("one_thread")

    def make(judge: Judge | str | None, **parameters) -> ZeroShot:
        return ZeroShot(vectors, judge=judge, **QUICK | parameters).fit(CORPUS)

    return make


def oracle(rate: float = 0.0) -> Oracle:
    return Oracle(set(zip(TEXTS, TRUTH, strict=True)), rate)


def right(tagger: Tagger) -> float:
    return tagger.score(NEW, [[label] for label in NEW_TRUTH])


# ------------------------------------------------------------------ words alone


def test_words_alone_need_no_torch(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    tagger = systems.create("zeroshot", language="en").fit(CORPUS)
    assert [tag.label for tag in tagger.tag("two whales and a dress", k=2)] == ["dress", "whale"]
    assert tagger.tag("qwrtp") == []
    assert tagger.system == "zeroshot"


def test_labels_may_be_given_beside_texts():
    tagger = ZeroShot().fit(TEXTS, labels=["whale", "rails"])
    assert tagger.tag("a whale", k=1)[0].label == "whale"
    with pytest.raises(DataError, match="no labels to choose from: give labels"):
        ZeroShot().fit(Corpus(TEXTS))


def test_labels_may_be_given_beside_a_corpus_without_any():
    tagger = ZeroShot().fit(Corpus(TEXTS), labels=["whale", "rails"])
    assert tagger.labels.ids.to_pylist() == ["whale", "rails"]
    for kind in (ZeroShot, lambda: systems.create("knn")):
        with pytest.raises(DataError, match="a Corpus brings its labels"):
            kind().fit(CORPUS, labels=["rails"])


def test_an_encoder_that_is_fitted_stays_so():
    encoder = Tfidf().fit(["whale fin sea dress hem"])
    tagger = ZeroShot(encoder, judge=None).fit(CORPUS)
    assert tagger.features_.parts_[0].n_features == encoder.n_features == 5
    other = Tfidf()
    fresh = ZeroShot(other, judge=None).fit(CORPUS)
    assert fresh.features_.parts_[0].n_features > 5
    assert not other.fitted


def test_a_name_ends_where_a_word_does():
    labels = LabelSet(["a", "b", "c"], ["cat", "art", "C++"], ["cathedral", "art, fine", "C++: x"])
    assert definitions_of(labels) == ["cathedral", "fine", "x"]


def test_definitions_tell_too():
    labels = LabelSet(["a", "b"], ["cetus", "robe"], ["cetus: fin and blubber", "robe: hem, gown"])
    tagger = ZeroShot(Tfidf(), judge=None, definitions=0.5).fit(Corpus(TEXTS, labels=labels))
    assert tagger.tag("a fin", k=1)[0].label == "cetus"
    assert tagger.tag("the gown", k=1)[0].label == "robe"


def test_all_names_of_a_concept_are_looked_for():
    concepts = [
        Concept("u:1", {"en": "Cetacea"}, {"en": ["whale", "great whale"]}),
        Concept("u:2", {"en": "Garments"}),
    ]
    labels = LabelSet(["u:1", "u:2"]).joined(Vocabulary.of(concepts), "en")
    tagger = ZeroShot().fit(Corpus(TEXTS, labels=labels))
    assert tagger.tag("a great whale", k=1)[0].label == "Cetacea"


def test_names_that_are_numbers():
    with pytest.raises(DataError, match="known by number alone"):
        ZeroShot().fit(TEXTS, labels=["1", "2"])


# ------------------------------------------------------------------ no ground truth


def test_labels_of_texts_are_not_looked_at(caplog, vectors, one_thread):
    random = np.random.default_rng(0)
    answers = []
    for labels in (None, TRUTH, random.permutation(TRUTH).tolist()):
        targets = None if labels is None else [[label] for label in labels]
        corpus = Corpus(TEXTS, targets=targets, labels=list(TOPICS))
        judge = oracle()
        with caplog.at_level(logging.INFO, "megalabel.systems"):
            tagger = ZeroShot(vectors, judge=judge, **QUICK).fit(corpus)
        ranking = tagger.rank(NEW, 3)
        answers.append((ranking.ids.tolist(), ranking.scores.tolist(), judge.asked))
    assert answers[0] == answers[1] == answers[2]
    assert caplog.text.count("the labels of 400 texts are not looked at") == 2
    assert tagger.label_counts_.tolist() == [0] * len(TOPICS)


def test_what_training_reads_has_no_targets(monkeypatch, vectors, one_thread):
    """The targets of the corpus would fail if anything but their number was read."""

    class Sealed(csr_matrix):
        def __getitem__(self, *args):
            raise AssertionError("the labels of texts were read")

    corpus = Corpus(TEXTS, targets=[[label] for label in TRUTH], labels=list(TOPICS))
    targets = corpus.targets
    corpus.targets = Sealed(targets)
    for name in ("dot", "sum", "toarray", "tocoo", "multiply", "__matmul__"):
        monkeypatch.setattr(Sealed, name, Sealed.__getitem__, raising=False)
    assert right(ZeroShot(vectors, judge="lexical", **QUICK).fit(corpus)) > 0.2


# ------------------------------------------------------------------ feedback


def test_feedback_raises_precision(trained):
    """An oracle's word: precision rises over rounds, and the answers are better than untrained."""
    judge = oracle()
    tagger = trained(judge)
    told = tagger.provenance_["zeroshot"]["rounds"]
    precision = [one["precision"] for one in told]
    assert precision[0] < precision[1] <= precision[-1]
    assert [one["texts"] for one in told] == [0, 180, 360]
    assert precision[1] > precision[0] + 0.2
    untrained = right(trained(None))
    assert right(tagger) > untrained + 0.2
    asked = len(judge.asked)
    tagger.tag(NEW)
    assert len(judge.asked) == asked  # answers ask nobody
    assert len(set(judge.asked)) == asked  # and no pair was asked about twice
    assert json.dumps(tagger.provenance_)


def test_feedback_stands_some_noise(trained):
    assert right(trained(oracle(0.1))) > right(trained(None)) + 0.1


def test_the_same_pairs_for_the_same_seed(trained):
    first, second, other = oracle(), oracle(), oracle()
    answers = [trained(judge).rank(NEW, 3).scores for judge in (first, second)]
    trained(other, seed=1)
    assert first.asked == second.asked
    assert first.asked != other.asked
    np.testing.assert_array_equal(*answers)


def test_a_second_run_costs_nothing(tmp_path, trained):
    first, second = oracle(), oracle()
    answers = [
        trained(judge, judgements=str(tmp_path)).rank(NEW, 3).scores for judge in (first, second)
    ]
    assert second.asked == []
    np.testing.assert_array_equal(*answers)


def test_a_fit_that_was_stopped_goes_on(tmp_path, trained):
    class Stopped(Oracle):
        def answers(self, texts, labels):
            for answer in super().answers(texts, labels):
                if len(self.asked) > 900:
                    raise KeyboardInterrupt
                yield answer

    truth = set(zip(TEXTS, TRUTH, strict=True))
    stopped, second = Stopped(truth), oracle()
    with checkpoints.kept_in(tmp_path):
        with pytest.raises(KeyboardInterrupt):
            trained(stopped)
        tagger = trained(second)
    answered = stopped.asked[:900]
    assert not set(answered) & set(second.asked)
    whole = oracle()
    np.testing.assert_array_equal(trained(whole).rank(NEW, 3).scores, tagger.rank(NEW, 3).scores)
    assert set(whole.asked) == {*answered, *second.asked}


def test_a_fit_that_goes_on_has_the_budget_it_had(tmp_path, trained, vectors):
    class Stopped(Oracle):
        def answers(self, texts, labels):
            for answer in super().answers(texts, labels):
                if len(self.asked) > 500:
                    raise KeyboardInterrupt
                yield answer

    truth = set(zip(TEXTS, TRUTH, strict=True))
    calls = ZeroShot(vectors, judge=oracle(), **QUICK).foresee(CORPUS)[0].calls + 200
    whole, stopped, second = oracle(), Stopped(truth), oracle()
    expected = trained(whole, calls=calls)
    kept = {"calls": calls, "judgements": str(tmp_path)}
    with pytest.raises(KeyboardInterrupt):
        trained(stopped, **kept)
    for _ in range(2):  # the second time all is known, and still no more is learned
        tagger = trained(second, **kept)
        told = [one.provenance_["zeroshot"]["rounds"] for one in (expected, tagger)]
        assert told[0] == told[1]
        assert len(told[0]) == 2  # of three: the last is over budget
        np.testing.assert_array_equal(tagger.rank(NEW, 3).scores, expected.rank(NEW, 3).scores)
    assert {*stopped.asked[:500], *second.asked} == set(whole.asked)


def test_a_judge_that_says_no_to_all(trained):
    with pytest.raises(DataError, match=r"the judge took none of [\d,]+ pairs .* for right"):
        trained(Oracle(set()))


def test_a_round_that_is_judged_worse_is_left_out(caplog, trained):
    """A judge that says yes at first and no later on: vectors stay as they came."""

    class Moody(Judge):
        identity = "moody"
        calls = 0

        def answers(self, texts, labels):
            self.calls += 1
            for place, label in enumerate(labels):
                yes = self.calls == 1 or (self.calls == 2 and label == "violin")
                yield Answer(place, float(yes))

    tagger = trained(Moody())
    assert "did not help" in caplog.text
    np.testing.assert_array_equal(tagger.rank(NEW, 3).scores, trained(None).rank(NEW, 3).scores)


def test_budgets(caplog, trained, vectors):
    judge = oracle()
    with pytest.raises(BudgetError, match="budget of 100 calls"):
        trained(judge, calls=100)
    assert len(judge.asked) <= 100
    cost, most = ZeroShot(vectors, judge=oracle(), **QUICK).foresee(CORPUS)
    tagger = trained(judge, calls=cost.calls + 200)
    assert len(judge.asked) <= cost.calls + 200 < most
    assert "round 2 is left out" in caplog.text
    assert len(tagger.provenance_["zeroshot"]["rounds"]) == 2


def test_the_cost_is_said_before_the_first_call(caplog, trained):
    class Told(Oracle):
        def answers(self, texts, labels):
            assert "is to judge" in caplog.text
            return super().answers(texts, labels)

    with caplog.at_level(logging.INFO, "megalabel.systems"):
        trained(Told(set(zip(TEXTS, TRUTH, strict=True))))
    assert "calls in the first round; in all rounds at most" in caplog.text


def test_foreseeing_asks_nothing(vectors):
    judge = oracle()
    cost, most = ZeroShot(vectors, judge=judge, **QUICK).foresee(CORPUS)
    assert judge.asked == []
    assert 0 < cost.calls == cost.pairs <= most == (180 + 360) * 4 + 40 * 3
    with pytest.raises(ParameterError, match="there is no judge"):
        ZeroShot(judge=None).foresee(CORPUS)


def test_a_plan_says_what_the_judge_costs_at_most(vectors, monkeypatch):
    class Paid(Oracle):
        def tokens(self, texts, labels):
            return 3 * len(texts)

        def price(self, tokens):
            return tokens / 100

    zeroshot = systems.get("zeroshot")
    judge = Paid(set())
    made = ZeroShot(vectors, judge=judge, **QUICK)
    monkeypatch.setattr(ZeroShot, "_begun", None)  # nothing is encoded
    told = zeroshot.plan(made, CORPUS).judging
    most = (180 + 360) * 4 + 40 * 3
    assert (told.calls, told.tokens, told.price) == (most, 3 * most, 3 * most / 100)
    assert judge.asked == []
    assert zeroshot.plan(made.set_params(calls=100, tokens=200), CORPUS).to_dict()["judging"] == {
        "pairs": 100,
        "known": 0,
        "tokens": 200,
        "price": 2.0,
        "calls": 100,
    }
    fewer = zeroshot.plan(made.set_params(calls=None, judged_texts=100, rounds=1), CORPUS)
    assert fewer.judging.calls == 90 * 4 + 10 * 2
    for judge in ("lexical", "auto", None):
        assert zeroshot.plan(made.set_params(judge=judge), CORPUS).to_dict()["judging"] is None


def test_the_lexical_judge_teaches_other_words(trained):
    """Texts that hold a name teach the words beside it."""
    assert right(trained("lexical")) > right(trained(None)) + 0.2


def test_parts_of_texts_teach_which_words_come_together(trained):
    tagger = trained(None, segments=True)
    assert right(tagger) > right(trained(None)) + 0.1
    with pytest.raises(DataError, match="hardly any text has four words"):
        ZeroShot(Tfidf(), judge=None, segments=True).fit(["aa bb", "cc dd"], labels=["ab", "cd"])


# ------------------------------------------------------------------ what is kept, and what is not


def test_saved_and_loaded(tmp_path, trained):
    tagger = trained("lexical")
    tagger.save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model", verify=True)
    np.testing.assert_array_equal(loaded.rank(NEW, 3).scores, tagger.rank(NEW, 3).scores)
    assert loaded.rank(["whale"], 2).scores.max() <= 1


def test_calibrated_by_a_few_labelled_texts():
    tagger = ZeroShot(language=None).fit(CORPUS)
    tagger.calibrate(NEW, [[label] for label in NEW_TRUTH], method="platt")
    assert tagger.rank(["a whale"], 1).scores[0, 0] > 0.5
    with pytest.raises(ParameterError, match="call calibrate with some"):
        ZeroShot(calibration="joint").fit(CORPUS)


def test_without_torch(monkeypatch, caplog):
    def missing():
        raise MissingExtraError("torch", "neural")

    monkeypatch.setattr("megalabel.systems.zeroshot.neural", missing)
    with caplog.at_level(logging.INFO, "megalabel.systems"):
        tagger = ZeroShot(Tfidf()).fit(CORPUS)
    assert "vectors stay as they are: torch is not installed" in caplog.text
    assert tagger.tag("a whale", k=1)[0].label == "whale"
    with pytest.raises(MissingExtraError):
        ZeroShot(Tfidf(), judge="lexical").fit(CORPUS)


def test_a_judge_needs_an_encoder():
    with pytest.raises(ParameterError, match="there is no encoder: give one"):
        ZeroShot(judge="lexical").fit(CORPUS)


@pytest.mark.parametrize(
    ("idle", "missing"),
    [
        ({"segments": True}, "encoder"),
        ({"judgements": "folder"}, "encoder"),
        ({"calls": 0}, "encoder"),
        ({"encoder": Tfidf(), "judge": None, "tokens": 5}, "judge"),
        ({"encoder": Tfidf(), "judge": None, "judge_options": {"model": "m"}}, "judge"),
    ],
)
def test_settings_that_do_nothing_are_refused(idle, missing):
    name = list(idle)[-1]
    with pytest.raises(ParameterError, match=f"{name} does nothing where there is no {missing}"):
        ZeroShot(**idle).fit(CORPUS)


def test_options_of_a_judge_that_is_made():
    with pytest.raises(ParameterError, match="has its parameters already: give it model"):
        ZeroShot(Tfidf(), judge=oracle(), judge_options={"model": "m"}).fit(CORPUS)


def test_a_frozen_model(tiny_model, one_thread):
    parameters = {"encoder": f"frozen:{tiny_model}", "max_length": 16, "epochs": 1.0}
    tagger = systems.create("zeroshot", **parameters).fit(CORPUS)
    assert tagger.features_.parts_[0].n_features == 32
    assert len(tagger.provenance_["zeroshot"]["rounds"]) >= 2
    assert tagger.tag("a whale", k=1)[0].label == "whale"
