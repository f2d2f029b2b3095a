"""LabelSet: the labels, by number inside and by name outside."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix

from megalabel.base import made_once
from megalabel.data.concepts import LINKS, repeated
from megalabel.data.hashes import text_hashes
from megalabel.data.ragged import starts_of
from megalabel.data.selecting import selected
from megalabel.data.strings import from_arrays, strings, to_arrays
from megalabel.errors import ParameterError, ShapeError, UnknownConceptError, UnknownLabelError

if TYPE_CHECKING:
    from megalabel.data.vocabulary import Vocabulary

_AT_ONCE = 1 << 16  # numbers turned into strings
COLLECTION = "collection"
_LARGE = 1000  # labels of a collection, of which so many say little about two of them


class LabelSet:
    """Labels with an id and a name each, and optionally a text.

    Parameters
    ----------
    ids : sequence of str
        The labels' own identifiers (a code, a URI, a key); unique.
    names : sequence of str, optional
        What people read; the ids where not given. Two labels may share a name.
    texts : sequence of str, optional
        A longer description of each label, for methods that read labels.
    vocabulary : Vocabulary, optional
        Where labels have names in several languages, notations and links.
    concepts : int32 array, optional
        The number of each label's concept in the vocabulary; -1: none. `joined` finds them.
    language : str, optional
        The language of the names, of those that the vocabulary has.

    Examples
    --------
    >>> labels = LabelSet(["Q144", "Q146"], names=["dog", "cat"])
    >>> labels.index("cat"), labels.names[0].as_py()
    (1, 'dog')
    """

    def __init__(
        self,
        ids: Sequence[str] | pa.Array,
        names: Sequence[str] | pa.Array | None = None,
        texts: Sequence[str] | pa.Array | None = None,
        vocabulary: Vocabulary | None = None,
        concepts: Sequence[int] | np.ndarray | None = None,
        language: str | None = None,
    ) -> None:
        self.ids = strings(ids)
        self.names = self.ids if names is None else strings(names)
        if self.names.equals(self.ids):
            self.names = self.ids
        self.texts = None if texts is None else strings(texts)
        for kind, column in (("names", self.names), ("texts", self.texts)):
            if column is not None and len(column) != len(self.ids):
                raise ShapeError(f"{len(self.ids)} label ids but {len(column)} label {kind}")
        self.vocabulary, self.language = vocabulary, language
        self.concepts = np.full(len(self.ids), -1, np.int32)
        if vocabulary is not None and concepts is not None:
            self.concepts = np.asarray(concepts, np.int32)
            if self.concepts.shape != (len(self.ids),):
                raise ShapeError(f"{len(self.ids)} label ids but {len(self.concepts)} concepts")
            if len(self) and not -1 <= self.concepts.min() <= self.concepts.max() < len(vocabulary):
                raise ParameterError(
                    f"concepts are numbered from 0 to {len(vocabulary) - 1}, or -1 for none"
                )
        self._lookup: dict[str, int] | None = None
        self._spoken: dict[str, LabelSet] = {}  # the same with names in other languages

    @classmethod
    def numbered(cls, n: int) -> LabelSet:
        """Labels known by number alone: named "0", "1", …"""
        # some at a time: Arrow takes several times the memory of the result
        size = n + sum(max(0, n - 10**digits) for digits in range(1, len(str(n))))
        offsets, data = np.zeros(n + 1, np.int64), np.empty(size, np.uint8)
        for start in range(0, n, _AT_ONCE):
            stop = min(n, start + _AT_ONCE)
            ends, digits = to_arrays(pa.array(np.arange(start, stop)).cast(pa.large_string()))
            done = offsets[start]
            offsets[start + 1 : stop + 1] = ends[1:] + done
            data[done : done + ends[-1]] = digits[: ends[-1]]
        return cls(from_arrays(offsets, data))

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSet) and (self is other or self.ids.equals(other.ids))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.names[:3].to_pylist()))
        return f"LabelSet({len(self)} labels: {shown}{', …' if len(self) > 3 else ''})"

    @property
    def identified(self) -> bool:
        """True if labels have identifiers besides their names."""
        return self.names is not self.ids

    def name(self, number: int, language: str | None = None) -> str:
        """The name of one label; in a language, as `names_in` gives it."""
        if language is None:
            return str(self.names[int(number)].as_py())
        return str(self.take([int(number)]).names_in(language)[0].as_py())

    def names_in(self, language: str | None) -> pa.LargeStringArray:
        """The names of all labels in a language of the vocabulary; its own name for a label that
        has none there. None: all their own names."""
        if language is None:
            return self.names
        vocabulary = self.known_vocabulary()
        wanted = [vocabulary.languages.index(tag) for tag in vocabulary.languages_like(language)]
        known = np.flatnonzero(self.concepts >= 0)
        names, spoken = vocabulary.named(self.concepts[known], language)
        there = np.isin(spoken, wanted)
        place = np.full(len(self), -1, np.int64)
        place[known[there]] = np.flatnonzero(there)
        return strings(pc.coalesce(names.take(pa.array(place, mask=place < 0)), self.names))

    def in_language(self, language: str | None) -> LabelSet:
        """The same labels with names in a language, as `names_in` gives them; None: these."""
        if language is None or language == self.language:
            return self
        if language not in self._spoken:
            names = self.names_in(language)
            self._spoken[language] = LabelSet(
                self.ids, names, self.texts, self.vocabulary, self.concepts, language
            )
        return self._spoken[language]

    def notation(self, number: int) -> str | None:
        """The first notation of one label, if it has any."""
        notations = self.notations
        return None if notations is None else notations[int(number)].as_py()

    @property
    def notations(self) -> pa.LargeStringArray | None:
        """The first notation of each label, null where it has none; None if no label has any."""
        if self.vocabulary is None:
            return None
        return made_once(self, "_notations", self._first_notations)[0]

    def _first_notations(self) -> tuple[pa.LargeStringArray | None]:
        vocabulary = self.known_vocabulary()
        known = np.flatnonzero(self.concepts >= 0)
        starts, texts = vocabulary.notations(self.concepts[known])
        if not len(texts):
            return (None,)
        some = np.diff(starts) > 0
        place = np.full(len(self), -1, np.int64)
        place[known[some]] = starts[:-1][some]
        return (texts.take(pa.array(place, mask=place < 0)),)

    def select(
        self,
        *,
        subtree: str | Iterable[str] | None = None,
        type: str | Iterable[str] | None = None,
        collection: str | Iterable[str] | None = None,
        label: str | Iterable[str] | None = None,
    ) -> np.ndarray:
        """A mask of some labels: what a tagger is to answer with (`allowed`).

        Of each kind that is given, labels must be among those of any of its values. Masks go
        together by `&`, `|` and `~`.

        Parameters
        ----------
        subtree : str or several, optional
            A concept, as `Vocabulary.find` takes it, and all that are narrower.
        type, collection : str or several, optional
            By identifier, the last part of that, or name.
        label : str or several, optional
            By id or name.

        Returns
        -------
        bool array (labels,)

        Examples
        --------
        >>> LabelSet(["cat", "dog", "fox"]).select(label=["dog", "fox"])
        array([False,  True,  True])
        """
        given = {"subtree": subtree, "type": type, "collection": collection, "label": label}
        mask = np.ones(len(self), bool)
        for kind, values in given.items():
            if values is not None:
                mask &= selected(self, kind, values)
        return mask

    def all_names(self, language: str | None = None) -> tuple[np.ndarray, pa.LargeStringArray]:
        """Where the names of each label start (n + 1), and the names: its own first, then those of
        its concept, preferred ones before others, each once.

        Parameters
        ----------
        language : str, optional
            Names in this language alone. By default in the language of the labels' own names where
            that is known, else in all. A label that has none in it has its own name.

        Examples
        --------
        >>> starts, names = LabelSet(["Q144", "Q146"], names=["dog", "cat"]).all_names()
        >>> starts.tolist(), names.to_pylist()
        ([0, 1, 2], ['dog', 'cat'])
        """
        if self.vocabulary is None:
            return np.arange(len(self) + 1), self.names_in(language)
        language = language or self.language
        known = np.flatnonzero(self.concepts >= 0)
        starts, names = self.vocabulary.all_names(self.concepts[known], language)
        counts = np.zeros(len(self), np.int64)
        counts[known] = np.diff(starts)
        # names in the labels' own language stand before those of their concepts; in another one
        # they stand in only where there are none
        own = np.flatnonzero(counts == 0) if language != self.language else np.arange(len(self))
        owners = np.concatenate([own, np.repeat(np.arange(len(self)), counts)])
        order = np.argsort(owners, kind="stable")
        owners = owners[order]
        column = pa.concat_arrays([self.names.take(pa.array(own)), names])
        column = strings(column.take(pa.array(order)))
        fresh = ~repeated(owners, text_hashes(column))
        return starts_of(owners[fresh], len(self)), strings(column.filter(pa.array(fresh)))

    def links(self, kind: str) -> csr_matrix:
        """Which labels are linked: a matrix (labels, labels) of bool.

        Parameters
        ----------
        kind : "broader", "narrower", "related" or "collection"
            What the labels of a row's entries are to the label of the row; "collection": in a
            collection with it. Collections of more than a thousand labels do not count.

        Examples
        --------
        >>> LabelSet(["Q144", "Q146"]).links("broader").nnz
        0
        """
        if kind not in (*LINKS, COLLECTION):
            raise ParameterError(f"links are {', '.join(LINKS)} and {COLLECTION}, not {kind!r}")
        if self.vocabulary is None:
            return csr_matrix((len(self), len(self)), dtype=bool)
        if kind == COLLECTION:
            within = self.collected()
            linked = (within @ within.T).tocoo()
        else:
            is_of = self._is_of()
            starts, numbers = self.vocabulary.linked(kind)
            shape = (len(self.vocabulary), len(self.vocabulary))
            links = csr_matrix((np.ones(len(numbers), np.int32), numbers, starts), shape)
            linked = (is_of @ links @ is_of.T).tocoo()
        apart = linked.row != linked.col
        cells = linked.row[apart], linked.col[apart]
        return csr_matrix((np.ones(len(cells[0]), bool), cells), shape=linked.shape)

    def collected(self) -> csr_matrix:
        """Which collections of the vocabulary each label is in: a matrix of int32 (labels,
        collections), without those of more than a thousand labels."""
        if self.vocabulary is None:
            return csr_matrix((len(self), 0), dtype=np.int32)
        starts, numbers = self.vocabulary.collected()
        shape = (len(self.vocabulary), len(self.vocabulary.collections))
        ones = np.ones(len(numbers), np.int32)
        within = csr_matrix(self._is_of() @ csr_matrix((ones, numbers, starts), shape))
        small = np.bincount(within.indices, minlength=shape[1]) <= _LARGE
        return csr_matrix(within[:, np.flatnonzero(small)])

    def _is_of(self) -> csr_matrix:
        """One row a label, one column a concept; int32, as products of bool may not add up."""
        known = np.flatnonzero(self.concepts >= 0)
        cells = (np.ones(len(known), np.int32), (known, self.concepts[known]))
        return csr_matrix(cells, shape=(len(self), len(self.known_vocabulary())))

    def index(self, label: str) -> int:
        """The number of a label given by id, or by name where no id matches; else by whatever finds
        its concept in the vocabulary, such as a notation or a name in another language."""
        lookup = made_once(self, "_lookup", self._numbers)
        found = lookup.get(label)
        if found is None and self.vocabulary is not None:
            with suppress(UnknownConceptError):
                same = self.concepts == self.vocabulary.find(label)
                found = next(iter(np.flatnonzero(same).tolist()), None)
        if found is None:
            raise UnknownLabelError(label, difflib.get_close_matches(str(label), lookup, n=3))
        return found

    def _numbers(self) -> dict[str, int]:
        """The numbers of all labels: ids win over names, and among equal names the lower number."""
        numbers: dict[str, int] = {}
        for column in (self.ids, self.names):
            for number, value in enumerate(column.to_pylist()):
                numbers.setdefault(value, number)
        return numbers

    def numbers_of(self, others: LabelSet) -> np.ndarray:
        """The numbers here of the labels of another set: by id, else by name, else by the concept
        that both are in the vocabulary of these; -1 for those that are unknown.

        Examples
        --------
        >>> LabelSet(["Q144", "Q146"], names=["dog", "cat"]).numbers_of(LabelSet(["cat", "cow"]))
        array([ 1, -1])
        """
        numbers = self.indices(others.ids)
        unknown = np.flatnonzero(numbers < 0)
        if self.vocabulary is None or not len(unknown):
            return numbers
        concepts = others.concepts[unknown]
        if others.vocabulary is not self.vocabulary:
            from megalabel.data.joining import join  # it makes label sets

            plain = LabelSet(others.ids, others.names).take(unknown)
            joined = join(plain, self.vocabulary)
            concepts = joined.labels.concepts[joined.numbers]
        place = np.full(len(self.vocabulary) + 1, -1, np.int64)  # the last one is for -1
        known = np.flatnonzero(self.concepts >= 0)
        place[self.concepts[known]] = known
        numbers[unknown] = place[concepts]
        return numbers

    def indices(self, labels: Iterable[str]) -> np.ndarray:
        """The numbers of several labels; -1 for those that are unknown."""
        wanted = strings(
            list(labels) if not isinstance(labels, pa.Array | pa.ChunkedArray) else labels
        )
        found = pc.index_in(wanted, value_set=self.ids)
        if found.null_count and self.names is not self.ids:
            found = pc.coalesce(found, pc.index_in(wanted, value_set=self.names))
        return np.asarray(pc.fill_null(found, -1), dtype=np.int64)

    def joined(
        self,
        vocabulary: Vocabulary,
        language: str | None = None,
        *,
        all_concepts: bool = False,
        keep_deprecated: bool = False,
    ) -> LabelSet:
        """These labels with their concepts in a vocabulary, and names in a language.

        Labels of one concept become one, so that there may be fewer. See `data.joining.join`, which
        has the parameters, and says how many labels were found and how. A corpus is joined by
        `Corpus.joined`, or when it is read.
        """
        from megalabel.data.joining import join  # it makes label sets

        return join(
            self, vocabulary, language, all_concepts=all_concepts, keep_deprecated=keep_deprecated
        ).labels

    def known_vocabulary(self) -> Vocabulary:
        """The vocabulary; an error if there is none."""
        if self.vocabulary is None:
            raise ParameterError(
                "the labels are not joined to a vocabulary, which alone has their names in several "
                "languages, their links, types and collections: give one when reading the corpus "
                "(vocabulary=…, --vocabulary)"
            )
        return self.vocabulary

    def take(self, numbers: Sequence[int] | np.ndarray) -> LabelSet:
        """The label set of some of the labels, in the given order."""
        where = pa.array(np.asarray(numbers, dtype=np.int64))
        return LabelSet(
            self.ids.take(where),
            None if self.names is self.ids else self.names.take(where),
            None if self.texts is None else self.texts.take(where),
            self.vocabulary,
            self.concepts[np.asarray(numbers, np.int64)],
            self.language,
        )

    def extended(self, other: LabelSet) -> LabelSet:
        """These labels, followed by those of `other` that are not among them."""
        new = np.flatnonzero(self.indices(other.ids) < 0)
        if not len(new):
            return self
        more = other.take(new)
        texts = None
        if self.texts is not None:
            texts = pa.concat_arrays([self.texts, more.names if more.texts is None else more.texts])
        both = LabelSet(
            pa.concat_arrays([self.ids, more.ids]),
            pa.concat_arrays([self.names, more.names]),
            texts,
        )
        return both if self.vocabulary is None else both._known_by(self, more)

    def renamed(self, names: Mapping[int, str]) -> LabelSet:
        """The same labels, of which some, by their numbers, have other names.

        Examples
        --------
        >>> LabelSet(["Q144", "Q146"], names=["dog", "cat"]).renamed({1: "house cat"})
        LabelSet(2 labels: 'dog', 'house cat')
        """
        given = self.names.to_pylist()
        for number, name in names.items():
            given[number] = name
        return LabelSet(self.ids, given, self.texts, self.vocabulary, self.concepts, self.language)

    def _known_by(self, first: LabelSet, more: LabelSet) -> LabelSet:
        """These labels, which are those of two sets, with the concepts that both have in the
        vocabulary of the first; else those of the second are found by identifier."""
        vocabulary = first.known_vocabulary()
        same = more.vocabulary is vocabulary
        found = more.concepts if same else vocabulary.numbers(more.ids)
        concepts = np.concatenate([first.concepts, found])
        return LabelSet(self.ids, self.names, self.texts, vocabulary, concepts, first.language)
