"""What a folder holds: the parts of a corpus, its label file, its exclusions."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from megalabel import files
from megalabel.data.formats import annif, documents, excel, jsonl
from megalabel.data.formats.columns import URIS
from megalabel.data.formats.detect import FORMATS, detect, ending, first_line, stem
from megalabel.data.formats.lines import read_blocks, split_lines
from megalabel.data.labelset import LabelSet
from megalabel.data.layout import USUAL_LAYOUT, Layout
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.errors import DataError, ParameterError

log = logging.getLogger(__name__)

_SPLITS = {
    "train": ("train", "trn", "training"),
    "test": ("test", "tst", "testing"),
    "validation": ("validation", "valid", "val", "dev"),
}
_SPLIT_OF = {alias: name for name, aliases in _SPLITS.items() for alias in aliases}
_SHARD = re.compile(r"[-_.]\d+-of-\d+$")
_LABEL_STEMS = ("lbl", "labels", "label")
_DOCUMENTS = re.compile(r"(readme|licen[cs]e|citation|changelog)", re.IGNORECASE)
_NUMBER = re.compile("[0-9]{1,18}")
_PECOS = re.compile(r"[XY]\..+\.(npz|txt)|output-items\.txt")
# Where a folder holds a part in several formats: those with texts come first.
_PREFERENCE = (
    *("jsonl", "arrow", "parquet", "csv", "excel", "annif", "annif-folder", "fasttext"),
    *("pecos", "xc", "svmlight"),
)
_WHOLE_FOLDERS = ("pecos", "annif-folder")  # formats whose one file is a folder
# Formats of columns, which a layout may name.
COLUMNAR = ("jsonl", "arrow", "parquet", "csv", "excel")


@dataclass(frozen=True)
class Part:
    """The files that make up one part of a corpus."""

    split: str | None
    format: str
    files: tuple[Path, ...]
    layout: Layout = USUAL_LAYOUT

    @property
    def folder(self) -> Path:
        """The folder the files are in."""
        return self.files[0] if self.format in _WHOLE_FOLDERS else self.files[0].parent

    @property
    def shown(self) -> str:
        """File and folder name, for people and provenance; never where on the machine it is."""
        path = self.files[0].resolve()
        whole = self.format in _WHOLE_FOLDERS
        if whole or len(self.files) > 1:
            return path.name if whole else path.parent.name
        return f"{path.parent.name}/{path.name}" if path.parent.name else path.name


def split_name(name: str) -> str:
    """`trn` is train, `dev` is validation, …; other names are as they are."""
    return _SPLIT_OF.get(name.lower(), name)


def locate(
    path: Path, split: str | None, format: str | None, layout: Layout = USUAL_LAYOUT
) -> Part:
    """The part of a corpus that a file or folder and a split's name mean."""
    if format is not None and format not in FORMATS:
        raise ParameterError(f"format must be one of {', '.join(FORMATS)}, not {format!r}")
    path, sheet = excel.sheet_in(path)
    layout = replace(layout, sheet=sheet)
    if path.parent.is_dir():
        _finish_writing(path.parent)
    if not path.exists():
        raise DataError(f"no such file or folder{_similar(path)}", file=path)
    wanted = None if split is None else split_name(split)
    if path.is_dir():
        if (path / files.MANIFEST).is_file():
            raise DataError("this is a model folder, not a corpus", file=path)
        part = _choose(path, find_parts(path, format, layout), wanted)
    else:
        if path.stat().st_size == 0:
            raise DataError("the file is empty", file=path)
        found = format or detect(path, layout) or _as_table(path, layout)
        if found is None:
            raise DataError(
                f"the format is not known: it starts with {first_line(path)[:60]!r}; expected one "
                f"of:{_expected()}",
                file=path,
            )
        named = split_in(path)
        if wanted is not None and named not in (None, wanted):
            raise DataError(
                f"asked for the {wanted} part, but the file's name says {named}", file=path
            )
        part = Part(named, found, (path,), layout)
    if layout.names_columns and part.format not in COLUMNAR:
        raise ParameterError(
            f"{part.shown} is read as {part.format}, which has no columns to choose from: "
            f"text_column, label_column, label_separator and id_column are for "
            f"{', '.join(COLUMNAR)}; format (--format of tag) says what a file is"
        )
    return part


