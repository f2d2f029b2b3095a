"""A sparse head's step and search by kernels against the same in plain torch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the neural room needs torch")
pytest.importorskip("triton", reason="kernels need Triton")

from megalabel.neural.heads.parts import PartsModule  # noqa: E402
from megalabel.neural.heads.sparse import SparseModule  # noqa: E402
from megalabel.neural.kernels.tuning import GroupTuning  # noqa: E402
from megalabel.neural.losses import BCE, Focal, SquaredHinge, SupervisedContrastive  # noqa: E402
from megalabel.neural.targets import Targets  # noqa: E402

WIDTH, LABELS = 40, 45
TUNING = GroupTuning(area=16 * 16)


def losses():
    up, down = np.random.default_rng(5).random((2, LABELS)) + 0.5
    return {
        "logistic": BCE(),
        "weighted": BCE(positive_weights=up, negative_weights=down, reduction="mean"),
        "hinge": SquaredHinge(),
        "focal": Focal(gamma=2.0),
    }


def batch(rows, device):
    source = torch.Generator().manual_seed(rows)
    x = torch.randn((rows, WIDTH), generator=source).to(device)
    indices = torch.randint(LABELS, (3 * rows,), generator=source)
    values = torch.rand(3 * rows, generator=source)
    return x, Targets(torch.arange(0, 3 * rows + 1, 3), indices, values, LABELS).to(device)


def pair(loss, device, **options):
    """A head that learns by kernels and one that learns in plain torch."""
    options = {"fan_in": 9, "group": 4, "seed": 3, "device": device, **options}
    fused = SparseModule(WIDTH, LABELS, loss, tuning=TUNING, **options)
    plain = SparseModule(WIDTH, LABELS, loss, **options)
    plain.step_of_kernels = lambda _: None
    plain.best_by_kernels = lambda *_: None
    return fused, plain


@pytest.mark.parametrize("name", ["logistic", "weighted", "hinge", "focal"])
def test_training_by_kernels_is_that_of_plain_torch(name, device):
    fused, plain = pair(losses()[name], device, momentum=0.9, weight_decay=0.01, value_every=1)
    for rows in (5, 18, 3):
        x, targets = batch(rows, device)
        value, gradient = fused.learn(x, targets)
        twin, by_twin = plain.learn(x, targets)
        torch.testing.assert_close(value, twin, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient, by_twin, rtol=1e-4, atol=1e-6)
    assert fused._fused[1] is not None
    torch.testing.assert_close(fused.weights, plain.weights, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(fused.bias, plain.bias, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(fused.optimiser.moment, plain.optimiser.moment, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("group", [1, 8])
def test_half_precision_is_rounded_alike(group, device):
    fused, plain = pair(BCE(), device, dtype=torch.bfloat16, group=group, fan_in=20)
    x, targets = batch(7, device)
    for head in (fused, plain):
        head.learning_rate = 0.01
        head.learn(x, targets)
    same = (fused.weights == plain.weights).float().mean()
    assert same > 0.95  # sums are in another order
    torch.testing.assert_close(fused.weights, plain.weights, rtol=2**-6, atol=2e-3)


def test_training_by_kernels_is_that_of_autograd(device):
    head, _ = pair(BCE(), device, dtype=torch.float32, value_every=1)
    groups, inputs, size = head.weights.shape
    at = head.indices.long()[:, None, :].expand(groups, size, inputs)
    weights = head.weights.double().transpose(1, 2).clone().requires_grad_()
    bias = head.bias.double().clone().requires_grad_()
    optimiser = torch.optim.SGD([weights, bias], lr=head.learning_rate)
    for turn in range(6):
        x, targets = batch(4 + turn, device)
        dense = torch.zeros((groups, size, WIDTH), dtype=torch.float64, device=device)
        scores = x.double() @ dense.scatter(2, at, weights).reshape(-1, WIDTH).T
        scores = (scores + bias.reshape(-1))[:, :LABELS]
        wanted = targets.dense(0, LABELS).double()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum")
        optimiser.zero_grad()
        (loss / len(x)).backward()
        value, _ = head.learn(x, targets)
        torch.testing.assert_close(value.double(), loss.detach() / len(x), rtol=1e-5, atol=1e-6)
        optimiser.step()


def test_shards_are_parts_of_the_whole(device):
    x, targets = batch(4, device)
    options = {"fan_in": 9, "group": 4, "seed": 3, "device": device, "tuning": TUNING}
    options |= {"dtype": torch.bfloat16, "value_every": 1}
    whole = SparseModule(WIDTH, LABELS, BCE(), **options)
    value, gradient = whole.learn(x, targets)
    parts = [SparseModule(WIDTH, LABELS, BCE(), shard=s, **options) for s in ((0, 24), (24, 45))]
    results = [part.learn(x, targets) for part in parts]
    torch.testing.assert_close(sum(r[0] for r in results), value, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sum(r[1] for r in results), gradient, rtol=1e-4, atol=1e-5)
    assert torch.equal(torch.cat([part.weights for part in parts]), whole.weights)

    for part in parts:
        found, its = part.top_k(x, 45)
        assert found.shape == (4, part.held)
        assert ((its >= part.first) & (its < part.last)).all()


def test_the_best_labels_are_those_of_plain_torch(device):
    fused, plain = pair(BCE(), device)
    x, _ = batch(3, device)
    for k in (5, 100):
        torch.testing.assert_close(fused.top_k(x, k)[0], plain.top_k(x, k)[0])
        assert torch.equal(fused.top_k(x, k)[1], plain.top_k(x, k)[1])
    order = torch.randperm(LABELS, generator=torch.Generator().manual_seed(1)).numpy()
    by_kernels, by_torch = (PartsModule({"tail": head}, order) for head in (fused, plain))
    assert torch.equal(by_kernels.top_k(x, 7)[1], by_torch.top_k(x, 7)[1])


def test_what_kernels_do_not_do_is_left_to_plain_torch(device):
    options = {"fan_in": 9, "group": 4, "tuning": TUNING, "device": device}
    adam = SparseModule(WIDTH, LABELS, BCE(), optimiser="adam", **options)
    softmax = SparseModule(WIDTH, LABELS, SupervisedContrastive(), **options)
    x, targets = batch(3, device)
    for head in (adam, softmax):
        head.learn(x, targets)
        assert head._fused[1] is None
