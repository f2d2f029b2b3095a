"""SKOS, in Turtle, RDF/XML, N-Triples: what statements say, gathered one at a time."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.parsers import expat

from megalabel.data.concepts import HIDDEN, OTHER, PREFERRED, Builder, Numbers, Pairs, Texts
from megalabel.data.formats.lines import compression_of, open_input, unpacked
from megalabel.data.limits import USUAL, Limits
from megalabel.data.vocabularies import terms
from megalabel.errors import DataError, MissingExtraError

# formats of RDF, and what pyoxigraph calls them
FORMATS = {"turtle": "TURTLE", "n-triples": "N_TRIPLES", "rdf/xml": "RDF_XML"}
DESCRIPTION = HIDDEN + 1  # the form of a description, among texts that nodes hold
_SPOKEN = {"turtle": "Turtle", "n-triples": "N-Triples", "rdf/xml": "RDF/XML"}
_ENTITY = b"<!ENTITY"
_PLAIN_ENTITY = re.compile(
    rb"""<!ENTITY\s{1,9}[\w.:-]{1,99}\s{1,9}("[^"&%<]{0,256}"|'[^'&%<]{0,256}')\s{0,9}>"""
)
_LONGEST = 512  # bytes of such a declaration
_DEEPEST = 256  # elements around an element
# markup is ASCII, so texts may be anything
_AS_MARKUP = bytes(
    ord("x") if byte > 127 else 32 if byte < 32 and byte not in b"\t\n\r" else byte
    for byte in range(256)
)
_MARK = b"\xef\xbb\xbf"

Handler = Callable[[int, Any], None]


