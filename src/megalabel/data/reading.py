"""`read` and `stream`: a corpus from a file, a folder or a table, its format known by looking."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from megalabel.data.corpus import Corpus
from megalabel.data.folders import Part, find_exclusions, find_labels, find_parts, locate
from megalabel.data.formats import (
    annif,
    documents,
    excel,
    fasttext,
    json_fields,
    jsonl,
    separated,
    tables,
)
from megalabel.data.formats.guessing import Sample
from megalabel.data.formats.rows import Rows
from megalabel.data.frames import from_frame
from megalabel.data.labelset import LabelSet
from megalabel.data.layout import Layout, layout_of
from megalabel.data.limits import Limits
from megalabel.data.notes import notes_on
from megalabel.data.problems import Problems
from megalabel.data.vocabularies import read_vocabulary
from megalabel.data.vocabulary import Vocabulary
from megalabel.errors import DataError, ParameterError
from megalabel.machine import give_back_memory

log = logging.getLogger(__name__)

# Formats with texts: each gives checked rows, some at a time.
_Path = str | os.PathLike[str]
_Reader = Callable[[Path, LabelSet | None, Problems, int | None, Limits, Layout], Iterator[Rows]]
_ROWS: dict[str, _Reader] = {
    "jsonl": jsonl.read_rows,
    "fasttext": fasttext.read_rows,
    "annif": annif.read_rows,
    "annif-folder": documents.read_rows,
    "csv": separated.read_csv,
    "excel": excel.read_rows,
    "parquet": tables.read_parquet,
    "arrow": tables.read_arrow,
}
# Formats of columns: each gives some values of each, to say which ones may be meant.
_SAMPLES: dict[str, Callable[[Path, Layout, Limits], Sample]] = {
    "jsonl": lambda path, layout, _: json_fields.sample_jsonl(path, layout),
    "csv": lambda path, layout, _: separated.sample_csv(path, layout),
    "excel": excel.sample_excel,
    "parquet": lambda path, _, __: tables.sample_parquet(path),
    "arrow": lambda path, _, limits: tables.sample_arrow(path, limits),
}


def read(
    path: Any,
    split: str | None = None,
    *,
    text_column: str | Sequence[str] | Mapping[str, int] | None = None,
    label_column: str | Sequence[str] | None = None,
    label_separator: str | None = None,
    id_column: str | None = None,
    encoding: str | None = None,
    format: str | None = None,
    skip_bad: bool = False,
    problems: Problems | None = None,
    max_bytes: int | None = None,
    labelled: bool = False,
    vocabulary: Vocabulary | _Path | Sequence[_Path] | None = None,
    language: str | None = None,
    all_concepts: bool = False,
    keep_deprecated: bool = False,
) -> Corpus:
    """Read a corpus; its format is known by its name, its first bytes and its first line.

    Parameters
    ----------
    path : path, or a pandas or polars frame, an Arrow table, a Hugging Face dataset
        A file, or a folder with the parts of a corpus (train/trn, test/tst, validation/dev). A
        label file (`lbl.jsonl`, or an Annif vocabulary) beside a corpus gives its labels.
    split : str, optional
        Which part of the folder: "train", "test" or "validation". Not needed where there is one.
    text_column : str, list of str, or dict of whole numbers, optional
        The columns of text, of a table, a frame or JSON lines; title, content and text where not
        given. Several are joined by a space. `{"title": 3, "abstract": 1}`, or `"title:3"`, lets
        the words of a title count three times: its text is repeated.
    label_column : str or list of str, optional
        The columns of labels, or patterns of their names (`"topic_*"`); labels or target_ind where
        not given. Of several columns, one of 0 and 1 is the label of its name; `"*"` means all of
        those.
    label_separator : str, optional
        What separates labels in a string, in place of `;` and `|`.
    id_column : str, optional
        The column of identifiers; uid or id where not given.
    encoding : str, optional
        Of text files: "cp1252", "utf-16", …; UTF-8 where not given.
    format : str, optional
        jsonl, xc, svmlight, pecos, fasttext, annif, annif-folder, csv, excel, parquet or arrow,
        where looking is not enough.
    skip_bad : bool
        Leave out bad lines, which are counted in `corpus.source["skipped"]`, instead of raising.
    problems : Problems, optional
        Takes note of what was wrong, for the caller to say; its own `skip` then holds instead of
        `skip_bad`. Without it, what was skipped is logged.
    max_bytes : int, optional
        Memory that a file may ask for although it is small: one that numbers more labels than its
        size makes likely, or unpacks to much more than it holds, is refused otherwise.
    labelled : bool
        True: a corpus without any label is an error, which says where labels may be. Otherwise
        that is logged, or noted in `problems`.
    vocabulary : Vocabulary, path or several paths, optional
        What the labels are concepts of, by identifier, notation or name (`Corpus.joined`); files
        are read by `read_vocabulary`. How many labels were found, and how, is in
        `corpus.source["vocabulary"]`.
    language, all_concepts, keep_deprecated
        With a vocabulary: the language of the labels' names; whether all concepts become labels;
        whether deprecated concepts stay that another one replaces. As for `Corpus.joined`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "train.txt"
    >>> _ = file.write_text("__label__dress a red dress\\n__label__jeans blue jeans\\n")
    >>> corpus = read(file)
    >>> corpus, corpus.source["format"]
    (Corpus(2 texts, 2 labels), 'fasttext')
    """
    joined = partial(
        _joined, vocabulary, language, all_concepts=all_concepts, keep_deprecated=keep_deprecated
    )
    ours = problems is None
    problems = Problems(skip=skip_bad) if problems is None else problems
    if not isinstance(path, str | os.PathLike):
        corpus = from_frame(
            path,
            text=text_column,
            labels=label_column,
            ids=id_column,
            label_separator=label_separator,
            split=split,
            problems=problems,
            max_bytes=max_bytes,
            labelled=labelled,
        )
        if ours:
            say_skipped(corpus.source["path"], problems)
        return joined(corpus)
    before = problems.count
    layout = layout_of(text_column, label_column, label_separator, encoding, id_column)
    part = locate(Path(path), split, format, layout)
    limits = Limits(max_bytes)
    labels = find_labels(part, limits)
    if part.format in _ROWS:
        rows = list(_rows(part, labels, problems, None, limits))
        if not any(map(len, rows)):
            raise nothing_read(part.files[0], problems, problems.count - before)
        whole = Rows.concat([r for r in rows if len(r)])
        corpus, origin = whole.to_corpus(labels), whole.origin
    else:
        corpus = _named(_read_sparse(part, problems, limits), labels, part)
        origin = np.arange(len(corpus))
    skipped = problems.count - before
    if not len(corpus):
        raise nothing_read(part.files[0], problems, skipped)
    corpus.source = {
        "path": part.shown,
        "format": part.format,
        "split": part.split,
        "skipped": skipped,
    }
    if (exclusions := find_exclusions(part, limits)) is not None:
        if skipped and part.format not in _ROWS:
            raise DataError(
                "its rows cannot be told once lines have been skipped; mend those lines first",
                file=exclusions.path,
            )
        known = None if skipped else len(corpus)
        corpus.excluded = exclusions.matrix(origin, len(corpus.labels), known)
    if part.format in _SAMPLES:
        file = part.files[0]
        sample = partial(_SAMPLES[part.format], file, part.layout, limits)
        problems.notes += notes_on(corpus, file, part.layout, sample, labelled)
    elif labelled and not corpus.targets.nnz:
        raise DataError("there are no labels in it", file=part.files[0])
    if ours:
        say_skipped(part.shown, problems)
    corpus = joined(corpus)
    give_back_memory()  # files were read in pieces, which a fit has no use for
    return corpus


def _joined(
    vocabulary: Vocabulary | _Path | Sequence[_Path] | None,
    language: str | None,
    corpus: Corpus,
    **options: bool,
) -> Corpus:
    """The corpus with its labels as concepts of a vocabulary, if there is one."""
    if vocabulary is not None:
        if not isinstance(vocabulary, Vocabulary):
            vocabulary = read_vocabulary(vocabulary)
        return corpus.joined(vocabulary, language, **options)
    named = [name for name, given in {"language": language, **options}.items() if given]
    if named:
        raise ParameterError(
            f"{', '.join(named)} say what to take of a vocabulary: give one (vocabulary=…, "
            "--vocabulary)"
        )
    return corpus


def splits_of(folder: str | os.PathLike[str]) -> list[str]:
    """The names of the parts a folder holds.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("trn.txt", "tst.txt"):
    ...     _ = (folder / name).write_text("__label__dress a red dress")
    >>> splits_of(folder)
    ['train', 'test']
    """
    if not Path(folder).is_dir():
        raise DataError("no such folder", file=Path(folder))
    return list(find_parts(Path(folder)))


class Stream:
    """The batches of a corpus too large for memory; each iteration reads it anew.

    `labels` is the label set of all batches where a label file gives one, else None and each
    batch has its own. `problems` holds what was wrong in the latest iteration.
    """

    def __init__(
        self, part: Part, batch_rows: int, skip_bad: bool, label_file: bool, limits: Limits
    ) -> None:
        self.part, self.batch_rows, self.skip_bad = part, batch_rows, skip_bad
        self._limits = limits
        self.labels = find_labels(part, limits) if label_file else None
        self.problems = Problems(skip=skip_bad)
        # they number the labels of the whole corpus, so mean nothing to a batch with its own
        self._exclusions = None if self.labels is None else find_exclusions(part, limits)

    def __iter__(self) -> Iterator[Corpus]:
        self.problems = problems = Problems(skip=self.skip_bad)
        source = {"path": self.part.shown, "format": self.part.format, "split": self.part.split}
        rows = _rows(self.part, self.labels, problems, self.batch_rows, self._limits)
        for batch in _rebatched(rows, self.batch_rows):
            corpus = batch.to_corpus(self.labels, source)
            if self._exclusions is not None:
                corpus.excluded = self._exclusions.matrix(batch.origin, len(corpus.labels))
            yield corpus
        say_skipped(self.part.shown, problems)


def stream(
    path: str | os.PathLike[str],
    split: str | None = None,
    batch_rows: int = 65536,
    *,
    text_column: str | Sequence[str] | Mapping[str, int] | None = None,
    label_column: str | Sequence[str] | None = None,
    label_separator: str | None = None,
    id_column: str | None = None,
    encoding: str | None = None,
    format: str | None = None,
    skip_bad: bool = False,
    label_file: bool = True,
    max_bytes: int | None = None,
) -> Stream:
    """Read a corpus with texts in batches, as often as wanted, never holding all of it.

    Parameters are those of `read`. Without a label file, or with `label_file=False`, which does not
    look for one, each batch has its own label set.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "train.txt"
    >>> _ = file.write_text("__label__dress a red dress\\n__label__jeans blue jeans\\n")
    >>> [len(batch) for batch in stream(file, batch_rows=1)]
    [1, 1]
    """
    if batch_rows < 1:
        raise ParameterError(f"batch_rows must be at least 1, not {batch_rows}")
    layout = layout_of(text_column, label_column, label_separator, encoding, id_column)
    part = locate(Path(path), split, format, layout)
    if part.format not in _ROWS:
        raise DataError(
            f"{part.format} cannot be streamed, only formats with texts: {', '.join(_ROWS)}",
            file=part.files[0],
        )
    return Stream(part, batch_rows, skip_bad, label_file, Limits(max_bytes))


def nothing_read(path: Path, problems: Problems, skipped: int) -> DataError:
    """What is wrong with a file of which no row is left."""
    if skipped and problems.kept:
        message = f"all {skipped} rows are bad; the first: {problems.kept[0].message}"
    else:
        message = "the file is empty: expected at least one text"
    return DataError(message, file=path)


def say_skipped(name: str, problems: Problems) -> None:
    """Log how many rows of a corpus were skipped."""
    if problems.count:
        first = problems.kept[0]
        log.warning("%s: skipped %d bad rows; the first: %s", name, problems.count, first)
    for note in problems.notes:
        log.warning("%s", note)


def _rows(
    part: Part,
    labels: LabelSet | None,
    problems: Problems,
    batch_rows: int | None,
    limits: Limits,
) -> Iterator[Rows]:
    """The rows of all files of a part, their origins counted through."""
    done = 0
    for path in part.files:
        last = -1
        reader = _ROWS[part.format]
        for rows in reader(path, labels, problems, batch_rows, limits, part.layout):
            if len(rows):
                last = int(rows.origin[-1])
                rows.origin = rows.origin + done
                yield rows
        done += last + 1


def _rebatched(parts: Iterator[Rows], size: int) -> Iterator[Rows]:
    """The same rows in batches of exactly `size`, the last one smaller."""
    held: list[Rows] = []
    for part in parts:
        start, count = 0, sum(map(len, held))
        while count + len(part) - start >= size:
            stop = start + size - count
            yield Rows.concat([*held, part.slice(start, stop)])
            held, count, start = [], 0, stop
        if start < len(part):
            held.append(part.slice(start, len(part)))
    if held:
        yield Rows.concat(held)


def _read_sparse(part: Part, problems: Problems, limits: Limits) -> Corpus:
    """Formats with features, which are read whole."""
    if part.format == "pecos":
        from megalabel.data.formats import npz

        return npz.read_pecos(part.folder, str(part.split), problems, limits)
    from megalabel.data.formats import sparse_text

    if part.format == "xc":
        return sparse_text.read_xc(part.files[0], problems, limits)
    return sparse_text.read_svmlight(part.files[0], problems, limits)


def _named(corpus: Corpus, labels: LabelSet | None, part: Part) -> Corpus:
    """The corpus with the labels of a label file in place of numbers."""
    if labels is None:
        return corpus
    if len(labels) != len(corpus.labels):
        raise DataError(
            f"it has {len(corpus.labels)} labels, the label file beside it {len(labels)}",
            file=part.files[0],
        )
    corpus.labels = labels
    return corpus
