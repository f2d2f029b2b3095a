"""Each kernel against the same in float64, on shapes that fill no tile."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the neural room needs torch")
pytest.importorskip("triton", reason="kernels need Triton")

from megalabel.neural.heads.steps import rounding  # noqa: E402
from megalabel.neural.kernels import forms  # noqa: E402
from megalabel.neural.kernels.positives import pair_scores, patch  # noqa: E402
from megalabel.neural.kernels.scores import score_gradients  # noqa: E402
from megalabel.neural.kernels.squares import mean_squares  # noqa: E402
from megalabel.neural.kernels.tuning import Tile  # noqa: E402
from megalabel.neural.kernels.update import update_weights  # noqa: E402

TILE = Tile(16, 32, 16, warps=4, stages=2)
SHAPES = [(5, 24, 77), (1, 8, 1), (33, 40, 64), (17, 16, 130)]  # rows, width, labels
GAMMA = 1.7


def drawn(*shape: int, device: str, seed: int = 0) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=source).bfloat16().to(device)


def softplus(s):
    return torch.nn.functional.softplus(s)


TWINS = {
    "LOGISTIC": (torch.sigmoid, softplus),
    "SQUARED_HINGE": (lambda s: 2 * (1 + s).clamp(min=0), lambda s: (1 + s).clamp(min=0) ** 2),
    "FOCAL": (
        lambda s: (
            torch.sigmoid(s) ** GAMMA * (GAMMA * torch.sigmoid(-s) * softplus(s) + torch.sigmoid(s))
        ),
        lambda s: torch.sigmoid(s) ** GAMMA * softplus(s),
    ),
}


@pytest.mark.parametrize("descriptors", [False, True])
@pytest.mark.parametrize(("rows", "width", "labels"), SHAPES)
def test_score_gradients(rows, width, labels, descriptors, device):
    x, w = drawn(rows, width, device=device), drawn(labels, width, device=device, seed=1)
    bias, scale = drawn(labels, device=device).float(), drawn(labels, device=device).float().abs()
    out = torch.full((rows, labels + 8), torch.nan, dtype=torch.bfloat16, device=device)
    value = score_gradients(
        x,
        w,
        out[:, :labels],
        form=forms.LOGISTIC.value,
        tile=TILE,
        bias=bias,
        scale=scale,
        value=True,
        descriptors=descriptors,
    )
    scores = x.double() @ w.double().T + bias.double()
    exact = scale.double() * torch.sigmoid(scores)
    torch.testing.assert_close(out[:, :labels].double(), exact, rtol=1e-2, atol=1e-6)
    assert out[:, labels:].isnan().all()
    total = (scale.double() * softplus(scores)).sum()
    torch.testing.assert_close(value.sum().double(), total, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("form", TWINS)
def test_the_forms(form, device):
    rows, width, labels = 6, 16, 45
    x, w = drawn(rows, width, device=device), drawn(labels, width, device=device, seed=1)
    kind = getattr(forms, form).value
    fused = torch.empty((rows, labels), dtype=torch.bfloat16, device=device)
    value = score_gradients(x, w, fused, form=kind, tile=TILE, gamma=GAMMA, value=True)
    scores = x.double() @ w.double().T
    slope, twin = TWINS[form]
    torch.testing.assert_close(fused.double(), slope(scores), rtol=1e-2, atol=1e-6)
    torch.testing.assert_close(value.sum().double(), twin(scores).sum(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("rows", "width", "labels"), SHAPES)
def test_the_softmax_and_its_normaliser(rows, width, labels, device):
    x, w = drawn(rows, width, device=device), drawn(labels, width, device=device, seed=1)
    out = torch.empty((rows, labels), dtype=torch.bfloat16, device=device)
    parts = score_gradients(x, w, out, form=forms.NORMALISER.value, tile=TILE, gamma=0.5)
    scores = 0.5 * x.double() @ w.double().T
    normaliser = parts.logsumexp(0)
    torch.testing.assert_close(normaliser.double(), scores.logsumexp(1), rtol=1e-5, atol=1e-5)
    score_gradients(x, w, out, form=forms.SOFTMAX.value, tile=TILE, gamma=0.5, shift=normaliser)
    torch.testing.assert_close(out.double(), scores.softmax(1), rtol=1e-2, atol=1e-6)


def test_positives(device):
    x, w = drawn(4, 40, device=device), drawn(30, 40, device=device, seed=1)
    row = torch.tensor([0, 0, 3, 2], device=device)
    label = torch.tensor([3, 12, 29, 20], device=device)
    scores = pair_scores(x, w, row, label)
    exact = (x.double()[row] * w.double()[label]).sum(1)
    torch.testing.assert_close(scores.double(), exact, rtol=1e-5, atol=1e-5)
    gradient = torch.zeros((4, 16), dtype=torch.bfloat16, device=device)
    patch(gradient, row, label, torch.tensor([1.0, 2.0, 3.0, 4.0], device=device), 10, 26)
    expected = torch.zeros((4, 16))
    expected[0, 2], expected[2, 10] = 2, 4
    assert torch.equal(gradient.float().cpu(), expected)
    assert len(pair_scores(x, w, row[:0], label[:0])) == 0


def updated(rows, width, labels, device, *, rate=0.1, step=3, momentum=0.0, kept=None, **options):
    g, x = drawn(rows, -(-labels // 8) * 8, device=device), drawn(rows, width, device=device)
    g = g[:, :labels]
    w = drawn(labels, width, device=device, seed=1)
    velocity = drawn(labels, width, device=device, seed=2) if momentum else None
    slots = residual = None
    if kept is not None:
        slots = torch.full((labels,), -1, dtype=torch.int32, device=device)
        slots[kept] = torch.arange(len(kept), dtype=torch.int32, device=device)
        residual = torch.zeros((len(kept), width), dtype=torch.bfloat16, device=device)
    move = g.double().T @ x.double() * 0.25 + 0.01 * w.double()
    if velocity is not None:
        move += momentum * velocity.double()
    exact = w.double() - rate * move
    update_weights(
        g,
        x,
        w,
        settings=torch.tensor([rate, 0.25, 0.01, momentum], device=device),
        counter=torch.tensor(step, device=device),
        seed=2**40 + 7,
        first=100,
        velocity=velocity,
        slots=slots,
        residual=residual,
        **{"tile": TILE, **options},
    )
    return w, exact, move, velocity, residual


@pytest.mark.parametrize("descriptors", [False, True])
@pytest.mark.parametrize(("rows", "width", "labels"), SHAPES)
def test_updates_round_as_plain_torch_does(rows, width, labels, descriptors, device):
    w, exact, *_ = updated(rows, width, labels, device, descriptors=descriptors)
    ids = 100 + torch.arange(labels)
    halves = rounding.random_halves(2**40 + 7, 3, 0, ids, width)
    twin = rounding.round_randomly(exact.float().cpu(), halves)
    # sums in another order may fall on the other side of a bound
    assert (w.cpu() == twin).float().mean() > 0.99
    torch.testing.assert_close(w.double(), exact, rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("columns", [16, 32, 64, 128, 256])
def test_tiles_change_no_random_bit(columns, device):
    tile = Tile(16, columns, 16, warps=4, stages=2)
    (w, *_), (other, *_) = (updated(16, 336, 20, device, tile=t) for t in (tile, TILE))
    assert (w == other).float().mean() > 0.999


@pytest.mark.parametrize("descriptors", [False, True])
@pytest.mark.parametrize(("rows", "width", "labels"), SHAPES)
def test_mean_squares(rows, width, labels, descriptors, device):
    g, x = drawn(rows, -(-labels // 8) * 8, device=device), drawn(rows, width, device=device)
    given = mean_squares(g, x, labels, tile=TILE, descriptors=descriptors)
    exact = (g[:, :labels].double().T @ x.double()).square().mean(1)
    torch.testing.assert_close(given.double(), exact, rtol=1e-4, atol=1e-6)


def test_updates_with_momentum_and_compensation(device):
    kept = torch.tensor([0, 2, 5], device=device)
    w, exact, move, velocity, residual = updated(
        9, 24, 7, device, momentum=0.9, kept=kept, rate=0.01
    )
    torch.testing.assert_close(velocity.double(), move, rtol=2**-7, atol=1e-6)
    torch.testing.assert_close(w.double(), exact, rtol=2**-7, atol=1e-6)
    whole = w[kept].double() - residual.double()  # what was lost is kept
    torch.testing.assert_close(whole, exact[kept], rtol=1e-4, atol=1e-5)
