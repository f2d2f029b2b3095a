"""Corpora from tables in memory: pandas and polars frames, Arrow tables, Hugging Face datasets.

None of those packages is imported: a table is whatever gives itself as Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from megalabel.data.corpus import Corpus
from megalabel.data.folders import split_name
from megalabel.data.formats.columns import choose, columns
from megalabel.data.formats.rows import gather
from megalabel.data.formats.tables import sample_of
from megalabel.data.labelset import LabelSet
from megalabel.data.layout import layout_of
from megalabel.data.limits import Limits
from megalabel.data.notes import notes_on
from megalabel.data.problems import Problems
from megalabel.errors import DataError


def from_frame(
    frame: Any,
    *,
    text: str | Sequence[str] | Mapping[str, int] | None = None,
    labels: str | Sequence[str] | None = None,
    ids: str | None = None,
    label_separator: str | None = None,
    label_set: LabelSet | None = None,
    split: str | None = None,
    skip_bad: bool = False,
    problems: Problems | None = None,
    max_bytes: int | None = None,
    labelled: bool = False,
) -> Corpus:
    """A corpus from a pandas or polars frame, an Arrow table, or a Hugging Face dataset.

    Parameters
    ----------
    frame : table, or a mapping from split names to tables
        Anything with the Arrow stream interface, or a Hugging Face dataset.
    text : str, list of str, or dict of whole numbers, optional
        The columns of text, joined by a space; title, content and text where not given.
    labels : str or list of str, optional
        The column of labels: lists of names, strings that are split at `;` and `|`, or (lists of)
        numbers; labels or target_ind where not given. Or several, as `label_column` of `read`.
    ids : str, optional
        The column of identifiers; uid or id where not given.
    label_separator : str, optional
        What separates labels in a string, in place of `;` and `|`.
    label_set : LabelSet, optional
        What label numbers mean, or which names are known.
    split : str, optional
        Which table of a mapping.
    skip_bad, problems, max_bytes, labelled
        As in `read`.

    Examples
    --------
    >>> table = pa.table({"body": ["a red dress", "blue jeans"], "tags": ["dress; red", "jeans"]})
    >>> from_frame(table, text="body", labels="tags").labels.names.to_pylist()
    ['dress', 'jeans', 'red']
    """
    problems = Problems(skip=skip_bad) if problems is None else problems
    if isinstance(frame, Mapping):
        frame = _one_of(frame, split)
    table, kind = _table(frame)
    before = problems.count
    limits = Limits(max_bytes)
    layout = layout_of(text, labels, label_separator, id_column=ids)
    chosen = choose(table.column_names, layout, kind, lambda: sample_of(table))
    found = columns(
        table, kind, chosen, separator=label_separator, size=table.nbytes, limits=limits
    )
    if label_set is None and "target_ind" in found and chosen.labels:
        label_set = _class_names(frame, chosen.labels[0])
    rows = gather(
        found,
        kind,
        problems,
        label_set,
        origin=np.arange(table.num_rows),
        size=table.nbytes,
        limits=limits,
    )
    source = {"path": kind, "format": "frame", "split": split, "skipped": problems.count - before}
    corpus = rows.to_corpus(label_set, source)
    problems.notes += notes_on(corpus, kind, layout, lambda: sample_of(table), labelled)
    return corpus


def _table(frame: Any) -> tuple[pa.Table, str]:
    kind = f"{type(frame).__module__.partition('.')[0]} {type(frame).__name__}"
    try:
        if isinstance(frame, pa.Table):
            return frame, kind
        if hasattr(frame, "with_format"):  # a Hugging Face dataset, with the rows selected so far
            return frame.with_format("arrow")[:], kind
        if hasattr(frame, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(frame).read_all(), kind
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"cannot be read as a table: {error}", file=kind) from None
    raise DataError(
        "expected a path, a pandas or polars frame, an Arrow table or a Hugging Face dataset, "
        f"found a {type(frame).__name__}"
    )


def _one_of(frames: Mapping[str, Any], split: str | None) -> Any:
    by_name = {split_name(name): frame for name, frame in frames.items()}
    if split is None and len(by_name) == 1:
        return next(iter(by_name.values()))
    if split is None or split_name(split) not in by_name:
        asked = "say which (split=…)" if split is None else f"there is no {split!r}"
        raise DataError(f"the parts are {', '.join(by_name)}; {asked}")
    return by_name[split_name(split)]


def _class_names(frame: Any, column: str) -> LabelSet | None:
    """The names that a Hugging Face dataset keeps for the numbers in a column."""
    feature = getattr(frame, "features", None)
    feature = feature.get(column) if isinstance(feature, Mapping) else None
    for candidate in (feature, getattr(feature, "feature", None)):
        names = getattr(candidate, "names", None)
        if names:
            return LabelSet(list(names))
    return None
