"""Every loss against its formula: a row at a time, in float64, differentiated by autograd."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the neural room needs torch")

from megalabel.labels import label_costs  # noqa: E402
from megalabel.labels import losses as reference  # noqa: E402
from megalabel.neural import losses  # noqa: E402

LABELS = 9


def per_label(given, ids):
    if given is None:
        return torch.ones(len(ids), dtype=torch.float64)
    return torch.as_tensor(np.broadcast_to(given, LABELS)[ids.numpy()], dtype=torch.float64)


# ---------------------------------------------------------------- formulas, of one row
def separable(loss, s, y, ids):
    right = torch.sigmoid(s)
    on, off = {
        "bce": lambda: (-torch.log(right), -torch.log(1 - right)),
        "squared-hinge": lambda: ((1 - s).clamp(0) ** 2, (1 + s).clamp(0) ** 2),
        "focal": lambda: (
            -((1 - right) ** loss.gamma) * torch.log(right),
            -(right**loss.gamma) * torch.log(1 - right),
        ),
    }[loss.name]()
    p = per_label(loss.propensities, ids)
    applies = (y > 0).double() if loss.relevance else y
    if loss.correction == "unbiased":
        on, off = y / p * on, (1 - applies / p) * off
    else:
        on, off = y * (2 / p - 1) * on, (1 - applies) * off
    terms = per_label(loss.positive_weights, ids) * on + per_label(loss.negative_weights, ids) * off
    return terms.sum() / (max(1, len(s)) if loss.reduction == "mean" else 1)


def shares(loss, y, ids):
    """t by its definition, a label at a time."""
    p, w = per_label(loss.propensities, ids), per_label(loss.positive_weights, ids)
    found = []
    for j in range(len(y)):
        others = sum(y[i] / p[i] for i in range(len(y)) if i != j)
        below = y[j] + others if loss.reduction == "mean" else 1
        found.append(w[j] * y[j] / p[j] / below if y[j] > 0 else 0.0)
    return found


def row(loss, s, y, ids):
    t = shares(loss, y, ids)
    terms = {
        "softmax": cross_entropy,
        "contrastive": cross_entropy,
        "decoupled-softmax": decoupled,
        "cosine-likelihood": likelihood,
        "triplet": triplet,
    }[loss.name]
    return sum(t[j] * terms(loss, s, y, ids, j) for j in range(len(y)) if y[j] > 0) + 0 * s.sum()


def cross_entropy(loss, s, y, ids, j):
    e = torch.exp(s / loss.temperature)
    return -torch.log(e[j] / e.sum())


def decoupled(loss, s, y, ids, j):
    e = torch.exp(s / loss.temperature)
    below = e[j] + (per_label(loss.negative_weights, ids) * e)[y == 0].sum()
    return -torch.log(e[j] / below)


def likelihood(loss, s, y, ids, j):
    c, d, s = loss.certainty, loss.steepness, s / loss.temperature
    p = c * torch.exp(d * (s.clamp(max=1) - 1))
    costs = -torch.log(1 - p) / d + (s - 1).clamp(min=0) * c / (1 - c)
    negatives = sorted((n for n in range(len(y)) if y[n] == 0), key=lambda n: -s[n].item())
    negatives = negatives if loss.negatives == "all" else negatives[: loss.negatives]
    w = per_label(loss.negative_weights, ids)
    dear = [n for n in negatives if costs[n] >= loss.least]
    return -torch.log(p[j]) / d + (w * costs)[dear].sum() / max(1, len(dear))


def triplet(loss, s, y, ids, j):
    w = per_label(loss.negative_weights, ids)
    at, hard = s.tolist(), []
    for n in range(len(y)):
        within = at[n] - at[j] + loss.margin > 0
        if y[n] == 0 and within and not (loss.mining == "semi-hard" and at[n] >= at[j]):
            hard.append(n)
    hard.sort(key=lambda n: -at[n])
    hard = hard if loss.negatives == "all" else hard[: loss.negatives]
    if not hard:
        return 0.0
    violations = w[hard] * (s[hard] - s[j] + loss.margin)
    if loss.temperature is None:
        return violations.mean()
    return (torch.softmax(s[hard] / loss.temperature, 0) * violations).sum()


def by_formula(loss, scores, targets, labels, mask):
    """Values and gradients (float64)."""
    scores = scores.double().requires_grad_()
    formula = separable if loss.separable else row
    values = []
    for i in range(len(scores)):
        kept = mask[i]
        values.append(formula(loss, scores[i][kept], targets[i][kept].double(), labels[i][kept]))
    values = torch.stack(values)
    return values.detach(), torch.autograd.grad(values.sum(), scores)[0]


RANDOM = np.random.default_rng(3)
WEIGHTS = RANDOM.uniform(0.2, 3, LABELS)
OTHERS = RANDOM.uniform(0.2, 3, LABELS)
P = RANDOM.uniform(0.2, 1, LABELS)
SEPARABLE = [
    {},
    {"reduction": "mean"},
    {"positive_weights": WEIGHTS, "negative_weights": OTHERS},
    {"positive_weights": WEIGHTS, "negative_weights": 0.3, "relevance": True},
    {"propensities": P, "correction": "surrogate", "negative_weights": OTHERS},
    {"propensities": P, "correction": "unbiased", "positive_weights": WEIGHTS},
    {"propensities": P, "correction": "unbiased", "relevance": True},
]
ROWS = [
    {},
    {"reduction": "sum"},
    {"positive_weights": WEIGHTS},
    {"propensities": P, "correction": "bound"},
    {"propensities": P, "correction": "surrogate", "positive_weights": 2.0},
    {"propensities": P, "correction": "bound", "reduction": "sum"},
]
CASES = [
    *((name, given) for name in ("bce", "squared-hinge", "focal") for given in SEPARABLE),
    ("focal", {"gamma": 0.5}),
    ("focal", {"gamma": 0.0}),
    *((name, given) for name in ("softmax", "contrastive", "decoupled-softmax") for given in ROWS),
    ("softmax", {"propensities": P, "correction": "unbiased", "reduction": "sum"}),
    ("contrastive", {"temperature": 2.0}),
    ("contrastive", {"propensities": P, "correction": "unbiased", "reduction": "sum"}),
    ("decoupled-softmax", {"temperature": 1.0, "negative_weights": OTHERS}),
    *(("triplet", {**given, "negatives": 3, "margin": 1.0}) for given in ROWS),
    *(("cosine-likelihood", {**given, "negatives": 3}) for given in ROWS),
    ("cosine-likelihood", {"negatives": "all", "least": 0.5, "negative_weights": OTHERS}),
    ("cosine-likelihood", {"certainty": 0.75, "steepness": 3.0, "temperature": 2.0}),
    ("triplet", {"mining": "semi-hard", "margin": 2.0, "negatives": 1}),
    ("triplet", {"mining": "semi-hard", "margin": 2.0, "negatives": "all", "temperature": None}),
    ("triplet", {"negatives": "all", "temperature": 1.0, "negative_weights": OTHERS}),
]


def draw(seed, rows, columns, *, soft=False, counts=False):
    """Scores, targets, labels and a mask; some rows without positives, some columns padding."""
    random = np.random.default_rng(seed)
    scores = torch.tensor(random.normal(0, 1.5, (rows, columns)))
    targets = (random.random((rows, columns)) < 0.4) * 1.0
    if soft:
        targets *= random.uniform(0.1, 1, targets.shape)
    if counts:
        targets *= random.integers(1, 4, targets.shape)
    labels = np.stack([random.permutation(LABELS)[:columns] for _ in range(rows)])
    mask = random.random((rows, columns)) < 0.8
    return scores, torch.tensor(targets), torch.tensor(labels), torch.tensor(mask)


def test_every_loss_has_a_formula_here():
    assert {name for name, _ in CASES} == set(losses.names())


@pytest.mark.parametrize(("name", "parameters"), CASES)
@settings(max_examples=8)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 4),
    columns=st.integers(1, LABELS),
    soft=st.booleans(),
)
def test_values_and_gradients_are_those_of_the_formula(name, parameters, seed, rows, columns, soft):
    loss = losses.create(name, **parameters)
    counts = parameters.get("relevance", False)
    scores, targets, labels, mask = draw(seed, rows, columns, soft=soft, counts=counts)
    values, gradients = by_formula(loss, scores, targets, labels, mask)
    arguments = {"labels": labels, "mask": mask}
    torch.testing.assert_close(loss(scores, targets, **arguments), values, rtol=1e-9, atol=1e-9)
    found = loss.gradient(scores, targets, **arguments)
    torch.testing.assert_close(found, gradients, rtol=1e-8, atol=1e-8)
    # single precision, with all columns, in their order
    whole, all_of_it = torch.arange(columns).expand(rows, columns), torch.ones_like(mask)
    values, gradients = by_formula(loss, scores, targets, whole, all_of_it)
    single = loss(scores.float(), targets.float(), labels=whole[0])
    torch.testing.assert_close(single, values.float(), rtol=1e-4, atol=1e-4)
    single = loss.gradient(scores.float(), targets.float(), labels=whole[0])
    torch.testing.assert_close(single, gradients.float(), rtol=2e-4, atol=2e-4)


# ---------------------------------------------------------------- the torch-free reference
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 4))
@pytest.mark.parametrize(("name", "twin"), [("bce", "logistic"), ("squared-hinge",) * 2])
def test_corrections_are_those_of_the_reference(name, twin, seed, rows):
    scores, targets, *_ = draw(seed, rows, LABELS)
    numpy = scores.numpy(), targets.numpy()
    surrogate = label_costs("propensity", np.ones(LABELS), 100, P)
    for loss, (values, gradients) in [
        (
            losses.create(name, propensities=P, correction="unbiased"),
            reference.unbiased(twin, *numpy, P),
        ),
        (
            losses.create(name, propensities=P, correction="surrogate"),
            reference.weighted(twin, *numpy, *surrogate),
        ),
        (
            losses.create(name, positive_weights=WEIGHTS, negative_weights=OTHERS),
            reference.weighted(twin, *numpy, WEIGHTS, OTHERS),
        ),
    ]:
        np.testing.assert_allclose(loss(scores, targets), values.sum(axis=1), rtol=1e-9)
        np.testing.assert_allclose(loss.gradient(scores, targets), gradients, atol=1e-9)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 4))
def test_softmax_is_the_reference_of_picking_all_labels(seed, rows):
    scores, targets, *_ = draw(seed, rows, LABELS)
    for reduction, correction in product(("sum", "mean"), (None, "surrogate")):
        p = P if correction else None
        loss = losses.Softmax(reduction=reduction, propensities=p, correction=correction)
        values, gradients = reference.pick_all_labels(
            scores.numpy(), targets.numpy(), p, normalised=reduction == "mean"
        )
        np.testing.assert_allclose(loss(scores, targets), values, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(loss.gradient(scores, targets), gradients, atol=1e-9)


@pytest.mark.parametrize("name", ["softmax", "decoupled-softmax", "triplet"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_bound_is_one_in_the_mean_over_what_goes_missing(name, reduction):
    parameters = {"negatives": 1, "margin": 2.0} if name == "triplet" else {}
    plain = losses.create(name, reduction=reduction, **parameters)
    bound = losses.create(
        name, reduction=reduction, propensities=P[:5], correction="bound", **parameters
    )
    for seed in range(20):
        scores, complete, *_ = draw(seed, 1, 5)
        mean = 0.0
        for kept in product([0.0, 1.0], repeat=5):
            seen = torch.tensor([kept], dtype=torch.float64)
            if (seen <= complete).all():
                chances = np.where(kept, P[:5], 1 - P[:5])[complete[0].numpy() > 0]
                mean += np.prod(chances) * float(bound(scores, seen))
        assert mean >= float(plain(scores, complete)) - 1e-9


def test_published_examples():
    scores, both = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 1.0, 0.0]])
    one = torch.tensor([[1.0, 0.0, 0.0]])
    apart = losses.DecoupledSoftmax(temperature=1.0)
    together = losses.SupervisedContrastive(temperature=1.0)
    assert float(apart(scores, both)) == pytest.approx(0.2201, abs=1e-4)
    assert float(together(scores, both)) == pytest.approx(0.9076, abs=1e-4)
    assert float(apart(scores, one)) == pytest.approx(float(together(scores, one)), abs=1e-6)
    assert float(apart(scores, torch.ones(1, 3))) == 0
    scores, labels = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1.0, 0.0, 1.0]])
    assert float(losses.Softmax()(scores, labels)) == pytest.approx(1.40761, abs=1e-5)
    bound = losses.Softmax(propensities=[0.9, 0.7, 0.6], correction="bound")
    assert float(bound(scores, labels)) == pytest.approx(2.07058, abs=1e-5)


def test_a_cosine_of_one_is_as_likely_as_certainty_says():
    loss = losses.CosineLikelihood(certainty=0.75, steepness=3.0)
    alone, other = torch.tensor([[1.0, 0.0]]), torch.ones(1, 2)
    assert float(loss(torch.ones(1, 1), alone[:, :1])) == pytest.approx(-np.log(0.75) / 3)
    both = loss(other, alone)  # a negative there costs something finite
    assert float(both) == pytest.approx((-np.log(0.75) - np.log(0.25)) / 3)


def test_squared_hinge_weighs_positives_by_counts_as_xr_transformer_does():
    scores = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    counts = torch.tensor([[0, 3, 1, 0, 0, 2]] * 4, dtype=torch.float64)
    sign = torch.where(counts > 0, 1.0, -1.0)
    hinge = (1 - sign * scores).clamp(0) ** 2
    code = (torch.where(counts > 0, counts, 1.0) * hinge).mean(dim=1)
    loss = losses.SquaredHinge(relevance=True, reduction="mean")
    torch.testing.assert_close(loss(scores, counts), code)
    normed = counts / counts.sum(dim=1, keepdim=True)
    paper = (torch.where(counts > 0, normed, 0.1) * hinge).sum(dim=1)
    loss = losses.SquaredHinge(relevance=True, negative_weights=0.1)
    torch.testing.assert_close(loss(scores, normed), paper)
