"""LabelPoints: the texts of labels as rows of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix

from megalabel.base import Check, Component, Learned, integer, number, one_of
from megalabel.data import LabelSet
from megalabel.errors import DataError, ParameterError
from megalabel.labels.cooccurrence import METHODS, label_targets

_BINS = 5  # of labels by frequency, each with as many texts
_THRESHOLD = 0.1  # of co-occurrence (Kharbanda et al. 2024, table 1.7)


class LabelPoints(Component):
    """How the texts of labels are learned from, as rows of training beside the corpus's texts.

    Parameters
    ----------
    targets : "self", "cooccurrence", "random-walk" or "symmetric"
        What the text of a label is taught: the label alone; also labels that a share of its texts
        carry (`labels.cooccurrence`), with that share for how surely; or others by
        `labels.random_walks` or `labels.symmetric_cooccurrence`.
    threshold : float from 0 to 1, optional
        Shares that are not above it are left out. None: 0.1 of "cooccurrence", else 0.
    weight : float
        What a label's text counts, beside 1 for a text, where classifiers weigh rows: linear ones
        do. By default as much (benchmarks/label_points.py).
    share : float
        The share of labels whose texts are taken.
    sample : "random" or "tail-first"
        Which labels a share is of: any, or rare ones first, by five bins of labels by frequency
        that have as many texts each.
    texts : "names", "texts" or "both"
        What a label's text is: its name, its longer text where it has one, or both.
    seed : int
        Fixes which labels are taken, and random walks.

    Examples
    --------
    >>> points = LabelPoints(targets="cooccurrence", threshold=0.4)
    >>> points.targets_of(csr_matrix([[1, 1, 0], [1, 0, 0], [0, 1, 1]])).toarray().tolist()
    [[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 1.0, 1.0]]
    >>> points.texts_of(LabelSet(["Q144", "Q146"], names=["dog", "cat"])).to_pylist()
    ['dog', 'cat']
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "targets": one_of(*METHODS),
        "threshold": number(0, 1) | one_of(None),
        "weight": number(1e-6, 1e6),
        "share": number(0, 1),
        "sample": one_of("random", "tail-first"),
        "texts": one_of("names", "texts", "both"),
        "seed": integer(0),
    }
    LEARNED: ClassVar[Mapping[str, Learned]] = {}

    def __init__(
        self,
        targets: str = "self",
        *,
        threshold: float | None = None,
        weight: float = 1.0,
        share: float = 1.0,
        sample: str = "random",
        texts: str = "names",
        seed: int = 0,
    ) -> None:
        self.targets = targets
        self.threshold = threshold
        self.weight = weight
        self.share = share
        self.sample = sample
        self.texts = texts
        self.seed = seed

    def texts_of(self, labels: LabelSet) -> pa.LargeStringArray:
        """The text of each label; a DataError where labels are known by number alone."""
        texts = labels.names if labels.texts is None else labels.texts
        if self.texts == "names":
            texts = labels.names
        elif self.texts == "both" and labels.texts is not None:
            blank = pa.scalar(" ", pa.large_string())
            texts = pc.binary_join_element_wise(labels.names, labels.texts, blank)
        if len(labels) and pc.all(pc.utf8_is_decimal(texts)).as_py():
            raise DataError(
                "label_points are the texts of labels, but these are known by number alone: give "
                "the labels names, or fit without label_points"
            )
        return texts

    def targets_of(self, Y: csr_matrix) -> csr_matrix:
        """What the text of each label is taught, from the labels of texts: (labels, labels)."""
        self.check_parameters()
        threshold = self.threshold
        if threshold is None:
            threshold = _THRESHOLD if self.targets == "cooccurrence" else 0.0
        return label_targets(Y, self.targets, threshold, self.seed)

    def chosen(self, counts: np.ndarray) -> np.ndarray:
        """The numbers of the labels whose texts are taken, of labels with so many texts each.

        Examples
        --------
        >>> LabelPoints(share=0.5, sample="tail-first").chosen(np.array([90, 1, 90, 2]))
        array([1, 3])
        """
        self.check_parameters()
        most = round(self.share * len(counts))
        order = np.random.default_rng(self.seed).permutation(len(counts))
        if self.sample == "tail-first":
            # bins begin with the rarest; within one, labels stay in random order
            by_count = np.argsort(counts, kind="stable")
            middle = np.cumsum(counts[by_count]) - counts[by_count] / 2
            bins = np.empty(len(counts), np.int64)
            bins[by_count] = _BINS * middle / max(1, int(counts.sum()))
            order = order[np.argsort(bins[order], kind="stable")]
        return np.sort(order[:most])


def as_label_points(given: LabelPoints | str | None) -> LabelPoints | None:
    """Label points, by the name of their targets or as they are.

    Examples
    --------
    >>> as_label_points("cooccurrence")
    LabelPoints(targets='cooccurrence')
    """
    if given is None or isinstance(given, LabelPoints):
        return given
    if given not in METHODS:
        raise ParameterError(f"label_points must be one of {METHODS}, not {given!r}")
    return LabelPoints(given)
