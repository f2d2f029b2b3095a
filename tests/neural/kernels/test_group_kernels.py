"""Kernels of labels in groups against the same in float64, on shapes that fill no tile."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the neural room needs torch")
pytest.importorskip("triton", reason="kernels need Triton")

from megalabel.neural.heads.steps import rounding  # noqa: E402
from megalabel.neural.kernels import forms, group_search  # noqa: E402
from megalabel.neural.kernels.group_search import top_groups  # noqa: E402
from megalabel.neural.kernels.group_step import Positives, train_groups  # noqa: E402
from megalabel.neural.kernels.groups import Groups  # noqa: E402
from megalabel.neural.kernels.largest import NONE, largest  # noqa: E402
from megalabel.neural.kernels.tuning import GroupTuning  # noqa: E402

# rows, width, groups, inputs, size: one tile, many of each, sizes of no power of two
SHAPES = [
    (5, 24, 7, 9, 16),
    (1, 8, 1, 8, 1),
    (21, 40, 5, 20, 3),
    (33, 300, 3, 270, 16),
    (40, 64, 2, 40, 80),
]
TUNING = GroupTuning(area=16 * 16)


def groups_of(width, groups, inputs, size, device, dtype=torch.bfloat16, seed=0, indices=None):
    """Random groups, some of whose places have no label."""
    source = torch.Generator().manual_seed(seed + width + groups)
    drawn = torch.rand((groups, width), generator=source).argsort(1)[:, :inputs].sort(1).values
    weights = torch.randn((groups, inputs, size), generator=source).to(dtype)
    labels = torch.randperm(groups * size, generator=source).int()
    labels[labels >= max(1, groups * size - size // 2)] = -1
    bias = torch.randn((groups, size), generator=source)
    made = Groups(drawn.to(indices or torch.int16), weights, labels.contiguous(), bias)
    for name in ("indices", "weights", "labels", "bias"):
        setattr(made, name, getattr(made, name).to(device))
    made.check(width)
    return made


def rows_of(rows, width, device, seed=0):
    source = torch.Generator().manual_seed(seed + rows)
    return torch.randn((rows, width), generator=source).bfloat16().float().to(device)


def dense(groups, width):
    """(places, width) float64: the same weights as a matrix."""
    count, inputs, size = groups.weights.shape
    out = torch.zeros((count, size, width), dtype=torch.float64, device=groups.weights.device)
    at = (groups.indices.int() & 0xFFFF).long()[:, None, :].expand(count, size, inputs)
    return out.scatter(2, at, groups.weights.double().transpose(1, 2)).reshape(-1, width)


def compact(matrix, groups):
    """The weights' part of a matrix (places, width), in their layout."""
    count, inputs, size = groups.weights.shape
    at = (groups.indices.int() & 0xFFFF).long()[:, None, :].expand(count, size, inputs)
    return matrix.reshape(count, size, -1).gather(2, at).transpose(1, 2)


SLOPES = {
    forms.LOGISTIC.value: (torch.sigmoid, torch.nn.functional.softplus),
    forms.SQUARED_HINGE.value: (
        lambda s: 2 * (1 + s).clamp(min=0),
        lambda s: (1 + s).clamp(min=0) ** 2,
    ),
}


def step(groups, x, *, form, update=True, momentum=0.0, scale=None, tuning=TUNING, seed=3):
    """The kernel's step and its twin's, of a batch whose rows have three labels each."""
    rows, device = len(x), x.device
    source = torch.Generator().manual_seed(rows)
    drawn = torch.randint(len(groups.places), (rows, 3), generator=source).to(device)
    known = torch.unique(drawn + torch.arange(rows, device=device)[:, None] * 10**6)
    row, place = known // 10**6, groups.places[known % 10**6].long()
    slope, value = SLOPES[form]
    w = dense(groups, x.shape[1])
    real = groups.labels >= 0
    scores = x.double() @ w.T + groups.bias.double().reshape(-1)
    by_label = torch.ones_like(scores[0]) if scale is None else scale.double().reshape(-1)
    gradient = torch.where(real, slope(scores) * by_label, 0)
    total = (torch.where(real, value(scores), 0) * by_label).sum()
    change = torch.randn(len(row), generator=source).to(device)
    gradient[row, place] += change.double()
    score, wanted = scores[row, place].float(), gradient[row, place].float()
    velocity = None
    if momentum:
        velocity = torch.randn(groups.weights.shape, generator=source).to(groups.weights)
    old, before, bias = groups.weights.double(), velocity, groups.bias.clone()
    before = 0 if velocity is None else velocity.double()
    settings = torch.tensor([0.1, 0.25, 0.01, momentum, 0.5], device=device)
    counter = torch.tensor(2, device=device)
    by_features, partial = train_groups(
        x,
        groups,
        Positives(row, place, score, wanted),
        form=form,
        settings=settings,
        counter=counter,
        seed=seed,
        tuning=tuning,
        scale=scale,
        velocity=velocity,
        update=update,
        value=True,
    )
    move = 0.25 * compact(gradient.T @ x.double(), groups) + 0.01 * old + momentum * before
    exact = old - 0.1 * move if update else old
    moved = bias.double() - 0.05 * gradient.sum(0).view_as(bias) if update else bias.double()
    return {
        "features": (by_features.double(), gradient @ w),
        "value": (partial.double().sum(), total),
        "weights": (groups.weights.double(), exact),
        "bias": (groups.bias.double(), moved),
        "velocity": (velocity.double(), move) if momentum and update else (old, old),
    }


