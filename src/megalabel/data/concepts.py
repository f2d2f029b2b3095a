"""Concept, and the Builder that turns concepts as files give them into columns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from megalabel.data.hashes import text_hashes
from megalabel.data.oddities import Notes
from megalabel.data.ragged import starts_of
from megalabel.data.strings import strings, to_arrays
from megalabel.errors import DataError

LINKS = ("broader", "narrower", "related")
PREFERRED, OTHER, HIDDEN = range(3)  # forms of names, in the order they are kept
_KEPT_APART = 1 << 16  # strings of Python kept before they become a column


@dataclass
class Concept:
    """All that is known of one concept, for people. Other concepts are given by identifier.

    Examples
    --------
    >>> Concept("Q144", {"en": "dog", "fi": "koira"}, {"en": ["hound"]}).to_dict()
    {'id': 'Q144', 'names': {'en': 'dog', 'fi': 'koira'}, 'others': {'en': ['hound']}}
    """

    id: str
    names: dict[str, str] = field(default_factory=dict)
    """The preferred name of each language; "" is that of no language."""
    others: dict[str, list[str]] = field(default_factory=dict)
    hidden: dict[str, list[str]] = field(default_factory=dict)
    """Names to be found by, such as misspellings, and not to be shown."""
    notations: list[str] = field(default_factory=list)
    descriptions: dict[str, list[str]] = field(default_factory=dict)
    broader: list[str] = field(default_factory=list)
    narrower: list[str] = field(default_factory=list)
    related: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    collections: list[str] = field(default_factory=list)
    deprecated: bool = False
    replaced_by: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """What is there of it, for JSON."""
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True)
class Group:
    """A type or a collection of concepts: its identifier, and the names it has."""

    id: str
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))


class Numbers(dict[str, int]):
    """The numbers of strings, in the order in which they are first asked for."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


class Texts:
    """Texts of concepts as they come: whose, in which language, of which form."""

    def __init__(self) -> None:
        self.owners, self.languages, self.forms = array("i"), array("i"), array("b")
        self._pending: list[str] = []
        self._columns: list[pa.LargeStringArray] = []

    def add(self, owner: int, text: str, language: int = 0, form: int = 0) -> None:
        """Take note of a text."""
        self.owners.append(owner)
        self.languages.append(language)
        self.forms.append(form)
        self._pending.append(text)
        if len(self._pending) >= _KEPT_APART:
            self._pack()

    def extend(
        self, owners: np.ndarray, languages: np.ndarray, form: int, texts: pa.LargeStringArray
    ) -> None:
        """Take note of many texts of one form."""
        self._pack()
        self.owners.extend(owners.tolist())
        self.languages.extend(languages.tolist())
        self.forms.extend([form] * len(texts))
        self._columns.append(texts)

    def _pack(self) -> None:
        self._columns.append(strings(self._pending))
        self._pending = []

    def column(self) -> pa.LargeStringArray:
        """All texts, without blanks around them."""
        self._pack()
        whole = self._columns[0] if len(self._columns) == 1 else pa.concat_arrays(self._columns)
        self._columns = [whole]
        return strings(pc.utf8_trim_whitespace(whole))


