"""The dense head in plain torch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the neural room needs torch")

from megalabel.neural.heads import DenseModule  # noqa: E402
from megalabel.neural.heads.base import best  # noqa: E402
from megalabel.neural.heads.steps.rounding import random_halves, round_randomly  # noqa: E402
from megalabel.neural.targets import Targets  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
from losses_here import Bce, Softmax  # noqa: E402

ROWS, WIDTH, LABELS = 6, 12, 53


@pytest.fixture
def batch():
    source = torch.Generator().manual_seed(1)
    x = torch.randn((ROWS, WIDTH), generator=source)
    indices = torch.randint(LABELS, (4 * ROWS,), generator=source)
    indices[1] = indices[0]
    values = torch.rand(4 * ROWS, generator=source)
    values[1] = values[0]
    return x, Targets(torch.arange(0, 4 * ROWS + 1, 4), indices, values, LABELS)


def by_autograd(head, loss, x, targets):
    """Value and gradients of the mean loss by features, weights and bias, in float64."""
    leaves = [x.double(), head.weights.double()]
    if head.bias is not None:
        leaves.append(head.bias.double())
    leaves = [leaf.requires_grad_() for leaf in leaves]
    scores = leaves[0] @ leaves[1].T
    if head.bias is not None:
        scores = scores + leaves[2]
    value = loss(scores, targets.dense(0, LABELS).double(), labels=torch.arange(LABELS)).mean()
    return value, torch.autograd.grad(value, leaves)


WEIGHTS = torch.linspace(0.5, 2, LABELS)


@pytest.mark.parametrize("chunk", [None, 1, 10, 53, 100])
@pytest.mark.parametrize(
    "loss", [Bce(), Bce(WEIGHTS), Bce(reduction="mean"), Softmax()], ids=lambda v: type(v).__name__
)
def test_a_step_is_gradient_descent_on_all_labels(batch, chunk, loss):
    x, targets = batch
    head = DenseModule(WIDTH, LABELS, loss, bias=True, weight_decay=0.1, chunk=chunk, seed=3)
    head.learning_rate = 0.3
    before, bias = head.weights.clone(), head.bias.clone()
    exact, (by_x, by_weights, by_bias) = by_autograd(head, loss, x, targets)
    leaf = x.clone().requires_grad_()
    value = head(leaf, targets)
    (2 * value).backward()
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(leaf.grad.double(), 2 * by_x, rtol=1e-4, atol=1e-5)
    moved = before - 0.3 * (by_weights + 0.1 * before)
    torch.testing.assert_close(head.weights.double(), moved.double(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(head.bias.double(), bias - 0.3 * by_bias, rtol=1e-4, atol=1e-5)


def test_looking_changes_nothing(batch):
    x, targets = batch
    head = DenseModule(WIDTH, LABELS, Bce())
    before = head.weights.clone()
    with torch.no_grad():
        seen = head(x, targets)
    evaluated = head.eval()(x.clone().requires_grad_(), targets)
    assert torch.equal(head.weights, before)
    assert seen == evaluated
    assert head.step == 0


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_learns(batch, optimiser, dtype):
    x, targets = batch
    momentum = 0.9 if optimiser == "sgd" else 0.0
    head = DenseModule(
        WIDTH, LABELS, Bce(), dtype=dtype, optimiser=optimiser, momentum=momentum, bias=True
    )
    head.learning_rate = 0.05
    values = [float(head(x, targets).detach()) for _ in range(30)]
    assert values[-1] < 0.75 * values[0]


def test_gradients_in_bfloat16_are_unbiased(batch):
    x, targets = batch
    # a step much smaller than the distance between bfloat16 numbers
    moves, changed = [], 0.0
    head = DenseModule(WIDTH, LABELS, Bce(), dtype=torch.bfloat16)
    head.learning_rate = 2e-4
    before = head.weights.clone()
    for seed in range(150):
        head.seed = seed
        head.weights.copy_(before)
        head.learn(x, targets)
        moves.append(head.weights.double() - before.double())
        changed += float((moves[-1] != 0).double().mean()) / 150
    _, (_, by_weights) = by_autograd(
        DenseModule(WIDTH, LABELS, Bce(), dtype=torch.bfloat16), Bce(), x.bfloat16(), targets
    )
    mean = torch.stack(moves).mean(0)
    assert changed < 0.2
    # the mean is off by as much as its own spread says, and no more
    off = (mean + 2e-4 * by_weights).square().sum()
    assert off / (torch.stack(moves).var(0) / 150).sum() < 1.3
    slope = (mean * -by_weights).sum() / (2e-4 * by_weights.square().sum())
    assert abs(slope - 1) < 0.1


def test_rounding():
    halves = random_halves(5, 1, 0, torch.arange(4000), 8)
    assert halves.min() >= 0
    assert halves.max() < 2**16
    assert abs(halves.double().mean() / 2**16 - 0.5) < 0.01
    x = torch.full((4000, 8), 1 + 1 / 512)
    rounded = round_randomly(x, halves).double()
    assert set(rounded.unique().tolist()) == {1.0, 1.0078125}
    assert abs(rounded.mean() - x.double().mean()) < 1e-4
    exact = torch.tensor([1.5, -2.0, 0.0, torch.inf, -torch.inf, torch.nan, 2.0**-130])
    same = round_randomly(exact, torch.full((7,), 0xFFFF)).float()
    torch.testing.assert_close(same, exact, equal_nan=True, rtol=0, atol=0)


def test_random_bits_of_columns_are_independent():
    halves = random_halves(5, 1, 0, torch.arange(20_000), 320).double() / 2**16
    columns = [
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        64,
        128,
        192,
        256,
        319,
    ]  # of one word, of one call, of others
    table = torch.corrcoef(halves[:, columns].T) - torch.eye(len(columns))
    assert table.abs().max() < 5 / 20_000**0.5
    # neither do two columns round up together more often than chance has it, near either end
    for low in (0.05, 0.5, 0.95):
        up = (halves[:, columns] < low).double()
        together = up.T @ up / len(up)
        together.fill_diagonal_(low**2)
        assert (together - low**2).abs().max() < 5 * low * ((1 - low**2) / len(up)) ** 0.5


def test_random_bits_are_never_used_twice():
    labels = torch.arange(64)
    drawn = [random_halves(s, t, u, labels, 24) for s in (0, 1) for t in (0, 1) for u in (0, 1)]
    drawn.append(random_halves(0, 0, 0, 64 + labels, 24))
    for i, a in enumerate(drawn):
        for b in drawn[:i]:
            assert (a == b).double().mean() < 0.01
    part = random_halves(0, 0, 0, labels[10:20], 24)
    assert torch.equal(part, drawn[0][10:20])  # chunks change nothing


def test_compensation_keeps_small_steps():
    targets = Targets(torch.tensor([0, 0]), torch.zeros(0), torch.zeros(0), 4)

    class Constant(Bce):
        def gradient(self, scores, targets, **_):
            return torch.full_like(scores, -1.0)

    head = DenseModule(
        1,
        4,
        Constant(),
        dtype=torch.bfloat16,
        compensate=0.5,
        label_counts=[1, 9, 2, 9],
    )
    head.weights.fill_(1.0)
    head.learning_rate = 4e-3
    for _ in range(250):
        head.learn(torch.ones(1, 1), targets)
    assert head.optimiser.slots.tolist() == [-1, 0, -1, 1]
    torch.testing.assert_close(
        head.weights[[1, 3], 0].float(), torch.full((2,), 2.0), rtol=0.01, atol=0
    )
    assert (head.weights[[0, 2], 0].float() - 2).abs().max() < 0.5  # right on average alone


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_resumed_run_goes_on_to_the_same_weights(batch, optimiser):
    x, targets = batch

    def made(seed):
        return DenseModule(
            WIDTH,
            LABELS,
            Bce(),
            dtype=torch.bfloat16,
            optimiser=optimiser,
            momentum=0.9 if optimiser == "sgd" else 0,
            dropout=0.3,
            compensate=1.0 if optimiser == "adam" else 0.0,
            seed=seed,
        )

    def trained(head, steps):
        for _ in range(steps):
            head(x.clone().requires_grad_(), targets)

    through, first = made(4), made(4)
    trained(through, 5)
    trained(first, 2)
    second = made(4)
    second.load_state_dict(first.state_dict())
    assert second.step == 2
    trained(second, 3)
    assert torch.equal(second.weights, through.weights)


def test_a_resumed_head_returns_the_values_of_one_that_was_not_interrupted(batch):
    whole, first, second = (DenseModule(WIDTH, LABELS, Bce(), value_every=3) for _ in range(3))
    values = [float(whole(*batch)) for _ in range(7)]
    before = [float(first(*batch)) for _ in range(2)]
    second.load_state_dict(first.state_dict())
    assert before + [float(second(*batch)) for _ in range(5)] == values


def test_values_now_and_then(batch):
    x, targets = batch
    heads = [DenseModule(WIDTH, LABELS, Bce(), value_every=n) for n in (1, 3)]
    seen = [[float(h.learn(x, targets)[0]) for _ in range(5)] for h in heads]
    assert torch.equal(heads[0].weights, heads[1].weights)
    every = seen[0]
    assert seen[1] == [every[0]] * 3 + [every[3]] * 2


def test_dropout_scales_what_is_kept(batch):
    x, _ = batch
    head = DenseModule(WIDTH, LABELS, Bce(), dropout=0.5)
    dropped = head.drop(torch.ones(1000, 4))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(head.eval().drop(x), x)


def test_top_k_is_exact_with_ties_to_the_lower_label():
    head = DenseModule(4, 40, None, chunk=7)
    head.weights.copy_(torch.randint(-2, 3, (40, 4)).float())
    x = torch.randint(-2, 3, (9, 4)).float()
    scores, labels = head.top_k(x, 6)
    whole = x @ head.weights.T
    order = torch.sort(whole, dim=1, descending=True, stable=True)
    assert torch.equal(scores, order.values[:, :6])
    assert torch.equal(labels, order.indices[:, :6])
    assert torch.equal(head.scores(x, labels), scores)
    assert head.top_k(x, 100)[1].shape == (9, 40)


def test_the_best_of_negative_zero_and_infinity():
    scores = torch.tensor([[-0.0, 0.0, -torch.inf, torch.inf, -1.0]])
    found, ids = best(scores, torch.arange(5)[None], 5)
    assert ids.tolist() == [[3, 0, 1, 4, 2]]
    assert found.tolist()[0][0] == torch.inf


def test_one_label_one_row_no_positives():
    head = DenseModule(3, 1, Bce(), bias=True)
    targets = Targets(torch.tensor([0, 0]), torch.zeros(0), torch.zeros(0), 1)
    x = torch.ones((1, 3), requires_grad=True)
    head(x, targets).backward()
    assert x.grad.isfinite().all()


def test_under_autocast_sums_stay_exact(batch):
    x, targets = batch
    plain, cast = (DenseModule(WIDTH, LABELS, Bce()) for _ in range(2))
    plain.learn(x, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast.learn(x, targets)
    assert torch.equal(plain.weights, cast.weights)


def test_what_cannot_be(batch):
    x, targets = batch
    with pytest.raises(ValueError, match="width 5"):
        DenseModule(5, LABELS, Bce())(x, targets)
    with pytest.raises(ValueError, match="a head of 9 labels"):
        DenseModule(WIDTH, 9, Bce())(x, targets)
    with pytest.raises(ValueError, match="label_counts"):
        DenseModule(WIDTH, LABELS, Bce(), compensate=0.2)
    with pytest.raises(ValueError, match="optimiser"):
        DenseModule(WIDTH, LABELS, Bce(), optimiser="other")
    with pytest.raises(ValueError, match="bfloat16"):
        DenseModule(WIDTH, LABELS, Bce(), dtype=torch.float16)
    with pytest.raises(ValueError, match="shortlist"):
        DenseModule(WIDTH, LABELS, Bce())(x, targets, torch.zeros((ROWS, 2), dtype=torch.long))
    with pytest.raises(ValueError, match="neither a sum"):
        DenseModule(WIDTH, LABELS, object())(x, targets)
