"""Sparse heads: the layer is a dense one with zeros, in what it scores and in what it learns."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parent))
from losses_here import Bce, Softmax  # noqa: E402

from megalabel.neural.heads.dense import DenseModule  # noqa: E402
from megalabel.neural.heads.parts import PartsModule  # noqa: E402
from megalabel.neural.heads.sparse import SparseModule  # noqa: E402
from megalabel.neural.heads.steps.plain import plain_step  # noqa: E402
from megalabel.neural.heads.steps.sparse import SparsePass  # noqa: E402
from megalabel.neural.losses import BCE, SquaredHinge  # noqa: E402
from megalabel.neural.targets import Targets  # noqa: E402

LOSSES = {
    "bce": BCE(),
    "mean": BCE(reduction="mean"),
    "hinge": SquaredHinge(),
    "softmax": Softmax(),
}


def batch(rows, width, labels, seed=0):
    source = torch.Generator().manual_seed(seed)
    features = torch.randn((rows, width), generator=source)
    dense = (torch.rand((rows, labels), generator=source) < 0.2).float()
    dense *= 0.5 + 0.5 * torch.rand(dense.shape, generator=source)
    rows_, indices = dense.nonzero(as_tuple=True)
    counts = torch.bincount(rows_, minlength=rows)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return features, Targets(indptr, indices, dense[rows_, indices], labels), dense


def dense_weights(head: SparseModule):
    """The matrix (labels, width) that a sparse one stands for, in float64."""
    groups, _, group = head.weights.shape
    made = torch.zeros((groups * group, head.width), dtype=torch.float64)
    for number in range(groups * group):
        at = head.indices[number // group].long()
        made[number].index_add_(0, at, head.weights[number // group, :, number % group].double())
    return made[: head.held]


def plain_loss(loss, scores, dense):
    """Values of rows by autograd's own functions."""
    if isinstance(loss, Softmax):
        return loss(scores, dense)
    if isinstance(loss, SquaredHinge):
        short, over = torch.relu(1 - scores), torch.relu(1 + scores)
        return (dense * short**2 + (1 - dense) * over**2).sum(1)
    each = torch.nn.functional.binary_cross_entropy_with_logits(scores, dense, reduction="none")
    return each.mean(1) if loss.reduction == "mean" else each.sum(1)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("labels", "group", "fan_in"), [(7, 1, 3), (11, 4, 5), (8, 4, 9)])
def test_scores_and_gradients_are_those_of_a_dense_layer_with_zeros(name, labels, group, fan_in):
    loss, width, rows = LOSSES[name], 9, 6
    head = SparseModule(width, labels, loss, fan_in=fan_in, group=group, chunk=2, seed=3)
    head.bias.uniform_(-1, 1)
    features, targets, dense = batch(rows, width, labels)
    weights = dense_weights(head).requires_grad_()
    bias = head.bias.double().flatten()[:labels].clone().requires_grad_()
    x = features.double().requires_grad_()
    scores = x @ weights.T + bias
    value = plain_loss(loss, scores, dense.double()).mean()
    value.backward()

    every = torch.arange(labels).expand(rows, labels)
    torch.testing.assert_close(head.scores(features, every).double(), scores, atol=1e-5, rtol=1e-5)
    seen = features.clone().requires_grad_()
    before, biases = head.weights.clone(), head.bias.clone()
    head.learning_rate = 0.1
    head.train()
    learned = head(seen, targets)
    learned.backward()
    assert float(learned.detach()) == pytest.approx(float(value.detach()), rel=1e-5)
    torch.testing.assert_close(seen.grad.double(), x.grad, atol=1e-6, rtol=1e-4)
    moved = ((before - head.weights) / 0.1).permute(0, 2, 1).reshape(-1, fan_in)[:labels]
    at = head.indices.long().repeat_interleave(group, 0)[:labels]
    torch.testing.assert_close(moved.double(), weights.grad.gather(1, at), atol=1e-5, rtol=1e-4)
    moved = ((biases - head.bias) / 0.1).flatten()
    torch.testing.assert_close(moved[:labels].double(), bias.grad, atol=1e-5, rtol=1e-4)
    assert not moved[labels:].any()  # places that no label has


