"""Texts known by their hashes: 8 bytes a text, to tell whether one was there before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from megalabel import _native
from megalabel.data.strings import to_arrays


def text_hashes(texts: pa.LargeStringArray) -> np.ndarray:
    """64 bits of each text: equal for equal texts, and for hardly any others.

    Examples
    --------
    >>> from megalabel.data.strings import strings
    >>> first, second, third = text_hashes(strings(["a dress", "blue jeans", "a dress"]))
    >>> first == third, first == second
    (np.True_, np.False_)
    """
    return _native.hash_texts(to_arrays(texts))


def known_hashes(*hashes: np.ndarray) -> np.ndarray:
    """All of several hashes, each once, sorted."""
    # not by NumPy's unique, which in some versions takes a hundred times as long
    ordered: np.ndarray = np.sort(np.concatenate(hashes))
    fresh = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return np.asarray(ordered[fresh])


def count_known(hashes: np.ndarray, known: np.ndarray) -> int:
    """How many of some hashes are among those that are known."""
    if not len(known):
        return 0
    places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return int(np.count_nonzero(known[places] == hashes))
