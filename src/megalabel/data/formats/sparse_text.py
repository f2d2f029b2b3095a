"""Sparse rows as text: the Extreme Classification Repository's format, and svmlight's.

Both write a row as `label,label feature:value feature:value …`. The repository's begins with a
header, the numbers of rows, features and labels; svmlight's has none, but comments. Parsing and
formatting are native and parallel.
"""

from __future__ import annotations

import gzip
import mmap
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.data.corpus import Corpus
from megalabel.data.formats.lines import compression_of, unpacked
from megalabel.data.labelset import LabelSet
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.errors import DataError

MOST_FEATURES = 2**31 - 1  # feature numbers are int32

_HEADER = re.compile(r"\s*\d+[ \t]+\d+[ \t]+\d+\s*")
# Bad numbers pass here: the reader then says where they are and what is wrong with them.
_SVMLIGHT_ROW = re.compile(
    r"[\d+.,-]*([ \t]+qid:\d+)?([ \t]*(?<!\S)-?\d+:\S+)+\s*(#.*)?", re.DOTALL
)
_LABELS = re.compile(r"\d+(,\d+)*")
_LARGE_LABEL = re.compile(r"expected a label number .*, found '(\d+)'")
_BOM = "\ufeff"


def looks_like_xc(first_line: str) -> bool:
    """Whether a file with this first line is in the Extreme Classification Repository's format.

    Examples
    --------
    >>> looks_like_xc("15539 5000 3993"), looks_like_xc("446,521 0:0.08 1:0.13")
    (True, False)
    """
    return _HEADER.fullmatch(first_line.removeprefix(_BOM)) is not None


def looks_like_svmlight(first_line: str) -> bool:
    """Whether a file with this first line is in svmlight's format.

    Examples
    --------
    >>> looks_like_svmlight("446,521 0:0.08 1:0.13"), looks_like_svmlight("15539 5000 3993")
    (True, False)
    """
    return _SVMLIGHT_ROW.fullmatch(first_line.removeprefix(_BOM)) is not None


def looks_like_row(line: str) -> bool:
    """Whether a line is a row of labels and features, either of which may be missing.

    Examples
    --------
    >>> looks_like_row("446,521 0:0.08"), looks_like_row("446,521"), looks_like_row("4 gowns")
    (True, True, False)
    """
    return looks_like_svmlight(line) or _LABELS.fullmatch(line.strip()) is not None


def read_xc(path: str | Path, problems: Problems, limits: Limits = USUAL) -> Corpus:
    """Read a file in the Extreme Classification Repository's text format; gz and zst too.

    The header `N D L` says how many rows, features and labels there are; both are numbered from
    0. A row without labels begins with a blank or with its first feature, a row without features
    ends after its labels. A label given twice in a row counts once.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    ...     _ = file.write("2 3 2\\n0,1 0:0.5 2:1\\n 1:2\\n")
    ...     file.flush()
    ...     corpus = read_xc(file.name, Problems())
    >>> corpus, corpus.features.toarray().tolist()
    (Corpus(2 rows, 3 features, 2 labels), [[0.5, 0.0, 1.0], [0.0, 2.0, 0.0]])
    """
    text = _content(path, limits)
    (rows, n_features, n_labels), start = _header(path, text, limits)
    targets, features, bad = _parse(
        path, text[start:], problems, features=n_features, labels=n_labels, svmlight=False
    )
    found = features.shape[0] + bad
    blank = found - rows
    if blank > 0 and targets[-blank:].nnz == features[-blank:].nnz == 0:
        # An empty line is an empty row, but not behind the last row that the header speaks of.
        targets, features, found = targets[:-blank], features[:-blank], rows
    if found != rows:
        problems.add(f"the header says {rows} rows, found {found}", file=path, line=1, column=1)
    return Corpus(
        features=features,
        targets=targets,
        labels=LabelSet.numbered(n_labels),
        source={"path": str(path), "format": "xc"},
    )


def read_svmlight(path: str | Path, problems: Problems, limits: Limits = USUAL) -> Corpus:
    """Read a multi-label svmlight file: rows without a header; gz and zst too.

    Features are numbered from 1 if none has number 0, as in scikit-learn's `zero_based="auto"`;
    labels are taken as they are, and the label set reaches up to the largest. Comments behind
    `#`, `qid:` and blank lines are passed over.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".svm") as file:
    ...     _ = file.write("0,2 1:0.5 3:1  # a comment\\n1 qid:7 2:2\\n")
    ...     file.flush()
    ...     corpus = read_svmlight(file.name, Problems())
    >>> corpus, corpus.features.toarray().tolist()
    (Corpus(2 rows, 3 features, 3 labels), [[0.5, 0.0, 1.0], [0.0, 2.0, 0.0]])
    """
    size = os.path.getsize(path)
    targets, features, bad = _parse(
        path,
        _content(path, limits),
        problems,
        features=MOST_FEATURES,
        labels=limits.labels(size),
        svmlight=True,
        advice=lambda label: limits.advice(label + 1, size),
    )
    if features.shape[0] + bad == 0:
        raise DataError("expected rows such as '3,7 1:0.5 4:1', found none", file=path)
    if features.nnz and features.indices.min() > 0:
        features.indices -= 1
    n_features = int(features.indices.max()) + 1 if features.nnz else 0
    n_labels = int(targets.indices.max()) + 1 if targets.nnz else 0
    features.resize(features.shape[0], n_features)
    targets.resize(targets.shape[0], n_labels)
    return Corpus(
        features=features,
        targets=targets,
        labels=LabelSet.numbered(n_labels),
        source={"path": str(path), "format": "svmlight"},
    )


