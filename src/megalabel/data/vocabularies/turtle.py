"""SKOS as text: a vocabulary in Turtle or N-Triples, with no library needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from megalabel.data.concepts import HIDDEN, OTHER, PREFERRED, Concept
from megalabel.data.vocabularies import terms
from megalabel.data.vocabulary import Vocabulary
from megalabel.errors import ParameterError

_PREFIXES = {
    "rdf": terms.RDF,
    "rdfs": terms.RDFS,
    "owl": terms.OWL,
    "skos": terms.SKOS,
    "dct": terms.DCT,
}
_IRI = re.compile(r'[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|^`\\]*')
_TAG = re.compile(r"[A-Za-z]+(-[A-Za-z0-9]+)*")
_NAMED = {form: name for name, form in terms.NAMED_BY.items()}
_TRUE = '"true"^^<http://www.w3.org/2001/XMLSchema#boolean>'

# the property, and its values as N-Triples has them
Said = list[tuple[str, list[str]]]


def turtle(vocabulary: Vocabulary, base: str | None = None) -> Iterator[str]:
    """A vocabulary in Turtle, in pieces."""
    yield "".join(f"@prefix {name}: <{iri}> .\n" for name, iri in _PREFIXES.items())
    for subject, said in _things(vocabulary, _Names(base)):
        lines = (f"{_short(name)} {', '.join(map(_short, values))}" for name, values in said)
        yield f"\n{subject} " + " ;\n    ".join(lines) + " .\n"


def n_triples(vocabulary: Vocabulary, base: str | None = None) -> Iterator[str]:
    """A vocabulary in N-Triples, in pieces."""
    for subject, said in _things(vocabulary, _Names(base)):
        yield "".join(f"{subject} {name} {value} .\n" for name, values in said for value in values)


class _Names:
    """Identifiers as IRIs."""

    def __init__(self, base: str | None) -> None:
        self._base = base
        if base is not None and not _IRI.fullmatch(base):
            raise ParameterError(f"base must be an IRI such as http://example.org/, not {base!r}")

    def iri(self, id_: str) -> str:
        """An identifier in angle brackets."""
        if _IRI.fullmatch(id_):
            return f"<{id_}>"
        if self._base is None:
            raise ParameterError(
                f"the identifier {id_!r} is no IRI, as SKOS needs: give a base for those that are "
                "none (base='http://example.org/', --base http://example.org/)"
            )
        return f"<{self._base}{quote(id_, safe='')}>"

    def all(self, ids: Iterable[str]) -> list[str]:
        """Identifiers in angle brackets."""
        return [self.iri(id_) for id_ in ids]


def _things(vocabulary: Vocabulary, names: _Names) -> Iterator[tuple[str, Said]]:
    """Types, collections and concepts, and what is said of each."""
    for group in vocabulary.types:
        said = [(f"<{terms.SUBCLASS}>", [f"<{terms.CONCEPT}>"])]
        yield names.iri(group.id), said + _labels(f"<{terms.LABEL}>", group.names)
    for group in vocabulary.collections:
        said = [(f"<{terms.TYPE}>", [f"<{terms.COLLECTIONS[0]}>"])]
        yield names.iri(group.id), said + _labels(f"<{_NAMED[PREFERRED]}>", group.names)
    for concept in vocabulary:
        yield names.iri(concept.id), _of_concept(concept, names)
        for collection in concept.collections:  # stands by its members, which are many
            yield names.iri(collection), [(f"<{terms.MEMBER}>", [names.iri(concept.id)])]


def _labels(name: str, texts: Iterable[str]) -> Said:
    literals = [_literal(text, "") for text in texts]
    return [(name, literals)] if literals else []


def _of_concept(concept: Concept, names: _Names) -> Said:
    said = {f"<{terms.TYPE}>": [f"<{terms.CONCEPT}>", *names.all(concept.types)]}
    preferred = {language: [text] for language, text in concept.names.items()}
    forms = {PREFERRED: preferred, OTHER: concept.others, HIDDEN: concept.hidden}
    for form, by_language in forms.items():
        said[f"<{_NAMED[form]}>"] = _literals(by_language)
    said[f"<{terms.NOTATION}>"] = [_literal(text, "") for text in concept.notations]
    said[f"<{terms.DESCRIPTIONS[0]}>"] = _literals(concept.descriptions)
    for kind in ("broader", "narrower", "related"):
        said[f"<{terms.SKOS}{kind}>"] = names.all(getattr(concept, kind))
    if concept.deprecated:
        said[f"<{terms.DEPRECATED}>"] = [_TRUE]
    if concept.replaced_by:
        said[f"<{terms.REPLACED}>"] = [names.iri(concept.replaced_by)]
    return [(name, values) for name, values in said.items() if values]


def _literals(by_language: dict[str, list[str]]) -> list[str]:
    return [_literal(text, tag) for tag, texts in by_language.items() for text in texts]


def _literal(text: str, language: str) -> str:
    if not language:
        return json.dumps(text, ensure_ascii=False)  # its escapes are those of RDF
    if not _TAG.fullmatch(language):
        raise ParameterError(f"{language!r} is no tag of a language, such as en or en-GB")
    return f"{json.dumps(text, ensure_ascii=False)}@{language}"


def _short(value: str) -> str:
    """A term in Turtle: with a prefix where it is one of those known."""
    if value == f"<{terms.TYPE}>":
        return "a"
    if value == _TRUE:
        return "true"
    if value.startswith("<"):
        for prefix, iri in _PREFIXES.items():
            local = value[1 + len(iri) : -1]
            if value.startswith(f"<{iri}") and local.isalpha() and local.isascii():
                return f"{prefix}:{local}"
    return value