def close(results, rough=2**-7):
    for name, (found, exact) in results.items():
        scale = float(exact.abs().max()) + 1e-30
        rtol = 1e-4 if name in ("value", "bias") else rough
        torch.testing.assert_close(found, exact, rtol=rtol, atol=rtol * scale, msg=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_step(shape, dtype, device):
    rows, width, count, inputs, size = shape
    groups = groups_of(width, count, inputs, size, device, dtype)
    results = step(groups, rows_of(rows, width, device), form=forms.LOGISTIC.value)
    close(results, 1e-5 if dtype == torch.float32 else 2**-6)


@given(
    st.tuples(
        st.integers(1, 20),
        st.integers(20, 60),
        st.integers(1, 3),
        st.integers(1, 20),
        st.integers(1, 40),
    ),
    st.sampled_from(list(SLOPES)),
    st.integers(1, 30),
)
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_shape(device, shape, form, k):
    rows, width, count, inputs, size = shape
    groups = groups_of(width, count, inputs, size, device, torch.float32)
    x = rows_of(rows, width, device)
    found, wanted = top_groups(x[:2], groups, k, TUNING)[0].double(), best_of(groups, x[:2], k)[0]
    torch.testing.assert_close(found[:, : wanted.shape[1]], wanted, rtol=1e-5, atol=1e-5)
    close(step(groups, x, form=form), 1e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("shape", [SHAPES[2], SHAPES[3]])
def test_momentum_and_factors_of_labels(shape, momentum, device):
    rows, width, count, inputs, size = shape
    groups = groups_of(width, count, inputs, size, device, torch.float32, indices=torch.int32)
    scale = torch.rand(count, size, device=device) + 0.5
    x = rows_of(rows, width, device)
    close(step(groups, x, form=forms.LOGISTIC.value, scale=scale, momentum=momentum), 1e-5)


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[3]])
def test_zeros_of_the_hinge_are_skipped(shape, device):
    rows, width, count, inputs, size = shape
    groups = groups_of(width, count, inputs, size, device, torch.float32)
    groups.bias[1:] = -1e3  # only the first group's negatives have a gradient
    x = rows_of(rows, width, device)
    close(step(groups, x, form=forms.SQUARED_HINGE.value), 1e-5)


def test_nothing_moves_unless_asked_to(device):
    groups = groups_of(24, 3, 9, 16, device)
    close(step(groups, rows_of(5, 24, device), form=forms.LOGISTIC.value, update=False), 2**-6)


@pytest.mark.parametrize("sums", ["fixed", "float32", "float16"])
def test_sums_of_any_kind(sums, device):
    groups = groups_of(40, 4, 20, 16, device, torch.float32)
    tuning = GroupTuning(area=16 * 16, sums=sums)
    x = rows_of(21, 40, device)
    rough = 2**-8 if sums == "float16" else 1e-5
    close(step(groups, x, form=forms.LOGISTIC.value, tuning=tuning), rough)
    groups.weights[1, 2, 3] = torch.nan
    found = step(groups, x, form=forms.LOGISTIC.value, tuning=tuning, update=False)["features"]
    assert found[0].isnan().any()


@pytest.mark.parametrize(("inputs", "size"), [(9, 16), (20, 5), (270, 8), (16, 72)])
def test_rounding_takes_the_bits_of_plain_torch(inputs, size, device):
    groups = groups_of(300, 3, inputs, size, device)
    old = groups.weights.float()
    none = torch.zeros(0, dtype=torch.int64, device=device)
    train_groups(
        torch.zeros(2, 300, device=device),
        groups,
        Positives(none, none, none.float(), none.float()),
        form=forms.LOGISTIC.value,
        settings=torch.tensor([0.25, 1.0, 0.01, 0.0, 1.0], device=device),
        counter=torch.tensor(7, device=device),
        seed=11,
        tuning=TUNING,
        first_label=2**31 - 3 * size,
    )
    labels = 2**31 - 3 * size + torch.arange(3, device=device) * size
    halves = rounding.random_halves(11, 7, 0, labels, inputs * size).view(old.shape)
    decay = torch.tensor(-0.25) * torch.tensor(0.01)  # in float32, as the kernel has them
    exact = rounding.round_randomly(old + decay.to(device) * old, halves)
    assert torch.equal(groups.weights, exact)


