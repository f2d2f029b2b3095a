"""The products of rankers by torch: as those of NumPy."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from megalabel.neural import products
from megalabel.neural.products import TorchProducts
from megalabel.rankers import dense
from megalabel.rankers.attention import attended


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(products, "_HELD", 60)  # several chunks
    return TorchProducts(torch.device("cpu"))


def test_the_best_products_are_the_same(device, random):
    X, bias = random.normal(size=(5, 6)).astype(np.float32), np.zeros(40, np.float32)
    weights = random.normal(size=(40, 6)).astype(np.float16)
    weights[7] = weights[30]  # a tie
    for k in (3, 40):
        scores, ids = dense.best_products(X, weights, bias, k)
        found, at = device.best_products(X, weights, bias, k)
        np.testing.assert_array_equal(at, ids)
        np.testing.assert_allclose(found, scores, rtol=1e-5, atol=1e-5)


def test_shortlists_are_scored_the_same(device, random):
    X, bias = random.normal(size=(5, 6)).astype(np.float32), random.normal(size=9)
    weights = random.normal(size=(9, 6)).astype(np.float16)
    shortlist = random.integers(-1, 9, size=(5, 4))
    expected = dense.shortlisted(X, weights, bias.astype(np.float32), shortlist)
    found = device.shortlisted(X, weights, bias.astype(np.float32), shortlist)
    np.testing.assert_allclose(found[shortlist >= 0], expected[shortlist >= 0], atol=1e-5)


@pytest.mark.parametrize("rows", [1, 4])
def test_labels_attend_the_same(device, random, rows):
    states = random.normal(size=(4, 7, 6)).astype(np.float32)
    mask = np.arange(7) < np.array([7, 1, 3, 5])[:, None]
    queries = random.normal(size=(11, 6)).astype(np.float16)
    shapes = [(5, 6), (5,), (1, 5), (1,)]
    layers = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    numbers = random.integers(11, size=(rows, 8))
    expected = attended(states, mask, queries, layers, numbers)
    found = device.attended(states, mask, queries, layers, numbers)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_was_learned_stays_on_the_device_as_long_as_in_memory(device):
    weights, bias = np.ones((3, 2), np.float16), np.zeros(3, np.float32)
    X = np.ones((1, 2), np.float32)
    for _ in range(2):
        device.best_products(X, weights, bias, 1)
        assert len(device._held) == 2
    del weights
    gc.collect()
    assert len(device._held) == 1


def test_a_gpu_is_used_where_there_is_one(monkeypatch):
    assert dense.accelerator is products.gpu
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert dense.accelerator() is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert dense.accelerator().device.type == "cuda"
