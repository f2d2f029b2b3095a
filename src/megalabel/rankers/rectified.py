"""Rectified: what another ranker says of vectors behind a layer of rectified numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from megalabel.base import Check, Learned, array, part
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import as_dense, check_width, products
from megalabel.errors import ParameterError
from megalabel.parts import Classifier

if TYPE_CHECKING:
    from megalabel.base import Matrix

_VALUES = 1 << 24  # of the layer, held at a time


class Rectified(Classifier):
    """A ranker of max(0, A x + c), for vectors x.

    It is a part of a trained tagger (`Classifier.parts`) and learns nothing by itself.

    Attributes
    ----------
    layer_ : float16 array (wide, width)
        A.
    layer_bias_ : float32 array (wide,)
        c.
    ranker_ : Classifier
        Of vectors so wide.
    labels_ : LabelSet

    Examples
    --------
    >>> from megalabel.rankers import SparseLabels
    >>> labels = LabelSet(["cat", "dog"])
    >>> ranker = SparseLabels.from_dense(np.eye(2), [0, 0], labels, fan_in=1)
    >>> layer = np.array([[1, 1], [-1, 0]], np.float16)
    >>> model = Rectified.over(ranker, layer, np.zeros(2, np.float32))
    >>> model.rank(np.array([[1.0, 1.0]]), k=1).tags()
    [[Tag(label='cat', probability=0.88...)]]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {}

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "layer_": array(np.float16, "wide", "width"),
        "layer_bias_": array(np.float32, "wide"),
        "ranker_": part(Classifier),
    }

    layer_: np.ndarray
    layer_bias_: np.ndarray
    ranker_: Classifier

    @classmethod
    def over(cls, ranker: Classifier, layer: np.ndarray, bias: np.ndarray) -> Self:
        """A fitted ranker behind a layer."""
        made = cls()
        made.restore(
            {
                "labels_": ranker.labels_,
                "layer_": layer.astype(np.float16),
                "layer_bias_": bias.astype(np.float32),
                "ranker_": ranker,
            }
        )
        return made

    def _fit(self, examples: Examples) -> None:
        """Not possible: what it knows comes from a trained tagger."""
        raise ParameterError("Rectified is a part of a trained tagger: fit the system that made it")

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k best labels."""
        self.check_fitted()
        check_width(self, X, self.layer_.shape[1])
        size = max(1, _VALUES // len(self.layer_))
        parts = [
            self.ranker_.rank(self._layered(as_dense(X[start : start + size])), k)
            for start in range(0, max(1, X.shape[0]), size)
        ]
        ids = np.concatenate([part.ids for part in parts])
        return Ranking(ids, np.concatenate([part.scores for part in parts]), self.labels_)

    def _layered(self, X: np.ndarray) -> np.ndarray:
        made = products(X, self.layer_)
        made += self.layer_bias_
        np.maximum(made, 0, out=made)
        return made

    def check_learned(self) -> None:
        """The ranker must be of the same labels."""
        if len(self.ranker_.labels_) != len(self.labels_):
            raise ValueError(
                f"Rectified of {len(self.labels_)} labels has a ranker of "
                f"{len(self.ranker_.labels_)}"
            )
