"""Mapped: what was trained over vectors that stay as they are, by NumPy alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from scipy.special import erf

from megalabel.base import (
    array,
    check_array,
    instance,
    one_of,
    optional,
    part,
    unfitted,
    value,
    with_learned,
)
from megalabel.data.matrix import as_dense, products
from megalabel.errors import ParameterError, ShapeError
from megalabel.parts import Featurizer

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + erf(x * np.float32(0.5**0.5))),
    "tanh": np.tanh,
}


class Mapped(Featurizer):
    """What a `neural.FrozenEncoder` makes of a text: the vectors of a model, and a map over them.

    It is a part of a trained tagger (`Classifier.parts`) and learns nothing by itself.

    Parameters
    ----------
    vectors : Featurizer
        What gives the vectors.
    activation : "relu", "gelu", "tanh" or None

    Attributes
    ----------
    vectors_ : Featurizer
    map_ : dict of arrays
        As `mapped` takes it.
    projection_ : float32 array (narrow, width) or None
        What vectors are projected by at last.

    Examples
    --------
    >>> from megalabel.features import Precomputed
    >>> features = Mapped(Precomputed(norm=None), activation=None)
    >>> turned = {"outer": np.eye(2, dtype=np.float32)[::-1].copy(), "bias": np.ones(2, np.float32)}
    >>> features.restore({"vectors_": features.vectors.fit(np.eye(2)), "map_": turned})
    >>> features.transform(np.eye(2)).round(2)
    array([[1.  , 2.41],
           [2.41, 1.  ]], dtype=float32)
    """

    PARAMETERS = {  # noqa: RUF012
        "vectors": instance(Featurizer),
        "activation": one_of(None, *ACTIVATIONS),
    }

    LEARNED = {  # noqa: RUF012
        "vectors_": part(Featurizer),
        "map_": value(instance(dict)),
        "projection_": optional(array(np.float32, "narrow", "width")),
    }

    vectors_: Featurizer
    map_: dict[str, np.ndarray]
    projection_: np.ndarray | None = None

    def __init__(self, vectors: Featurizer, *, activation: str | None = "gelu") -> None:
        self.vectors = vectors
        self.activation = activation

    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Not possible: what it knows comes from a trained tagger."""
        raise ParameterError("Mapped is a part of a trained tagger: fit the system that made it")

    def transform(self, inputs: Any) -> np.ndarray:
        """One row a text, float32."""
        self.check_fitted()
        rows = as_dense(self.vectors_.transform(inputs))
        if rows.shape[1] != (wide := self.vectors_.n_features):
            raise ShapeError(f"rows are {rows.shape} but the map is of vectors of {wide}")
        return self._mapped(rows)

    def _mapped(self, rows: np.ndarray) -> np.ndarray:
        made = mapped(rows, self.map_, self.activation)
        return made if self.projection_ is None else products(made, self.projection_)

    def known(self, inputs: Any, vectors: Any) -> np.ndarray:
        """Which of the inputs the vectors know anything of."""
        nothing = np.zeros((1, self.vectors_.n_features), np.float32)
        return self.vectors_.known(inputs, vectors - self._mapped(nothing))

    @property
    def n_features(self) -> int:
        """The width of the vectors."""
        self.check_fitted()
        return len(self.map_["outer"] if self.projection_ is None else self.projection_)

    def onnx_twin(self, int8: bool) -> Mapped:
        """The same over vectors that need no torch."""
        vectors = self.vectors_.onnx_twin(int8)
        made = Mapped(unfitted(vectors), activation=self.activation)
        return with_learned(made, **self.learned() | {"vectors_": vectors})

    def check_learned(self) -> None:
        """The arrays of the map must fit each other."""
        if type(self.vectors_) is not type(self.vectors):
            raise ValueError(f"vectors_ of Mapped must be a {type(self.vectors).__name__}")
        needed = {"outer", "bias"} | ({"inner", "inner_bias"} if self.activation else set())
        if not needed <= self.map_.keys() <= needed | {"skip"}:
            raise ValueError(f"map_ of Mapped must hold {', '.join(sorted(needed))}")
        wide, width = self.vectors_.n_features, len(self.map_["outer"])
        inner = len(self.map_["inner"]) if self.activation else wide
        shapes = {"outer": (width, inner), "bias": (width,), "skip": (width, wide)}
        shapes |= {"inner": (inner, wide), "inner_bias": (inner,)}
        for name, found in self.map_.items():
            check_array("Mapped", f"map_[{name!r}]", found, np.float32, shapes[name])
        if self.projection_ is not None and self.projection_.shape[1] != width:
            raise ValueError(f"projection_ of Mapped must be of vectors of {width}")


def mapped(x: np.ndarray, arrays: Mapping[str, np.ndarray], activation: str | None) -> np.ndarray:
    """A map of rows x, which are first made as long as sqrt(width): B a(A x + c) + b + S x.

    `arrays` are `inner` A, `inner_bias` c, `outer` B, `bias` b, and `skip` S where there is one; a
    is the activation. Without one, the map is B x + b + S x.

    Examples
    --------
    >>> double = {"outer": 2 * np.eye(4), "bias": np.ones(4)}
    >>> mapped(np.array([[1.0, 0, 0, 0]]), double, None)
    array([[5., 1., 1., 1.]], dtype=float32)
    """
    length = np.linalg.norm(x, axis=1, keepdims=True)
    x = np.asarray(x * (x.shape[1] ** 0.5 / np.where(length > 0, length, 1)), np.float32)
    seen = x
    if activation is not None:
        inner = products(x, arrays["inner"]) + np.asarray(arrays["inner_bias"], np.float32)
        seen = np.asarray(ACTIVATIONS[activation](inner), np.float32)
    made = products(seen, arrays["outer"]) + np.asarray(arrays["bias"], np.float32)
    return made + products(x, arrays["skip"]) if "skip" in arrays else made
