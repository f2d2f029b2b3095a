"""What every loss must do, whatever its formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the neural room needs torch")

from torch.nn.functional import softplus  # noqa: E402

from megalabel.base import clone  # noqa: E402
from megalabel.errors import ParameterError, ShapeError  # noqa: E402
from megalabel.neural import losses  # noqa: E402

every_loss = pytest.mark.parametrize("name", losses.names())
picking_losses = pytest.mark.parametrize(
    "name", ["softmax", "contrastive", "cosine-likelihood", "decoupled-softmax", "triplet"]
)


def batch(rows=3, columns=7, seed=0, share=0.4):
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, columns, generator=random)
    return scores, (torch.rand(rows, columns, generator=random) < share).float()


# ---------------------------------------------------------------- what kernels are told
def by_form(form, scores, weights):
    """What a form says of a row, where `weights` are of negatives, or of the labels picked."""
    if form.name == "softmax":
        scaled = form.number * scores
        return (weights * (scaled.logsumexp(1, keepdim=True) - scaled)).sum(1)
    each = {
        "logistic": softplus(scores),
        "squared-hinge": (1 + scores).clamp(min=0) ** 2,
        "focal": scores.sigmoid() ** form.number * softplus(scores),
    }
    return (weights * each[form.name]).sum(1)


@pytest.mark.parametrize("name", [n for n in losses.names() if losses.create(n).form is not None])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_the_declared_form_is_the_loss_itself(name, reduction):
    random = torch.Generator().manual_seed(1)
    scores = (3 * torch.randn(4, 9, generator=random)).double().requires_grad_()
    loss = losses.create(name, reduction=reduction)
    known = set(loss.get_params())
    options = {"gamma": 1.7, "temperature": 0.6, "negative_weights": np.linspace(0.5, 2, 9)}
    loss.set_params(**{k: v for k, v in options.items() if k in known})
    if loss.separable:
        targets = torch.zeros_like(scores)
        weights = loss.column_weights(targets)[1]
    else:
        targets = (torch.rand(4, 9, generator=random) < 0.4).double()
        weights = loss.row_targets(targets)
    wanted = by_form(loss.form, scores, weights)
    torch.testing.assert_close(loss(scores, targets), wanted, rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad(wanted.sum(), scores)
    torch.testing.assert_close(loss.gradient(scores, targets), gradient, rtol=1e-11, atol=1e-12)


# ---------------------------------------------------------------- shapes, types and extremes
@every_loss
@settings(max_examples=30)
@given(
    rows=st.integers(0, 4),
    columns=st.integers(0, 6),
    seed=st.integers(0, 1000),
    size=st.sampled_from([1.0, 100.0, 1e4]),
    share=st.sampled_from([0.0, 0.5, 1.0]),
    kept=st.sampled_from([0.0, 0.5, 1.0]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
    pick=st.sampled_from(["all", 1, 3]),
)
def test_finite_whatever_comes(name, rows, columns, seed, size, share, kept, dtype, pick):
    scores, targets = batch(rows, columns, seed, share)
    scores = (size * scores.sign() * (1 if seed % 2 else scores.abs().clamp(max=1))).to(dtype)
    mask = torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed)) < kept
    loss = losses.create(name)
    if "pick" in loss.get_params():
        loss.set_params(pick=pick)
    scores.requires_grad_()
    values = loss(scores, targets, mask=mask, step=seed)
    assert values.shape == (rows,)
    assert values.dtype == torch.promote_types(dtype, torch.float32)
    assert values.isfinite().all()
    assert (values >= 0).all()
    values.sum().backward()
    gradient = loss.gradient(scores, targets, mask=mask, step=seed)
    assert gradient.dtype == dtype
    assert gradient.isfinite().all()
    assert torch.equal(gradient, scores.grad)
    assert not gradient[~mask].any()
    for row in range(rows):
        if not mask[row].any() or (not loss.separable and not targets[row][mask[row]].any()):
            assert values[row] == 0
            assert not gradient[row].any()


@every_loss
def test_rows_are_scaled_by_what_comes_from_above(name):
    scores, targets = batch()
    scores.requires_grad_()
    loss = losses.create(name)
    upstream = torch.tensor([1.0, -2.0, 0.5])
    (loss(scores, targets) * upstream).sum().backward()
    expected = loss.gradient(scores, targets) * upstream[:, None]
    torch.testing.assert_close(scores.grad, expected)


@every_loss
def test_nothing_is_looked_at_in_padding(name):
    scores, targets = batch()
    weights = np.linspace(0.5, 2, 7)
    loss = losses.create(name, positive_weights=weights)
    mask = torch.ones(3, 9, dtype=torch.bool)
    mask[:, 7:] = False
    labels = torch.arange(9).expand(3, 9).clone()
    labels[:, 8] = 10**6  # no label has that number
    rubbish = torch.tensor([[torch.nan, torch.inf]] * 3)
    padded, padded_targets = torch.cat([scores, rubbish], 1), torch.cat([targets, rubbish], 1)
    for numbers in (labels, labels[0]):
        values = loss(padded, padded_targets, labels=numbers, mask=mask)
        torch.testing.assert_close(values, loss(scores, targets))
        gradient = loss.gradient(padded, padded_targets, labels=numbers, mask=mask)
        torch.testing.assert_close(gradient[:, :7], loss.gradient(scores, targets))
        assert not gradient[:, 7:].any()


@every_loss
def test_order_of_columns_does_not_matter(name):
    scores, targets = batch()
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4])
    loss = losses.create(name, positive_weights=np.linspace(0.5, 2, 7))
    shuffled = loss(scores[:, order], targets[:, order], labels=order)
    torch.testing.assert_close(shuffled, loss(scores, targets))
    shuffled = loss.gradient(scores[:, order], targets[:, order], labels=order)
    torch.testing.assert_close(shuffled, loss.gradient(scores, targets)[:, order])


# ---------------------------------------------------------------- labels in chunks
@pytest.mark.parametrize("name", [name for name in losses.names() if losses.create(name).separable])
def test_separable_losses_can_be_done_in_chunks(name):
    scores, targets = batch(columns=10)
    loss = losses.create(name, negative_weights=np.linspace(0.5, 2, 10))
    values, gradients = torch.zeros(3), []
    for labels in torch.arange(10).split(4):
        values += loss(scores[:, labels], targets[:, labels], labels=labels)
        gradients.append(loss.gradient(scores[:, labels], targets[:, labels], labels=labels))
    torch.testing.assert_close(values, loss(scores, targets))
    torch.testing.assert_close(torch.cat(gradients, 1), loss.gradient(scores, targets))


@pytest.mark.parametrize(
    "name", [name for name in losses.names() if losses.create(name).normalised]
)
@pytest.mark.parametrize("pick", ["all", 1, 2])
def test_normalised_losses_can_be_done_from_the_positives_of_each_row(name, pick):
    scores, targets = batch(rows=5, columns=10)
    loss = losses.create(name, pick=pick, positive_weights=np.linspace(0.5, 2, 10), reduction="sum")
    assert isinstance(loss, losses.Softmax)
    most = int(targets.sum(dim=1).max())
    positives = targets.argsort(dim=1, descending=True, stable=True)[:, :most]
    mask = targets.gather(1, positives) > 0
    compact = loss.row_targets(targets.gather(1, positives), positives, mask, step=5)
    t = torch.zeros_like(scores).scatter(1, positives, compact)
    torch.testing.assert_close(t, loss.row_targets(targets, step=5))
    cooled = scores / loss.temperature
    total = torch.logsumexp(cooled, dim=1, keepdim=True)
    values = (t * (total - cooled)).sum(dim=1)
    torch.testing.assert_close(values, loss(scores, targets, step=5))
    gradient = (t.sum(dim=1, keepdim=True) * torch.exp(cooled - total) - t) / loss.temperature
    torch.testing.assert_close(gradient, loss.gradient(scores, targets, step=5))


# ---------------------------------------------------------------- what is drawn
@picking_losses
@pytest.mark.parametrize("pick", [1, 2])
def test_draws_have_the_loss_of_all_labels_as_their_mean(name, pick):
    scores, targets = batch(rows=2, columns=5, share=0.7)
    targets = targets * torch.linspace(0.3, 1, 5)
    drawn = losses.create(name, pick=pick, positive_weights=np.linspace(0.5, 2, 5))
    whole = clone(drawn).set_params(pick="all")
    steps = 1000
    total = sum(drawn.row_targets(targets, step=step) for step in range(steps))
    torch.testing.assert_close(total / steps, whole.row_targets(targets), atol=0.06, rtol=0)
    values = sum(drawn(scores, targets, step=step) for step in range(200)) / 200
    torch.testing.assert_close(values, whole(scores, targets), rtol=0.2, atol=0.05)


@picking_losses
def test_draws_depend_on_seed_and_step_alone(name):
    _, targets = batch(rows=40, columns=12)
    before = torch.random.get_rng_state()
    loss = losses.create(name, pick=1)
    first = loss.row_targets(targets, step=7)
    assert torch.equal(first, clone(loss).row_targets(targets, step=7))
    assert not torch.equal(first, loss.row_targets(targets, step=8))
    assert not torch.equal(first, clone(loss).set_params(seed=1).row_targets(targets, step=7))
    assert torch.equal(before, torch.random.get_rng_state())
    assert ((first > 0).sum(dim=1) == (targets > 0).any(dim=1)).all()
    assert (first[targets == 0] == 0).all()


@picking_losses
def test_as_many_draws_as_labels_draw_all(name):
    targets = torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    loss = losses.create(name, pick=3)
    torch.testing.assert_close(loss.row_targets(targets), targets / 3)


# ---------------------------------------------------------------- parameters
@every_loss
def test_weights_may_change(name):
    scores, targets = batch()
    loss = losses.create(name, positive_weights=np.ones(7))
    torch.testing.assert_close(loss(scores, targets), losses.create(name)(scores, targets))
    loss.set_params(positive_weights=np.full(7, 2.0))
    torch.testing.assert_close(
        loss(scores, targets), losses.create(name, positive_weights=2.0)(scores, targets)
    )


@every_loss
def test_a_loss_is_its_parameters(name):
    loss = losses.create(name, reduction="sum", propensities=[0.5, 1.0], correction="surrogate")
    again = clone(loss)
    assert type(again) is type(loss)
    assert again.get_params() == loss.get_params()
    assert not loss.fitted


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(ParameterError, match="unknown loss 'hinge'; there are bce, contrastive"):
        losses.create("hinge")
    with pytest.raises(ParameterError, match="focal has no parameter 'gama'; did you mean 'gamma'"):
        losses.create("focal", gama=1)
    with pytest.raises(ParameterError, match="bce has no parameter 'zzz'; it has positive_weights"):
        losses.create("bce", zzz=1)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("bce", {"reduction": "max"}, "reduction of BCE must be one of"),
        ("bce", {"correction": "bound", "propensities": [1.0]}, "correction of BCE must be one of"),
        ("bce", {"correction": "unbiased"}, "propensities are not given"),
        ("bce", {"propensities": [0.5]}, "correction is None and propensities are given"),
        ("bce", {"propensities": "jpv", "correction": "unbiased"}, "one number a label"),
        ("bce", {"positive_weights": -1.0}, "positive_weights of BCE must be"),
        (
            "softmax",
            {"correction": "unbiased", "propensities": [1.0]},
            "with reduction='mean' has no unbiased correction",
        ),
        (
            "decoupled-softmax",
            {"correction": "unbiased", "propensities": [1.0], "reduction": "sum"},
            "take 'bound'",
        ),
        ("triplet", {"negatives": 0}, "negatives of Triplet must be"),
        ("contrastive", {"temperature": 0.0}, "temperature of SupervisedContrastive must be"),
        ("softmax", {"pick": "one"}, "pick of Softmax must be 'all' or an integer"),
    ],
)
def test_wrong_parameters_are_named(name, parameters, message):
    with pytest.raises(ParameterError, match=message):
        losses.create(name, **parameters)


def test_wrong_numbers_and_shapes_are_named():
    scores, targets = batch()
    with pytest.raises(ShapeError, match=r"scores are \(3, 7\) but targets are \(3, 6\)"):
        losses.BCE()(scores, targets[:, :6])
    with pytest.raises(ShapeError, match=r"must be \(rows, columns\), not \(7,\)"):
        losses.BCE()(scores[0], targets[0])
    with pytest.raises(ShapeError, match=r"labels are \(3,\) but targets are \(3, 7\)"):
        losses.BCE()(scores, targets, labels=torch.arange(3))
    with pytest.raises(ShapeError, match=r"mask must be bool \(3, 7\), not torch.float32 \(3, 7\)"):
        losses.BCE()(scores, targets, mask=targets)
    with pytest.raises(ShapeError, match="positive_weights are of 2 labels"):
        losses.BCE(positive_weights=[1.0, 2.0])(scores, targets)
    with pytest.raises(ParameterError, match="scores must be of a float type"):
        losses.BCE()(targets.long(), targets)
    with pytest.raises(ParameterError, match="numbers of at least 0"):
        losses.BCE(positive_weights=[-1.0] * 7)(scores, targets)
    with pytest.raises(ParameterError, match="label 0 has 0"):
        losses.BCE(propensities=[0.0] * 7, correction="surrogate")(scores, targets)
