"""Gradient caching: batches as large as one likes, in the memory of a few texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def encoded_in_chunks(encoder: nn.Module, chunks: Sequence[Any]) -> Tensor:
    """The vectors of all chunks, one after another, with a graph of one chunk at a time.

    All chunks are encoded without a graph, so that a loss of all vectors, of whatever form, and its
    gradient by the vectors can be computed. The backward pass encodes each chunk again, with the
    same dropout, and carries the gradient of its vectors on to the encoder (Gao et al. 2021,
    GradCache). The gradient is that of one large batch.

    Examples
    --------
    >>> encoder = nn.Linear(2, 1, bias=False)
    >>> encoded_in_chunks(encoder, [torch.ones(3, 2), torch.ones(1, 2)]).sum().backward()
    >>> encoder.weight.grad
    tensor([[4., 4.]])
    """
    if len(chunks) == 1:
        made: Tensor = encoder(chunks[0])
        return made

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _as_it_was(encoder)

    return torch.cat(
        [checkpoint(encoder, chunk, use_reentrant=False, context_fn=contexts) for chunk in chunks]
    )


def rows_in_chunks(
    values: Callable[[Tensor, Tensor, int], Tensor], texts: Tensor, labels: Tensor, cells: int
) -> Tensor:
    """What `values(some texts, labels, the first one's number)` gives for all texts, where no more
    than so many cells of texts and labels are held at a time."""
    size = max(1, cells // max(1, len(labels)))
    if size >= len(texts):
        return values(texts, labels, 0)
    return torch.cat(
        [
            checkpoint(values, texts[start : start + size], labels, start, use_reentrant=False)
            for start in range(0, len(texts), size)
        ]
    )


@contextmanager
def _recomputing(encoder: nn.Module, before: list[Tensor]) -> Iterator[None]:
    buffers = [b for b in encoder.buffers() if b.is_floating_point()]
    now = [buffer.clone() for buffer in buffers]
    with torch.no_grad():
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, now, strict=True):
                buffer.copy_(value)


def _as_it_was(encoder: nn.Module) -> AbstractContextManager[None]:
    """Within, buffers that passes move on, such as the vectors of a spectral norm, are as they are
    now."""
    return _recomputing(encoder, [b.clone() for b in encoder.buffers() if b.is_floating_point()])