def best_of(groups, x, k):
    """The twin of the search; the scores of its labels, those it leaves out as minus infinity."""
    scores = x.double() @ dense(groups, x.shape[1]).T + groups.bias.double().reshape(-1)
    by_label = torch.full((len(x), len(groups.places)), -torch.inf, dtype=torch.float64)
    by_label = by_label.to(x.device)
    real = groups.labels >= 0
    by_label[:, groups.labels[real].long()] = scores[:, real]
    values, ids = by_label.sort(dim=1, descending=True, stable=True)
    return values[:, :k], ids[:, :k]


FOUND = [(3, 24, 7, 9, 16), (1, 8, 1, 8, 1), (2, 40, 23, 20, 3), (2, 300, 3, 270, 16),
         (2, 64, 2, 40, 80)]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("shape", "k"), list(zip(FOUND, [3, 3, 7, 5, 99], strict=True)))
def test_the_best_labels(shape, k, dtype, device):
    rows, width, count, inputs, size = shape
    groups = groups_of(width, count, inputs, size, device, dtype)
    x = rows_of(rows, width, device)
    scores, ids = top_groups(x, groups, k, TUNING)
    values, wanted = best_of(groups, x, k)
    there = values.shape[1]
    assert (ids[:, there:] == -1).all()
    assert torch.isneginf(scores[:, there:]).all()
    real = ~torch.isneginf(values)
    torch.testing.assert_close(scores[:, :there][real].double(), values[real], rtol=1e-5, atol=1e-5)
    assert (ids[:, :there][real] == wanted[real]).float().mean() > 0.99
    one, its = top_groups(x[:1], groups, k, TUNING)
    assert torch.equal(one, scores[:1])
    assert torch.equal(its, ids[:1])


def test_rows_beyond_a_tile(device, monkeypatch):
    monkeypatch.setattr(group_search, "ROWS", 16)
    groups = groups_of(30, 3, 4, 32, device, torch.float32)
    x = rows_of(20, 30, device)
    scores, ids = group_search.top_groups(x, groups, 2, TUNING)
    values, wanted = best_of(groups, x, 2)
    torch.testing.assert_close(scores.double(), values, rtol=1e-5, atol=1e-5)
    assert torch.equal(ids, wanted)


def test_ties_go_to_the_lower_label(device):
    groups = groups_of(32, 20, 8, 8, device)
    groups.weights[:] = groups.weights.round()
    groups.bias[:] = groups.bias.round()
    groups.labels[:] = torch.randperm(160, generator=torch.Generator().manual_seed(1)).int()
    groups._places = None
    x = rows_of(2, 32, device).round()
    scores, ids = top_groups(x, groups, 12, TUNING)
    values, wanted = best_of(groups, x, 12)
    assert torch.equal(ids, wanted)
    assert torch.equal(scores.double(), values)


@pytest.mark.parametrize(("count", "k"), [(5, 3), (700, 9), (4200, 100), (3000, 1100), (1, 4)])
def test_the_largest_keys(count, k, device):
    source = torch.Generator().manual_seed(count)
    keys = torch.randint(-(2**62), 2**62, (3, count), generator=source) * 2 + 1
    keys[1, count // 2 :] = NONE
    keys[2] = NONE
    wanted = keys.sort(dim=1, descending=True).values[:, :k]
    assert torch.equal(largest(keys.to(device), k).cpu(), wanted)


def test_weights_beyond_two_to_the_31(device):
    inputs, size = 128, 32
    count = 2**31 // (inputs * size) + 2
    weights = torch.empty((count, inputs, size), dtype=torch.bfloat16, device=device)
    labels = torch.empty(count * size, dtype=torch.int32, device=device)
    indices = torch.empty((count, inputs), dtype=torch.int16, device=device)  # hardly any is read
    last = rows_of(inputs, size, device).bfloat16()
    weights[-1], indices[-1] = last, torch.arange(inputs)
    labels[-size:] = torch.arange(size)
    x = rows_of(1, inputs, device).bfloat16()
    keys = torch.empty((1, size), dtype=torch.int64, device=device)
    best = torch.tensor([[0x7FFFFFFF]], device=device)  # of label 0
    places = torch.tensor([(count - 1) * size], device=device)
    constants = {"FAN": inputs, "GROUP": size, "EACH": 1, "BIAS": False, "N": size, "K": inputs}
    group_search._again[(1,)](
        x, indices, weights, labels, None, best, places, keys, 1, count, width=inputs, **constants
    )
    scores, ids = group_search.decoded(keys)
    assert torch.equal(ids[0], torch.arange(size, device=device))
    torch.testing.assert_close(scores.double(), x.double() @ last.double(), rtol=1e-5, atol=1e-5)
