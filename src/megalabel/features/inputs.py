"""What featurizers take: a corpus, texts, or a stream of batches of either."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from megalabel.data import Corpus
from megalabel.data.strings import strings
from megalabel.errors import DataError

BATCH = 16384  # texts taken at a time from a stream that gives them one by one


def texts_in_memory(inputs: Any) -> pa.LargeStringArray | None:
    """The texts of a corpus or a sequence of strings; None if `inputs` is a stream."""
    if isinstance(inputs, str | bytes):
        raise DataError("expected a sequence of texts, found one string; put it in a list")
    if isinstance(inputs, Corpus):
        if inputs.texts is None:
            raise DataError(f"expected a corpus with texts, found {inputs!r}")
        return inputs.texts
    if not isinstance(inputs, Iterable):
        raise DataError(f"expected texts, found {type(inputs).__name__}")
    if isinstance(inputs, pa.Array | pa.ChunkedArray | np.ndarray):
        return strings(inputs)
    if not hasattr(inputs, "__len__") or _is_batch(next(iter(inputs), "")):
        return None
    return strings(inputs if isinstance(inputs, list) else list(inputs))


def text_batches(inputs: Any) -> Iterator[pa.LargeStringArray]:
    """The texts of `inputs`: at once if they are in memory, as they come if it is a stream.

    The items of a stream are batches (a corpus, an array, a list), or single texts.
    """
    texts = texts_in_memory(inputs)
    if texts is not None:
        yield texts
        return
    pending: list[str] = []
    for item in inputs:
        if pending and (len(pending) == BATCH or _is_batch(item)):
            yield strings(pending)
            pending = []
        if _is_batch(item):
            yield from text_batches(item)
        else:
            pending.append(item)
    if pending:
        yield strings(pending)


def _is_batch(item: Any) -> bool:
    return isinstance(item, Corpus | pa.Array | pa.ChunkedArray | np.ndarray | list | tuple)