def _as_table(path: Path, layout: Layout) -> str | None:
    """A file with tabs, whose name promises a table, may be one with columns not known; but no
    list of labels."""
    line = first_line(path, layout.encoding)
    known = annif.looks_like_vocabulary(line)
    return "csv" if ending(path)[1] == ".tsv" and "\t" in line and not known else None


def find_parts(
    folder: Path, format: str | None = None, layout: Layout = USUAL_LAYOUT
) -> dict[str, Part]:
    """The parts of a corpus in a folder by name: train, test and validation where files say so,
    else by the files' own names."""
    _finish_writing(folder)
    found: dict[str, dict[str, list[Path]]] = {}
    unreadable: list[DataError] = []
    paths = _files(folder)
    pecos = [path for path in paths if _PECOS.fullmatch(path.name)]
    if any(path.suffix == ".npz" for path in pecos):
        from megalabel.data.formats import npz

        for name in npz.find_splits(folder):
            found.setdefault(split_name(name), {})["pecos"] = [folder]
    for name, place in _document_folders(folder):
        found.setdefault(name, {})["annif-folder"] = [place]
    read = [*pecos, *(path for path in paths if documents.is_part(path))]
    for path in paths:
        if path in read or is_label_file(path) or path.name.startswith("filter_labels"):
            continue
        try:
            kind = detect(path, layout) if path.stat().st_size else None
        except DataError as error:  # of no matter, unless the corpus is in this file
            if split_in(path) is not None:
                raise
            unreadable.append(error)
            continue
        if kind is not None:
            name = split_in(path) or _SHARD.sub("", stem(path))
            found.setdefault(name, {}).setdefault(kind, []).append(path)
    if not found and unreadable:
        raise unreadable[0]
    if any(name in _SPLITS for name in found):
        found = {name: kinds for name, kinds in found.items() if name in _SPLITS}
    parts = {}
    for name in sorted(found, key=lambda n: (list(_SPLITS).index(n) if n in _SPLITS else 9, n)):
        kinds = {k: v for k, v in found[name].items() if format in (None, k)}
        if not kinds:
            continue
        kind = min(kinds, key=_PREFERENCE.index)
        if len(kinds) > 1:
            log.info("%s: %s is there as %s; reading %s", folder, name, ", ".join(kinds), kind)
        if kind in ("xc", "svmlight") and len(kinds[kind]) > 1:
            listed = ", ".join(path.name for path in kinds[kind])
            raise DataError(f"several files could be the {name} part: {listed}", file=folder)
        parts[name] = Part(name, kind, tuple(kinds[kind]), layout)
    return parts


def _document_folders(folder: Path) -> list[tuple[str, Path]]:
    """The folder itself, or those in it that are named like parts, if they hold documents."""
    if documents.documents_in(folder):
        return [(split_name(folder.resolve().name), folder)]
    inside = sorted(path for path in folder.iterdir() if path.is_dir())
    named = [(split_name(path.name), path) for path in inside if split_name(path.name) in _SPLITS]
    return [(name, path) for name, path in named if documents.documents_in(path)]


def _finish_writing(folder: Path) -> None:
    try:
        files.finish(folder)
    except (OSError, ValueError) as error:
        raise DataError(
            f"a writer was killed here and its files cannot be put in place: {error}; read the "
            "folder once where it can be written to",
            file=folder,
        ) from None


def _choose(folder: Path, parts: dict[str, Part], wanted: str | None) -> Part:
    if not parts:
        seen = ", ".join(path.name for path in _files(folder)[:20]) or "nothing"
        raise DataError(
            f"nothing here can be read as a corpus; the folder holds {seen}; expected files named "
            f"train/trn and test/tst in one of these formats:{_expected()}",
            file=folder,
        )
    if wanted in parts:
        return parts[wanted]
    # a lone part whose name says nothing is whatever is asked for
    if len(parts) == 1 and (wanted is None or not set(parts) & set(_SPLITS)):
        return next(iter(parts.values()))
    listed = ", ".join(parts)
    if wanted is None:
        raise ParameterError(f"{folder} has several parts: {listed}; say which (split=…, --split)")
    raise DataError(f"there is no {wanted} part; there is {listed}", file=folder)


def is_label_file(path: Path) -> bool:
    """Whether a file's name says that it describes labels."""
    return stem(path).lower() in _LABEL_STEMS and ending(path)[1] in (".jsonl", ".json", ".ndjson")


def find_label_files(folder: Path) -> list[Path]:
    """The files of a folder whose names say that they describe labels."""
    return [path for path in _files(folder) if is_label_file(path)]


