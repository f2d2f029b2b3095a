"""Features of sparse heads are exchanged: the fan-in, what groups share and the rest stay."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from megalabel.errors import ParameterError  # noqa: E402
from megalabel.neural.heads import sparse  # noqa: E402
from megalabel.neural.heads.rewiring import Rewiring, _Steepest  # noqa: E402
from megalabel.neural.heads.sparse import SparseModule  # noqa: E402
from megalabel.neural.losses import BCE, SquaredHinge  # noqa: E402
from megalabel.neural.targets import Targets  # noqa: E402


def targets_of(dense):
    rows, indices = dense.nonzero(as_tuple=True)
    counts = torch.bincount(rows, minlength=len(dense))
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Targets(indptr, indices, dense[rows, indices], dense.shape[1])


def trained(rewiring, *, width=40, labels=22, fan_in=10, group=4, seed=0, **options):
    """A head that has made a few steps, with what it has seen last."""
    options = {"momentum": 0.9, **options}
    head = SparseModule(
        width, labels, BCE(), fan_in=fan_in, group=group, rewiring=rewiring, seed=seed, **options
    )
    source = torch.Generator().manual_seed(seed)
    for _ in range(3):
        x = torch.randn((6, width), generator=source)
        dense = (torch.rand((6, labels), generator=source) < 0.3).float()
        head.train()(x.requires_grad_(), targets_of(dense))
    return head, (x.detach(), targets_of(dense))


def spread(indices, values, width):
    """Values of places (groups, fan_in, …) by their features (groups, width, …)."""
    made = torch.zeros((len(indices), width, *values.shape[2:]))
    for group, columns in enumerate(indices.long()):
        made[group, columns] = values[group].float()
    return made


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(2, 60),
    share=st.floats(0.02, 1.0),
    labels=st.integers(1, 30),
    group=st.integers(1, 8),
    fraction=st.floats(0, 1),
    scope=st.sampled_from(["layer", "group"]),
    growth=st.sampled_from(["random", "gradient"]),
    score=st.sampled_from(["mean", "max"]),
    weights=st.sampled_from(["zero", "kept"]),
    optimiser=st.sampled_from(["sgd", "adam"]),
    seed=st.integers(0, 1000),
)
def test_what_stays_and_what_goes(
    width, share, labels, group, fraction, scope, growth, score, weights, optimiser, seed
):
    fan_in = max(1, round(share * width))
    rewiring = Rewiring(fraction=fraction, scope=scope, growth=growth, score=score, weights=weights)
    head, last = trained(
        rewiring,
        width=width,
        labels=labels,
        fan_in=fan_in,
        group=group,
        seed=seed,
        optimiser=optimiser,
    )
    indices, kept = head.indices.clone(), head.weights.clone()
    moment, bias = head.optimiser.moment.clone(), head.bias.clone()
    pruned = rewiring.chosen(head, 10, 100)
    count = rewiring.rewire(head, 10, 100, last)

    assert count == int(pruned.sum())
    assert head.indices.shape == indices.shape  # the fan-in, and what groups share
    assert (head.indices.diff(dim=1) > 0).all()
    assert int(head.indices.min()) >= 0
    assert int(head.indices.max()) < width
    wanted = {
        "layer": round(fraction * indices.numel()),
        "group": round(fraction * fan_in) * len(indices),
    }[scope]
    room = (width - fan_in + 1) // 2
    assert count <= wanted
    if room >= fan_in:
        assert count == wanted
    old = spread(indices, torch.ones(indices.shape), width) > 0
    new = spread(head.indices, torch.ones(indices.shape), width) > 0
    gone = spread(indices, pruned.float(), width) > 0
    assert (new & old == old & ~gone).all()  # what was pruned is not drawn again
    stays = (old & ~gone)[..., None]
    for before, after in ((kept, head.weights), (moment, head.optimiser.moment)):
        before, after = spread(indices, before, width), spread(head.indices, after, width)
        assert torch.equal(before * stays, after * stays)
    grown = (new & ~old)[..., None]
    assert not (spread(head.indices, head.optimiser.moment, width) * grown).any()
    if weights == "zero":
        assert not (spread(head.indices, head.weights, width) * grown).any()
    else:  # the same numbers, group by group
        assert torch.equal(head.weights.sort(1).values, kept.sort(1).values)
    assert torch.equal(head.bias, bias)


@pytest.mark.parametrize("growth", ["random", "gradient"])
def test_a_seed_and_a_step_fix_what_is_drawn(growth):
    made = []
    for seed, step in ((1, 10), (1, 10), (2, 10), (1, 20)):
        head, last = trained(Rewiring(growth=growth, fraction=0.5), seed=1)
        head.seed = seed
        head.rewiring.rewire(head, step, 100, last)
        made.append(head.indices)
    assert torch.equal(made[0], made[1])
    differ = growth == "random"
    assert torch.equal(made[0], made[2]) != differ
    assert torch.equal(made[0], made[3]) != differ


def test_shards_draw_what_the_whole_does():
    options = {"scope": "group", "fraction": 0.4}
    whole, _ = trained(Rewiring(**options))
    part = SparseModule(
        40, 22, BCE(), fan_in=10, group=4, shard=(8, 22), momentum=0.9, rewiring=Rewiring(**options)
    )
    part.load_weights(whole.indices[2:], whole.weights[2:])
    for head in (whole, part):
        head.rewiring.rewire(head, 5, 100)
    assert torch.equal(whole.indices[2:], part.indices)
    assert torch.equal(whole.weights[2:], part.weights)


def test_the_smallest_weights_go():
    head, _ = trained(Rewiring(fraction=0.2, scope="layer"), group=2, labels=20)
    sizes = head.weights.abs().mean(2)
    pruned = head.rewiring.chosen(head, 1, 10)
    assert pruned.sum() == 20
    assert sizes[pruned].max() <= sizes[~pruned].min()
    by_group = Rewiring(fraction=0.2, scope="group", score="max").chosen(head, 1, 10)
    assert (by_group.sum(1) == 2).all()
    sizes = head.weights.abs().amax(2)
    for group, mask in enumerate(by_group):
        assert sizes[group][mask].max() <= sizes[group][~mask].min()


def test_of_weights_that_tie_as_many_go_from_anywhere():
    head, _ = trained(Rewiring(fraction=0.25), group=1, labels=40)
    head.weights.zero_()
    pruned = head.rewiring.chosen(head, 3, 10)
    assert pruned.sum() == 100
    assert (pruned.sum(1) > 0).sum() > 20


def test_a_threshold_falls_with_a_cosine():
    rewiring = Rewiring(threshold=0.2, until=0.5)
    head, _ = trained(rewiring)
    head.weights.copy_(0.001 + torch.arange(10)[:, None].expand(6, 10, 4) / 40)
    sizes = head.weights[0, :, 0]
    for step, threshold in ((0, 0.2), (25, (0.2 + 1e-4) / 2), (50, 1e-4)):
        assert torch.equal(rewiring.chosen(head, step, 100)[0], sizes < threshold)


def test_a_fraction_may_fall_with_a_cosine():
    rewiring = Rewiring(fraction=0.4, falls=True, until=0.5)
    head, _ = trained(rewiring, labels=40, group=4)
    counts = [int(rewiring.chosen(head, step, 100).sum()) for step in (0, 25, 50)]
    assert counts == [40, 20, 0]


def test_places_that_no_label_has_count_for_nothing():
    head, _ = trained(Rewiring(), labels=21, group=4)
    head.weights[-1, :, 1:] = 1000.0
    scores = head.rewiring._scores(head)
    torch.testing.assert_close(scores[-1], head.weights[-1, :, 0].abs())


def test_growth_by_gradient_takes_the_steepest():
    head, (x, targets) = trained(
        Rewiring(growth="gradient", fraction=0.3, scope="group"), labels=20, group=4
    )
    before, pruned = head.indices.clone(), head.rewiring.chosen(head, 1, 10)
    every = torch.arange(20).expand(6, 20)
    scores = head.scores(x, every).detach()
    by_score = BCE().gradient(scores, targets.dense(0, 20))
    steep = (by_score.T @ x).abs().view(5, 4, 40).sum(1)
    steep.scatter_(1, before.long(), -1.0)
    head.rewiring.rewire(head, 1, 10, (x, targets))
    for group in range(5):
        new = set(head.indices[group].tolist()) - set(before[group].tolist())
        assert new == set(steep[group].topk(int(pruned[group].sum())).indices.tolist())


def test_of_few_texts_the_gradients_of_few_labels_are_held(monkeypatch):
    head, last = trained(Rewiring(growth="gradient", fraction=0.3))
    expected = copy.deepcopy(head)
    expected.rewiring.rewire(expected, 1, 10, last)
    # a group gathers 10 numbers of a text, and has 160 gradients
    monkeypatch.setattr(sparse, "PLACES", 400)
    assert len(_Steepest(head, last[0][:1], last[1]).chunks()) == 3
    head.rewiring.rewire(head, 1, 10, last)
    assert torch.equal(head.indices, expected.indices)


def test_it_happens_in_training_until_its_end():
    rewiring = Rewiring(every=4, until=0.5)
    head, _ = trained(rewiring)
    changed = []
    for step in range(1, 25):
        before = head.indices.clone()
        head.after_update(step, 24)
        if not torch.equal(before, head.indices):
            changed.append(step)
    assert changed == [4, 8, 12]
    assert not any(Rewiring(fraction=0).is_due(step, 100) for step in range(100))
    times = sum(Rewiring().is_due(step, 10_000) for step in range(1, 10_001))
    assert times == 40


def test_growth_by_gradient_in_training_sees_the_last_batch():
    head, _ = trained(Rewiring(every=1, growth="gradient", fraction=0.5))
    before = head.indices.clone()
    head.after_update(1, 10)
    assert not torch.equal(before, head.indices)
    assert head._last is None


def test_a_layer_without_free_features_stays():
    head, last = trained(Rewiring(fraction=0.5), width=8, fan_in=8)
    before = head.weights.clone()
    assert head.rewiring.rewire(head, 1, 10, last) == 0
    assert torch.equal(before, head.weights)


def test_hinges_grow_where_there_is_a_gradient():
    head = SparseModule(
        12, 8, SquaredHinge(), fan_in=3, group=2, rewiring=Rewiring(growth="gradient")
    )
    x, dense = torch.randn(4, 12), torch.eye(4, 8)
    head.train()(x.requires_grad_(), targets_of(dense))
    assert head.rewiring.rewire(head, 1, 10, (x.detach(), targets_of(dense))) >= 1


def test_parameters_are_checked():
    with pytest.raises(ParameterError, match="scope of Rewiring"):
        Rewiring(scope="row").check_parameters()


def learned(rewiring):
    """The share of rows that a head ranks right, of labels that each depend on two features."""
    width, labels = 64, 24
    source = torch.Generator().manual_seed(0)
    x = torch.randn((1200, width), generator=source)
    own = torch.stack([torch.randperm(width, generator=source)[:2] for _ in range(labels)])
    dense = torch.zeros(len(x), labels).scatter_(1, x[:, own].sum(2).argmax(1)[:, None], 1.0)
    head = SparseModule(width, labels, BCE(), fan_in=3, rewiring=rewiring, seed=1).train()
    head.learning_rate = 4.0
    for step in range(1, 401):
        rows = torch.randint(1000, (32,), generator=source)
        head(x[rows].requires_grad_(), targets_of(dense[rows]))
        head.after_update(step, 400)
    best = head.eval().top_k(x[1000:], 1)[1][:, 0]
    return float((dense[1000:].argmax(1) == best).float().mean())


def test_growth_by_gradient_finds_what_labels_depend_on():
    """Of 64 features a label sees three."""
    assert learned(Rewiring(fraction=0.0)) < 0.25
    often = Rewiring(every=20, fraction=0.3, falls=True, scope="group", growth="gradient")
    assert learned(often) > 0.6