def write_xc(corpus: Corpus, path: str | Path) -> None:
    """Write features and labels in the Extreme Classification Repository's text format.

    Values are written as the shortest decimals that read back as the same float32. A name that
    ends in .gz or .zst is compressed. The format holds neither texts nor names of labels, and no
    relevance but 1: a corpus with others is refused.

    Examples
    --------
    >>> import tempfile
    >>> corpus = Corpus(features=[[0.1, 0], [0, 2]], targets=[[1, 1], [0, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_xc(corpus, Path(folder, "train.txt"))
    ...     print(Path(folder, "train.txt").read_text())
    2 2 2
    0,1 0:0.1
    1 1:2
    <BLANKLINE>
    """
    if corpus.features is None:
        raise DataError("expected a corpus with features to write as XC text, found texts alone")
    targets, features = corpus.targets, csr_matrix(corpus.features)
    if (other := np.flatnonzero(targets.data != 1)).size:
        row = int(np.searchsorted(targets.indptr, other[0], "right")) - 1
        raise DataError(
            f"XC text cannot hold the relevance {targets.data[other[0]]} of row {row}: only 1"
        )
    if max(features.shape[1], targets.shape[1]) > MOST_FEATURES:
        raise DataError(f"XC text numbers up to {MOST_FEATURES} features and labels")
    arrays = {
        "target_indptr": targets.indptr.astype(np.int64),
        "target_indices": targets.indices.astype(np.int32, copy=False),
        "feature_indptr": features.indptr.astype(np.int64),
        "feature_indices": features.indices.astype(np.int32, copy=False),
        "values": features.data,
    }
    entries = arrays["target_indptr"] + arrays["feature_indptr"]
    with _output(path) as file:
        file.write(f"{len(corpus)} {features.shape[1]} {targets.shape[1]}\n".encode())
        begin = 0
        while begin < len(corpus):  # blocks of rows, so that memory does not grow with the corpus
            most = entries[begin] + 4_000_000
            end = max(begin + 1, int(np.searchsorted(entries, most, "right")) - 1)
            end = min(end, begin + 1_000_000)
            file.write(_native.format_sparse_text(**arrays, begin=begin, end=end))
            begin = end


def _content(path: str | Path, limits: Limits) -> np.ndarray:
    """A file's bytes, decompressed if need be and without a byte order mark."""
    path = Path(path)
    if path.stat().st_size == 0:
        raise DataError("the file is empty", file=path)
    data: Any
    if compression_of(path) is not None:
        data = b"".join(unpacked(path, limits))
    else:
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    text = np.frombuffer(data, np.uint8)
    return text[3:] if text[:3].tobytes() == b"\xef\xbb\xbf" else text


def _header(path: str | Path, text: np.ndarray, limits: Limits) -> tuple[list[int], int]:
    """The three numbers in the first line, and where the second begins."""
    line, newline, _ = text[:200].tobytes().partition(b"\n")
    shown = line.decode("utf-8", "backslashreplace")
    if not looks_like_xc(shown) or (not newline and len(text) > len(line)):
        shown = shown.strip()[:40]
        raise DataError(
            f"expected a header with the numbers of rows, features and labels, found {shown!r}",
            file=path,
            line=1,
            column=1,
        )
    numbers = [int(number) for number in line.split()]
    fault = None
    if numbers[1] > MOST_FEATURES:
        fault = f"expected at most {MOST_FEATURES} features, found {numbers[1]}"
    elif numbers[2] > limits.labels(size := os.path.getsize(path)):
        most = f"expected at most {limits.labels(size)} labels, found {numbers[2]}"
        fault = f"{most}; {limits.advice(numbers[2], size)}"
    if fault is not None:
        raise DataError(fault, file=path, line=1, column=1)
    return numbers, len(line) + 1


def _parse(
    path: str | Path,
    text: np.ndarray,
    problems: Problems,
    *,
    features: int,
    labels: int,
    svmlight: bool,
    advice: Callable[[int], str] | None = None,
) -> tuple[csr_matrix, csr_matrix, int]:
    """Targets and features of the good rows, and the number of bad ones, which are reported."""
    t_indptr, t_indices, f_indptr, f_indices, values, bad, described = _native.parse_sparse_text(
        text,
        svmlight=svmlight,
        features=features,
        labels=labels,
        first_line=1 if svmlight else 2,
        keep=problems.keep if problems.skip else 1,
    )
    for line, column, said in described:
        message = said.decode("utf-8", "backslashreplace")
        if advice and (found := _LARGE_LABEL.fullmatch(message)):
            message = f"{message}; {advice(int(found[1]))}"
        problems.add(message, file=path, line=line, column=column)
    problems.count += bad - len(described)
    n = len(t_indptr) - 1
    ones = np.ones(len(t_indices), np.float32)
    return (
        csr_matrix((ones, t_indices, t_indptr), shape=(n, labels)),
        csr_matrix((values, f_indices, f_indptr), shape=(n, features)),
        bad,
    )


@contextmanager
def _output(path: str | Path) -> Iterator[BinaryIO | pa.NativeFile]:
    """A file to write bytes to, compressed by its name; the same bytes give the same file."""
    suffix = Path(path).suffix
    with open(path, "wb") as file:
        if suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                yield packed
        elif suffix == ".zst":
            with pa.CompressedOutputStream(pa.PythonFile(file), "zstd") as packed:
                yield packed
        else:
            yield file
