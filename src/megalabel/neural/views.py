"""Views: the same texts as words and as tokens, for classifiers that read both."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix, hstack, vstack

from megalabel.base import clone, instance, part
from megalabel.data.matrix import normalised_rows
from megalabel.features.concat import known_to_any
from megalabel.neural.tokens import Tokenizer, Tokens
from megalabel.parts import Featurizer


class Views:
    """Rows as a sparse matrix of words and as tokens; picked as those of a matrix are."""

    def __init__(self, words: csr_matrix, tokens: Tokens) -> None:
        self.words, self.tokens = words, tokens

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and the number of different words."""
        return len(self), int(self.words.shape[1])

    @property
    def arrays(self) -> list[np.ndarray]:
        """What tells these rows from others."""
        words = self.words
        return [*self.tokens.arrays, words.data, words.indices, words.indptr]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: Any) -> Views:
        return Views(self.words[rows], self.tokens[rows])

    def stacked(self, more: Views) -> Views:
        """These rows and, below them, more."""
        return Views(vstack([self.words, more.words], "csr"), self.tokens.stacked(more.tokens))


class TextViews(Featurizer):
    """Texts as words, weighted, and as tokens.

    Parameters
    ----------
    words : Featurizer
        Such as `Tfidf()`.
    tokens : Tokenizer

    Examples
    --------
    >>> from megalabel.features import Tfidf
    >>> views = TextViews(Tfidf(), Tokenizer()).fit_transform(["red dress", "blue jeans"])
    >>> views.words.shape, views.tokens.lengths
    ((2, 4), array([4, 4]))
    """

    PARAMETERS = {"words": instance(Featurizer), "tokens": instance(Tokenizer)}  # noqa: RUF012

    LEARNED = {"words_": part(Featurizer), "tokens_": part(Tokenizer)}  # noqa: RUF012

    words_: Featurizer
    tokens_: Tokenizer

    def __init__(self, words: Featurizer, tokens: Tokenizer) -> None:
        self.words = words
        self.tokens = tokens

    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Fit a copy of each."""
        self.check_parameters()
        self.words_, self.tokens_ = clone(self.words).fit(inputs), clone(self.tokens).fit(inputs)
        return self

    def fit_transform(self, inputs: Any, y: Any = None) -> Views:
        """Fit a copy of each, and both views of the texts, which each reads as it does by itself:
        in one pass where it can."""
        self.check_parameters()
        words, tokens = clone(self.words), clone(self.tokens)
        views = Views(csr_matrix(words.fit_transform(inputs)), tokens.fit_transform(inputs))
        self.words_, self.tokens_ = words, tokens
        return views

    def transform(self, inputs: Any) -> Views:
        """Both views of the texts."""
        self.check_fitted()
        return Views(csr_matrix(self.words_.transform(inputs)), self.tokens_.transform(inputs))

    def known(self, inputs: Any, vectors: Views) -> np.ndarray:
        """Which texts hold a known word or token."""
        return known_to_any([self.words_, self.tokens_], inputs, [vectors.words, vectors.tokens])

    @property
    def n_features(self) -> int:
        """The number of different words."""
        self.check_fitted()
        return self.words_.n_features

    def check_learned(self) -> None:
        """Words must be those of the featurizer that was given."""
        if type(self.words_) is not type(self.words):
            raise ValueError(f"words_ of TextViews must be a {type(self.words).__name__}")


def joined(words: csr_matrix, vectors: np.ndarray) -> csr_matrix:
    """Words and an encoder's vectors side by side, each of length one (Zhang et al. 2021, eq. 10).

    Examples
    --------
    >>> joined(csr_matrix([[3.0, 0.0]]), np.array([[0.0, 2.0]])).toarray()
    array([[1., 0., 0., 1.]], dtype=float32)
    """
    parts = [normalised_rows(words), csr_matrix(normalised_rows(vectors))]
    return hstack(parts, "csr", dtype=np.float32)