def find_labels(part: Part, limits: Limits = USUAL) -> LabelSet | None:
    """The labels that a file beside the part's files describes, if there is one."""
    found = [path for path in find_label_files(part.folder) if path not in part.files]
    read = jsonl.read_labels
    if not found and _has_subjects(part):
        found = _vocabularies(part.folder, part.files)
        if not found and part.format == "annif-folder":
            found = _vocabularies(part.folder.parent, part.files)
        read = annif.read_vocabulary
    if len(found) > 1:
        listed = ", ".join(path.name for path in found)
        raise DataError(f"several files could describe the labels: {listed}", file=part.folder)
    return read(found[0], limits) if found else None


def _has_subjects(part: Part) -> bool:
    """Whether labels are identifiers that one of Annif's vocabularies explains."""
    if part.format == "csv":
        return URIS in first_line(part.files[0], part.layout.encoding).lower()
    return part.format in ("annif", "annif-folder")


def _vocabularies(folder: Path, but: Sequence[Path]) -> list[Path]:
    others = (path for path in _files(folder) if path not in but and not documents.is_part(path))
    tables = (path for path in others if ending(path)[1] in (".tsv", ".csv", ".txt"))
    return [path for path in tables if _is_vocabulary(path)]


def _is_vocabulary(path: Path) -> bool:
    try:
        return annif.looks_like_vocabulary(first_line(path))
    except DataError:  # a file that only stands beside the corpus may be in any encoding
        return False


class Exclusions:
    """Cells (text, label) that evaluation must leave out, as `filter_labels_*.txt` lists them."""

    def __init__(self, path: Path, limits: Limits = USUAL) -> None:
        self.path = path
        cells, self._lines = [], []
        for block in read_blocks(path, limits=limits):
            for _, number, text in split_lines(block, path, Problems()):
                fields = text.split()
                if len(fields) != 2 or not all(_NUMBER.fullmatch(field) for field in fields):
                    raise DataError(
                        f"expected the numbers of a text and a label, found {text[:60]!r}",
                        file=path,
                        line=number,
                    )
                cells.append([int(field) for field in fields])
                self._lines.append(number)
        self.cells = np.array(cells, np.int64).reshape(-1, 2)

    def matrix(self, origin: np.ndarray, n_labels: int, n_texts: int | None = None) -> csr_matrix:
        """The cells of some texts, given by their places in the file, as a matrix of ones.

        With `n_texts`, a cell of a text beyond them is an error.
        """
        text, label = self.cells.T
        outside = label >= n_labels
        if n_texts is not None:
            outside |= text >= n_texts
        if outside.any():
            first = int(np.flatnonzero(outside)[0])
            most = "" if n_texts is None else f" of {n_texts} texts and"
            raise DataError(
                f"the cell {text[first]} {label[first]} is outside{most} {n_labels} labels",
                file=self.path,
                line=self._lines[first],
            )
        row = np.searchsorted(origin, text)
        here = (row < len(origin)) & (origin[np.minimum(row, len(origin) - 1)] == text)
        matrix = csr_matrix(
            (np.ones(int(here.sum()), np.float32), (row[here], label[here])),
            shape=(len(origin), n_labels),
        )
        matrix.sum_duplicates()
        matrix.data[:] = 1
        return matrix


def find_exclusions(part: Part, limits: Limits = USUAL) -> Exclusions | None:
    """The exclusions listed beside the part's files, if there are any."""
    name = part.split or stem(part.files[0])
    for alias in _SPLITS.get(name, (name,)):
        path = part.folder / f"filter_labels_{alias}.txt"
        if path.is_file():
            return Exclusions(path, limits)
    return None


def exclusions_file(path: Path) -> Path:
    """Where the exclusions of a corpus file are."""
    return path.with_name(f"filter_labels_{split_in(path) or stem(path)}.txt")


def split_in(path: Path) -> str | None:
    """The split that a file's name tells of."""
    words = re.split(r"[^a-z]+", _SHARD.sub("", stem(path)).lower())
    return next((_SPLIT_OF[word] for word in words if word in _SPLIT_OF), None)


def _files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".") and not _DOCUMENTS.match(path.name)
    )


def _similar(path: Path) -> str:
    if not path.parent.is_dir():
        return f"; the folder {path.parent} does not exist either"
    there = [other.name for other in path.parent.iterdir()]
    close = difflib.get_close_matches(path.name, there, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _expected() -> str:
    return "".join(f"\n  {name}: {words}" for name, words in FORMATS.items())
