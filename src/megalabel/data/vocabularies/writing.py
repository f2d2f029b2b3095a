"""`write_vocabulary`: a vocabulary to a folder, or to a file that `read_vocabulary` reads back."""

from __future__ import annotations

import csv
import io
import itertools
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from megalabel.data.concepts import Concept
from megalabel.data.vocabularies import folder, records, tables, turtle
from megalabel.data.vocabularies.reading import FILES, by_ending
from megalabel.data.vocabulary import Vocabulary
from megalabel.errors import ParameterError
from megalabel.outputs import replacing_file
from megalabel.progress import progress

log = logging.getLogger(__name__)

WRITTEN = tuple(kind for kind in FILES if kind != "rdf/xml")
_AT_ONCE = 4096  # pieces of text written at a time
_CODECS = {".gz": "gzip", ".zst": "zstd"}


def write_vocabulary(
    vocabulary: Vocabulary,
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    language: str | None = None,
    base: str | None = None,
) -> None:
    """Write a vocabulary. What is there is replaced in one step, once all is written.

    A folder keeps all of it, with the indexes of all lookups, and opens at once. JSON lines keep
    all concepts; SKOS keeps what it has terms for, TSV and CSV identifiers, preferred names and
    the first notation; what a file leaves out is warned of.

    Parameters
    ----------
    vocabulary : Vocabulary
    path : path
        The file, or the folder, which is what a path without an ending is.
    format : "folder", "turtle", "n-triples", "tsv", "csv" or "jsonl", optional
        Known by the ending where not given: .ttl, .nt, .tsv, .csv, .jsonl (also with .gz or .zst).
    language : str, optional
        The language of a TSV file. By default that which the name of the file ends with
        (animals-fi.tsv: fi), else the one of the vocabulary with the most names.
    base : str, optional
        In SKOS, what stands before identifiers that are no IRIs.

    Examples
    --------
    >>> import tempfile
    >>> from megalabel.data.vocabularies.reading import read_vocabulary
    >>> file = Path(tempfile.mkdtemp()) / "animals.ttl"
    >>> animals = Vocabulary.of([Concept("http://x.org/Q144", {"en": "dog", "fi": "koira"})])
    >>> write_vocabulary(animals, file)
    >>> print(file.read_text().partition("\\n\\n")[2].strip())
    <http://x.org/Q144> a skos:Concept ;
        skos:prefLabel "dog"@en, "koira"@fi .
    """
    path = Path(path)
    kind = format or by_ending(path) or (None if path.suffix else "folder")
    if kind not in (*WRITTEN, "folder"):
        raise ParameterError(
            f"{path.name}: vocabularies are written as folder, {', '.join(WRITTEN)}, by the name's "
            f"ending or by format (--to){f', not {kind!r}' if kind else ''}"
        )
    with progress(f"writing {path.name}"):
        if kind == "folder":
            folder.save(vocabulary, path)
            return
        if kind in ("turtle", "n-triples"):
            write = turtle.turtle if kind == "turtle" else turtle.n_triples
            pieces = write(vocabulary, base)
        elif kind == "jsonl":
            pieces = records.lines(vocabulary)
        elif kind == "csv":
            pieces = _csv(vocabulary)
        else:
            language = language or tables.language_of(path)
            pieces = _tsv(vocabulary, language or next(iter(vocabulary.languages), ""))
        with replacing_file(path) as fresh:
            _put(fresh, path.suffix, pieces)


def _put(fresh: Path, suffix: str, pieces: Iterable[str]) -> None:
    """Write pieces of text, compressed where the name says so."""
    codec = _CODECS.get(suffix)
    with pa.OSFile(str(fresh), "wb") as file:
        sink = file if codec is None else pa.CompressedOutputStream(file, codec)
        with sink:
            left = iter(pieces)
            while some := "".join(itertools.islice(left, _AT_ONCE)):
                sink.write(some.encode())


def _tsv(vocabulary: Vocabulary, language: str) -> Iterator[str]:
    """Lines of an identifier, its name in one language, and its notation."""
    tag = next(iter(vocabulary.languages_like(language)), "") if vocabulary.languages else ""
    without = 0
    for concept in _told(vocabulary, "TSV"):
        name = concept.names.get(tag, "")
        without += not name
        cells = [f"<{_plain(concept.id)}>", *map(_plain, [name, *concept.notations[:1]])]
        yield "\t".join(cells if name or len(cells) > 2 else cells[:1]) + "\n"
    if without:
        log.warning("%s concepts have no name in %r: only their identifier", f"{without:,}", tag)


def _csv(vocabulary: Vocabulary) -> Iterator[str]:
    """A header with a column for each language, and a row for each concept."""
    sink = io.StringIO()
    rows = csv.writer(sink)  # ends lines so that all of their characters are quoted
    labels = [f"{tables.LABEL}{language}" for language in vocabulary.languages]
    rows.writerow([tables.URI, tables.NOTATION, *(labels or [tables.LABEL])])
    for concept in _told(vocabulary, "CSV"):
        names = [concept.names.get(language, "") for language in vocabulary.languages]
        rows.writerow([concept.id, "".join(concept.notations[:1]), *(names or [""])])
        yield sink.getvalue()
        sink.seek(0)
        sink.truncate()
    yield sink.getvalue()


def _told(vocabulary: Vocabulary, format: str) -> Iterator[Concept]:
    """The concepts; what a table has no place for is warned of at the end."""
    left = dict.fromkeys(("other names", "further notations", "descriptions", "links"), 0)
    left |= {"types and collections": 0, "marks of deprecated concepts": 0}
    for concept in vocabulary:
        texts = (*concept.others.values(), *concept.hidden.values())
        left["other names"] += sum(map(len, texts))
        left["further notations"] += max(0, len(concept.notations) - 1)
        left["descriptions"] += sum(map(len, concept.descriptions.values()))
        linked = len(concept.broader) + len(concept.narrower) + len(concept.related)
        left["links"] += linked + (concept.replaced_by is not None)
        left["types and collections"] += len(concept.types) + len(concept.collections)
        left["marks of deprecated concepts"] += concept.deprecated and bool(concept.names)
        yield concept
    lost = ", ".join(f"{count:,} {what}" for what, count in left.items() if count)
    if lost:
        log.warning("%s has no place for %s; JSON lines and a folder keep all", format, lost)


def _plain(text: str) -> str:
    """A text that fits in a cell of a TSV file."""
    return " ".join(text.split()) if any(letter in text for letter in "\t\n\r") else text
