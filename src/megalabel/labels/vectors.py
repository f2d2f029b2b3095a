"""Labels as vectors, so that like labels can be found: from the texts that carry them, their own
texts, or both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.sparse import csr_matrix, hstack, issparse

from megalabel import _native
from megalabel.base import check_argument, integer, number, one_of
from megalabel.data.matrix import canonical, csr_of, normalised_rows, sparse_rows
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.progress import progress

if TYPE_CHECKING:
    from megalabel.base import Matrix

METHODS = ("pifa", "pifa-paper", "text", "pifa+text")


def label_vectors(
    X: Matrix | None,
    Y: csr_matrix | None,
    method: Literal["pifa", "pifa-paper", "text", "pifa+text"] = "pifa",
    label_features: Matrix | None = None,
    *,
    mix: float | None = None,
    keep: int | None = None,
) -> csr_matrix:
    """One vector of unit length for each label; zeros where nothing is known of it.

    - `"pifa"` (positive instance feature aggregation, as PECOS computes it): the sum of the rows of
      X that carry the label, each weighed by its relevance in Y after the rows of Y are scaled to
      unit length, so that a text with many labels says less about each.
    - `"pifa-paper"` (Yu et al. 2022, XR-Linear, equation 4): the sum weighed by Y as it is.
    - `"text"`: the label's own text.
    - `"pifa+text"`: `"pifa"` and `"text"` together.

    Parameters
    ----------
    X : CSR matrix or 2-d array (texts, features)
        Taken as it is: with rows of unit length, as featurizers give, each text counts the same.
        Not looked at by `"text"`.
    Y : CSR matrix (texts, labels)
    label_features : CSR matrix or 2-d array (labels, features), optional
        The label texts through a featurizer, for the methods with text.
    mix : float from 0 to 1, optional
        How `"pifa+text"` joins its two vectors: by default side by side; with a number, as
        mix * pifa + (1 - mix) * text, for which both must have the same columns.
    keep : int, optional
        Keep only so many of the largest entries of each sum. The vectors of frequent labels have
        very many small entries; without them clustering takes less time and memory. Sparse X only.

    Returns
    -------
    CSR matrix (labels, features) of float32

    Examples
    --------
    >>> X = csr_matrix([[1, 0, 0], [0, 1, 0]], dtype=np.float32)
    >>> Y = csr_matrix([[1, 0, 1], [1, 0, 0]], dtype=np.float32)
    >>> label_vectors(X, Y, "pifa-paper").toarray().round(3).tolist()
    [[0.7070000171661377, 0.7070000171661377, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    check_argument("method", method, one_of(*METHODS))
    check_argument("mix", mix, one_of(None) | number(0, 1))
    check_argument("keep", keep, one_of(None) | integer(1))
    if mix is not None and method != "pifa+text":
        raise ParameterError(f"mix is for the method 'pifa+text', not {method!r}")
    text = _text_vectors(method, label_features) if "text" in method else None
    if method == "text":
        return text
    if X is None or Y is None:
        raise ParameterError(f"method {method!r} needs X and Y")
    Y = canonical(Y, "Y")
    if X.shape[0] != Y.shape[0]:
        raise ShapeError(f"X is {X.shape} but Y is {Y.shape}: as many rows are needed")
    vectors = _sums(X, Y if method == "pifa-paper" else normalised_rows(Y), keep)
    if text is None:
        return vectors
    if text.shape[0] != Y.shape[1]:
        raise ShapeError(f"label_features are {text.shape} but Y is {Y.shape}: a row a label")
    if mix is None:
        return normalised_rows(hstack([vectors, text], format="csr"))
    if text.shape[1] != vectors.shape[1]:
        raise ShapeError(
            f"label_features are {text.shape} but X is {X.shape}: a mix needs the same columns"
        )
    return normalised_rows(csr_matrix(mix * vectors + (1 - mix) * text))


def _sums(X: Matrix, Y: csr_matrix, keep: int | None) -> csr_matrix:
    weights = Y.T.tocsr()
    if not issparse(X):
        if keep is not None:
            raise ParameterError("keep is for a sparse X; every column of a dense one counts")
        return canonical(normalised_rows(_dense_sums(np.asarray(X), weights)))
    X = canonical(X, "X")
    limit = X.shape[1] if keep is None else min(keep, X.shape[1])
    with progress("summing label vectors"):
        starts, columns, values = _native.weighted_sums(
            weights=sparse_rows(weights), rows=sparse_rows(X), keep=limit
        )
    return csr_of(values, columns, starts, X.shape[1])


def _dense_sums(X: np.ndarray, weights: csr_matrix) -> np.ndarray:
    """The product weights @ X, summed in float64 a few columns at a time to save memory."""
    if not np.isfinite(X).all():
        raise DataError("X holds a value that is not a finite number")
    weights = weights.astype(np.float64)
    sums = np.empty((weights.shape[0], X.shape[1]), np.float32)
    for first in range(0, X.shape[1], 64):
        columns = slice(first, first + 64)
        sums[:, columns] = weights @ X[:, columns].astype(np.float64)
    return sums


def _text_vectors(method: str, label_features: Matrix | None) -> csr_matrix:
    if label_features is None:
        raise ParameterError(f"method {method!r} needs label_features")
    return normalised_rows(canonical(label_features, "label_features"))
