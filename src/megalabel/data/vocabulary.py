"""Vocabulary: concepts with identifiers, names in several languages, and links."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel.data.concepts import HIDDEN, LINKS, PREFERRED, Builder, Concept, Group, repeated
from megalabel.data.hashes import text_hashes
from megalabel.data.oddities import Note
from megalabel.data.ragged import Columns, spans, starts_of
from megalabel.data.strings import flags, positions, row_of, strings
from megalabel.errors import ParameterError, StoreError, UnknownConceptError

_SUGGESTED_FROM = 20_000  # names that a suggestion is looked for among
_AT_ONCE = 1 << 18  # texts hashed at a time
# what concepts are looked up by, and the column that holds it
_INDEXED = {"id": "ids", "part": "ids", "notation": "notations", "name": "names"}
_FORMS = HIDDEN + 1
_BLOCK = 1 << 13  # concepts that are made into objects at a time

Arrays = Mapping[str, np.ndarray]


class Vocabulary:
    """Concepts of a thesaurus, an ontology, a classification: columns, which may be mapped.

    A concept has a number here, from 0, and an identifier outside. Methods that take a concept take
    either; a string may be its identifier, the last part of that, a notation, or a name.

    Parameters
    ----------
    arrays : mapping of arrays
        The columns, as `arrays` gives them back.
    facts : mapping, optional
        What is small: languages, types, collections, notes and where it came from.

    Examples
    --------
    >>> vocabulary = Vocabulary.of([
    ...     Concept("http://x/Q1", {"en": "animal"}),
    ...     Concept("http://x/Q2", {"en": "dog", "fi": "koira"}, {"en": ["hound"]},
    ...             broader=["http://x/Q1"]),
    ... ])
    >>> vocabulary.find("hound"), vocabulary.name("Q2", "fi"), vocabulary.subtree("animal").tolist()
    (1, 'koira', [0, 1])
    """

    def __init__(self, arrays: Arrays, facts: Mapping[str, Any] | None = None) -> None:
        self._columns = Columns(arrays)
        facts = dict(facts or {})
        self.languages: tuple[str, ...] = tuple(facts.get("languages", ()))
        self.types = tuple(Group(*group) for group in facts.get("types", ()))
        self.collections = tuple(Group(*group) for group in facts.get("collections", ()))
        self.notes = {
            name: Note(int(count), tuple(examples))
            for name, (count, examples) in facts.get("notes", {}).items()
        }
        self.source: dict[str, Any] = dict(facts.get("source", {}))
        self._n = len(self._columns.plain("ids.offsets", np.int64)) - 1
        if self._n < 0:
            raise StoreError("a vocabulary without a column of identifiers")

    @classmethod
    def of(cls, concepts: Iterable[Concept], source: Mapping[str, Any] | None = None) -> Vocabulary:
        """The vocabulary of some concepts. What is linked to but not among them is noted."""
        builder = Builder()
        for concept in concepts:
            builder.add(concept)
        return cls(*builder.finished(source))

    # ------------------------------------------------------------------ columns
    def __len__(self) -> int:
        return self._n

    def __repr__(self) -> str:
        spoken = ", ".join(language or "no language" for language in self.languages)
        return f"Vocabulary({len(self):,} concepts; names: {spoken or 'none'})"

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All columns by name, and the indexes that were made: what is kept in a folder."""
        return dict(self._columns.arrays)

    @property
    def facts(self) -> dict[str, Any]:
        """What is small, ready for JSON."""
        return {
            "languages": list(self.languages),
            "types": [[group.id, list(group.names)] for group in self.types],
            "collections": [[group.id, list(group.names)] for group in self.collections],
            "notes": {name: [note.count, list(note.examples)] for name, note in self.notes.items()},
            "source": self.source,
        }

    @property
    def ids(self) -> pa.LargeStringArray:
        """The identifier of each concept."""
        return self._columns.texts("ids", self._n)

    @property
    def deprecated(self) -> np.ndarray:
        """Which concepts are no longer to be used."""
        return self._columns.plain("deprecated", np.uint8, self._n).astype(bool)

    @property
    def replaced_by(self) -> np.ndarray:
        """The number of the concept that is to be used in place of each; -1: none."""
        return self._columns.numbers("replaced_by", self._n, len(self), lowest=-1)

    def count(self, kind: str) -> int:
        """How many "names", "notations" or "descriptions" there are."""
        return len(self._columns.texts(kind))

    def preferred(self) -> np.ndarray:
        """How many concepts have a preferred name in each of the languages."""
        _, languages, forms = self._named()
        return np.bincount(languages[forms == PREFERRED], minlength=len(self.languages))

    def linked(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Links of one kind, "broader", "narrower" or "related": where those of each concept start
        (n + 1), and the numbers of the concepts that they lead to."""
        if kind not in LINKS:
            raise ParameterError(f"links are {', '.join(LINKS)}, not {kind!r}")
        return self._columns.ragged(kind, "concepts", len(self), len(self))

    def typed(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the types of each concept start, and their numbers in `types`."""
        return self._columns.ragged("types", "numbers", len(self), len(self.types))

    def collected(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the collections of each concept start, and their numbers in `collections`."""
        return self._columns.ragged("collections", "numbers", len(self), len(self.collections))

    # ------------------------------------------------------------------ one concept
    def number(self, concept: str | int) -> int:
        """The number of a concept, given by that or as `find` takes it."""
        if isinstance(concept, str):
            return self.find(concept)
        if not 0 <= int(concept) < len(self):
            raise UnknownConceptError(concept)
        return int(concept)

    def find(self, concept: str) -> int:
        """The number of the concept of an identifier, a notation, the last part of an identifier,
        or a name: the first of these that any concept has.

        Of several with that name, those that have it as preferred name win, and current ones win
        over deprecated ones; if several are left, it is an error that names them.
        """
        for rows_of in (self._with_id, self._with_notation, self._with_part, self._with_name):
            if len(rows := rows_of(concept)):
                break
        else:
            raise UnknownConceptError(concept, self._similar(concept))
        if len(rows) > 1:
            current = rows[~self.deprecated[rows]]
            rows = current if len(current) else rows
        if len(rows) > 1:
            shown = "; ".join(f"{self.ids[row].as_py()} ({self.name(row)})" for row in rows[:5])
            more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
            raise ParameterError(f"{concept!r} may be any of {shown}{more}: give an identifier")
        return int(rows[0])

    def name(self, concept: str | int, language: str | None = None) -> str:
        """The preferred name of a concept in a language, else in another, else its last part."""
        return str(self.names([self.number(concept)], language)[0].as_py())

    def __getitem__(self, concept: str | int) -> Concept:
        """All that is known of a concept."""
        number = self.number(concept)
        return self._block(number, number + 1)[0]

    def __iter__(self) -> Iterator[Concept]:
        """All that is known of each concept."""
        for first in range(0, len(self), _BLOCK):
            yield from self._block(first, min(len(self), first + _BLOCK))

    def _block(self, first: int, last: int) -> list[Concept]:
        """All that is known of the concepts from one number to below another."""
        ids = self.ids
        block = [Concept(id_) for id_ in ids[first:last].to_pylist()]

        def items(starts: np.ndarray, *columns: Any) -> Iterator[tuple[Any, ...]]:
            """The concept of each item in the block, and what is in each column."""
            where = slice(int(starts[first]), int(starts[last]))
            owners = row_of(np.diff(starts[first : last + 1])).tolist()
            values = (column[where].tolist() for column in columns)
            return zip((block[owner] for owner in owners), *values, strict=True)

        texts, languages, forms = self._named()
        for found, text, language, form in items(self._starts("names"), texts, languages, forms):
            tag = self.languages[language]
            if form == PREFERRED:
                found.names[tag] = text
            else:
                (found.hidden if form == HIDDEN else found.others).setdefault(tag, []).append(text)
        for found, text, language in items(self._starts("descriptions"), *self._described()):
            found.descriptions.setdefault(self.languages[language], []).append(text)
        for found, text in items(self._starts("notations"), self._columns.texts("notations")):
            found.notations.append(text)
        for kind in LINKS:
            starts, numbers = self.linked(kind)
            there = strings(ids.take(positions(numbers[starts[first] : starts[last]])))
            for (found, _), id_ in zip(items(starts, numbers), there.to_pylist(), strict=True):
                getattr(found, kind).append(id_)
        for found, number in items(*self.typed()):
            found.types.append(self.types[number].id)
        for found, number in items(*self.collected()):
            found.collections.append(self.collections[number].id)
        marked = self._columns.plain("deprecated", np.uint8, self._n)[first:last]
        for place in np.flatnonzero(marked):
            block[place].deprecated = True
        replaced = self.replaced_by[first:last]
        for place in np.flatnonzero(replaced >= 0):
            block[place].replaced_by = ids[int(replaced[place])].as_py()
        return block

    def names_of(self, concept: str | int) -> list[tuple[str, str, int]]:
        """All names of a concept: the text, its language, and PREFERRED, OTHER or HIDDEN."""
        rows = self._span("names", self.number(concept))
        texts, languages, forms = self._named()
        return [
            (texts[row].as_py(), self.languages[languages[row]], int(forms[row])) for row in rows
        ]

    def descriptions_of(self, concept: str | int) -> list[tuple[str, str]]:
        """The descriptions of a concept, each with its language."""
        rows = self._span("descriptions", self.number(concept))
        texts, languages = self._described()
        return [(texts[row].as_py(), self.languages[languages[row]]) for row in rows]

    def notations_of(self, concept: str | int) -> list[str]:
        """The notations of a concept: its codes in a classification."""
        texts = self._columns.texts("notations")
        return [texts[row].as_py() for row in self._span("notations", self.number(concept))]

    # ------------------------------------------------------------------ many concepts
    def notations(
        self, concepts: Sequence[int] | np.ndarray
    ) -> tuple[np.ndarray, pa.LargeStringArray]:
        """Where the notations of each of some concepts start (n + 1), and the notations."""
        numbers = np.asarray(concepts, np.int64)
        owner, rows = self._rows("notations", numbers)
        texts = self._columns.texts("notations").take(positions(rows))
        return starts_of(owner, len(numbers)), strings(texts)

    def names(
        self, concepts: Sequence[int] | np.ndarray | None = None, language: str | None = None
    ) -> pa.LargeStringArray:
        """The preferred name of each of some concepts, or of all.

        In `language` where there is one; else in that of the vocabulary's languages that comes
        first, which is the one with the most names. A concept without a name has the last part of
        its identifier.
        """
        return self.named(concepts, language)[0]

    def named(
        self, concepts: Sequence[int] | np.ndarray | None = None, language: str | None = None
    ) -> tuple[pa.LargeStringArray, np.ndarray]:
        """`names`, and the number of the language that each is in (-1: not a name)."""
        numbers = np.arange(len(self)) if concepts is None else np.asarray(concepts, np.int64)
        owner, rows = self._rows("names", numbers)
        texts, languages, forms = self._named()
        # of each language how soon it is taken; preferred names alone are
        order = [*self.languages_like(language), *self.languages]
        rank = np.array([order.index(known) for known in self.languages] or [0], np.int64)
        preferred = forms[rows] == PREFERRED
        owner, rows = owner[preferred], rows[preferred]
        by_rank = np.lexsort((rows, rank[languages[rows]], owner))
        owner, rows = owner[by_rank], rows[by_rank]
        first = ~repeated(owner)
        owner, rows = owner[first], rows[first]
        spoken = np.full(len(numbers), -1, np.int64)
        spoken[owner] = languages[rows]
        if len(owner) == len(numbers):
            return strings(texts.take(positions(rows))), spoken
        found = np.full(len(numbers), -1, np.int64)
        found[owner] = rows
        column = texts.take(pa.array(found, mask=found < 0))
        ids = self.ids.take(positions(numbers))
        return strings(pc.coalesce(column, last_parts(ids))), spoken

    def all_names(
        self, concepts: Sequence[int] | np.ndarray, language: str | None = None
    ) -> tuple[np.ndarray, pa.LargeStringArray]:
        """Where the names of each of some concepts start (n + 1), and the names: preferred ones
        first, then other ones, each once; in one language, or in all."""
        numbers = np.asarray(concepts, np.int64)
        owner, rows = self._rows("names", numbers)
        texts, languages, _ = self._named()
        if language is not None:
            wanted = [self.languages.index(known) for known in self.languages_like(language)]
            kept = np.isin(languages[rows], wanted)
            owner, rows = owner[kept], rows[kept]
        column = strings(texts.take(positions(rows)))
        first = ~repeated(owner, text_hashes(column))
        return starts_of(owner[first], len(numbers)), strings(column.filter(pa.array(first)))

    def languages_like(self, language: str | None) -> list[str]:
        """The vocabulary's languages that one asked for means: itself, then its kinds ("en" means
        "en-GB" too). One that no name is in is an error."""
        if language is None:
            return []
        asked = language.lower()
        found = [known for known in self.languages if known.lower() == asked]
        found += [known for known in self.languages if known.lower().startswith(f"{asked}-")]
        if not found:
            known = ", ".join(known or "'' (without a language)" for known in self.languages)
            raise ParameterError(f"no name is in the language {language!r}; there are {known}")
        return found

    def numbers(self, ids: Sequence[str] | pa.Array) -> np.ndarray:
        """The numbers of concepts given by whole identifier; -1 for those that are unknown."""
        wanted = strings(ids)
        owner, rows = self._found("id", wanted)
        found = np.full(len(wanted), -1, np.int64)
        found[owner] = rows
        return found

    def matches(self, kind: str, texts: Sequence[str] | pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """All concepts that some texts may mean, by "id", "part" (the last part of an identifier),
        "notation", "name" or "preferred": pairs of the number of a text and that of a concept."""
        wanted = strings(texts)
        if kind not in ("name", "preferred"):
            owner, rows = self._found(kind, wanted)
            return owner, self._owner("notations", rows) if kind == "notation" else rows
        owner, concepts, _, forms = self.naming(wanted)
        if kind == "preferred":
            kept = forms == PREFERRED
            owner, concepts = owner[kept], concepts[kept]
        pairs = np.unique(np.stack([owner, concepts]), axis=1)
        return pairs[0], pairs[1]

    def naming(
        self, texts: Sequence[str] | pa.Array
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """All names that some texts are, apart from capitals: of each the number of the text, that
        of the concept and that of the language, and PREFERRED, OTHER or HIDDEN."""
        owner, rows = self._found("name", folded(strings(texts)))
        _, languages, forms = self._named()
        return owner, self._owner("names", rows), languages[rows], forms[rows]

    def subtree(self, concept: str | int) -> np.ndarray:
        """The numbers of a concept and of all that are narrower, however far down, sorted."""
        starts, numbers = self.linked("narrower")
        reached = np.zeros(len(self), bool)
        level = np.array([self.number(concept)], np.int64)
        while len(level):
            reached[level] = True
            below = numbers[spans(starts, level)[1]]
            level = np.unique(below[~reached[below]])
        return np.flatnonzero(reached)

    def search(self, words: str, k: int = 10, language: str | None = None) -> np.ndarray:
        """The numbers of up to k concepts of whose names one holds all of some words, or their
        beginnings: best first, those whose whole name it is before others, short names before
        long ones, current concepts before deprecated ones."""
        texts, languages, forms = self._named()
        parts = str(folded(strings([words]))[0].as_py()).split()
        if not parts:
            return np.zeros(0, np.int64)
        # the longest word leaves the fewest names to look at closely
        longest = max(parts, key=len)
        rows = np.flatnonzero(flags(pc.match_substring(texts, longest, ignore_case=True)))
        if language is not None:
            wanted = [self.languages.index(known) for known in self.languages_like(language)]
            rows = rows[np.isin(languages[rows], wanted)]
        lower = folded(strings(texts.take(positions(rows))))
        holds = np.ones(len(rows), bool)
        for part in parts:
            holds &= flags(pc.match_substring_regex(lower, rf"(^|[^\pL\pN]){re.escape(part)}"))
        rows, lower = rows[holds], lower.filter(pa.array(holds))
        owner = self._owner("names", rows)
        whole = flags(pc.equal(lower, " ".join(parts)))
        lengths = np.asarray(pc.utf8_length(lower))
        order = np.lexsort((owner, lengths, forms[rows], self.deprecated[owner], ~whole))
        return np.array(list(dict.fromkeys(owner[order].tolist()))[:k], np.int64)

    # ------------------------------------------------------------------ how it is kept
    def indexed(self) -> Vocabulary:
        """This, with the indexes of all lookups made."""
        for kind in _INDEXED:
            self._index(kind)
        return self

    def _with_id(self, text: str) -> np.ndarray:
        return self.matches("id", [text])[1]

    def _with_notation(self, text: str) -> np.ndarray:
        return self.matches("notation", [text])[1]

    def _with_part(self, text: str) -> np.ndarray:
        return self.matches("part", [text])[1]

    def _with_name(self, text: str) -> np.ndarray:
        preferred = self.matches("preferred", [text])[1]
        current = preferred[~self.deprecated[preferred]]
        return current if len(current) else self.matches("name", [text])[1]

    def _similar(self, text: str) -> list[str]:
        """Names that are nearly a text, for suggestions."""
        texts = self._named()[0]
        lower = str(folded(strings([text]))[0].as_py())
        if len(texts) > _SUGGESTED_FROM and lower:
            starts = pc.starts_with(texts, lower[:2], ignore_case=True)
            near = pc.less(pc.abs(pc.subtract(pc.utf8_length(texts), len(lower))), 4)
            texts = texts.filter(pc.and_(starts, near))[:_SUGGESTED_FROM]
        names = dict.fromkeys(texts.to_pylist())
        lowered = {name.lower(): name for name in reversed(names)}
        return [lowered[name] for name in difflib.get_close_matches(lower, lowered, n=3)]

    def _found(self, kind: str, wanted: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of the number of a text and of the row of an index that holds it."""
        hashes, rows = self._index(kind)
        asked = text_hashes(wanted)
        first = np.searchsorted(hashes, asked, "left")
        counts = np.searchsorted(hashes, asked, "right") - first
        owner = row_of(counts)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        found = rows[np.repeat(first, counts) + within].astype(np.int64)
        same = flags(pc.equal(self._texts(kind, found), wanted.take(positions(owner))))
        return owner[same], found[same]

    def _index(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Sorted hashes of what concepts are looked up by, and the row of each."""
        hashed, placed = f"by_{kind}.hashes", f"by_{kind}.rows"
        arrays, n = self._columns.arrays, len(self._columns.texts(_INDEXED[kind]))
        if hashed not in arrays:
            parts = [
                text_hashes(self._texts(kind, np.arange(start, min(n, start + _AT_ONCE))))
                for start in range(0, n, _AT_ONCE)
            ]
            hashes = np.concatenate([np.zeros(0, np.uint64), *parts])
            order = np.argsort(hashes, kind="stable").astype(np.int32)
            arrays[placed], arrays[hashed] = order, hashes[order]
        return self._columns.plain(hashed, np.uint64, n), self._columns.numbers(placed, n, n)

    def _texts(self, kind: str, rows: np.ndarray) -> pa.LargeStringArray:
        """What some rows of an index hold."""
        texts = strings(self._columns.texts(_INDEXED[kind]).take(positions(rows)))
        if kind == "part":
            return last_parts(texts)
        return folded(texts) if kind == "name" else texts

    def _named(self) -> tuple[pa.LargeStringArray, np.ndarray, np.ndarray]:
        """The texts, language numbers and forms of all names."""
        columns, texts = self._columns, self._columns.texts("names")
        return (
            texts,
            columns.numbers("names.languages", len(texts), len(self.languages), np.int16),
            columns.numbers("names.forms", len(texts), _FORMS, np.uint8),
        )

    def _described(self) -> tuple[pa.LargeStringArray, np.ndarray]:
        columns, texts = self._columns, self._columns.texts("descriptions")
        most = len(self.languages)
        return texts, columns.numbers("descriptions.languages", len(texts), most, np.int16)

    def _starts(self, name: str) -> np.ndarray:
        return self._columns.starts(name, self._n, len(self._columns.texts(name)))

    def _owner(self, name: str, rows: np.ndarray) -> np.ndarray:
        """The concepts that rows of a column belong to."""
        return np.searchsorted(self._starts(name), rows, "right") - 1

    def _span(self, name: str, number: int) -> range:
        starts = self._starts(name)
        return range(int(starts[number]), int(starts[number + 1]))

    def _rows(self, name: str, concepts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return spans(self._starts(name), concepts)


def last_parts(ids: pa.LargeStringArray) -> pa.LargeStringArray:
    """What follows the last slash, number sign or colon of each identifier.

    Examples
    --------
    >>> last_parts(strings(["http://www.yso.fi/onto/yso/p10", "urn:x#a/", "Q1"])).to_pylist()
    ['p10', 'a', 'Q1']
    """
    trimmed = pc.utf8_rtrim(ids, "/#")
    return strings(pc.replace_substring_regex(trimmed, r"^(?s:.*)[/#:]", ""))


def folded(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Texts as they are compared: without capitals, and without blanks around them."""
    return strings(pc.utf8_lower(pc.utf8_trim_whitespace(texts)))
