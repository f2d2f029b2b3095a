"""Concat: the vectors of several featurizers side by side; Each: those of each by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csr_matrix, hstack, issparse

from megalabel.base import (
    clone,
    instance,
    list_of,
    number,
    one_of,
    part,
    sequence_of,
    unfitted,
    with_learned,
)
from megalabel.data.matrix import normalised_rows
from megalabel.errors import ParameterError, ShapeError
from megalabel.parts import Featurizer

if TYPE_CHECKING:
    from megalabel.base import Matrix


class _Several(Featurizer):
    """What holds the fitted copies of several featurizers."""

    LEARNED = {"parts_": list_of(part(Featurizer))}  # noqa: RUF012

    parts: Sequence[Featurizer]
    parts_: list[Featurizer]

    def __init__(self, parts: Sequence[Featurizer]) -> None:
        self.parts = parts

    @classmethod
    def of(cls, parts: Sequence[Featurizer], **parameters: Any) -> Self:
        """Of parts that are fitted already, as they are."""
        made = cls([unfitted(part) for part in parts], **parameters)
        return with_learned(made, parts_=list(parts))

    @property
    def n_features(self) -> int:
        """The number of columns of all parts together."""
        self.check_fitted()
        return sum(part.n_features for part in self.parts_)

    def onnx_twin(self, int8: bool) -> Featurizer:
        """The same over parts that need no torch."""
        return self.over([part.onnx_twin(int8) for part in self.parts_])

    def take_labels(self, numbers: Any) -> Self:
        """The same for some of the labels; itself where no part knows labels."""
        self.check_fitted()
        return self.over([part.take_labels(numbers) for part in self.parts_])

    def over(self, parts: Sequence[Featurizer]) -> Self:
        """The same over other parts, which are fitted; itself where these are its own."""
        if all(one is other for one, other in zip(parts, self.parts_, strict=True)):
            return self
        more = {k: v for k, v in self.get_params(deep=False).items() if k != "parts"}
        return self.of(parts, **more)

    def check_learned(self) -> None:
        """Each part must be fitted."""
        if [type(one) for one in self.parts_] != [type(one) for one in self.parts]:
            raise ValueError(
                f"parts_ of {type(self).__name__} must be fitted copies of {self.parts!r}"
            )


class Concat(_Several):
    """Blocks of columns from several featurizers, each of length one, weighted, and joined.

    Every block's rows are divided by their length and multiplied by the block's weight; then the
    joined rows are divided by theirs, unless `norm` is None. The result is sparse if any block is.

    Parameters
    ----------
    parts : list of Featurizer
        What gives the blocks. They are copied; the fitted copies are in `parts_`.
    weights : list of float, optional
        How much each block counts; all the same where not given.
    norm : "l2" or None
        None: joined rows stay as they are.

    Examples
    --------
    >>> from megalabel.features import Tfidf
    >>> both = Concat([Tfidf(), Tfidf(analyzer="char_wb", ngram_range=(3, 3))], weights=[2, 1])
    >>> both.fit_transform(["red dress", "blue jeans"]).shape
    (2, 21)
    """

    PARAMETERS = {  # noqa: RUF012
        "parts": sequence_of(instance(Featurizer)),
        "weights": sequence_of(number(0.0)) | one_of(None),
        "norm": one_of("l2", None),
    }

    def __init__(
        self,
        parts: Sequence[Featurizer],
        *,
        weights: Sequence[float] | None = None,
        norm: str | None = "l2",
    ) -> None:
        self.parts = parts
        self.weights = weights
        self.norm = norm

    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Fit a copy of each part."""
        self.restore({"parts_": [part.fit(inputs) for part in self._fresh_parts()]})
        return self

    def transform(self, inputs: Any) -> Matrix:
        """The joined rows."""
        self.check_fitted()
        return self._joined([part.transform(inputs) for part in self.parts_])

    def known(self, inputs: Any, vectors: Matrix) -> np.ndarray:
        """Which of the inputs any part knows something of."""
        blocks = [vectors[:, low:high] for low, high in self._bounds()]
        return known_to_any(self.parts_, inputs, blocks)

    def fit_transform(self, inputs: Any, y: Any = None) -> Matrix:
        """`fit` and `transform` in one."""
        parts = self._fresh_parts()
        blocks = [part.fit_transform(inputs) for part in parts]
        self.restore({"parts_": parts})
        return self._joined(blocks)

    def held_out(self, vectors: Matrix, some: np.ndarray, left_out: np.ndarray | None) -> Matrix:
        """Some rows of the vectors of all texts, as if fitted without the texts `left_out`; None:
        each as if without itself."""
        return self._joined(
            [
                part.held_out(vectors[:, low:high], some, left_out)
                for part, (low, high) in zip(self.parts_, self._bounds(), strict=True)
            ]
        )

    def _bounds(self) -> Iterator[tuple[int, int]]:
        """Where the columns of each part begin and end."""
        return pairwise(accumulate((part.n_features for part in self.parts_), initial=0))

    def _fresh_parts(self) -> list[Featurizer]:
        self.check_parameters()
        if not self.parts:
            raise ParameterError("parts of Concat must hold at least one featurizer")
        if self.weights is not None and len(self.weights) != len(self.parts):
            raise ParameterError(
                f"Concat has {len(self.parts)} parts but {len(self.weights)} weights"
            )
        return list(clone(self.parts))

    def _joined(self, blocks: list[Matrix]) -> Matrix:
        if len({block.shape[0] for block in blocks}) > 1:
            raise ShapeError(f"blocks differ in rows: shapes {[block.shape for block in blocks]}")
        weights = [1.0] * len(blocks) if self.weights is None else self.weights
        blocks = [
            # words that came apart do not make a row longer
            normalised_rows(block, weight, getattr(part, "counted_", None))
            for block, weight, part in zip(blocks, weights, self.parts_, strict=True)
        ]
        if any(map(issparse, blocks)):
            joined = hstack([csr_matrix(block) for block in blocks], "csr")
        else:
            joined = np.hstack(blocks)
        return joined if self.norm is None else normalised_rows(joined)


class Each(_Several):
    """The vectors of several featurizers, not joined: a list of matrices.

    For `rankers.Ensemble`, each of whose models sees its own.

    Parameters
    ----------
    parts : list of Featurizer
        They are copied; the fitted copies are in `parts_`.

    Examples
    --------
    >>> from megalabel.features import Tfidf
    >>> both = Each([Tfidf(), Tfidf(analyzer="char_wb", ngram_range=(3, 3))])
    >>> [rows.shape for rows in both.fit_transform(["red dress", "blue jeans"])]
    [(2, 4), (2, 17)]
    """

    PARAMETERS = {"parts": sequence_of(instance(Featurizer))}  # noqa: RUF012

    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Fit a copy of each part."""
        self.check_parameters()
        self.parts_ = [part.fit(inputs) for part in clone(self.parts)]
        return self

    def transform(self, inputs: Any) -> Any:
        """The rows of each part."""
        self.check_fitted()
        return [part.transform(inputs) for part in self.parts_]

    def known(self, inputs: Any, vectors: list[Any]) -> np.ndarray:
        """Which of the inputs any part knows something of."""
        return known_to_any(self.parts_, inputs, vectors)


def known_to_any(parts: Sequence[Featurizer], inputs: Any, rows: Sequence[Any]) -> np.ndarray:
    """Which of the inputs any of several featurizers knows something of."""
    known = [part.known(inputs, own) for part, own in zip(parts, rows, strict=True)]
    return np.asarray(np.any(known, axis=0))
