"""Projected: what a trained network sees of vectors, by NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from megalabel.base import check_array, instance, list_of, part, unfitted, value, with_learned
from megalabel.data.matrix import normalised_rows, products
from megalabel.errors import ParameterError, ShapeError
from megalabel.parts import Featurizer

_NAMES = {"weight", "bias", "tanh", "unit"}


class Projected(Featurizer):
    """Views of vectors side by side: each a linear map, a tanh and a scaling to length one, or some
    of these.

    It is a part of a trained tagger (`Classifier.parts`) and learns nothing by itself.

    Parameters
    ----------
    vectors : Featurizer
        What gives the vectors.

    Attributes
    ----------
    vectors_ : Featurizer
    views_ : list of dict
        Of each, `weight` (narrow, width) and `bias` (narrow,), float32 arrays or None; and `tanh`
        and `unit`, bool.

    Examples
    --------
    >>> from megalabel.features import Precomputed
    >>> vectors = Precomputed(norm=None).fit(np.eye(2))
    >>> as_it_is = {"weight": None, "bias": None, "tanh": False, "unit": False}
    >>> both = Projected.of(vectors, [as_it_is, as_it_is | {"unit": True}])
    >>> both.transform(np.array([[3.0, 4.0]]))
    array([[3. , 4. , 0.6, 0.8]], dtype=float32)
    """

    PARAMETERS = {"vectors": instance(Featurizer)}  # noqa: RUF012

    LEARNED = {  # noqa: RUF012
        "vectors_": part(Featurizer),
        "views_": list_of(value(instance(dict))),
    }

    vectors_: Featurizer
    views_: list[dict[str, Any]]

    def __init__(self, vectors: Featurizer) -> None:
        self.vectors = vectors

    @classmethod
    def of(cls, vectors: Featurizer, views: Sequence[Mapping[str, Any]]) -> Self:
        """Views of what fitted features give."""
        learned = {"vectors_": vectors, "views_": [dict(view) for view in views]}
        return with_learned(cls(unfitted(vectors)), **learned)

    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Not possible: what it knows comes from a trained tagger."""
        raise ParameterError("Projected is a part of a trained tagger: fit the system that made it")

    def transform(self, inputs: Any) -> np.ndarray:
        """One row a text, float32."""
        self.check_fitted()
        return projected(np.asarray(self.vectors_.transform(inputs)), self.views_)

    def known(self, inputs: Any, vectors: Any) -> np.ndarray:
        """Which of the inputs the vectors' features know something of."""
        return self.vectors_.known(inputs, vectors)

    @property
    def n_features(self) -> int:
        """The width of all views together."""
        self.check_fitted()
        wide = self.vectors_.n_features
        return sum(wide if v["weight"] is None else len(v["weight"]) for v in self.views_)

    def onnx_twin(self, int8: bool) -> Self:
        """The same over features that need no torch."""
        twin = self.vectors_.onnx_twin(int8)
        return self if twin is self.vectors_ else self.of(twin, self.views_)

    def check_learned(self) -> None:
        """Views must be such as `projected` takes."""
        if type(self.vectors_) is not type(self.vectors):
            raise ValueError(f"vectors_ of Projected must be a {type(self.vectors).__name__}")
        if not self.views_:
            raise ValueError("views_ of Projected must hold at least one view")
        for view in self.views_:
            if view.keys() != _NAMES or not all(type(view[x]) is bool for x in ("tanh", "unit")):
                raise ValueError(f"views_ of Projected must hold {', '.join(sorted(_NAMES))}")
            weight, bias = view["weight"], view["bias"]
            if weight is not None:
                check_array("Projected", "views_ (weight)", weight, np.float32, (None, None))
            if bias is not None:
                narrow = 0 if weight is None else len(weight)
                check_array("Projected", "views_ (bias)", bias, np.float32, (narrow,))


def projected(vectors: np.ndarray, views: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """The views of each row, side by side."""
    return np.hstack([_seen(np.asarray(vectors, np.float32), view) for view in views])


def _seen(vectors: np.ndarray, view: Mapping[str, Any]) -> np.ndarray:
    made = vectors
    if view["weight"] is not None:
        if made.shape[1] != view["weight"].shape[1]:
            raise ShapeError(
                f"vectors are {made.shape}, but a view is of {view['weight'].shape[1]} numbers"
            )
        made = products(made, view["weight"])
    if view["bias"] is not None:
        made = made + view["bias"]
    if view["tanh"]:
        made = np.tanh(made)
    return np.asarray(normalised_rows(made)) if view["unit"] else made
