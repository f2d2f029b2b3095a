"""What every text format comes down to: texts, and labels by name or number, checked row by row.

A reader turns its file into Arrow columns; `columns` brings those to one set of types, `gather`
checks each row and reports what is wrong with its line, and `to_corpus` numbers the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix

from megalabel.data.corpus import Corpus
from megalabel.data.formats.columns import NAMES
from megalabel.data.formats.lines import BLOCK, Block, count_lines, pieces, read_blocks
from megalabel.data.labelset import LabelSet
from megalabel.data.layout import Layout
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.data.strings import list_lengths, row_of
from megalabel.errors import DataError, UnknownLabelError

# Lines are turned into rows this many bytes at a time: a short line is many times larger as Python
# objects than in the file.
_LINES = 1 << 18


@dataclass
class Rows:
    """Checked rows: texts, and the labels of all of them in one flat array.

    `labels` holds numbers (int64) where they are known, else names. `origin` is each row's place
    in the file, which differs from its place here once bad rows have been left out.
    """

    texts: pa.LargeStringArray
    ids: pa.LargeStringArray | None
    counts: np.ndarray
    labels: np.ndarray | pa.LargeStringArray
    relevance: np.ndarray | None
    origin: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)

    def slice(self, start: int, stop: int) -> Rows:
        """The rows from start to stop."""
        low, high = int(self.counts[:start].sum()), int(self.counts[:stop].sum())
        return Rows(
            self.texts[start:stop],
            None if self.ids is None else self.ids[start:stop],
            self.counts[start:stop],
            self.labels[low:high],
            None if self.relevance is None else self.relevance[low:high],
            self.origin[start:stop],
        )

    @classmethod
    def concat(cls, parts: Sequence[Rows]) -> Rows:
        """All rows of several parts, in order."""
        if len(parts) == 1:
            return parts[0]
        ids = relevance = None
        if any(p.ids is not None for p in parts):
            ids = pa.concat_arrays([_blank(len(p)) if p.ids is None else p.ids for p in parts])
        if any(p.relevance is not None for p in parts):
            relevance = np.concatenate(
                [
                    np.ones(len(p.labels), np.float32) if p.relevance is None else p.relevance
                    for p in parts
                ]
            )
        labelled = [p.labels for p in parts if len(p.labels)]
        named = [not isinstance(labels, np.ndarray) for labels in labelled]
        if any(named) and not all(named):
            raise DataError("some labels are given by name and some by number, with no label file")
        labels: np.ndarray | pa.LargeStringArray
        if any(named):
            labels = pa.concat_arrays(labelled)
        else:
            labels = np.concatenate([np.empty(0, np.int64), *labelled])
        return cls(
            pa.concat_arrays([p.texts for p in parts]),
            ids,
            np.concatenate([p.counts for p in parts]),
            labels,
            relevance,
            np.concatenate([p.origin for p in parts]),
        )

    def to_corpus(self, labels: LabelSet | None, source: Mapping[str, Any] | None = None) -> Corpus:
        """A corpus; without a label set, labels are the sorted names, or numbered."""
        if isinstance(self.labels, np.ndarray):
            numbers = self.labels
            if labels is None:
                labels = LabelSet.numbered(int(numbers.max()) + 1 if len(numbers) else 0)
        else:  # gather has already turned names into numbers where there is a label set
            used = pc.unique(self.labels)
            labels = LabelSet(used.take(pc.sort_indices(used)))
            numbers = labels.indices(self.labels)
        indptr = np.concatenate([[0], np.cumsum(self.counts)])
        ones = np.ones(len(numbers), np.float32)
        relevance = ones if self.relevance is None else self.relevance.copy()  # is sorted in place
        targets = csr_matrix(
            (relevance, numbers.astype(np.int32), indptr), shape=(len(self), len(labels))
        )
        return Corpus(
            self.texts, targets=_unique(targets), labels=labels, ids=self.ids, source=source
        )


def gather(
    found: Mapping[str, pa.Array],
    file: str | Path,
    problems: Problems,
    labels: LabelSet | None,
    *,
    origin: np.ndarray,
    size: int,
    limits: Limits = USUAL,
    line_of: Callable[[int], int | None] | None = None,
) -> Rows:
    """Check every row; bad ones are reported with their line (or row) and left out.

    `origin` is each row's place in the file, counted from 0; `line_of` gives the line of the
    i-th of these rows; `size` is that of the file in bytes.
    """
    n = len(origin)
    wrong: dict[int, Callable[[int], str]] = {}  # a message is made when it is wanted

    def report(rows: np.ndarray | Sequence[int], message: Callable[[int], str]) -> None:
        numbers = np.asarray(rows, np.int64)
        if len(numbers) and not problems.skip:  # the first is raised
            numbers = numbers.min(keepdims=True)
        for row in numbers.tolist():
            wrong.setdefault(row, message)

    texts = found["text"]
    if texts.null_count:
        report(_where(texts.is_null()), lambda _: "expected a title, content or text")
        texts = pc.fill_null(texts, "")
    named, numbered = found.get("labels"), found.get("target_ind")
    if named is not None and numbered is not None:
        by_name, by_number = list_lengths(named) > 0, list_lengths(numbered) > 0
        report(
            np.flatnonzero(by_name & by_number),
            lambda _: "expected labels or target_ind, found both",
        )
        if labels is None and by_name.any() and by_number.any():  # the first row shows which holds
            first = np.flatnonzero(by_name ^ by_number)[:1]
            kinds = ["labels", "target_ind"]
            if by_number[first].any():
                named, others, kinds = None, by_name, kinds[::-1]
            else:
                numbered, others = None, by_number
            mixed = f"expected {kinds[0]} as in rows before, found {kinds[1]}"
            report(np.flatnonzero(others), lambda _: mixed)
    flat: np.ndarray | pa.LargeStringArray = np.empty(0, np.int64)
    counts = np.zeros(n, np.int64)
    for lists in (named, numbered):
        if lists is None or not len(lists.flatten()):
            continue
        if lists is numbered:
            these, values = _checked_numbers(lists, labels, report, size, limits)
        else:
            these, values = _checked_names(lists, labels, report, problems.skip)
        if counts.any():  # rows by name and rows by number, both known to the label set
            order = np.argsort(np.concatenate([row_of(counts), row_of(these)]), kind="stable")
            values, these = np.concatenate([flat, values])[order], counts + these
        flat, counts = values, these
    relevance = None
    if (weights := found.get("target_rel")) is not None and len(weights.flatten()):
        relevance = _checked_relevance(weights, counts, report)
    ids = found.get("uid")
    if ids is not None:
        ids = None if ids.null_count == n else pc.fill_null(ids, "")
    for done, row in enumerate(sorted(wrong)):
        if problems.full:
            problems.count += len(wrong) - done
            break
        message = wrong[row](row)
        if line_of is not None:
            problems.add(message, file=file, line=line_of(row))
        else:
            problems.add(f"row {origin[row] + 1}: {message}", file=file)
    if wrong:
        good = np.ones(n, bool)
        good[list(wrong)] = False
        kept, mask = good[row_of(counts)], pa.array(good)
        flat = flat[kept] if isinstance(flat, np.ndarray) else flat.filter(pa.array(kept))
        relevance = None if relevance is None else relevance[kept]
        texts, counts, origin = texts.filter(mask), counts[good], origin[good]
        ids = None if ids is None else ids.filter(mask)
    return Rows(texts, ids, counts, flat, relevance, origin)


def rows_of_lines(
    path: Path,
    parse: Callable[[Block], Iterator[tuple[int, int, str, list[str]]]],
    labels: LabelSet | None,
    problems: Problems,
    batch_rows: int | None,
    limits: Limits,
    layout: Layout,
) -> Iterator[Rows]:
    """The rows of a file where each line is a text with label names.

    `parse` gives place, line number, text and names of each good line of a block.
    """
    done = 0
    block_bytes = BLOCK if batch_rows is None else BLOCK >> 3
    for block in read_blocks(path, block_bytes, limits, layout.encoding):
        texts, names, origins, lines = [], [], [], []
        for piece in pieces(block, len(block.data) // _LINES + 1):
            rows = list(parse(piece))
            texts.append(pa.array([row[2] for row in rows], pa.large_string()))
            names.append(pa.array([row[3] for row in rows], NAMES))
            origins.append(np.array([row[0] for row in rows], np.int64) + done)
            lines.append(np.array([row[1] for row in rows], np.int64))
            done += count_lines(piece)
        numbers = np.concatenate(lines)
        yield gather(
            {"text": pa.concat_arrays(texts), "labels": pa.concat_arrays(names)},
            path,
            problems,
            labels,
            origin=np.concatenate(origins),
            size=0,  # no numbers are given
            line_of=lambda i, numbers=numbers: int(numbers[i]),  # type: ignore[misc]
        )


def _checked_names(
    lists: pa.Array,
    labels: LabelSet | None,
    report: Callable[[Any, Callable[[int], str]], None],
    brief: bool,
) -> tuple[np.ndarray, np.ndarray | pa.LargeStringArray]:
    """Names per row, and all names; their numbers where the label set knows them."""
    counts = list_lengths(lists)
    row = row_of(counts)
    values = lists.flatten()
    if values.null_count:
        report(row[_where(values.is_null())], lambda _: "expected label names, found null")
        values = pc.fill_null(values, "")
    if labels is None:
        empty = pc.equal(values, "")
        if pc.any(empty).as_py():
            report(row[_where(empty)], lambda _: "expected label names, found an empty one")
        return counts, values
    numbers = labels.indices(values)
    first = _first(numbers < 0, row)
    report(list(first), lambda r: _unknown(values[first[r]].as_py(), labels, brief))
    return counts, numbers


def _checked_numbers(
    lists: pa.Array,
    labels: LabelSet | None,
    report: Callable[[Any, Callable[[int], str]], None],
    size: int,
    limits: Limits,
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers per row, and all numbers."""
    counts = list_lengths(lists)
    row = row_of(counts)
    numbers = _numbers(lists.flatten(), pa.int64(), row, "a label number", report)
    most = limits.labels(size) if labels is None else len(labels)
    first = _first((numbers < 0) | (numbers >= most), row)

    def message(r: int) -> str:
        number = int(numbers[first[r]])
        why = "" if labels is None else ", as the label file has"
        advice = f"; {limits.advice(number + 1, size)}" if labels is None and number > 0 else ""
        return f"expected label numbers from 0 to {most - 1}{why}, found {number}{advice}"

    report(list(first), message)
    return counts, numbers


