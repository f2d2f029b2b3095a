"""What a corpus is like: sizes, labels per text, texts per label, the tail."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from megalabel.data.corpus import Corpus


class Bin(NamedTuple):
    """How many labels have from `low` to `high` texts."""

    low: int
    high: int
    labels: int

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


_NAMES = {"tail_share": "used labels with at most five texts", "labels_used": "used labels"}


@dataclass(frozen=True)
class Statistics:
    """The figures of a corpus. Those of texts per label are over labels that have any."""

    texts: int
    labels: int
    labels_used: int
    labels_without_texts: int
    features: int
    labels_per_text_mean: float
    labels_per_text_median: float
    labels_per_text_max: int
    texts_per_label_mean: float
    texts_per_label_median: float
    tail_share: float  # of the used labels, those with at most five texts
    texts_without_labels: int
    empty_texts: int
    duplicate_texts: int  # texts that an earlier text equals
    words_per_text: float
    text_bytes: int
    histogram: tuple[Bin, ...]

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain numbers, for JSON; the histogram as {"1": …, "2-3": …, …}."""
        return asdict(self) | {"histogram": {str(bin): bin.labels for bin in self.histogram}}

    def in_words(self) -> dict[str, str]:
        """The figures by names for people, the share in percent; without the histogram."""
        shown = {}
        for name, value in asdict(self).items():
            if name == "histogram" or (name == "features" and not value):
                continue
            number = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
            if name == "tail_share":
                number = f"{value:.1%}"
            shown[_NAMES.get(name, name.replace("_", " "))] = number
        return shown


def statistics(corpus: Corpus) -> Statistics:
    """The figures of a corpus.

    Examples
    --------
    >>> corpus = Corpus(["red dress", "jeans", "jeans"], targets=[["dress", "red"], ["jeans"], []])
    >>> figures = statistics(corpus)
    >>> figures.labels_per_text_mean, figures.texts_without_labels, figures.duplicate_texts
    (1.0, 1, 1)
    """
    per_text = np.diff(corpus.targets.indptr)
    per_label = corpus.label_counts
    used = per_label[per_label > 0]
    texts = corpus.texts
    words = _words(corpus)
    duplicates = size = 0
    if texts is not None and len(texts):
        duplicates = len(texts) - pc.count_distinct(texts).as_py()
        size = pc.sum(pc.binary_length(texts)).as_py()
    return Statistics(
        texts=len(corpus),
        labels=len(corpus.labels),
        labels_used=len(used),
        labels_without_texts=len(per_label) - len(used),
        features=0 if corpus.features is None else int(corpus.features.shape[1]),
        labels_per_text_mean=_figure(np.mean, per_text),
        labels_per_text_median=_figure(np.median, per_text),
        labels_per_text_max=int(per_text.max(initial=0)),
        texts_per_label_mean=_figure(np.mean, used),
        texts_per_label_median=_figure(np.median, used),
        tail_share=_figure(np.mean, used <= 5),
        texts_without_labels=int(np.count_nonzero(per_text == 0)),
        empty_texts=int(np.count_nonzero(words == 0)),
        duplicate_texts=duplicates,
        words_per_text=_figure(np.mean, words),
        text_bytes=size,
        histogram=_histogram(used),
    )


def _words(corpus: Corpus) -> np.ndarray:
    """How many words, separated by white space, each text has."""
    if corpus.texts is None:
        return np.zeros(0, np.int64)
    batches = (corpus.texts[i : i + 65536] for i in range(0, len(corpus), 65536))
    return np.array([len(text.split()) for batch in batches for text in batch.to_pylist()], int)


def _figure(function: Any, values: np.ndarray) -> float:
    return float(function(values)) if len(values) else 0.0


def _histogram(counts: np.ndarray) -> tuple[Bin, ...]:
    """Labels by their number of texts: 1, 2–3, 4–7, 8–15, …"""
    if not len(counts):
        return ()
    powers = np.bincount(np.frexp(counts)[1] - 1)  # the exponent of the power of two below
    return tuple(Bin(2**i, 2 ** (i + 1) - 1, int(n)) for i, n in enumerate(powers))
