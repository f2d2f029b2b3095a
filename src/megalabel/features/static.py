"""StaticEmbedding: the mean of a text's word vectors, of a folder that others have written."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import array, instance, integer, number, one_of, optional, value
from megalabel.data.matrix import normalised_rows, products
from megalabel.errors import ParameterError
from megalabel.features.onnx import opened_tokenizer, token_rows
from megalabel.features.static_folder import read_static
from megalabel.parts import Featurizer


class StaticEmbedding(Featurizer):
    """The mean of the vectors of a text's tokens: an encoder that only looks vectors up.

    It needs `tokenizers` alone (the extra `onnx`). The vectors are kept in the model folder and
    mapped from there; a text without a known token is a vector of zeros.

    Parameters
    ----------
    folder : str, optional
        A folder of model2vec, or of sentence-transformers with a StaticEmbedding in it; None: what
        it knows comes from a trained tagger.
    norm : "auto", "l2" or None
        "auto": as the folder says; "l2": vectors are scaled to length one.
    max_length : int
        Longer texts are cut, in tokens.

    Attributes
    ----------
    tokenizer_ : str
        What `tokenizer.json` says.
    table_ : float32 array (tokens, width)
        The vectors of tokens, times their weights.
    silent_ : bool array (tokens,)
        Which tokens are left out of the mean: that of padding, and in most folders the unknown one.
    length_ : float or None
        What vectors are scaled to.
    projection_ : float32 array (narrow, width) or None
        What vectors are projected by at last.

    Examples
    --------
    >>> features = StaticEmbedding("potion-base-8M")
    >>> vectors = features.fit_transform(["red dress"])  # doctest: +SKIP
    """

    PARAMETERS = {  # noqa: RUF012
        "folder": instance(str) | one_of(None),
        "norm": one_of("auto", "l2", None),
        "max_length": integer(1),
    }

    LEARNED = {  # noqa: RUF012
        "tokenizer_": value(instance(str)),
        "table_": array(np.float32, "tokens", "width"),
        "silent_": array(np.bool_, "tokens"),
        "length_": optional(value(number(0))),
        "projection_": optional(array(np.float32, "narrow", "width")),
    }

    tokenizer_: str
    table_: np.ndarray
    silent_: np.ndarray
    length_: float | None = None
    projection_: np.ndarray | None = None

    def __init__(
        self, folder: str | None = None, *, norm: str | None = "auto", max_length: int = 512
    ) -> None:
        self.folder = folder
        self.norm = norm
        self.max_length = max_length

    def fit(self, inputs: Any = None, y: Any = None) -> Self:
        """Read the folder; nothing is learned from the inputs."""
        self.check_parameters()
        if self.folder is None:
            raise ParameterError("StaticEmbedding needs the folder of static word vectors")
        known = read_static(self.folder)
        scaled = known.normalised if self.norm == "auto" else self.norm is not None
        self.restore(
            {
                "tokenizer_": known.words.tokenizer,
                "table_": known.table,
                "silent_": known.silent,
                "length_": 1.0 if scaled else None,
            }
        )
        return self

    def transform(self, inputs: Any) -> np.ndarray:
        """One row a text, float32."""
        self.check_fitted()
        rows = token_rows(self._tokenizer, inputs)
        indptr = np.append(0, np.cumsum([len(row) for row in rows])).astype(np.int64)
        ids = np.fromiter((number for row in rows for number in row), np.int64, indptr[-1])
        spoken = ~self.silent_[ids]
        indptr = np.append(0, np.cumsum(spoken))[indptr]
        counts = np.diff(indptr)
        shares = np.repeat(1 / np.maximum(1, counts), counts).astype(np.float32)
        shape = (len(rows), len(self.table_))
        vectors = np.asarray(csr_matrix((shares, ids[spoken], indptr), shape) @ self.table_)
        if self.length_ is not None:
            vectors = np.asarray(normalised_rows(vectors)) * np.float32(self.length_)
        return vectors if self.projection_ is None else products(vectors, self.projection_)

    @property
    def n_features(self) -> int:
        """The width of the vectors."""
        self.check_fitted()
        last = self.table_.T if self.projection_ is None else self.projection_
        return len(last)

    def check_learned(self) -> None:
        """Open the tokenizer; every token that it gives must have a vector."""
        self._tokenizer = opened_tokenizer("StaticEmbedding", self.tokenizer_)
        self._tokenizer.enable_truncation(self.max_length)
        last = max(self._tokenizer.get_vocab().values(), default=-1)
        if last >= len(self.table_):
            raise ValueError(
                f"the tokenizer of StaticEmbedding has token {last}, but there are only "
                f"{len(self.table_)} vectors"
            )
