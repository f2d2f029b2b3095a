"""BagEmbedding: the vectors of a trained bag of words, by NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import array, check_array, instance, optional, part, value
from megalabel.data.matrix import products
from megalabel.errors import ParameterError, ShapeError
from megalabel.parts import Featurizer


class BagEmbedding(Featurizer):
    """What a `neural.BagEncoder` makes of a text: its weighted words added up, and what follows.

    It is a part of a trained tagger (`Classifier.parts`) and learns nothing by itself.

    Parameters
    ----------
    words : Featurizer
        What gives the words and their weights.

    Attributes
    ----------
    words_ : Featurizer
    table_ : float32 array (words, width)
        The vectors of words.
    block_ : dict of arrays
        The residual block (`residual`); empty where there is none.
    projection_ : float32 array (narrow, width) or None
        What vectors are projected by at last.

    Examples
    --------
    >>> from megalabel.features import Precomputed
    >>> bag = BagEmbedding(Precomputed(norm=None))
    >>> table = np.array([[1, -1], [0, 2]], np.float32)
    >>> learned = {"words_": bag.words.fit(np.eye(2)), "table_": table}
    >>> bag.restore(learned | {"block_": {}, "projection_": None})
    >>> bag.transform(np.array([[1, 0], [1, 1]]))
    array([[1., 0.],
           [1., 1.]], dtype=float32)
    """

    PARAMETERS = {"words": instance(Featurizer)}  # noqa: RUF012

    LEARNED = {  # noqa: RUF012
        "words_": part(Featurizer),
        "table_": array(np.float32, "words", "width"),
        "block_": value(instance(dict)),
        "projection_": optional(array(np.float32, "narrow", "width")),
    }

    words_: Featurizer
    table_: np.ndarray
    block_: dict[str, np.ndarray]
    projection_: np.ndarray | None = None

    def __init__(self, words: Featurizer) -> None:
        self.words = words

    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Not possible: what it knows comes from a trained tagger."""
        raise ParameterError(
            "BagEmbedding is a part of a trained tagger: fit the system that made it"
        )

    def transform(self, inputs: Any) -> np.ndarray:
        """One row a text, float32."""
        self.check_fitted()
        words = csr_matrix(self.words_.transform(inputs))
        if words.shape[1] != len(self.table_):
            raise ShapeError(f"rows are {words.shape} but there are {len(self.table_)} words")
        made = np.maximum(words @ self.table_, 0)
        if self.block_:
            made = residual(made, self.block_)
        return made if self.projection_ is None else products(made, self.projection_)

    def known(self, inputs: Any, vectors: Any) -> np.ndarray:
        """Which of the inputs hold a known word."""
        return self.words_.known(inputs, self.words_.transform(inputs))

    @property
    def n_features(self) -> int:
        """The width of the vectors."""
        self.check_fitted()
        last = self.table_.T if self.projection_ is None else self.projection_
        return len(last)

    def onnx_twin(self, int8: bool) -> BagEmbedding:
        """Itself: it needs no torch."""
        if int8:
            raise ParameterError(
                "int8 is for encoders that read tokens; a bag of words is exported without"
            )
        return self

    def check_learned(self) -> None:
        """Words and vectors must fit each other."""
        if type(self.words_) is not type(self.words):
            raise ValueError(f"words_ of BagEmbedding must be a {type(self.words).__name__}")
        if self.block_:
            check_block("BagEmbedding", self.block_, self.table_.shape[1])


def residual(x: np.ndarray, block: Mapping[str, np.ndarray]) -> np.ndarray:
    """a relu(W x + b) + c x for each row x, with `weight` W, `bias` b and `gates` (a, c).

    Examples
    --------
    >>> block = {"weight": -np.eye(2), "bias": np.zeros(2), "gates": np.array([1.0, 0.5])}
    >>> residual(np.array([[2.0, -2.0]]), block)
    array([[1., 1.]])
    """
    made = np.maximum(products(x, block["weight"]) + block["bias"], 0)
    return np.asarray(block["gates"][0] * made + block["gates"][1] * x)


def check_block(owner: str, block: Any, width: int) -> None:
    """Raise a ValueError unless the arrays are a residual block of vectors of that width."""
    shapes = {"weight": (width, width), "bias": (width,), "gates": (2,)}
    if not isinstance(block, dict) or block.keys() != shapes.keys():
        raise ValueError(f"block_ of {owner} must hold {', '.join(shapes)}")
    for name, shape in shapes.items():
        check_array(owner, f"block_[{name!r}]", block[name], np.float32, shape)
