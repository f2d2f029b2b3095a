"""The folder layout of PECOS: sparse matrices in npz files, texts one a line.

For each split, `X.trn.npz` holds the features and/or `X.trn.txt` the texts, `Y.trn.npz` the labels
(`tst` and `val` likewise). `output-items.txt` holds the names of the labels, where they have some.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix, load_npz, save_npz

from megalabel.data.corpus import Corpus
from megalabel.data.formats.lines import not_utf8
from megalabel.data.labelset import LabelSet
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.errors import DataError, ParameterError

_SHORT = {"train": "trn", "test": "tst", "validation": "val"}
_NAMES = "output-items.txt"


def find_splits(folder: str | Path) -> set[str]:
    """The splits that a folder in PECOS's layout holds: "train", "test", "validation".

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_npz(Corpus(["a", "b"], targets=[["x"], ["y"]]), folder, "train")
    ...     find_splits(folder)
    {'train'}
    """
    folder = Path(folder)
    return {
        split
        for split, short in _SHORT.items()
        if any((folder / f"{kind}.{short}.npz").is_file() for kind in "XY")
    }


def read_pecos(
    folder: str | Path, split: str, problems: Problems, limits: Limits = USUAL
) -> Corpus:
    """Read one split of a folder in PECOS's layout.

    Either of features and texts may be missing. Labels are known by their column numbers, and
    named by `output-items.txt` if there is one.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_npz(Corpus(["a", "b"], targets=[["x"], ["y"]]), folder, "train")
    ...     corpus = read_pecos(folder, "train", Problems())
    >>> corpus, corpus.texts.to_pylist(), corpus.labels.names.to_pylist()
    (Corpus(2 texts, 2 labels), ['a', 'b'], ['x', 'y'])
    """
    features_file, texts_file, targets_file, names_file = _files(folder, split)
    if not targets_file.is_file():
        raise DataError(
            "expected the labels of the rows in this file, found none", file=targets_file
        )
    bad: set[int] = set()
    targets = _matrix(targets_file, problems, bad, limits)
    size = targets_file.stat().st_size
    if targets.shape[1] > limits.labels(size):
        raise DataError(
            f"expected at most {limits.labels(size)} labels, found {targets.shape[1]}; "
            f"{limits.advice(targets.shape[1], size)}",
            file=targets_file,
        )
    features = _matrix(features_file, problems, bad, limits) if features_file.is_file() else None
    texts = _lines(texts_file, problems, bad) if texts_file.is_file() else None
    counts = {
        features_file: None if features is None else features.shape[0],
        texts_file: None if texts is None else len(texts),
    }
    for file, count in counts.items():
        if count not in (None, targets.shape[0]):
            raise DataError(
                f"expected {targets.shape[0]} rows as in {targets_file.name}, found {count}",
                file=file,
            )
    if features is None and texts is None:
        raise DataError(
            f"expected features in this file or texts in {texts_file.name}, found neither",
            file=features_file,
        )
    corpus = Corpus(
        texts,
        features,
        targets,
        _labels(names_file, targets.shape[1]),
        source={"path": str(folder), "format": "pecos", "split": split},
    )
    return corpus[np.setdiff1d(np.arange(len(corpus)), list(bad))] if bad else corpus


def write_npz(corpus: Corpus, folder: str | Path, split: str) -> None:
    """Write one split of a folder in PECOS's layout, with the names of the labels.

    Line breaks in texts and names become blanks, for they stand one a line. The layout holds no
    ids of texts or labels.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_npz(Corpus(["a", "b"], targets=[["x"], ["y"]]), folder, "test")
    ...     sorted(file.name for file in Path(folder).iterdir())
    ['X.tst.txt', 'Y.tst.npz', 'output-items.txt']
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    features_file, texts_file, targets_file, names_file = _files(folder, split)
    names = _joined(corpus.labels.names)
    others = find_splits(folder) - {split}
    if others and names_file.is_file() and names_file.read_bytes() != names:
        raise DataError(
            f"expected the labels of the {', '.join(sorted(others))} split, found others",
            file=names_file,
        )
    for file, found in ((features_file, corpus.features), (texts_file, corpus.texts)):
        if found is None:
            file.unlink(missing_ok=True)  # from another corpus: it would be read as this one's
    if corpus.features is not None:
        save_npz(features_file, csr_matrix(corpus.features))
    if corpus.texts is not None:
        texts_file.write_bytes(_joined(corpus.texts))
    save_npz(targets_file, corpus.targets)
    names_file.write_bytes(names)