class Statements:
    """What the statements of some files say.

    Subjects and what they are linked to have the numbers of the builder. Which of them are concepts
    is known at the end alone (`sorting.sort_out`).
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.count = 0
        self.predicates = Numbers()
        self.unread = Pairs()  # subjects and predicates of statements that are not read
        self.misfits = Pairs()  # the same of values that are not of the kind expected
        self.runs = Pairs()  # subjects, and how many statements about each stand together
        self.types, self.subclasses = Pairs(), Pairs()
        self.in_scheme, self.has_top = Pairs(), Pairs()
        self.members, self.lists = Pairs(), Pairs()
        self.first, self.rest = Pairs(), Pairs()
        self.labels = Texts()  # by rdfs:label
        self.held = Texts()  # by nodes
        self.nodes = {form: Pairs() for form in (PREFERRED, OTHER, HIDDEN, DESCRIPTION)}
        self._literal: Any = object
        self._blank_node: Any = object
        self._nodes: tuple[Any, ...] = ()
        self._blank = "_:"
        self._blanks = Numbers()  # of a file, in the order in which they come
        self._files = 0
        self._languages: dict[str | None, int] = {}
        self._handlers = self._handled()

    def read(self, path: Path, format: str, limits: Limits = USUAL) -> None:
        """Gather the statements of a file; `format` is one of FORMATS."""
        try:
            import pyoxigraph
        except ModuleNotFoundError:
            raise MissingExtraError("pyoxigraph", "skos") from None
        self._literal, self._blank_node = pyoxigraph.Literal, pyoxigraph.BlankNode
        self._nodes = pyoxigraph.NamedNode, pyoxigraph.BlankNode
        self._files += 1
        # nodes of two files are not the same; what the parser calls them is drawn anew each time
        self._blank, self._blanks = f"_:{self._files}-", Numbers()
        handlers, run = self._handlers, self.runs
        before, number, count = None, -1, 0
        for subject, predicate, value, *_ in _statements(pyoxigraph, path, format, limits):
            # statements about a subject mostly stand together
            if subject != before:
                if count:
                    run.add(number, count)
                    self.count += count
                before, number, count = subject, self._number(subject), 0
            count += 1
            handler = handlers.get(predicate.value)
            if handler is None:
                self.unread.add(number, self.predicates[predicate.value])
            else:
                handler(number, value)
        if count:
            run.add(number, count)
            self.count += count

    def _handled(self) -> dict[str, Handler]:
        """What is done with the statements of each property that is read."""
        builder = self.builder
        linked = {
            terms.TYPE: self.types,
            terms.SUBCLASS: self.subclasses,
            terms.IN_SCHEME: self.in_scheme,
            terms.TOP_OF: self.in_scheme,
            terms.HAS_TOP: self.has_top,
            terms.MEMBER: self.members,
            terms.MEMBER_LIST: self.lists,
            terms.FIRST: self.first,
            terms.REST: self.rest,
            terms.REPLACED: builder.replaced,
            **{name: self.nodes[form] for name, form in terms.NAMED_BY_NODE.items()},
            **{name: builder.links[kind] for name, kind in terms.LINKED_BY.items()},
        }
        handlers = {name: self._link(name, pairs) for name, pairs in linked.items()}
        handlers[terms.REPLACES] = self._link(terms.REPLACES, builder.replaced, turned=True)
        handlers[terms.DEPRECATED] = self._deprecated
        handlers[terms.LABEL] = self._text(terms.LABEL, self.labels)
        handlers[terms.NOTATION] = self._text(terms.NOTATION, builder.notations, spoken=False)
        for name in terms.LITERALS:
            handlers[name] = self._text(name, self.held)
        for name, form in terms.NAMED_BY.items():
            handlers[name] = self._text(name, builder.names, form, self.nodes[form])
        for name in terms.DESCRIPTIONS:
            nodes = self.nodes[DESCRIPTION]
            handlers[name] = self._text(name, builder.descriptions, 0, nodes)
        return handlers

    def _text(
        self,
        name: str,
        texts: Texts,
        form: int = 0,
        nodes: Pairs | None = None,
        spoken: bool = True,
    ) -> Handler:
        """Takes note of a text, or of the node that holds it; `spoken`: with its language."""
        add, predicate = texts.add, self.predicates[name]
        languages = self._languages if spoken else {}
        language_of = self.builder.language

        def handle(number: int, value: Any) -> None:
            if type(value) is self._literal:
                tag = value.language
                language = languages.get(tag)
                if language is None:
                    language = languages[tag] = language_of(tag or "") if spoken else 0
                add(number, value.value, language, form)
            elif nodes is not None and type(value) in self._nodes:
                nodes.add(number, self._number(value))
            else:
                self.misfits.add(number, predicate)

        return handle

    def _link(self, name: str, pairs: Pairs, turned: bool = False) -> Handler:
        """Takes note of a link; `turned`: from the value to the subject."""
        add, predicate = pairs.add, self.predicates[name]

        def handle(number: int, value: Any) -> None:
            if type(value) not in self._nodes:
                self.misfits.add(number, predicate)
            elif turned:
                add(self._number(value), number)
            else:
                add(number, self._number(value))

        return handle

    def _deprecated(self, number: int, value: Any) -> None:
        if type(value) is not self._literal:
            self.misfits.add(number, self.predicates[terms.DEPRECATED])
        elif value.value.strip().lower() in ("true", "1"):
            self.builder.deprecated.add(number)

    def _number(self, node: Any) -> int:
        name = node.value
        if type(node) is self._blank_node:
            name = f"{self._blank}{self._blanks[name]}"
        return self.builder.numbers[name]


def _statements(oxigraph: Any, path: Path, format: str, limits: Limits) -> Iterator[Any]:
    """The statements of a file; an error in it names its line."""
    options = {"format": getattr(oxigraph.RdfFormat, FORMATS[format])}
    # identifiers are compared as they are: IRIs need not be valid ones
    options["lenient"] = True
    if format == "rdf/xml":
        _check_entities(path, limits)
        _check_nesting(path, limits)
    try:
        if compression_of(path) is None and not _marked(path):
            yield from oxigraph.parse(path=str(path), **options)
            return
        with open_input(path, limits) as source:
            if (first := bytes(source.read(len(_MARK)))) != _MARK:
                source = _Again(first, source)
            yield from oxigraph.parse(source, **options)
    except SyntaxError as error:
        said = str(error.msg)
        what = said.split(": ", 1)[-1] if said.startswith("Parser error ") else said
        raise _broken(path, format, what, error.lineno, error.offset) from None


def _check_entities(path: Path, limits: Limits) -> None:
    """Refuse XML whose entities are made of others, or are long: a few of these unpack to more
    than any memory, which the parser would take."""
    held = b""
    for data in itertools.chain(unpacked(path, limits), [b""]):
        ready = held + data
        # a declaration that is cut off waits for the next bytes
        end = len(ready) - _LONGEST if data else len(ready)
        place = ready.find(_ENTITY)
        while 0 <= place < end:
            if not _PLAIN_ENTITY.match(ready, place):
                shown = ready[place : place + 60].decode(errors="replace")
                raise DataError(
                    f"expected entities that are short texts, found {shown!r}: those made of "
                    "others are not read, as they may be larger than any memory",
                    file=path,
                )
            place = ready.find(_ENTITY, place + 1)
        held = ready[max(0, end) :]


def _check_nesting(path: Path, limits: Limits) -> None:
    """Refuse XML whose elements lie too deep in each other: each takes the parser as long as it is
    deep, so that a small file could take it for ever."""
    parser, depth = expat.ParserCreate("utf-8"), 0

    def begins(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise DataError(
                f"expected elements in at most {_DEEPEST} others, found deeper ones: say each "
                "concept by itself, with links to others (rdf:resource)",
                file=path,
                line=parser.CurrentLineNumber,
            )

    def ends(name: str) -> None:
        nonlocal depth
        depth -= 1

    parser.StartElementHandler, parser.EndElementHandler = begins, ends
    first = True
    try:
        for data in itertools.chain(unpacked(path, limits), [b""]):
            text = data.removeprefix(_MARK) if first else data
            first = False
            parser.Parse(text.translate(_AS_MARKUP), not data)
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code)
        raise _broken(path, "rdf/xml", what, error.lineno, error.offset) from None


def _broken(path: Path, format: str, what: str, line: int | None, column: int | None) -> DataError:
    """The error of a file that is not of its format."""
    told = f"expected {_SPOKEN[format]}, found an error: {what}"
    return DataError(told, file=path, line=line, column=column)


def _marked(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_MARK)) == _MARK


class _Again:
    """A stream whose first bytes were read already."""

    def __init__(self, first: bytes, source: Any) -> None:
        self._first, self._source = first, source

    def read(self, size: int = -1) -> bytes:
        """Some bytes."""
        data = self._first[:size] if size >= 0 else self._first
        self._first = self._first[len(data) :]
        return data or bytes(self._source.read(size))