def _first(bad: np.ndarray, row: np.ndarray) -> dict[int, int]:
    """Where the first bad item of each row that has one stands."""
    where = np.flatnonzero(bad)
    return dict(zip(row[where][::-1].tolist(), where[::-1].tolist(), strict=True))


def _checked_relevance(
    lists: pa.Array,
    counts: np.ndarray,
    report: Callable[[Any, Callable[[int], str]], None],
) -> np.ndarray:
    """The relevance of each label; 1 in rows that give none."""
    these = list_lengths(lists)
    differ = (these > 0) & (these != counts)
    report(
        np.flatnonzero(differ),
        lambda r: f"expected as many relevances as labels ({counts[r]}), found {these[r]}",
    )
    row = row_of(these)
    values = _numbers(lists.flatten(), pa.float64(), row, "a relevance", report)
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    bad = ~(np.isfinite(values) & (values >= 0))
    report(row[bad], lambda _: "expected relevances that are finite and not negative")
    result = np.ones(int(counts.sum()), np.float32)
    fits = (these > 0) & ~differ
    result[fits[row_of(counts)]] = values[fits[row]]
    return result


def _numbers(
    values: pa.Array,
    kind: pa.DataType,
    row: np.ndarray,
    what: str,
    report: Callable[[Any, Callable[[int], str]], None],
) -> np.ndarray:
    """Values as NumPy numbers; a string among them that is none is a problem of its row."""
    try:
        numbers = values.cast(kind)
    except pa.ArrowInvalid:
        found = []
        for position, value in enumerate(values.to_pylist()):
            try:
                found.append(pa.scalar(value, values.type).cast(kind).as_py())
            except pa.ArrowInvalid:
                found.append(0)
                report([row[position]], lambda _, value=value: f"expected {what}, found {value!r}")  # type: ignore[misc]
        numbers = pa.array(found, kind)
    if numbers.null_count:
        report(row[_where(numbers.is_null())], lambda _: f"expected {what}, found null")
        numbers = pc.fill_null(numbers, 0)
    return np.asarray(numbers)


