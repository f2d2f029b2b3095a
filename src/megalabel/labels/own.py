"""Texts that are themselves labels: which, and whether they carry their own label."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix

from megalabel.data import Corpus, LabelSet
from megalabel.data.hashes import text_hashes
from megalabel.data.strings import strings

_CARRIED = 0.1  # the share of such texts from which on a label is told of its own text


class OwnLabels:
    """Finds the texts that are themselves labels: by their identifier, or as a label's name or
    text.

    Identifiers that are numbers say nothing, as texts and labels are each counted from one.

    Examples
    --------
    >>> own = OwnLabels(LabelSet(["Q144", "Q146"], names=["dog", "cat"]))
    >>> own.cells(["a dog", "cat"]).toarray().tolist()
    [[0.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, labels: LabelSet) -> None:
        columns = [labels.names] if labels.texts is None else [labels.names, labels.texts]
        hashes = np.concatenate([text_hashes(column) for column in columns])
        numbers = np.tile(np.arange(len(labels)), len(columns))
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._numbers, self._labels = hashes[order], numbers[order], labels

    def cells(self, inputs: Corpus | list[str]) -> csr_matrix:
        """(texts, labels): 1 where a text is a label."""
        texts, ids = (inputs.texts, inputs.ids) if isinstance(inputs, Corpus) else (inputs, None)
        n, width = len(inputs), len(self._labels)
        rows, columns = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if texts is not None and width:
            hashes = text_hashes(strings(texts))
            first = np.searchsorted(self._hashes, hashes)
            sizes = np.searchsorted(self._hashes, hashes, side="right") - first
            rows = np.repeat(np.arange(n), sizes)
            at = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            columns = self._numbers[np.repeat(first, sizes) + at]
        if ids is not None and width:
            found = _numbers_of(ids, self._labels)
            rows = np.append(rows, np.flatnonzero(found >= 0))
            columns = np.append(columns, found[found >= 0])
        cells = csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), (n, width))
        cells.sum_duplicates()
        cells.data[:] = 1
        return cells


def _numbers_of(ids: pa.Array, labels: LabelSet) -> np.ndarray:
    """The labels with the same identifiers, -1 where there is none."""
    named = pc.invert(pc.utf8_is_decimal(ids))
    return np.where(np.asarray(named), LabelSet(labels.ids).indices(ids), -1)


def own_labels(corpus: Corpus) -> csr_matrix | None:
    """Which texts of a corpus are labels (texts, labels), where these hardly ever carry their own
    label; None where they do, or no text is a label.

    Examples
    --------
    >>> packages = ["libc: the C library", "bash: a shell"]
    >>> targets = csr_matrix([[0, 0], [1, 0]])
    >>> own_labels(Corpus(packages, targets=targets, labels=packages)).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    own = OwnLabels(corpus.labels).cells(corpus)
    carried = own.multiply(corpus.targets > 0).nnz
    return own if own.nnz and carried <= _CARRIED * own.nnz else None
