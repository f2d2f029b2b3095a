"""Notes: what was read of a table, but likely not as it was meant, and the option that mends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from megalabel.data.corpus import Corpus
from megalabel.data.formats import guessing
from megalabel.data.formats.columns import FIELDS, ID_FIELDS, TEXT_FIELDS, field_of
from megalabel.data.formats.guessing import Sample
from megalabel.data.layout import Layout, weighted
from megalabel.errors import DataError


def notes_on(
    corpus: Corpus, file: str | Path, layout: Layout, sample: Callable[[], Sample], labelled: bool
) -> list[DataError]:
    """What to say of a corpus that was read from columns; raised if there is nothing to go on with.

    Texts that are all empty while another column has some, no labels at all (an error if
    `labelled`), and several labels that were taken for one. `sample` gives some values of each
    column of the file.
    """
    if corpus.texts is None or not len(corpus):
        return []
    blank = not pc.any(pc.not_equal(corpus.texts, "")).as_py()
    counts = np.diff(corpus.targets.indptr)
    if not blank and corpus.targets.nnz and (counts.max() > 1 or layout.separator is not None):
        return []
    values = sample()
    text, labels, ids = _used(values, layout)
    if blank and (empty := guessing.empty_texts(values, file, [*text, *labels, *ids])):
        raise empty
    if not corpus.targets.nnz:
        unlabelled = guessing.no_labels(values, file, [*text, *labels, *ids])
        if labelled:
            raise unlabelled
        return [unlabelled]
    cells = [cell for name in labels for cell in values[name] if cell]
    if not all(isinstance(cell, str) for cell in cells):  # a list is never split
        return []
    wrong = guessing.wrong_separator(cells, file)
    return [] if wrong is None else [wrong]


def _used(sample: Sample, layout: Layout) -> tuple[list[str], list[str], list[str]]:
    """The columns of text, of labels and of identifiers that were read."""
    others = (name for name in FIELDS if name not in (*TEXT_FIELDS, *ID_FIELDS))
    text = [weighted(column, [*sample])[0] for column in layout.text or TEXT_FIELDS]
    labels = layout.labels or others
    ids = ID_FIELDS if layout.ids is None else (layout.ids,)
    wanted = [{field_of(name) for name in names} for names in (text, labels, ids)]
    used = [[name for name in sample if field_of(name) in names] for names in wanted]
    return used[0], used[1], used[2]
