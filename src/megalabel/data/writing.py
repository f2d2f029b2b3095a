"""`write`: a corpus to a file or folder that `read` reads back."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from megalabel.data.corpus import Corpus
from megalabel.data.folders import exclusions_file, find_label_files, is_label_file, split_in
from megalabel.data.formats import jsonl, tables
from megalabel.data.formats.detect import ending
from megalabel.data.labelset import LabelSet
from megalabel.errors import DataError, ParameterError
from megalabel.files import replacing
from megalabel.outputs import check_file, naming, replacing_file

log = logging.getLogger(__name__)

_ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "xc",
    ".npz": "npz",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_PART = re.compile(r"[XY]\.(.+)\.(npz|txt)")
_CODECS = {".gz": "gzip", ".zst": "zstd"}


def write(corpus: Corpus, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write a corpus. What is there is replaced in one step, once all is written.

    Beside a file go `lbl.jsonl`, which describes the labels, and `filter_labels_*.txt` if the
    corpus excludes cells. Several parts of a corpus may be written into one folder, as train and
    test say, if their labels are the same.

    Parameters
    ----------
    corpus : Corpus
    path : path
        The file. PECOS's layout (npz) is several files in a folder: `folder/train.npz` says folder
        and split; of a folder alone the split is the one the corpus was read from, or train.
    format : "jsonl", "csv", "xc", "npz", "parquet" or "arrow", optional
        Known by the file's ending where not given: .jsonl (also with .gz or .zst), .csv, .txt
        (XC's text format, which needs features), .npz, .parquet, .arrow.

    Examples
    --------
    >>> import tempfile
    >>> from megalabel.data import read
    >>> file = Path(tempfile.mkdtemp()) / "train.jsonl.gz"
    >>> write(Corpus(["a red dress"], targets=[["dress", "red"]]), file)
    >>> read(file)
    Corpus(1 texts, 2 labels)
    """
    with naming(path):
        write_parts({Path(path): corpus}, format)


def write_parts(parts: Mapping[Path, Corpus], format: str | None = None) -> None:
    """Write several parts of a corpus, all into one folder: all are put in place at once.

    Parameters are those of `write`.
    """
    targets = [_target(corpus, path, format) for path, corpus in parts.items()]
    if len({path.parent for path, _ in targets}) != 1:
        raise ParameterError("parts that are written at once must be in one folder")
    first, *others = parts.values()
    if not all(_same(first.labels, other.labels) for other in others):
        raise DataError(
            "parts that are written at once must have the same labels: align them first"
        )
    with replacing(targets[0][0].parent) as new:
        for (path, kind), corpus in zip(targets, parts.values(), strict=True):
            _write_labels(corpus.labels, path.parent, new.aside, kind)
            _write_exclusions(corpus, exclusions_file(path), new.aside)
            if kind == "npz":
                new.removed |= _write_npz(corpus, path, new.aside)
            else:
                _write_file(corpus, new.aside / path.name, kind)


def write_split(folder: str | os.PathLike[str], train: Corpus, test: Corpus) -> None:
    """Write the two parts of a split into a folder: texts as JSON lines, else vectors as XC text.

    Examples
    --------
    >>> import tempfile
    >>> from megalabel.data import splits_of
    >>> folder, corpus = tempfile.mkdtemp(), Corpus(["a dress", "a shoe"], targets=[["a"], ["b"]])
    >>> write_split(folder, corpus[:1], corpus[1:])
    >>> splits_of(folder)
    ['train', 'test']
    """
    if train.texts is None:
        form, names = "xc", ("train.txt", "test.txt")
    else:
        form, names = "jsonl", ("trn.jsonl", "tst.jsonl")
    parts = dict(zip((Path(folder) / name for name in names), (train, test), strict=True))
    with naming(folder):
        write_parts(parts, form)


def check_table(path: str | os.PathLike[str]) -> None:
    """Raise an error, before any work is done, if `write_table` cannot write there."""
    if Path(path).suffix not in tables.WRITERS:
        known = ", ".join(tables.WRITERS)
        raise ParameterError(f"a table is written to a name that ends in {known}, not {path}")
    check_file(path)


