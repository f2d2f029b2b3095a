"""Heads of few features a label: built, trained, shared out, kept, and what answers for them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy.sparse import csr_matrix  # noqa: E402
from scipy.special import expit, logit  # noqa: E402

from megalabel import checkpoints  # noqa: E402
from megalabel.data import LabelSet  # noqa: E402
from megalabel.errors import ParameterError  # noqa: E402
from megalabel.features import Tfidf  # noqa: E402
from megalabel.labels import label_vectors  # noqa: E402
from megalabel.neural import BagEncoder, FullClassifier, Trainer, heads, losses  # noqa: E402
from megalabel.neural.heads.auxiliary import AuxiliaryHead, AuxiliaryModule  # noqa: E402
from megalabel.neural.heads.dense import DenseModule  # noqa: E402
from megalabel.neural.heads.mach import MachHead  # noqa: E402
from megalabel.neural.heads.rewiring import Rewiring  # noqa: E402
from megalabel.neural.heads.sparse import SparseModule  # noqa: E402
from megalabel.neural.losses import BCE, SquaredHinge  # noqa: E402
from megalabel.neural.targets import Targets  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
from test_sparse import batch  # noqa: E402

CPU = torch.device("cpu")
COUNTS = np.array([3, 0, 5, 2, 9, 1, 1, 4, 2, 2, 6])
SPARSE = {
    "fixed-fan-in": {"fan_in": 5},
    "grouped-fan-in": {"fan_in": 5, "group": 4},
    "frequent-and-sparse": {"fan_in": 5, "group": 4, "frequent": 0.3},
}


def built(name, *, loss=None, width=12, counts=COUNTS, shard=None, **options):
    head = heads.create(name, **{**SPARSE.get(name, {}), **options})
    loss = BCE() if loss is None else loss
    return head, head.build(width, counts, 12, loss, device=CPU, seed=1, shard=shard)


@pytest.fixture(scope="module")
def words(corpus):
    return Tfidf().fit_transform(corpus)


def fit(words, corpus, head, **options):
    own = {"epochs": 6, "batch": 32, "learning_rate": 0.02, "head_learning_rate": 0.05}
    layer = options.pop("intermediate", None)
    trainer = Trainer(**own | options, device="cpu")
    encoder = BagEncoder(width=32, dropout=0.0)
    made = FullClassifier(encoder, trainer, head=head, dropout=0.0, intermediate=layer)
    return made.fit(words, corpus.targets)


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_what_answers_scores_as_the_module_does(name, precision, random):
    head, module = built(name, precision=precision)
    every = torch.arange(len(COUNTS)).expand(5, len(COUNTS))
    vectors = random.standard_normal((5, 12)).astype(np.float32)
    # every label is as likely as it is frequent
    none = module.scores(torch.zeros(5, 12), every)[0].numpy()
    np.testing.assert_allclose(expit(none), (COUNTS + 0.5) / 13, rtol=1e-5)
    arrays = head.keep(module, COUNTS)
    assert set(arrays) == set(head.ARRAYS)
    assert arrays["indices"].dtype == np.uint16
    ranking = head.ranker(arrays, LabelSet.numbered(len(COUNTS))).rank(vectors, len(COUNTS))
    assert (ranking.ids[:, -1] == 1).all()  # the label never seen
    scores, ids = module.top_k(torch.from_numpy(vectors), len(COUNTS))
    expected = module.scores(torch.from_numpy(vectors), torch.from_numpy(ranking.ids).long())
    rtol = 5e-3 if precision == "float32" else 2e-2
    np.testing.assert_allclose(ranking.scores[:, :-1], expit(expected[:, :-1]), rtol=rtol)
    torch.testing.assert_close(module.scores(torch.from_numpy(vectors), ids), scores)


def test_many_features_have_longer_numbers():
    for width, kind in ((65_536, np.uint16), (65_537, np.uint32)):
        head, module = built("grouped-fan-in", width=width)
        arrays = head.keep(module, COUNTS)
        assert arrays["indices"].dtype == kind
        np.testing.assert_array_equal(
            arrays["indices"].astype(np.int64), module.parts["sparse"].indices.numpy()
        )


def test_frequent_labels_come_first_and_groups_are_as_frequent():
    head, module = built("frequent-and-sparse")
    assert module.order[:3].tolist() == [4, 10, 2]
    assert head.keep(module, COUNTS)["head_labels"].tolist() == [2, 4, 10]  # rising
    assert (np.diff(COUNTS[module.order.numpy()]) <= 0).all()
    assert built("fixed-fan-in")[1].order.tolist() == list(range(len(COUNTS)))
    for share, names in ((0.0, ["sparse"]), (1.0, ["frequent"])):
        assert list(built("frequent-and-sparse", frequent=share)[1].parts) == names


def test_groups_of_like_labels(words, corpus):
    head = heads.create("grouped-fan-in", group=2, grouping="clusters")
    order, _ = head.prepared(words, corpus.targets, 0).order(corpus.label_counts)
    vectors = label_vectors(words, corpus.targets, "pifa").toarray()

    def likeness(order):
        pairs = vectors[order].reshape(-1, 2, vectors.shape[1])
        return (pairs[:, 0] * pairs[:, 1]).sum(1).mean()

    assert sorted(order) == list(range(len(order)))
    assert likeness(order) > likeness(head.order(corpus.label_counts)[0])


@pytest.mark.parametrize("name", SPARSE)
def test_shares_of_processes_are_the_whole(name):
    """What three processes hold adds up to what one does, in a step too."""
    edges = [(0, 4), (4, 8), (8, 11)]
    _, whole = built(name)
    parts = [built(name, shard=edge)[1] for edge in edges]
    kept = whole.tensors()
    for part, tensor in kept.items():
        joined = torch.cat([module.tensors()[part] for module in parts])
        assert torch.equal(joined, tensor), part
    features, targets, _ = batch(6, 12, 11)
    value, gradient = whole.learn(features, targets)
    learned = [module.learn(features, targets) for module in parts]
    torch.testing.assert_close(sum(v for v, _ in learned), value)
    torch.testing.assert_close(sum(g for _, g in learned), gradient, rtol=1e-4, atol=1e-6)
    for part, tensor in whole.tensors().items():
        joined = torch.cat([module.tensors()[part] for module in parts])
        torch.testing.assert_close(joined, tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", [*SPARSE, "mach"])
@pytest.mark.parametrize("loss", ["bce", "softmax"])
def test_no_text_teaches_nothing(name, loss):
    _, module = built(name, loss=losses.create(loss))
    kept = {part: tensor.clone() for part, tensor in module.tensors().items()}
    features = torch.zeros((0, 12), requires_grad=True)
    none = Targets.from_csr(csr_matrix((0, len(COUNTS)), dtype=np.float32))
    value = module.train()(features, none)
    value.backward()
    assert float(value.detach()) == 0
    assert features.grad.shape == (0, 12)
    for part, tensor in module.tensors().items():
        assert torch.equal(tensor, kept[part]), part
    assert module.top_k(features, 3)[1].shape == (0, 3)
    assert module.scores(features, torch.zeros((0, 2), dtype=torch.int64)).shape == (0, 2)


@pytest.mark.parametrize("name", SPARSE)
def test_a_process_may_hold_no_group(name):
    _, module = built(name, shard=(len(COUNTS), len(COUNTS)))
    scores, ids = module.top_k(torch.zeros((5, 12)), 3)
    assert scores.shape == ids.shape == (5, 0)
    assert scores.dtype == torch.float32
    assert ids.dtype == torch.int64
    assert module.scores(torch.zeros((5, 12)), torch.zeros((5, 2), dtype=torch.int64)).isinf().all()


@pytest.mark.parametrize("name", [*SPARSE, "mach"])
def test_a_single_label_and_a_single_feature(name):
    head, module = built(name, width=1, counts=np.array([3]))
    features, targets, _ = batch(6, 1, 1)
    module.train()(features.requires_grad_(), targets).backward()
    arrays = head.keep(module, np.array([3]))
    ranking = head.ranker(arrays, LabelSet.numbered(1)).rank(features.detach().numpy(), 1)
    assert ranking.ids.tolist() == [[0]] * 6


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("options", [{}, {"optimiser": "adam"}, {"momentum": 0.9}])
def test_trained_they_answer(words, corpus, name, options):
    rewiring = Rewiring(every=5, fraction=0.2)
    head = heads.create(name, fan_in=8, rewiring=rewiring, **options)
    rate = 0.02 if options.get("optimiser") == "adam" else 0.05
    made = fit(words, corpus, head, epochs=10, head_learning_rate=rate)
    assert (np.diff(made.indices_.astype(int), axis=1) > 0).all()
    ids = made.rank(words, 1).ids.astype(int)
    assert np.take_along_axis(corpus.targets.toarray(), ids, 1).mean() > 0.8


@pytest.mark.parametrize("name", ["fixed-fan-in", "frequent-and-sparse"])
def test_a_bias_learns_as_fast_as_that_of_a_dense_head(name):
    """However few features a label sees, where none of them says anything."""
    features, targets = torch.zeros((6, 12), requires_grad=True), batch(6, 12, 11)[1]
    moved = {}
    for head in (name, "dense"):
        module = built(head)[1].train()
        every = torch.arange(len(COUNTS)).expand(6, -1)
        before = module.scores(features, every)
        for _ in range(3):
            module(features, targets)
        moved[head] = (module.scores(features, every) - before).detach()
    assert float(moved["dense"].abs().max()) > 0.01
    torch.testing.assert_close(moved[name], moved["dense"], rtol=1e-4, atol=1e-6)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize(
    "head",
    [
        heads.create("frequent-and-sparse", fan_in=8, group=2, momentum=0.5),
        AuxiliaryHead("fixed-fan-in", until=0.3),
        heads.create(
            "fixed-fan-in",
            optimiser="adam",
            precision="bf16",
            rewiring=Rewiring(every=4, growth="gradient"),
        ),
    ],
    ids=["frequent", "auxiliary", "adam"],
)
@pytest.mark.parametrize("killed", [11, 31])
def test_an_interrupted_training_goes_on_to_the_same_end(
    words, corpus, tmp_path, monkeypatch, head, killed
):
    options = {"epochs": 4, "checkpoint_seconds": 0}
    whole = fit(words, corpus, head, **options)
    after, calls = SparseModule.after_update, []

    def failing(self, step, total):
        after(self, step, total)
        calls.append(step)
        if len(calls) == killed:
            raise Interrupted

    monkeypatch.setattr(SparseModule, "after_update", failing)
    with checkpoints.kept_in(tmp_path):
        with pytest.raises(Interrupted):
            fit(words, corpus, head, **options)
        again = fit(words, corpus, head, **options)
    assert calls == [*range(1, killed + 1), *range(killed, 41)]
    for name in head.ARRAYS:
        np.testing.assert_array_equal(getattr(whole, f"{name}_"), getattr(again, f"{name}_"))


# --- the auxiliary loss


def test_what_clusters_count_for_falls_with_a_cosine():
    head = AuxiliaryHead(share=0.4, until=0.25)
    shares = [head.share_at(done) for done in np.linspace(0, 1, 41)]
    assert shares[0] == 0.4
    assert shares[10] == 0
    assert shares[5] == pytest.approx(0.2)
    assert (np.diff(shares) <= 0).all()
    assert not any(shares[10:])
    assert AuxiliaryHead(until=0.0).share_at(0) == 0


def auxiliary(words, targets, **options):
    head = AuxiliaryHead(heads.create("fixed-fan-in", fan_in=4), **options)
    made = head.prepared(words, targets, 0)
    counts = np.asarray(targets.sum(0)).ravel()
    return made, made.build(6, counts, targets.shape[0], BCE(), device=CPU, seed=0)


def clustered(labels=30, rows=20):
    random = np.random.default_rng(0)
    words = csr_matrix((random.random((rows, 15)) < 0.4).astype(np.float32))
    return words, csr_matrix((random.random((rows, labels)) < 0.2).astype(np.float32))


def test_targets_of_clusters_are_those_that_hold_a_label():
    words, targets = clustered()
    _, module = auxiliary(words, targets, clusters=8)
    assert module.meta.labels >= 4
    C = np.eye(module.meta.labels)[module.cluster_of.numpy()]
    expected = (targets @ C > 0).astype(np.float32)
    found = Targets.from_csr(targets).grouped(module.cluster_of, module.meta.labels)
    np.testing.assert_array_equal(found.dense(0, module.meta.labels).numpy(), expected)


@pytest.mark.parametrize("done", [0.0, 0.1, 0.5])
def test_the_gradient_is_that_of_both_losses(done):
    words, targets = clustered()
    _, module = auxiliary(words, targets, share=0.4, until=0.25)
    if done:
        module.after_update(round(100 * done), 100)
    c = module.share
    assert (c > 0) == (done < 0.25)
    x = torch.randn(20, 6)
    given = Targets.from_csr(targets)
    features = x.clone().requires_grad_()
    plain, coarse = x.clone().requires_grad_(), x.clone().requires_grad_()
    _, same = auxiliary(words, targets, share=0.4, until=0.25)
    main, meta = same.main, same.meta
    weights = main.parts["sparse"].weights.clone()
    for part in module.modules():
        part.learning_rate = 1.0
    for part in (*main.modules(), *meta.modules()):
        part.learning_rate = 1.0
    value = module.train()(features, given)
    value.backward()
    own = main.train()(plain, given)
    own.backward()
    clusters = meta.train()(coarse, given.grouped(module.cluster_of, meta.labels))
    clusters.backward()
    torch.testing.assert_close(value, (1 - c) * own + c * clusters)
    torch.testing.assert_close(features.grad, (1 - c) * plain.grad + c * coarse.grad)
    moved = module.main.parts["sparse"].weights - weights
    expected = (1 - c) * (main.parts["sparse"].weights - weights)
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-6)
    module.eval()
    torch.testing.assert_close(module(x, given), module.main(x, given))


def test_clusters_are_dropped_and_freed_when_their_time_is_over():
    words, targets = clustered()
    _, module = auxiliary(words, targets, until=0.2)
    meta, state = module.meta, {k: v.clone() for k, v in module.state_dict().items()}
    assert any(name.startswith("meta.") for name in state)
    module.after_update(19, 100)
    assert module.meta is meta
    module.after_update(20, 100)
    assert module.meta is None
    assert meta.weights is None
    assert not any(name.startswith("meta.") for name in module.state_dict())
    module.load_state_dict(state)  # of before: what stays is taken
    _, other = auxiliary(words, targets, until=0.2)
    other.load_state_dict(module.state_dict())
    assert other.meta is None


def test_a_dense_head_can_have_clusters_beside_it(words, corpus):
    made = fit(words, corpus, AuxiliaryHead("dense"))
    ids = made.rank(words, 1).ids.astype(int)
    assert np.take_along_axis(corpus.targets.toarray(), ids, 1).mean() > 0.8


def test_clusters_are_needed():
    with pytest.raises(ValueError, match="prepared"):
        AuxiliaryHead().build(6, COUNTS, 12, BCE(), device=CPU, seed=0)
    assert isinstance(auxiliary(*clustered())[1], AuxiliaryModule)


# --- a wide layer between encoder and labels


@pytest.mark.parametrize("head", ["fixed-fan-in", "dense"])
def test_a_wide_layer_answers_without_torch(words, corpus, head):
    made = fit(words, corpus, head, intermediate=80, epochs=8)
    ranking = made.rank(words, 3)
    assert (
        np.take_along_axis(corpus.targets.toarray(), ranking.ids[:, :1].astype(int), 1).mean() > 0.8
    )
    ranker = made.label_ranker()
    assert ranker.layer_.shape == (80, 32)
    few = ranker.take_labels(np.array([4, 1]))
    assert few.labels_.names.to_pylist() == [made.labels_.name(4), made.labels_.name(1)]
    vectors = made.features(words)
    wide = np.maximum(vectors @ ranker.layer_.astype(np.float32).T + ranker.layer_bias_, 0)
    np.testing.assert_allclose(
        ranking.scores, ranker.ranker_.rank(wide, 3).scores, rtol=1e-4, atol=1e-6
    )


# --- labels hashed into buckets


def test_one_table_of_a_bucket_a_label_is_one_versus_all():
    head = MachHead(tables=1, buckets=11)
    module = head.build(6, COUNTS, 12, SquaredHinge(), device=CPU, seed=0)
    module.buckets.copy_(torch.randperm(11)[None])
    dense = DenseModule(6, 11, SquaredHinge(), bias=True)
    order = module.buckets[0]
    dense.weights.copy_(module.own.weights[order])
    dense.bias.copy_(module.own.bias[order])
    features, targets, _ = batch(5, 6, 11)
    torch.testing.assert_close(
        module.train()(features.clone().requires_grad_(), targets),
        dense.train()(features.clone().requires_grad_(), targets),
    )
    every = torch.arange(11).expand(5, 11)
    torch.testing.assert_close(
        module.scores(features, every), dense.scores(features, every), rtol=1e-3, atol=1e-3
    )


def test_a_score_is_the_mean_over_tables(random):
    head = MachHead(tables=3, buckets=4)
    module = head.build(6, COUNTS, 12, BCE(), device=CPU, seed=0)
    assert module.buckets.shape == (3, 11)
    assert ((module.buckets // 4) == torch.arange(3)[:, None]).all()
    vectors = random.standard_normal((5, 6)).astype(np.float32)
    likely = expit(vectors @ module.own.weights.numpy().T + module.own.bias.numpy())
    expected = np.mean([likely[:, table] for table in module.buckets.numpy()], axis=0)
    every = torch.arange(11).expand(5, 11)
    found = module.scores(torch.from_numpy(vectors), every).numpy()
    np.testing.assert_allclose(found, logit(expected), rtol=1e-4)
    arrays = head.keep(module, COUNTS)
    ranking = head.ranker(arrays, LabelSet.numbered(11)).rank(vectors, 11)
    assert (ranking.ids[:, -1] == 1).all()  # the label never seen
    ids = ranking.ids[:, :-1].astype(int)
    np.testing.assert_allclose(
        ranking.scores[:, :-1], np.take_along_axis(expected, ids, 1), rtol=5e-3
    )
    few = head.ranker(arrays, LabelSet.numbered(11)).take_labels(np.array([3, 0]))
    assert few.rank(vectors, 2).ids.shape == (5, 2)


def test_labels_of_a_bucket_have_no_weights_of_their_own():
    with pytest.raises(ParameterError, match="positive_weights of the loss"):
        built("mach", loss=BCE(positive_weights=np.ones(len(COUNTS))))


def test_buckets_are_learned(words, corpus):
    made = fit(words, corpus, MachHead(tables=4, buckets=8), epochs=12)
    ids = made.rank(words, 1).ids.astype(int)
    assert np.take_along_axis(corpus.targets.toarray(), ids, 1).mean() > 0.8


def test_hashes_spread_labels_over_buckets():
    from megalabel.rankers.buckets import hashed

    table = hashed(100_000, 3, 100, 0)
    for number in range(3):
        sizes = np.bincount(table[number] - 100 * number, minlength=100)
        assert 500 < sizes.min() <= sizes.max() < 1600
    # two labels that share a bucket of one table hardly ever share that of another
    together = (table[:, :50_000] == table[:, 50_000:]).sum(0)
    assert (together >= 2).mean() < 0.01
