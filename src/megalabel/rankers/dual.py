"""DualVectors: labels by products with vectors of their texts, and with vectors of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np

from megalabel.base import Learned, array, number, optional, value, with_learned
from megalabel.data import LabelSet
from megalabel.data.matrix import as_dense, check_width, normalised_rows
from megalabel.errors import ParameterError
from megalabel.labels import LabelTree
from megalabel.linear.blend import Blend
from megalabel.rankers.dense import DenseTree, best_products


class DualVectors(DenseTree):
    """What a dual encoder answers with: a row for each label, which a text's views are multiplied
    by.

    A row has a part for each view: what that view gives of the label's text, a vector of the
    label's own that was learned, or a mean of both. It is a part of a trained tagger
    (`Classifier.parts`) and learns nothing by itself.

    Parameters
    ----------
    beams, prediction
        As of `DenseTree`; there is one level.

    Attributes
    ----------
    widths_ : int64 array (views,)
        How many numbers each view has.
    own_ : float32 array (views,), optional
        The share of a label's own vector in its part of a row. None: the labels' texts were read by
        another encoder, which is not kept.
    temperature_ : float
        What a label's text is divided by.
    tree_, weights_, biases_, labels_
        As of `DenseTree`.

    Examples
    --------
    >>> model = DualVectors.of(LabelSet(["cat", "dog"]), np.eye(2, dtype=np.float16), [2], [0.0])
    >>> more = model.add_labels(LabelSet(["lynx"]), np.array([[0.8, 0.6]]), Blend(shift=0.0))
    >>> more.rank(np.array([[0.8, 0.6]]), k=2).ids
    array([[2, 0]], dtype=int32)
    """

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        **DenseTree.LEARNED,
        "widths_": array(np.int64, "views"),
        "own_": optional(array(np.float32, "views")),
        "temperature_": value(number(0)),
    }

    widths_: np.ndarray
    own_: np.ndarray | None = None
    temperature_: float

    @classmethod
    def of(
        cls,
        labels: LabelSet,
        weights: np.ndarray,
        widths: Sequence[int],
        own: Sequence[float] | None,
        *,
        biases: np.ndarray | None = None,
        temperature: float = 1.0,
    ) -> Self:
        """One of a float16 row for each label; the others are as of the attributes."""
        return with_learned(
            cls(),
            labels_=labels,
            tree_=LabelTree.from_parents(np.full(len(weights), -1)),
            weights_=[weights],
            biases_=[np.zeros(len(weights), np.float32) if biases is None else biases],
            widths_=np.asarray(widths, np.int64),
            own_=None if own is None else np.asarray(own, np.float32),
            temperature_=float(temperature),
        )

    def add_labels(
        self,
        labels: LabelSet,
        rows: np.ndarray,
        blend: Blend,
        *,
        usual: np.ndarray | None = None,
        known: np.ndarray | None = None,
    ) -> Self:
        """A copy that knows more labels, after its own, by what views give of their texts.

        A label's own vector is

        vectors * (its text - usual texts) + neighbours * (the mean of its neighbours' own vectors)
        + (1 - neighbours) * (the mean of all own vectors),

        with texts as long as own vectors are on average. Neighbours are the labels with the largest
        products with its text, in the views that are of texts where there are any.

        Parameters
        ----------
        labels : LabelSet
        rows : array (labels, width)
            The views of their texts, side by side.
        blend : Blend
            Its `vectors`, `neighbours`, `nearest` and `temperature`; `shift` is added to biases.
        usual : array (texts, width), optional
            The views of the texts of some labels that are known: what these have in common says
            nothing of a label, and is learned to be far from texts. By default nothing.
        known : bool array (labels,), optional
            Whether anything is known of a label's text. Else its row is the mean of those there,
            which is hardly ever the best.
        """
        self.check_fitted()
        if self.own_ is None:
            raise ParameterError(
                "labels cannot be added here: their texts are read by an encoder of their own, "
                "which is not kept. Train with one encoder for texts and labels"
            )
        rows, leaves = as_dense(rows), self.tree_.leaf_of_label
        weights, biases = self.weights_[0][leaves], self.biases_[0][leaves]
        check_width(self, rows, weights.shape[1])
        shares, near = self._neighbours(rows, weights, blend)
        views = []
        for share, view, there, often in zip(
            self.own_.tolist(),
            self._views(rows),
            self._views(weights),
            self._views(rows[:0] if usual is None else as_dense(usual)),
            strict=True,
        ):
            view = view / np.float32(self.temperature_)
            if share > 0:
                own = np.asarray(normalised_rows(view))
                if len(often):
                    own -= normalised_rows(often).mean(axis=0)
                own *= blend.vectors * np.sqrt(np.square(there, dtype=np.float32).sum(1)).mean()
                own += (1 - blend.neighbours) * there.mean(axis=0, dtype=np.float32)
                for place in range(near.shape[1]):
                    own += blend.neighbours * shares[:, place, None] * there[near[:, place]]
                view = (1 - share) * view + share * own
            views.append(view)
        made = np.hstack(views).astype(np.float16)
        if known is not None:
            made[~known] = weights.mean(axis=0, dtype=np.float32)
        bias = np.full(len(labels), biases.mean() + blend.shift, np.float32)
        return self.of(
            self.labels_.extended(labels),
            np.concatenate([weights, made]),
            self.widths_.tolist(),
            self.own_.tolist(),
            biases=np.append(biases, bias),
            temperature=self.temperature_,
        )

    def _neighbours(
        self, rows: np.ndarray, weights: np.ndarray, blend: Blend
    ) -> tuple[np.ndarray, np.ndarray]:
        """The labels whose rows are nearest to each of these, and how much each counts."""
        assert self.own_ is not None
        by = self.own_ < 1
        columns = np.repeat(by if by.any() else ~by, self.widths_)
        nothing, most = np.zeros(len(weights), np.float32), min(blend.nearest, len(weights))
        products, near = best_products(rows[:, columns], weights[:, columns], nothing, most)
        products *= np.float32(self.temperature_)  # as cosines, if vectors are of length one
        shares = np.exp((products - products[:, :1]) / np.float32(max(blend.temperature, 1e-6)))
        return shares / shares.sum(axis=1, keepdims=True), near

    def _views(self, rows: np.ndarray) -> list[np.ndarray]:
        """The columns of each view."""
        return np.split(rows, np.cumsum(self.widths_)[:-1], axis=1)

    def check_learned(self) -> None:
        """There must be one level, whose rows are as wide as all views."""
        super().check_learned()
        if len(self.weights_) != 1:
            raise ValueError(f"DualVectors must have one level, not {len(self.weights_)}")
        width = self.weights_[0].shape[1]
        if (self.widths_ < 0).any() or self.widths_.sum() != width:
            raise ValueError(f"widths_ of DualVectors must add up to {width}")
        if self.own_ is not None and not ((self.own_ >= 0) & (self.own_ <= 1)).all():
            raise ValueError("own_ of DualVectors must be shares from 0 to 1")
