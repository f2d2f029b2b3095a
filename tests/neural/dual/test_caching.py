"""Gradients of large batches, a chunk at a time."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn

from megalabel.neural import DecoupledSoftmax, SupervisedContrastive, Triplet
from megalabel.neural.dual.caching import encoded_in_chunks, rows_in_chunks
from megalabel.neural.encoders.bag import ResidualBlock

LOSSES = [SupervisedContrastive(), DecoupledSoftmax(), Triplet(temperature=None)]


class Encoder(nn.Module):
    """Two layers, with dropout, and a block that moves its buffers with every pass."""

    def __init__(self, dropout=0.0, block=False):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(dropout))
        self.block = ResidualBlock(8, 0.0, "sum") if block else None
        self.double()

    def forward(self, x):
        made = self.layers(x)
        return made if self.block is None else self.block(made)


def gradients(encoder, texts, labels, loss, read):
    torch.manual_seed(1)
    vectors = [nn.functional.normalize(read(encoder, chunks)) for chunks in (texts, labels)]
    targets = (torch.arange(12)[:, None] % 9 == torch.arange(9)).double()
    loss(vectors[0] @ vectors[1].T, targets).mean().backward()
    return [p.grad for p in encoder.parameters()]


def drawn(seed, rows):
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("size", [1, 5, 12])
def test_the_gradient_is_that_of_one_large_batch(loss, size):
    texts, labels = drawn(2, 12), drawn(3, 9)
    whole = gradients(Encoder(), [texts], [labels], loss, encoded_in_chunks)
    parts = [x.split(size) for x in (texts, labels)]
    for one, other in zip(
        whole, gradients(Encoder(), *parts, loss, encoded_in_chunks), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("block", [False, True])
def test_chunks_are_encoded_again_as_they_were(block):
    """The same dropout, and the same buffers, as where all graphs are kept."""

    def kept(encoder, chunks):
        return torch.cat([encoder(chunk) for chunk in chunks])

    parts = [drawn(seed, rows).split(5) for seed, rows in ((2, 12), (3, 9))]
    found = []
    for read in (kept, encoded_in_chunks):
        encoder = Encoder(dropout=0.4, block=block)
        found.append(gradients(encoder, *parts, LOSSES[1], read))
        found[-1] += [b.clone() for b in encoder.buffers()]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_no_more_than_a_chunk_is_held():
    """However many chunks there are, the graphs of two are never there at once."""
    alive, most = weakref.WeakSet(), []

    class Watched(Encoder):
        def forward(self, x):
            if torch.is_grad_enabled():
                made = self.layers[0](x)
                alive.add(made)
                most.append(len(alive))
                return self.layers[1:](made * made)
            return super().forward(x)

    for chunks in (2, 8):
        most.clear()
        encoded_in_chunks(Watched(), [drawn(i, 4) for i in range(chunks)]).sum().backward()
        assert max(most) <= 1


@pytest.mark.parametrize("cells", [1, 20, 10**6])
def test_rows_of_scores_are_made_some_at_a_time(cells):
    texts, labels = (drawn(seed, n).requires_grad_() for seed, n in ((0, 7), (1, 4)))
    targets, sizes = torch.eye(7, 4, dtype=torch.float64), []

    def values(some, others, start):
        sizes.append(len(some) * len(others))
        return LOSSES[1](some @ others.T, targets[start : start + len(some)])

    found = torch.autograd.grad(rows_in_chunks(values, texts, labels, cells).sum(), (texts, labels))
    assert max(sizes) <= max(4, cells)
    wanted = torch.autograd.grad(values(texts, labels, 0).sum(), (texts, labels))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