class Pairs:
    """Pairs of numbers as they come."""

    def __init__(self) -> None:
        self.first, self.second = array("i"), array("i")

    def add(self, first: int, second: int) -> None:
        """Take note of a pair."""
        self.first.append(first)
        self.second.append(second)

    def extend(self, first: np.ndarray, second: np.ndarray) -> None:
        """Take note of many pairs."""
        self.first.extend(first.tolist())
        self.second.extend(second.tolist())

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Both sides."""
        return np.array(self.first, np.int64), np.array(self.second, np.int64)


class Builder:
    """Takes concepts as they come, in any order, and makes the columns of a vocabulary.

    Identifiers have numbers as soon as they are met; which of them are those of concepts is said by
    `is_concept`.
    """

    def __init__(self) -> None:
        self.numbers, self.languages = Numbers(), Numbers()
        self.is_concept: dict[int, None] = {}  # in the order they are to have
        self.names, self.notations, self.descriptions = Texts(), Texts(), Texts()
        self.links = {kind: Pairs() for kind in LINKS}
        self.types, self.collections, self.replaced = Pairs(), Pairs(), Pairs()
        self.deprecated: set[int] = set()
        self.group_names: dict[int, list[str]] = {}
        self.notes = Notes()

    def add(self, concept: Concept) -> int:
        """Take a whole concept; gives its number."""
        known = len(self.numbers)
        number = self.numbers[concept.id]
        if number < known and number in self.is_concept:
            raise DataError(f"the concept {concept.id!r} is there twice")
        self.is_concept[number] = None
        for form, names in ((OTHER, concept.others), (HIDDEN, concept.hidden)):
            for language, texts in names.items():
                for text in texts:
                    self.names.add(number, text, self.language(language), form)
        for language, text in concept.names.items():
            self.names.add(number, text, self.language(language), PREFERRED)
        for language, texts in concept.descriptions.items():
            for text in texts:
                self.descriptions.add(number, text, self.language(language))
        for notation in concept.notations:
            self.notations.add(number, notation)
        for kind in LINKS:
            for other in getattr(concept, kind):
                self.links[kind].add(number, self.numbers[other])
        for group in concept.types:
            self.types.add(number, self.numbers[group])
        for group in concept.collections:
            self.collections.add(number, self.numbers[group])
        if concept.deprecated:
            self.deprecated.add(number)
        if concept.replaced_by:
            self.replaced.add(number, self.numbers[concept.replaced_by])
        return number

    def language(self, tag: str) -> int:
        """The number of a language; tags are the same in capitals."""
        return self.languages[tag.lower()]

    def finished(
        self, source: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The columns of all concepts, and what is small; what was odd is counted in its notes."""
        self._ids = strings(list(self.numbers))
        concepts = np.array(list(self.is_concept), np.int64)
        self._place = np.full(len(self.numbers), -1, np.int64)
        self._place[concepts] = np.arange(len(concepts))
        self._concept_ids = strings(self._ids.take(pa.array(concepts)))
        self._n = len(concepts)
        columns: dict[str, np.ndarray] = text_column("ids", self._concept_ids)
        columns["deprecated"] = np.zeros(self._n, np.uint8)
        marked = self._place[np.array(sorted(self.deprecated), np.int64)]
        columns["deprecated"][marked[marked >= 0]] = 1
        languages = self._languages()
        columns |= self._name_columns(columns["deprecated"].astype(bool))
        columns |= self._text_columns("notations", self.notations)
        columns |= self._text_columns("descriptions", self.descriptions)
        columns |= self._link_columns()
        columns["replaced_by"] = self._replacements(columns["deprecated"].astype(bool))
        types, columns["types.starts"], columns["types.numbers"] = self._groups(self.types)
        made = self._groups(self.collections)
        collections, columns["collections.starts"], columns["collections.numbers"] = made
        facts = {
            "languages": languages,
            "types": types,
            "collections": collections,
            "notes": self.notes.to_dict(),
            "source": dict(source or {}),
        }
        return columns, facts

    def _languages(self) -> list[str]:
        """The tags of languages, those of most preferred names first; languages are numbered so
        from now on."""
        tags = list(self.languages)
        if len(tags) > np.iinfo(np.int16).max:
            shown = ", ".join(map(repr, tags[-3:]))
            raise DataError(f"names in {len(tags):,} languages, such as {shown}: are these tags?")
        counts, uses = np.zeros(len(tags), np.int64), np.zeros(len(tags), np.int64)
        for texts in (self.names, self.descriptions):
            ours = self._place[np.array(texts.owners, np.int64)] >= 0
            languages = np.array(texts.languages, np.int64)
            uses += np.bincount(languages[ours], minlength=len(tags))
            if texts is self.names:
                ours &= np.array(texts.forms) == PREFERRED
                counts += np.bincount(languages[ours], minlength=len(tags))
        # those of other things alone come last, and are not told
        order = sorted(range(len(tags)), key=lambda i: (uses[i] == 0, -counts[i], tags[i]))
        self._language_order = np.argsort(np.array(order, np.int64)) if tags else np.zeros(0, int)
        return [tags[i] for i in order if uses[i]]

    def _rows(self, texts: Texts) -> tuple[np.ndarray, ...]:
        """Of the texts of concepts, which are not blank: owner, language, form and the text."""
        column = texts.column()
        owners = self._place[np.array(texts.owners, np.int64)]
        languages = np.array(texts.languages, np.int64)
        if len(self._language_order):
            languages = self._language_order[languages]
        blank = np.asarray(pc.equal(column, ""))
        self.notes.add("blank text", self._shown(owners[blank & (owners >= 0)]))
        kept = np.flatnonzero((owners >= 0) & ~blank)
        forms = np.array(texts.forms, np.int64)
        return owners[kept], languages[kept], forms[kept], strings(column.take(pa.array(kept)))

    def _name_columns(self, deprecated: np.ndarray) -> dict[str, np.ndarray]:
        owners, languages, forms, texts = self._rows(self.names)
        order = np.lexsort((forms, owners))
        owners, languages, forms = owners[order], languages[order], forms[order]
        texts = strings(texts.take(pa.array(order)))
        hashes = text_hashes(texts)
        again = repeated(owners, languages, hashes)
        # the first of equal ones is of the form that comes first
        both = again & (forms != PREFERRED)
        self.notes.add("name twice", self._shown(owners[both], texts, both))
        kept = ~again
        owners, languages, forms = owners[kept], languages[kept], forms[kept]
        texts, hashes = strings(texts.filter(pa.array(kept))), hashes[kept]
        preferred = np.flatnonzero(forms == PREFERRED)
        second = preferred[repeated(owners[preferred], languages[preferred])]
        self.notes.add("two preferred names", self._shown(owners[second], texts, second))
        forms[second] = OTHER
        order = np.lexsort((forms, owners))
        owners, languages, forms = owners[order], languages[order], forms[order]
        texts, hashes = strings(texts.take(pa.array(order))), hashes[order]
        none = self.languages.get("")
        if none is not None:
            untagged = np.flatnonzero(languages == self._language_order[none])
            self.notes.add("no language", self._shown(owners[untagged], texts, untagged))
        nameless = np.bincount(owners[forms == PREFERRED], minlength=self._n) == 0
        nameless &= ~deprecated  # in a table, such a concept is one without a name
        self.notes.add("no name", self._shown(np.flatnonzero(nameless)))
        current = np.flatnonzero((forms == PREFERRED) & ~deprecated[owners])
        shared = current[repeated(languages[current], hashes[current])]
        self.notes.add("shared name", self._shown(owners[shared], texts, shared))
        return {
            "names.starts": starts_of(owners, self._n),
            "names.languages": languages.astype(np.int16),
            "names.forms": forms.astype(np.uint8),
            **text_column("names", texts),
        }

    def _text_columns(self, name: str, given: Texts) -> dict[str, np.ndarray]:
        owners, languages, _, texts = self._rows(given)
        order = np.argsort(owners, kind="stable")
        owners, languages = owners[order], languages[order]
        texts = strings(texts.take(pa.array(order)))
        kept = ~repeated(owners, languages, text_hashes(texts))
        owners, languages = owners[kept], languages[kept]
        texts = strings(texts.filter(pa.array(kept)))
        columns = {f"{name}.starts": starts_of(owners, self._n), **text_column(name, texts)}
        if name == "notations":
            shared = np.flatnonzero(repeated(text_hashes(texts)))
            self.notes.add("shared notation", self._shown(owners[shared], texts, shared))
            return columns
        return columns | {f"{name}.languages": languages.astype(np.int16)}

    def _link_columns(self) -> dict[str, np.ndarray]:
        """Links both ways: a concept is narrower than those that are broader than it."""
        below, above = self._linked("broader")
        over, under = self._linked("narrower")
        upward = unique_pairs(np.append(below, under), np.append(above, over))
        one_sided = 2 * len(upward[0]) - len(below) - len(over)
        first, second = self._linked("related")
        mutual = unique_pairs(np.append(first, second), np.append(second, first))
        self.notes.count("link given one way", one_sided + len(mutual[0]) - len(first))
        graph = coo_matrix((np.ones(len(upward[0]), bool), upward), shape=(self._n, self._n))
        _, component = connected_components(graph.tocsr(), directed=True, connection="strong")
        sizes = np.bincount(component, minlength=1)
        round_ = np.flatnonzero(sizes > 1)
        firsts = [int(np.flatnonzero(component == i)[0]) for i in round_[: Notes.EXAMPLES]]
        self.notes.add("cycle", self._shown(np.array(firsts, np.int64)), len(round_))
        columns: dict[str, np.ndarray] = {}
        for kind, (one, other) in (
            ("broader", upward),
            ("narrower", unique_pairs(upward[1], upward[0])),
            ("related", mutual),
        ):
            columns[f"{kind}.starts"] = starts_of(one, self._n)
            columns[f"{kind}.concepts"] = other.astype(np.int32)
        return columns

    def _linked(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Links of a kind between two concepts, each once."""
        first, second = self.links[kind].arrays()
        one, other = self._place[first], self._place[second]
        ours = one >= 0
        dangling = ours & (other < 0)
        self.notes.add("dangling link", self._towards(one, second, dangling))
        itself = ours & (one == other)
        self.notes.add("link to itself", self._shown(one[itself]))
        kept = ours & (other >= 0) & ~itself
        return unique_pairs(one[kept], other[kept])

    def _replacements(self, deprecated: np.ndarray) -> np.ndarray:
        first, second = self.replaced.arrays()
        one, other = self._place[first], self._place[second]
        dangling = (one >= 0) & (other < 0)
        self.notes.add("unknown replacement", self._towards(one, second, dangling))
        one, other = one[(one >= 0) & (other >= 0)], other[(one >= 0) & (other >= 0)]
        more = repeated(one)
        self.notes.add("several replacements", self._shown(one[more]))
        replaced_by = np.full(self._n, -1, np.int32)
        replaced_by[one[~more]] = other[~more]
        bare = np.flatnonzero(deprecated & (replaced_by < 0))
        self.notes.add("deprecated without replacement", self._shown(bare))
        self.notes.count("deprecated", int(deprecated.sum()))
        return replaced_by

    def _groups(self, pairs: Pairs) -> tuple[list[list[Any]], np.ndarray, np.ndarray]:
        """Identifiers and names of types or collections, and which of them each concept has."""
        first, group = pairs.arrays()
        one = self._place[first]
        one, group = unique_pairs(one[one >= 0], group[one >= 0])
        used, numbers = np.unique(group, return_inverse=True)
        ids = self._ids.take(pa.array(used)).to_pylist()
        names = [self.group_names.get(int(number), []) for number in used]
        groups = [[id_, list(dict.fromkeys(of))] for id_, of in zip(ids, names, strict=True)]
        return groups, starts_of(one, self._n), numbers.astype(np.int32)

    def _shown(
        self,
        concepts: np.ndarray,
        texts: pa.LargeStringArray | None = None,
        where: np.ndarray | None = None,
    ) -> Iterable[str]:
        """Concepts, with a text of each, as examples of a note; the first few in full."""
        rows = None if where is None else where if where.dtype != bool else np.flatnonzero(where)
        for i, concept in enumerate(concepts):
            if i >= Notes.EXAMPLES:
                yield ""
                continue
            id_ = self._concept_ids[int(concept)].as_py()
            yield id_ if texts is None or rows is None else f"{id_} ({texts[int(rows[i])].as_py()})"

    def _towards(self, one: np.ndarray, target: np.ndarray, which: np.ndarray) -> Iterable[str]:
        for i, row in enumerate(np.flatnonzero(which)):
            if i >= Notes.EXAMPLES:
                yield ""
                continue
            from_, to = self._concept_ids[int(one[row])], self._ids[int(target[row])]
            yield f"{from_.as_py()} → {to.as_py()}"


def repeated(*keys: np.ndarray) -> np.ndarray:
    """Which items are equal in all keys to one before them.

    Examples
    --------
    >>> repeated(np.array([1, 2, 1, 1]), np.array([5, 5, 6, 5])).tolist()
    [False, False, False, True]
    """
    order = np.lexsort(keys[::-1])
    same = np.zeros(len(order), bool)
    if len(order) > 1:
        same[1:] = np.all([key[order[1:]] == key[order[:-1]] for key in keys], axis=0)
    found = np.zeros(len(order), bool)
    found[order[same]] = True
    return found


def unique_pairs(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of numbers, each once, sorted."""
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    fresh = np.ones(len(first), bool)
    fresh[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return first[fresh], second[fresh]


def text_column(name: str, texts: pa.LargeStringArray) -> dict[str, np.ndarray]:
    """The two arrays that a column of texts is kept as."""
    offsets, data = to_arrays(texts)
    first, last = int(offsets[0]), int(offsets[-1])
    return {f"{name}.offsets": offsets - first, f"{name}.bytes": data[first:last]}
