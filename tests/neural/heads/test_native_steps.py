"""Sparse heads by the native core: as in plain torch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from megalabel.neural.heads.base import best_of_chunks  # noqa: E402
from megalabel.neural.heads.sparse import SparseModule  # noqa: E402
from megalabel.neural.heads.steps import native  # noqa: E402
from megalabel.neural.heads.steps.plain import normaliser_of  # noqa: E402
from megalabel.neural.losses import BCE, DecoupledSoftmax, Focal, SquaredHinge  # noqa: E402
from megalabel.neural.losses.softmax import Softmax  # noqa: E402
from megalabel.neural.targets import Targets  # noqa: E402

WIDTH, LABELS, ROWS = 20, 43, 37
WEIGHTS = np.linspace(0.5, 1.5, LABELS)
LOSSES = {
    "bce": BCE(),
    "mean": BCE(reduction="mean", relevance=True),
    "weighted": BCE(positive_weights=WEIGHTS, negative_weights=2 - WEIGHTS),
    "propensities": BCE(propensities=WEIGHTS / 2, correction="unbiased"),
    "hinge": SquaredHinge(negative_weights=0.3),
    "focal": Focal(gamma=1.5),
    "softmax": Softmax(),
}


def batch(seed):
    source = torch.Generator().manual_seed(seed)
    features = torch.randn((ROWS, WIDTH), generator=source)
    dense = (torch.rand((ROWS, LABELS), generator=source) < 0.2).float()
    dense *= 0.5 + 0.5 * torch.rand(dense.shape, generator=source)
    dense[:5] = 0
    rows, indices = dense.nonzero(as_tuple=True)
    counts = torch.bincount(rows, minlength=ROWS)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return features, Targets(indptr, indices, dense[rows, indices], LABELS)


def two(loss, **options):
    """The same head twice, of which the second makes plain steps."""
    heads = []
    for _ in range(2):
        head = SparseModule(WIDTH, LABELS, loss, fan_in=6, seed=5, **{"group": 4, **options})
        head.learning_rate = 0.2
        head.train()
        heads.append(head)
    assert native.step_for(heads[0]) is not None
    heads[1].step_of_kernels = lambda device: None
    return heads


def learned(head, steps=3):
    """Losses and gradients of some steps."""
    found = []
    for step in range(steps):
        features, targets = batch(step)
        features.requires_grad_()
        value = head(features, targets)
        value.backward()
        found += [value.detach(), features.grad]
    return found


def assert_same(heads, tolerance=1e-5):
    for name, tensor in heads[0].state_dict().items():
        other = heads[1].state_dict()[name]
        torch.testing.assert_close(tensor, other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"group": 1, "momentum": 0.9},
        {"group": 16, "optimiser": "adam", "weight_decay": 0.1, "bias": False},
        {"shard": (16, 32), "optimiser": "adam"},
    ],
    ids=["plain", "own", "adam", "shard"],
)
def test_steps_as_in_plain_torch(name, options):
    heads = two(LOSSES[name], **options, value_every=1)
    if options.get("optimiser") == "adam":
        for head in heads:
            head.learning_rate = 0.02
    for found, wanted in zip(learned(heads[0]), learned(heads[1]), strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    assert_same(heads)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_numbers_of_16_bits_are_rounded_as_in_plain_torch(optimiser):
    """But where the gradients by the scores, which plain torch rounds, tip the balance."""
    heads = two(BCE(), dtype=torch.bfloat16, optimiser=optimiser, momentum=0.5, group=16)
    for head in heads:
        head.learning_rate = 0.2 if optimiser == "sgd" else 0.005
    learned(heads[0], 1), learned(heads[1], 1)
    assert (heads[0].weights == heads[1].weights).float().mean() > 0.9
    near = {"atol": 1e-2, "rtol": 2**-6}
    torch.testing.assert_close(heads[0].weights, heads[1].weights, **near)
    torch.testing.assert_close(heads[0].optimiser.moment, heads[1].optimiser.moment, **near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"group": 1}, {"shard": (16, 32)}, {"bias": False}])
def test_the_best_labels_as_in_plain_torch(dtype, options):
    head = SparseModule(WIDTH, LABELS, None, fan_in=6, dtype=dtype, **{"group": 4, **options})
    features, _ = batch(0)
    for k in (1, 7, 99):
        scores, ids = head.top_k(features, k)
        wanted, known = best_of_chunks(head.chunk_scores(features), k)
        torch.testing.assert_close(scores, wanted, atol=1e-5, rtol=1e-5)
        assert (ids == known).float().mean() > 0.99
        assert ids.dtype == known.dtype


@pytest.mark.parametrize("options", [{}, {"shard": (16, 32)}, {"bias": False, "group": 1}])
def test_normalisers_as_in_plain_torch(options):
    head, plain = two(Softmax(), **options)
    features, _ = batch(0)
    own = head.own_normaliser(features)
    torch.testing.assert_close(own, normaliser_of(head, features), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(own, plain.own_normaliser(features), atol=1e-5, rtol=1e-5)


def test_what_it_cannot_do_is_left_to_plain_torch():
    head = SparseModule(WIDTH, LABELS, DecoupledSoftmax(), fan_in=6)
    assert native.step_for(head) is None
    assert native.step_for(SparseModule(WIDTH, LABELS, None, fan_in=6)) is None