def _files(folder: str | Path, split: str) -> tuple[Path, Path, Path, Path]:
    """Where features, texts, labels and the names of labels stand."""
    if split not in _SHORT:
        raise ParameterError(f"split must be one of {', '.join(_SHORT)}, not {split!r}")
    folder, short = Path(folder), _SHORT[split]
    return (
        folder / f"X.{short}.npz",
        folder / f"X.{short}.txt",
        folder / f"Y.{short}.npz",
        folder / _NAMES,
    )


def _matrix(file: Path, problems: Problems, bad: set[int], limits: Limits) -> csr_matrix:
    """A sparse matrix whose every index has been checked; rows with NaN or infinity are bad."""
    try:
        with zipfile.ZipFile(file) as archive:  # which gives no more bytes than it says here
            size = sum(member.file_size for member in archive.infolist())
        limits.check_unpacked(size, file)
        stored = load_npz(file)  # never unpickles
        if stored.format not in ("csr", "csc") or stored.dtype.kind not in "buif":
            raise ValueError(f"found {stored.format} of {stored.dtype}, not numbers in csr or csc")
        if stored.shape[0] > size // 4:  # the columns of csc do not say how many rows there are
            raise ValueError(f"found {stored.shape[0]} rows, more than the file can hold")
        stored.check_format(full_check=True)
        if (np.diff(stored.indptr) < 0).any():  # SciPy passes over it if the last pointer is 0
            raise ValueError("found row pointers that fall")
        with np.errstate(over="ignore"):
            matrix = csr_matrix(stored, dtype=np.float32)
    except DataError:
        raise
    except Exception as error:  # a damaged file fails in as many ways as zip and npy have fields
        raise DataError(f"expected a sparse matrix: {error}", file=file) from None
    finite = np.isfinite(matrix.data)
    for row in np.unique(np.searchsorted(matrix.indptr, np.flatnonzero(~finite), "right") - 1):
        problems.add(f"expected finite numbers in row {row}, found NaN or infinity", file=file)
        bad.add(int(row))
    matrix.data[~finite] = 0  # only in rows that are left out
    return matrix


def _lines(file: Path, problems: Problems, bad: set[int]) -> list[str]:
    """The lines of a text file; those that are not UTF-8 are bad."""
    lines = []
    for number, line in enumerate(_split(file.read_bytes())):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError as error:
            problems.add(
                not_utf8(line, error.start),
                file=file,
                line=number + 1,
                column=error.start + 1,
            )
            lines.append("")
            bad.add(number)
    return lines


def _split(content: bytes) -> list[bytes]:
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def _labels(file: Path, count: int) -> LabelSet:
    if not file.is_file():
        return LabelSet.numbered(count)
    names = _lines(file, Problems(), set())  # a label cannot be skipped
    if len(names) != count:
        raise DataError(f"expected {count} names, one a label, found {len(names)}", file=file)
    return LabelSet(LabelSet.numbered(count).ids, names)


def _joined(lines: pa.LargeStringArray) -> bytes:
    """One string a line; what would break a line becomes a blank."""
    lines = pc.replace_substring_regex(lines, "[\r\n]", " ")
    return "".join(f"{line}\n" for line in lines.to_pylist()).encode()