def _unknown(name: str, labels: LabelSet, brief: bool) -> str:
    if brief:  # near names are worth their search once, not for each of many skipped lines
        return f"unknown label {name!r}"
    try:
        labels.index(name)
    except UnknownLabelError as error:
        return (
            f"{error.message} (a label file beside it, such as lbl.jsonl, lists the labels there "
            "are: if it is of another corpus, keep the two in folders of their own)"
        )
    return f"unknown label {name!r}"


def _unique(targets: csr_matrix) -> csr_matrix:
    """Sorted columns, a label given twice once (with its highest relevance), no zeros."""
    targets.sort_indices()
    width = np.int64(max(1, targets.shape[1]))
    row = row_of(np.diff(targets.indptr))
    key = row * width + targets.indices
    if len(key) and (key[1:] == key[:-1]).any():
        order = np.lexsort((targets.data, key))
        last = np.concatenate([key[order][1:] != key[order][:-1], [True]])
        kept = order[last]
        counts = np.bincount(row[kept], minlength=targets.shape[0])
        targets = csr_matrix(
            (targets.data[kept], targets.indices[kept], np.concatenate([[0], np.cumsum(counts)])),
            shape=targets.shape,
        )
    targets.eliminate_zeros()
    return targets


def _where(mask: pa.Array) -> np.ndarray:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def _blank(n: int) -> pa.LargeStringArray:
    return pa.array([""], pa.large_string()).take(pa.array(np.zeros(n, np.int64)))