def test_padding_is_never_ranked_and_never_moves():
    head = SparseModule(6, 5, SquaredHinge(), fan_in=3, group=4, momentum=0.9)
    features, targets, _ = batch(4, 6, 5)
    before = head.weights[1, :, 1:].clone()
    head.train()
    for _ in range(3):
        head(features.requires_grad_(), targets).backward()
    torch.testing.assert_close(head.weights[1, :, 1:], before, rtol=0, atol=0)
    scores, ids = head.top_k(features, 8)
    assert ids.shape == (4, 5)
    assert sorted(ids[0].tolist()) == list(range(5))
    assert torch.isfinite(scores).all()


def test_leaving_zeros_out_changes_nothing():
    """Rows that are far on the right side of the hinge give no gradient."""
    features, targets, _ = batch(5, 12, 40, seed=2)
    made = []
    for skip in (True, False):
        head = SparseModule(12, 40, SquaredHinge(), fan_in=4, group=4, seed=1)
        head.bias[::2] = -9.0
        targets_ = targets.with_values(torch.where(targets.indices % 8 < 4, 0.0, targets.values))
        began = SparsePass(head, features, skip=skip)
        value, gradient = plain_step(head, features, targets_, update=True, valued=True, made=began)
        made.append((value, gradient, head.weights.clone(), head.bias.clone()))
    for one, other in zip(*made, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def curve(head, step, steps=30):
    values = []
    for i in range(steps):
        features, targets, dense = batch(8, head.width, head.labels, seed=i)
        values.append(float(step(features, targets, dense).detach()))
    return values


@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam"])
def test_the_curve_is_that_of_autograd_on_the_plain_formula(optimiser):
    choice = {"optimiser": "adam"} if optimiser == "adam" else {}
    momentum = 0.9 if optimiser == "momentum" else 0.0
    head = SparseModule(10, 9, BCE(), fan_in=4, group=3, momentum=momentum, seed=5, **choice)
    head.learning_rate = 0.02
    weights = head.weights.clone().requires_grad_()
    bias = head.bias.clone().requires_grad_()
    mean, square = torch.zeros_like(weights), torch.zeros(len(weights), head.group)

    def learned(features, targets, _):
        head.train()
        return head(features.requires_grad_(), targets)

    count = 0

    def plain(features, _, dense):
        nonlocal count, mean, square
        count += 1
        gathered = features[:, head.indices.long()]  # (rows, groups, fan_in)
        scores = torch.einsum("bgf,gfl->bgl", gathered, weights) + bias
        value = plain_loss(head.loss, scores.flatten(1), dense).mean()
        value.backward()
        with torch.no_grad():
            gradient = weights.grad
            if optimiser == "adam":
                mean = 0.9 * mean + 0.1 * gradient
                square = 0.999 * square + 0.001 * gradient.square().mean(1)
                spread = (square / (1 - 0.999**count)).sqrt() + 1e-8
                move = mean / (1 - 0.9**count) / spread[:, None]
            else:
                mean = momentum * mean + gradient
                move = mean
            weights.sub_(0.02 * move)
            bias.sub_(0.02 * bias.grad)
            weights.grad = bias.grad = None
        return value

    np.testing.assert_allclose(curve(head, learned), curve(head, plain), rtol=2e-5)
    torch.testing.assert_close(head.weights, weights.detach(), rtol=1e-4, atol=1e-5)


def test_groups_of_one_learn_what_groups_with_the_same_weights_learn():
    """A group of labels is so many labels that look at the same features."""
    grouped = SparseModule(10, 8, BCE(), fan_in=4, group=4, seed=1)
    single = SparseModule(10, 8, BCE(), fan_in=4, group=1, seed=1)
    single.load_weights(
        grouped.indices.repeat_interleave(4, 0),
        grouped.weights.transpose(1, 2).reshape(8, 4, 1),
        grouped.bias.reshape(8, 1),
    )
    for head in (grouped, single):
        head.learning_rate = 0.1
        curve(head.train(), lambda x, t, _, head=head: head(x.requires_grad_(), t), 10)
    torch.testing.assert_close(
        grouped.weights.transpose(1, 2).reshape(8, 4, 1), single.weights, rtol=1e-5, atol=1e-6
    )


def test_chunks_make_no_difference():
    made = []
    for chunk in (1, 3, None):
        head = SparseModule(10, 23, BCE(), fan_in=4, group=4, seed=1, chunk=chunk)
        head.learning_rate = 0.1
        curve(head.train(), lambda x, t, _, head=head: head(x.requires_grad_(), t), 5)
        made.append(head)
    for other in made[1:]:
        assert torch.equal(made[0].indices, other.indices)
        torch.testing.assert_close(made[0].weights, other.weights, rtol=1e-5, atol=1e-6)


def test_shards_hold_what_the_whole_does():
    whole = SparseModule(30, 20, BCE(), fan_in=6, group=4, seed=2, dtype=torch.bfloat16)
    part = SparseModule(
        30, 20, BCE(), fan_in=6, group=4, seed=2, shard=(8, 20), dtype=torch.bfloat16
    )
    assert torch.equal(whole.indices[2:], part.indices)
    assert torch.equal(whole.weights[2:], part.weights)
    features, targets, _ = batch(6, 30, 20)
    for head in (whole, part):
        head.learning_rate = 0.3
        head.train()(features.requires_grad_(), targets)
    assert torch.equal(whole.weights[2:], part.weights)  # rounding included
    scores = part.scores(features, torch.tensor([[3, 9]] * 6))
    assert scores[:, 0].isinf().all()
    torch.testing.assert_close(scores[:, 1:], whole.scores(features, torch.tensor([[9]] * 6)))


@pytest.mark.parametrize("fan_in", [1, 5, 16, 29, 30, 99])
def test_indices_are_sorted_and_without_duplicates(fan_in):
    head = SparseModule(30, 40, None, fan_in=fan_in, group=2)
    assert head.indices.dtype == torch.int32
    assert head.indices.shape == (20, min(fan_in, 30))
    assert (head.indices.diff(dim=1) > 0).all()
    assert 0 <= int(head.indices.min()) <= int(head.indices.max()) < 30
    if fan_in < 16:  # any feature is seen by some
        assert len(head.indices.unique()) > 10


@pytest.mark.parametrize("loss", [BCE(), SquaredHinge(), Softmax(), BCE(reduction="mean")])
def test_parts_learn_what_one_dense_head_of_all_labels_does(loss):
    """A sparse part that sees all features is dense too; the order of labels is undone."""
    width, labels = 6, 10
    order = np.random.default_rng(1).permutation(labels)
    whole = DenseModule(width, labels, loss, bias=True, seed=4)
    frequent = DenseModule(width, labels, loss, bias=True, shard=(0, 3))
    tail = SparseModule(width, labels, loss, fan_in=width, group=4, shard=(3, 10))
    parts = PartsModule({"frequent": frequent, "sparse": tail}, order)
    frequent.weights.copy_(whole.weights[order[:3]])
    spread = torch.zeros((8, width))
    spread[:7] = whole.weights[order[3:]]
    tail.weights.copy_(spread.view(2, 4, width).transpose(1, 2))
    for i in range(12):
        features, targets, _ = batch(5, width, labels, seed=i)
        values = []
        for head in (whole, parts):
            x = features.clone().requires_grad_()
            for module in head.modules():
                module.learning_rate = 0.1
            value = head.train()(x, targets)
            value.backward()
            values.append((value.detach(), x.grad))
        for one, other in zip(*values, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    for one, other in zip(whole.top_k(features, 10), parts.top_k(features, 10), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    shortlist = torch.tensor([[0, 9, 4]] * 5)
    torch.testing.assert_close(
        whole.scores(features, shortlist), parts.scores(features, shortlist), rtol=1e-4, atol=1e-5
    )
    kept = parts.tensors()
    assert kept["frequent_labels"].tolist() == order[:3].tolist()
    assert kept["sparse_labels"].flatten().tolist() == [*order[3:].tolist(), -1]


def test_weights_of_labels_stay_with_their_labels():
    from megalabel.neural.heads.parts import in_order

    weights = np.arange(1.0, 5.0)
    order = np.array([2, 0, 3, 1])
    loss = in_order(BCE(positive_weights=weights, negative_weights=0.5), order)
    assert loss.positive_weights.tolist() == [3, 1, 4, 2]
    assert loss.negative_weights == 0.5
    own = Bce()
    assert in_order(own, order) is own


def test_wrong_shapes_are_named():
    head = SparseModule(6, 5, BCE(), fan_in=3)
    features, targets, _ = batch(4, 6, 5)
    with pytest.raises(ValueError, match="width 6"):
        head(features[:, :5], targets)
    with pytest.raises(ValueError, match="ShortlistModule"):
        head(features, targets, torch.zeros((4, 1), dtype=torch.int64))
    with pytest.raises(ValueError, match="groups of 0 labels"):
        SparseModule(6, 5, BCE(), fan_in=3, group=0)
