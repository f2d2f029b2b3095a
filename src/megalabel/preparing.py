"""Prepared: what a fit of a tagger begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix, issparse

from megalabel.data import Corpus, LabelSet
from megalabel.data.examples import Examples
from megalabel.data.matrix import filled_rows
from megalabel.data.strings import beginnings
from megalabel.errors import DataError, ParameterError
from megalabel.features import Precomputed, StemmedWords
from megalabel.labels.own import own_labels
from megalabel.labels.points import LabelPoints
from megalabel.parts import Classifier, Featurizer


@dataclass
class Prepared:
    """What a fit begins with; made by `Tagger.prepare`."""

    features: Featurizer
    """Fitted."""
    examples: Examples
    """All texts."""
    held_out: np.ndarray
    """Which of them calibration and decision learn from."""
    first: Examples
    """What the classifier is trained on at first."""
    classifier: Classifier
    """Not fitted yet."""
    seconds: float = 0.0
    """How long it took to make the features."""
    memory: int = 0
    """Bytes in use before."""
    label_rows: LabelRows | None = None
    """The texts of labels, which are learned from beside `examples` and `first`."""
    used: bool = False
    """True if a fit has taken it up."""


@dataclass(frozen=True)
class LabelRows:
    """The texts of some labels as vectors, to be learned from as label points."""

    points: LabelPoints
    rows: Any
    numbers: np.ndarray
    """Of the labels."""
    labels: LabelSet
    own: csr_matrix | None
    """(texts, labels): which texts are labels, where these do not carry their own label."""
    alone: bool
    """Whether a label that is one of the texts is not taught the labels of the text."""

    @classmethod
    def of(
        cls, points: LabelPoints, features: Featurizer, corpus: Corpus, alone: bool
    ) -> LabelRows:
        """Those of a corpus's labels; a text of which features know nothing is left out. `alone`
        is as of `LabelRows`."""
        labels, numbers = corpus.labels, points.chosen(corpus.label_counts)
        texts = points.texts_of(labels).take(pa.array(numbers))
        rows = features.transform(texts)
        if issparse(rows) or isinstance(rows, np.ndarray):
            filled = filled_rows(rows)
            rows, numbers = rows[filled], numbers[filled]
        return cls(points, rows, numbers, labels, own_labels(corpus), alone)

    def added_to(self, examples: Examples, texts: np.ndarray) -> Examples:
        """Examples of some texts of the corpus, and these label points, whose targets are by the
        labels of these examples.

        Of a text that is a label, nothing is said of that label; and the label is taught the labels
        of the text, too, unless `alone`. Else they would speak against each other.
        """
        targets = self.points.targets_of(examples.targets)[self.numbers]
        silent = None
        if self.own is not None and not self.alone:
            taught = np.zeros(len(self.labels), np.float32)
            taught[self.numbers] = 1
            silent = csr_matrix(self.own[texts].multiply(taught))
            targets = targets + silent.T[self.numbers] @ (examples.targets > 0)
            np.minimum(targets.data, 1, out=targets.data)
        names = self.labels.names.take(pa.array(self.numbers))
        weight = self.points.weight
        return examples.with_label_points(self.rows, targets, weight, titles=names, silent=silent)


def check_label_points(
    points: LabelPoints, corpus: Corpus, features: Featurizer, classifier: Classifier, name: str
) -> None:
    """Raise an error that says why a classifier cannot learn from a corpus's label points."""
    points.check_parameters()
    if not classifier.learns_label_points:
        raise ParameterError(f"{name} learns nothing from texts of labels: leave out label_points")
    if points.targets != "self" and classifier.ranks_held_out:
        raise ParameterError(
            f"{name} ranks each text of training as if it was not there, which labels that come "
            f"together would tell of: take label_points='self', not {points.targets!r}"
        )
    if points.weight != 1 and not classifier.weighs_label_points:
        raise ParameterError(
            f"{name} counts every row the same: leave out weight={points.weight} of label_points"
        )
    if isinstance(features, Precomputed) or corpus.texts is None:
        raise ParameterError(
            "label_points are texts of labels, but the features are vectors made elsewhere: give "
            "texts, or leave out label_points"
        )
    if "label_shard" in corpus.source:
        raise ParameterError(
            "label_points are of all labels, but the corpus is a part of them (label_shard): fit "
            "on all labels, or leave out label_points"
        )
    points.texts_of(corpus.labels)


def check_learnable(corpus: Corpus) -> None:
    """Raise a DataError where a corpus has no text or no label."""
    if not len(corpus):
        raise DataError("there is no text to learn from")
    if corpus.texts is not None and not pc.any(pc.not_equal(corpus.texts, "")).as_py():
        raise DataError("all texts are empty: there is nothing to learn from")
    if not len(corpus.labels):
        raise DataError(
            "the corpus has no labels to learn: expected a field `labels` with names, or "
            "`target_ind` with numbers"
        )


def blank_texts(corpus: Corpus) -> int:
    """How many texts of a corpus are empty, or nothing but blanks.

    Examples
    --------
    >>> blank_texts(Corpus(["red dress", "", "  "]))
    2
    """
    if corpus.texts is None:
        return 0
    return len(corpus) - (pc.sum(pc.match_substring_regex(corpus.texts, r"\S")).as_py() or 0)


def in_random_order(targets: csr_matrix, seed: int) -> np.ndarray:
    """The numbers of texts in random order, any part of which has its share of texts with no label
    that another text has: held out, those are like new texts without any known label."""
    order = np.random.default_rng(seed).permutation(targets.shape[0])
    shared = np.bincount(targets.indices, minlength=targets.shape[1]) > 1
    cells = csr_matrix(
        (shared[targets.indices].astype(np.int64), targets.indices, targets.indptr), targets.shape
    )
    known = np.asarray(cells.sum(axis=1)).ravel() > 0
    place = np.empty(len(order))
    for kind in (known, ~known):
        rows = order[kind[order]]
        place[rows] = (np.arange(len(rows)) + 0.5) / max(1, len(rows))
    return np.argsort(place, kind="stable")


def examples_of(features: Featurizer, vectors: Any, corpus: Corpus) -> Examples:
    """What a classifier is fitted on: a corpus, with what features make of its texts."""

    def columns() -> Sequence[str] | None:
        terms = getattr(features, "terms_", None)  # hashed words have no names
        return None if terms is None else terms.to_pylist()

    return Examples.of(
        vectors,
        corpus.targets,
        corpus.labels,
        excluded=corpus.excluded,
        find_label_rows=cache(lambda: _label_rows(features, corpus.labels)),
        find_columns=columns,
        find_titles=lambda: titles_of(corpus),
    )


def titles_of(corpus: Corpus) -> pa.LargeStringArray | None:
    """What people know the rows of a corpus by: how its texts begin, or its ids."""
    return corpus.ids if corpus.texts is None else beginnings(corpus.texts)


def _label_rows(features: Featurizer, labels: LabelSet) -> Any:
    """The labels' own texts as vectors; of what looks for names, those in its words."""
    if isinstance(features, StemmedWords):
        return features.names(labels)
    if isinstance(features, Precomputed):
        raise ParameterError(
            "the texts of labels are asked for, but the features are vectors made elsewhere; fit "
            "the classifier by itself, with label_rows"
        )
    texts = labels.names if labels.texts is None else labels.texts
    if pc.all(pc.utf8_is_decimal(texts)).as_py():
        raise DataError("the texts of labels are asked for, but these are known by number alone")
    return features.transform(texts)
