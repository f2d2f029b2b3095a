"""`read_vocabulary`: a vocabulary of any format, known by looking."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from megalabel.data.concepts import Builder
from megalabel.data.formats.lines import is_utf8, not_utf8, read_head
from megalabel.data.limits import Limits
from megalabel.data.vocabularies import folder, records, tables
from megalabel.data.vocabularies.skos import FORMATS, Statements
from megalabel.data.vocabularies.sorting import sort_out
from megalabel.data.vocabulary import Vocabulary
from megalabel.errors import DataError, ParameterError
from megalabel.files import MANIFEST
from megalabel.progress import progress

ENDINGS = {
    ".ttl": "turtle",
    ".turtle": "turtle",
    ".n3": "turtle",
    ".nt": "n-triples",
    ".rdf": "rdf/xml",
    ".xml": "rdf/xml",
    ".owl": "rdf/xml",
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
FILES = (*FORMATS, "tsv", "csv", "jsonl")
_LOOKS = (
    ("rdf/xml", re.compile(r"\s*(<\?xml|<!--|<rdf:RDF|<!DOCTYPE)")),
    ("jsonl", re.compile(r"\s*\{")),
    ("turtle", re.compile(r"\s*(@prefix|@base|prefix\s+[^\s:]*:\s*<|base\s+<)", re.IGNORECASE)),
    ("tsv", re.compile(r"[^\t\n]+\t[^\n]*|<[^<>\s]+>\s*(\n|$)")),
    ("n-triples", re.compile(r"(<[^<>\s]*>|_:\S+)\s+<[^<>\s]*>\s.*\.\s*(#.*)?(\n|$)")),
    ("csv", re.compile(r"[^\n]*\buri\b[^\n]*\blabel_[^\n]*|[^\n]*\blabel_[^\n]*\buri\b")),
)
_COMMENTS = re.compile(r"\A(\s*(#[^\n]*)?\n)*")
_STATEMENT = re.compile(r"[^\t\n]*\t\s*(<[^<>\s]*>|a|\w*:\w*)\s.*[.;,]\s*$")
_PACKED = (".gz", ".zst")


def read_vocabulary(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    format: str | None = None,
    *,
    language: str | None = None,
    max_bytes: int | None = None,
) -> Vocabulary:
    """Read a vocabulary: the folder of one, or files of SKOS, TSV, CSV or JSON lines.

    What is odd in it is counted, with examples: `Vocabulary.notes`.

    Parameters
    ----------
    path : path, or sequence of paths
        A folder that `write_vocabulary` made, or one or more files, plain or compressed by gzip or
        zstd. Several files are read into one vocabulary, such as TSV files of several languages.
    format : "turtle", "rdf/xml", "n-triples", "tsv", "csv" or "jsonl", optional
        Known by looking into the file, or by its ending, where not given.
    language : str, optional
        The language of the names in TSV files. By default that which the name of the file ends
        with (yso-fi.tsv: fi); else they are of no language.
    max_bytes : int, optional
        Bytes that a compressed file may unpack to even if it is too small to be expected to.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "animals-en.tsv"
    >>> _ = file.write_text("<http://x.org/Q144>\\tdog\\n<http://x.org/Q146>\\tcat\\n")
    >>> vocabulary = read_vocabulary(file)
    >>> vocabulary, vocabulary.find("cat")
    (Vocabulary(2 concepts; names: en), 1)
    """
    paths = [Path(path)] if isinstance(path, str | os.PathLike) else [Path(one) for one in path]
    if not paths:
        raise ParameterError("expected a file or folder of a vocabulary, found an empty list")
    if format is not None and format not in FILES:
        raise ParameterError(f"vocabularies are read from {', '.join(FILES)}, not {format!r}")
    if len(paths) == 1 and folder.is_folder(paths[0]):
        return folder.load(paths[0])
    for one in paths:
        _check_file(one)
    limits = Limits(max_bytes)
    formats = [format or format_of(one) for one in paths]
    builder = Builder()
    statements = Statements(builder)
    with progress(f"reading {paths[0].name}"):
        for one, kind in zip(paths, formats, strict=True):
            if kind in FORMATS:
                statements.read(one, kind, limits)
            elif kind == "tsv":
                tables.read_tsv(one, builder, language, limits)
            elif kind == "csv":
                tables.read_csv(one, builder, limits)
            else:
                records.read_jsonl(one, builder, limits)
        if statements.count:
            sort_out(statements)
        _check_found(builder, statements, paths)
        if set(formats) <= {"tsv", "csv"}:
            tables.deprecate_nameless(builder)
        files = [one.name for one in paths]
        return Vocabulary(*builder.finished({"files": files, "formats": formats}))


def format_of(path: Path) -> str:
    """The format of a file: what its beginning looks like, else what its ending says."""
    head = read_head(path)
    if not head.strip():
        raise DataError("the file is empty; expected a vocabulary", file=path)
    text = head.decode(errors="replace")
    text = text[_COMMENTS.match(text).end() :]  # type: ignore[union-attr]
    first_line = text.partition("\n")[0]
    by_name = by_ending(path)
    for kind, looks in _LOOKS:
        if looks.match(text):
            # a statement may hold tabs as a line of a table does
            statement = by_name in FORMATS or (by_name is None and _STATEMENT.match(first_line))
            if kind == "tsv" and statement:
                continue
            # statements of N-Triples are Turtle too, and more may follow
            return "turtle" if kind == "n-triples" and by_name != kind else kind
    if by_name is not None:
        return by_name
    if not is_utf8(head[: head.rfind(b"\n") + 1]):
        raise DataError(not_utf8(head, _first_bad(head)), file=path)
    raise DataError(
        "expected SKOS in Turtle, RDF/XML or N-Triples, or TSV, CSV or JSON lines; found "
        f"{first_line!r:.80}; format says which it is (--from)",
        file=path,
    )


def by_ending(path: Path) -> str | None:
    name = path.name.lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return ENDINGS.get(Path(name).suffix)


def _first_bad(head: bytes) -> int:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _check_file(path: Path) -> None:
    if (path / MANIFEST).is_file():
        raise DataError(
            "it is a model; the vocabulary of its labels, if they have one, is "
            "megalabel.load(…).labels.vocabulary",
            file=path,
        )
    if path.is_dir():
        raise DataError(
            "it is a folder, but not one of a vocabulary, which holds vocabulary.json; give a "
            "file, or a folder that `megalabel vocabulary convert` made",
            file=path,
        )
    if not path.exists():
        raise DataError("there is no such file or folder", file=path)


def _check_found(builder: Builder, statements: Statements, paths: list[Path]) -> None:
    if builder.is_concept:
        return
    found = "no line with an identifier"
    if statements.count:
        found = f"{statements.count:,} statements, none of them about a concept"
    raise DataError(
        "expected concepts: in SKOS things of the type skos:Concept, or that have a "
        f"skos:prefLabel; found {found}",
        file=paths[0],
    )
