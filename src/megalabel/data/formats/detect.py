"""Which format a file has: known by its first bytes, its name and its first line."""

from __future__ import annotations

import re
from pathlib import Path

from megalabel.data.formats import annif, excel, fasttext, jsonl, separated
from megalabel.data.formats.lines import read_head
from megalabel.data.layout import USUAL_LAYOUT, UTF8, Layout

FORMATS = {
    "jsonl": "JSON lines (title/content/text with labels or target_ind)",
    "xc": "the Extreme Classification Repository's text format (a header of three counts)",
    "svmlight": "svmlight (l1,l2 feature:value …)",
    "pecos": "PECOS's folder (X.trn.npz, Y.trn.npz, X.trn.txt)",
    "fasttext": "fastText (__label__name text)",
    "annif": "Annif's TSV (text, tab, <uri> <uri>)",
    "annif-folder": "Annif's folder (a.txt, with its labels in a.key or a.tsv)",
    "csv": "CSV or TSV with a header (title/content/text, labels)",
    "excel": "Excel (.xlsx, .xls) or OpenOffice (.ods), with a header like CSV's",
    "parquet": "Parquet",
    "arrow": "Arrow IPC or Feather",
}
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow"}
_ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    **dict.fromkeys(excel.ENDINGS, "excel"),
}
_SPARSE_START = re.compile(r"\s*[-+.\d]")


def stem(path: Path) -> str:
    """The file's name without compression and format endings."""
    return ending(path)[0]


def ending(path: Path) -> tuple[str, str]:
    """The file's stem, and its ending without that of a compression."""
    name = path.name
    for compression in (".gz", ".zst"):
        name = name.removesuffix(compression)
    base, dot, last = name.rpartition(".")
    return (base, dot + last.lower()) if base else (name, "")


def first_line(path: Path, encoding: str = UTF8) -> str:
    """The first line of a file that is not blank, as far as its first bytes hold it."""
    for line in read_head(path, encoding=encoding).split(b"\n"):
        if line.strip():
            return line.decode(errors="replace").rstrip("\r")
    return ""


def detect(path: Path, layout: Layout = USUAL_LAYOUT) -> str | None:
    """The format of a file, or None if it looks like no corpus."""
    with open(path, "rb") as file:
        start = file.read(8)
    for magic, name in _MAGIC.items():
        if start.startswith(magic):
            return name
    by_name = _ENDINGS.get(ending(path)[1])
    if by_name == "excel":
        return by_name
    if start.startswith(b"PK\x03\x04") or ending(path)[1] in (".npz", ".npy"):
        return None
    line, head = first_line(path, layout.encoding), read_head(path, encoding=layout.encoding)
    if by_name == "jsonl":
        # an object that goes on in the next lines is a settings file, not a corpus
        if jsonl.looks_like_array(head):
            return "jsonl"
        return None if ending(path)[1] == ".json" and line.strip() in ("{", "[") else "jsonl"
    if annif.looks_like_corpus(line):
        return "annif"
    if annif.looks_like_vocabulary(line):
        return None
    if by_name is not None:
        return by_name
    if ending(path)[1] in (".tsv", ".txt") and separated.delimiter_of(line, layout) is not None:
        return "csv"
    if line.lstrip().startswith("{") or jsonl.looks_like_array(head):
        return "jsonl"
    if fasttext.looks_like_corpus(head):
        return "fasttext"
    return _sparse(line)


def _sparse(line: str) -> str | None:
    if not _SPARSE_START.match(line):
        return None
    from megalabel.data.formats import sparse_text

    if sparse_text.looks_like_xc(line):
        return "xc"
    return "svmlight" if sparse_text.looks_like_svmlight(line) else None