def write_table(table: pa.Table, path: str | os.PathLike[str]) -> None:
    """Write an Arrow table to a file, by its ending: .csv, .parquet or .jsonl.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "labels.jsonl"
    >>> write_table(pa.table({"label": ["dress"], "hits": [3]}), file)
    >>> file.read_text()
    '{"label": "dress", "hits": 3}\\n'
    """
    check_table(path)
    with replacing_file(path) as fresh:
        tables.WRITERS[Path(path).suffix](table, fresh)


def _target(corpus: Corpus, path: Path, format: str | None) -> tuple[Path, str]:
    """The file to write and its format; an error if the corpus cannot be written so."""
    format = format or _ENDINGS.get(ending(path)[1])
    if format is None or format not in _ENDINGS.values():
        known = ", ".join(dict.fromkeys(_ENDINGS.values()))
        raise ParameterError(f"cannot tell the format of {path.name}; give one of {known}")
    if is_label_file(path):
        raise ParameterError(f"{path.name} is the name of a label file; name the corpus otherwise")
    if format in ("jsonl", "csv", "parquet", "arrow"):
        if corpus.texts is None:
            raise DataError(f"{format} needs texts; this corpus has features alone: write XC text")
        if corpus.features is not None:
            log.warning("%s: %s holds no features; only the texts are written", path.name, format)
    if format == "npz" and ending(path)[1] != ".npz":
        path = path / f"{corpus.source.get('split') or 'train'}.npz"
    return path, format


def _write_file(corpus: Corpus, path: Path, format: str) -> None:
    if format == "xc":
        from megalabel.data.formats import sparse_text

        sparse_text.write_xc(corpus, path)
    elif format == "csv":
        with _output(path) as sink:
            tables.write_csv(corpus, sink)
    elif format == "parquet":
        tables.write_parquet(corpus, path)
    elif format == "arrow":
        tables.write_arrow(corpus, path)
    else:
        with _output(path) as sink:
            jsonl.write_rows(corpus, sink)


def _write_npz(corpus: Corpus, path: Path, aside: Path) -> set[str]:
    """Write PECOS's files; returns the names of those that would be read with them but are old."""
    from megalabel.data.formats import npz

    split = split_in(path)
    if split is None:
        raise ParameterError(f"expected train, test or validation as name, found {path.name}")
    npz.write_npz(corpus, aside, split)
    there, names = path.parent / "output-items.txt", aside / "output-items.txt"
    others = npz.find_splits(path.parent) - {split}
    if others and there.exists() and names.exists() and there.read_bytes() != names.read_bytes():
        raise DataError(f"it names other labels, those of {', '.join(sorted(others))}", file=there)
    parts = {m[1] for file in aside.iterdir() if (m := _PART.match(file.name))}
    return {
        file.name
        for file in path.parent.iterdir()
        if (m := _PART.match(file.name)) and m[1] in parts and not (aside / file.name).exists()
    }


def _write_labels(labels: LabelSet, folder: Path, aside: Path, format: str) -> None:
    if not len(labels):
        return
    if there := find_label_files(folder):
        if not _same(jsonl.read_labels(there[0]), labels):
            raise DataError(
                "it describes other labels than those of the corpus to be written beside it; "
                "align the corpora first, or write to another folder",
                file=there[0],
            )
    elif format not in ("xc", "npz") or not _same(labels, LabelSet.numbered(len(labels))):
        with _output(aside / "lbl.jsonl") as sink:  # those two know how many labels there are
            jsonl.write_labels(labels, sink)


def _write_exclusions(corpus: Corpus, file: Path, aside: Path) -> None:
    if corpus.excluded is None:
        if file.exists():
            raise DataError(
                "it is of another corpus, and would be read as that of the one to be written; "
                "remove it, or write to another folder",
                file=file,
            )
        return
    row = np.repeat(np.arange(len(corpus)), np.diff(corpus.excluded.indptr))
    lines = (f"{r} {c}\n" for r, c in zip(row, corpus.excluded.indices, strict=True))
    (aside / file.name).write_text("".join(lines))


def _same(a: LabelSet, b: LabelSet) -> bool:
    texts = (
        a.texts is b.texts if a.texts is None or b.texts is None else bool(a.texts.equals(b.texts))
    )
    return a == b and bool(a.names.equals(b.names)) and texts


def _output(path: Path) -> pa.NativeFile:
    codec = _CODECS.get(path.suffix)
    file = pa.OSFile(str(path), "wb")
    return file if codec is None else pa.CompressedOutputStream(file, codec)
