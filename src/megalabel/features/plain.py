"""PlainTexts: texts as they are, for what reads them by itself."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from megalabel.base import Check, Learned
from megalabel.data.strings import from_arrays
from megalabel.errors import DataError
from megalabel.features.inputs import texts_in_memory
from megalabel.parts import Featurizer


class PlainTexts(Featurizer):
    """Texts as they are given, beside the vectors of other featurizers (`Each`).

    Examples
    --------
    >>> PlainTexts().fit_transform(["red dress", "blue jeans"])
    ['red dress', 'blue jeans']
    """

    PARAMETERS: ClassVar[dict[str, Check]] = {}
    LEARNED: ClassVar[dict[str, Learned]] = {}

    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Itself: there is nothing to learn."""
        return self

    def transform(self, inputs: Any) -> list[str] | pa.Array:
        """The texts, as a list or an Arrow array."""
        if isinstance(inputs, list) and inputs and isinstance(inputs[0], str):
            return inputs  # who reads them takes a column of Arrow apart again, query by query
        texts = texts_in_memory(inputs)
        if texts is None:
            raise DataError("expected texts in memory, found a stream")
        return from_arrays(*texts)

    def known(self, inputs: Any, vectors: list[str] | pa.Array) -> np.ndarray:
        """Nothing is known of any text: that is for the featurizers beside this one to say."""
        return np.zeros(len(vectors), bool)

    @property
    def n_features(self) -> int:
        """0: texts are no columns."""
        return 0
