"""What featurizers take: a corpus, texts, or a stream of batches of either.

Texts are given as offsets and UTF-8 bytes, which the native core reads and Arrow is made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from megalabel.data import Corpus
from megalabel.data.strings import encoded, strings, to_arrays
from megalabel.errors import DataError

TextArrays: TypeAlias = tuple[np.ndarray, np.ndarray]

BATCH = 16384  # texts taken at a time from a stream that gives them one by one


def texts_in_memory(inputs: Any) -> TextArrays | None:
    """The texts of a corpus or a sequence of strings; None if `inputs` is a stream."""
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], str):
        return encoded(inputs)
    if isinstance(inputs, str | bytes):
        raise DataError("expected a sequence of texts, found one string; put it in a list")
    if isinstance(inputs, Corpus):
        if inputs.texts is None:
            raise DataError(f"expected a corpus with texts, found {inputs!r}")
        return to_arrays(inputs.texts)
    if not isinstance(inputs, Iterable):
        raise DataError(f"expected texts, found {type(inputs).__name__}")
    if isinstance(inputs, pa.Array | pa.ChunkedArray | np.ndarray):
        return to_arrays(strings(inputs))
    if not hasattr(inputs, "__len__") or _is_batch(next(iter(inputs), "")):
        return None
    return encoded(list(inputs))


def text_batches(inputs: Any) -> Iterator[TextArrays]:
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
            yield encoded(pending)
            pending = []
        if _is_batch(item):
            yield from text_batches(item)
        else:
            pending.append(item)
    if pending:
        yield encoded(pending)


def _is_batch(item: Any) -> bool:
    return isinstance(item, Corpus | pa.Array | pa.ChunkedArray | np.ndarray | list | tuple)
