"""Arrow tables of lists, and data frames made of tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from megalabel.errors import MissingExtraError


def lists(lengths: np.ndarray, values: pa.Array) -> pa.LargeListArray:
    """A column of lists of these lengths, filled with the values in their order.

    Examples
    --------
    >>> lists(np.array([2, 0, 1]), pa.array(["a", "b", "c"])).to_pylist()
    [['a', 'b'], [], ['c']]
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)


def to_pandas(table: pa.Table) -> Any:
    """An Arrow table as a pandas data frame; an error that says how to get pandas without it."""
    try:
        import pandas  # noqa: F401 - Arrow would say less about its absence
    except ImportError:
        raise MissingExtraError("pandas", "pandas") from None
    return table.to_pandas()
