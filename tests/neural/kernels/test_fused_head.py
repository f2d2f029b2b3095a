"""A dense head's step by kernels against the same step in plain torch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the neural room needs torch")
pytest.importorskip("triton", reason="kernels need Triton")

from megalabel.neural.heads import DenseModule  # noqa: E402
from megalabel.neural.heads.steps.fused import form_of  # noqa: E402
from megalabel.neural.kernels.tuning import Tile, Tuning  # noqa: E402
from megalabel.neural.losses import (  # noqa: E402
    BCE,
    Focal,
    SquaredHinge,
    SupervisedContrastive,
    Triplet,
)
from megalabel.neural.targets import Targets  # noqa: E402

SMALL = Tile(16, 32, 16, warps=4, stages=2)


def losses(labels):
    up, down = np.random.default_rng(5).random((2, labels)) + 0.5
    return {
        "logistic": BCE(),
        "weighted": BCE(positive_weights=up, negative_weights=down, reduction="mean"),
        "hinge": SquaredHinge(),
        "focal": Focal(gamma=2.0),
        "softmax": SupervisedContrastive(temperature=0.7),
    }


def batch(rows, width, labels, device):
    source = torch.Generator().manual_seed(rows)
    x = torch.randn((rows, width), generator=source).to(device)
    indices = torch.randint(labels, (3 * rows,), generator=source)
    indices[1] = indices[0]  # named twice by the first row
    values = torch.rand(3 * rows, generator=source)
    targets = Targets(torch.arange(0, 3 * rows + 1, 3), indices, values, labels)
    return x, targets.to(device)


TUNING = Tuning(SMALL, SMALL)


@pytest.mark.parametrize("name", ["logistic", "softmax", "weighted", "hinge", "focal"])
def test_a_step_is_that_of_plain_torch(name, device):
    rows, width, labels = 5, 24, 77
    x, targets = batch(rows, width, labels, device)
    heads = [
        DenseModule(
            width,
            labels,
            losses(labels)[name],
            dtype=torch.bfloat16,
            bias=True,
            chunk=40,
            value_every=1,
            seed=3,
            tuning=tuning,
            device=device,
        )
        for tuning in (TUNING, None)
    ]
    if device == "cuda":
        heads[1]._fused = (heads[1].weights.device, None)
    first = [head.learn(x, targets)[0] for head in heads]
    torch.testing.assert_close(*first, rtol=1e-5, atol=1e-5)
    results = [head.learn(x, targets) for head in heads]
    assert heads[0]._fused[1] is not None
    assert heads[1]._fused[1] is None
    (value, gradient), (twin, by_twin) = results
    torch.testing.assert_close(value, twin, rtol=1e-2, atol=1e-4)
    torch.testing.assert_close(gradient, by_twin, rtol=3e-2, atol=3e-2 * float(by_twin.abs().max()))
    kernel, plain = (head.weights.float() for head in heads)
    torch.testing.assert_close(kernel, plain, rtol=2**-6, atol=2e-3)
    torch.testing.assert_close(heads[0].bias, heads[1].bias, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize(
    "options",
    [{}, {"optimiser": "adam"}, {"optimiser": "adam", "weight_decay": 0.1, "compensate": 1.0},
     {"momentum": 0.9, "weight_decay": 0.1}],
)  # fmt: skip
def test_optimisers_by_kernels_are_those_of_plain_torch(options, device):
    rows, width, labels = 6, 24, 50
    x, targets = batch(rows, width, labels, device)
    loss = losses(labels)["logistic"]
    shared = {"dtype": torch.bfloat16, "bias": True, "chunk": 24, "seed": 3, "device": device}
    heads = [
        DenseModule(width, labels, loss, tuning=t, **shared, **options) for t in (TUNING, None)
    ]
    if device == "cuda":
        heads[1]._fused = (heads[1].weights.device, None)
    for _ in range(3):
        for head in heads:
            head.learning_rate = 0.01
            head.learn(x, targets)
    assert heads[0]._fused[1] is not None
    kernel, plain = (head.weights.float() for head in heads)
    torch.testing.assert_close(kernel, plain, rtol=2**-6, atol=2e-3)
    kernel, plain = (head.bias for head in heads)
    torch.testing.assert_close(kernel, plain, rtol=2e-2, atol=2e-2 * float(plain.abs().max()))
    if options:
        kernel, plain = (head.optimiser.moment.float() for head in heads)
        torch.testing.assert_close(kernel, plain, rtol=2**-4, atol=2e-2 * float(plain.abs().max()))
    if "optimiser" in options:
        torch.testing.assert_close(*(h.optimiser.square for h in heads), rtol=2e-2, atol=1e-9)


def test_a_shard_by_kernels_is_a_part_of_the_whole(device):
    x, targets = batch(4, 16, 50, device)
    options = {"dtype": torch.bfloat16, "seed": 2, "tuning": TUNING, "device": device}
    loss = losses(50)["logistic"]
    whole = DenseModule(16, 50, loss, **options)
    value, gradient = whole.learn(x, targets)
    parts = [DenseModule(16, 50, loss, shard=s, **options) for s in ((0, 24), (24, 50))]
    results = [part.learn(x, targets) for part in parts]
    torch.testing.assert_close(sum(r[0] for r in results), value, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sum(r[1] for r in results), gradient, rtol=1e-4, atol=1e-5)
    assert torch.equal(torch.cat([part.weights for part in parts]), whole.weights)


def test_kernels_are_told_what_a_loss_declares():
    held = torch.arange(10, 30)
    forms = {name: form_of(loss, 30, held) for name, loss in losses(30).items()}
    assert [form.kind for form in forms.values()] == [0, 0, 1, 2, 3]
    assert [form.number for form in forms.values()] == [0, 0, 0, 2, pytest.approx(1 / 0.7)]
    assert forms["logistic"].scale is None
    wanted = losses(30)["weighted"].negative_weights[10:] / 30  # a mean over all labels
    np.testing.assert_allclose(forms["weighted"].scale, wanted, rtol=1e-6)
    assert form_of(Triplet(), 30, held) is None
