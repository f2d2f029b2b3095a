"""Precomputed: a corpus's own feature matrix as the vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from scipy.sparse import issparse

from megalabel.base import integer, one_of, value
from megalabel.data import Corpus
from megalabel.data.matrix import canonical, dense, normalised_rows
from megalabel.errors import DataError, ShapeError
from megalabel.parts import Featurizer

if TYPE_CHECKING:
    from megalabel.base import Matrix


class Precomputed(Featurizer):
    """Vectors made elsewhere, passed through.

    Parameters
    ----------
    norm : "l2" or None
        Divide each row by its length, or leave it as it is.

    Examples
    --------
    >>> Precomputed().fit_transform([[3.0, 4.0], [0.0, 2.0]])
    array([[0.6, 0.8],
           [0. , 1. ]], dtype=float32)
    """

    PARAMETERS = {"norm": one_of("l2", None)}  # noqa: RUF012

    LEARNED = {"n_features_": value(integer(0))}  # noqa: RUF012

    n_features_: int

    def __init__(self, *, norm: str | None = "l2") -> None:
        self.norm = norm

    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Learn the number of columns of a corpus's features, or of a matrix."""
        self.check_parameters()
        self.n_features_ = int(_features(inputs).shape[1])
        return self

    def transform(self, inputs: Any) -> Matrix:
        """The rows of a corpus's features, or of a matrix; the input is left as it is."""
        self.check_fitted()
        matrix = _features(inputs)
        if matrix.shape[1] != self.n_features_:
            raise ShapeError(
                f"expected features of shape (n, {self.n_features_}), found {matrix.shape}"
            )
        return matrix if self.norm is None else normalised_rows(matrix)

    @property
    def n_features(self) -> int:
        """The number of columns."""
        self.check_fitted()
        return self.n_features_


def _features(inputs: Any) -> Matrix:
    if isinstance(inputs, Corpus):
        if inputs.features is None:
            raise DataError(f"expected a corpus with features, found {inputs!r}")
        return inputs.features
    return canonical(inputs, "features") if issparse(inputs) else dense(inputs)
