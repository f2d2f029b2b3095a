"""What the things are that statements speak of: concepts, schemes, collections, labels, terms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from megalabel.data.concepts import (
    PREFERRED,
    Pairs,
    Texts,
    repeated,
    unique_pairs,
)
from megalabel.data.hashes import text_hashes
from megalabel.data.oddities import Notes
from megalabel.data.ragged import spans, starts_of
from megalabel.data.strings import strings
from megalabel.data.vocabularies import terms
from megalabel.data.vocabularies.skos import DESCRIPTION, Statements


def sort_out(statements: Statements) -> None:
    """Say to the builder which things are concepts, and give it their names by nodes and by
    rdfs:label, their types and collections; what is odd is noted."""
    _Sorting(statements).run()


class _Sorting:
    def __init__(self, statements: Statements) -> None:
        self.of, self.builder = statements, statements.builder
        self.n = len(self.builder.numbers)
        self.iris = list(self.builder.numbers)

    def run(self) -> None:
        builder, of = self.builder, self.of
        self.subjects = self._mask(of.runs.arrays()[0])
        self._find_things()
        told = of.runs.arrays()[0]
        builder.is_concept |= dict.fromkeys(told[self.concepts[told]].tolist())
        self._texts_of_nodes()
        self._names_by_label()
        self._collect()
        things, kinds = of.types.arrays()
        special = ~np.isin(kinds, self._numbers_of(terms.PLAIN_TYPES))
        builder.types.extend(things[special], kinds[special])
        self._name_groups(kinds[special & self.concepts[things]])
        self._note()

    # ------------------------------------------------------------------ what is what
    def _find_things(self) -> None:
        of, builder = self.of, self.builder
        things, kinds = of.types.arrays()
        said = self._typed(things, kinds, self._kinds_below((terms.CONCEPT,)))
        self.schemes = self._typed(things, kinds, self._kinds_below((terms.SCHEME,)))
        self.schemes[of.in_scheme.arrays()[1]] = True
        self.schemes[of.has_top.arrays()[0]] = True
        self.collections = self._typed(things, kinds, self._kinds_below(terms.COLLECTIONS))
        for pairs in (of.members, of.lists):
            self.collections[pairs.arrays()[0]] = True
        self.holders = self._typed(things, kinds, self._kinds_below((terms.XL_LABEL,)))
        self.holders[np.array(of.held.owners, np.int64)] = True
        self.holders[of.first.arrays()[0]] = True
        self.holders[of.rest.arrays()[0]] = True
        defining = [k for k in set(kinds.tolist()) if self._defines(k)]
        self.terms = self._typed(things, kinds, np.array(defining, np.int64))
        ours = [i for i in np.flatnonzero(self.subjects) if self.iris[i].startswith(terms.SKOS)]
        self.terms[np.array(ours, np.int64)] = True
        # and what types things: their names are those of groups
        self.terms[of.subclasses.arrays()[0]] = True
        self.terms[kinds] = True
        self.terms &= ~said
        # who is not said to be a concept is one by its names, its links, or its place in a scheme
        used = self._mask(np.array(builder.names.owners, np.int64))
        used[of.in_scheme.arrays()[0]] = True
        for pairs in (*builder.links.values(), *of.nodes.values()):
            used[pairs.arrays()[0]] = True
        used &= ~(self.schemes | self.collections | self.holders | self.terms)
        self.concepts = self.subjects & (said | used)
        self.schemes &= ~self.concepts
        self.collections &= ~self.concepts
        self._tell("not said to be a concept", self.concepts & ~said)

    def _typed(self, things: np.ndarray, kinds: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        return self._mask(things[np.isin(kinds, wanted)])

    def _mask(self, numbers: np.ndarray) -> np.ndarray:
        found = np.zeros(self.n, bool)
        found[numbers] = True
        return found

    def _numbers_of(self, iris: Iterable[str]) -> np.ndarray:
        numbers = self.builder.numbers
        return np.array([numbers[iri] for iri in iris if iri in numbers], np.int64)

    def _kinds_below(self, iris: Iterable[str]) -> np.ndarray:
        """The numbers of classes, and of all that the files say to be subclasses of them."""
        below: dict[int, list[int]] = {}
        for lower, upper in zip(self.of.subclasses.first, self.of.subclasses.second, strict=True):
            below.setdefault(upper, []).append(lower)
        reached = dict.fromkeys(self._numbers_of(iris).tolist())
        pending = list(reached)
        while pending:
            fresh = [kind for kind in below.get(pending.pop(), []) if kind not in reached]
            reached |= dict.fromkeys(fresh)
            pending += fresh
        return np.array(list(reached), np.int64)

    def _defines(self, kind: int) -> bool:
        """Whether things of a type are terms, such as classes and properties."""
        iri = self.iris[kind]
        return iri.startswith(terms.DEFINING) and iri not in terms.PLAIN_TYPES

    # ------------------------------------------------------------------ names
    def _texts_of_nodes(self) -> None:
        """Names and descriptions that are nodes of their own, with a text each."""
        held, builder = self.of.held, self.builder
        owners, column = np.array(held.owners, np.int64), held.column()
        order = np.argsort(owners, kind="stable")
        starts = starts_of(owners, self.n)
        for form, pairs in self.of.nodes.items():
            concepts, nodes = pairs.arrays()
            if not len(concepts):
                continue
            whose, rows = spans(starts, nodes)
            bare = np.flatnonzero(self.concepts[concepts] & (np.diff(starts)[nodes] == 0))
            self._tell_rows("name without text", concepts[bare], nodes[bare])
            rows = order[rows]
            languages = np.array(held.languages, np.int64)[rows]
            texts = strings(column.take(pa.array(rows)))
            target = builder.descriptions if form == DESCRIPTION else builder.names
            own = 0 if form == DESCRIPTION else form
            fresh = _not_in(target, concepts[whose], languages, own, texts)
            texts = strings(texts.filter(pa.array(fresh)))
            target.extend(concepts[whose][fresh], languages[fresh], own, texts)

    def _names_by_label(self) -> None:
        """Names by rdfs:label, of concepts that have no preferred one."""
        builder, labels = self.builder, self.of.labels
        named = np.array(builder.names.owners, np.int64)
        named = self._mask(named[np.array(builder.names.forms, np.int64) == PREFERRED])
        owners = np.array(labels.owners, np.int64)
        rows = np.flatnonzero(self.concepts[owners] & ~named[owners])
        texts = strings(labels.column().take(pa.array(rows)))
        languages = np.array(labels.languages, np.int64)[rows]
        builder.names.extend(owners[rows], languages, PREFERRED, texts)
        self._tell("name by rdfs:label", self._mask(owners[rows]))

    def _name_groups(self, kinds: np.ndarray) -> None:
        """The names of types and collections, which may be given as those of concepts are."""
        groups = self._mask(np.append(self.builder.collections.arrays()[1], kinds))
        for texts in (self.builder.names, self.of.labels):
            owners = np.array(texts.owners, np.int64)
            rows = np.flatnonzero(groups[owners] & (np.array(texts.forms) == PREFERRED))
            names = texts.column().take(pa.array(rows)).to_pylist()
            for owner, name in zip(owners[rows].tolist(), names, strict=True):
                if name:
                    self.builder.group_names.setdefault(owner, []).append(name)

    # ------------------------------------------------------------------ collections
    def _collect(self) -> None:
        """Which collections and schemes concepts are in."""
        collections, members = (
            np.append(*both) for both in zip(self.of.members.arrays(), self._listed(), strict=True)
        )
        parts = self.collections[members]
        stray = self.subjects[members] & ~parts & ~self.concepts[members]
        stray |= ~self.subjects[members]
        self._tell_rows("members not read", collections[stray], members[stray])
        nested = members[parts], collections[parts]
        inside = self.concepts[members]
        concepts, scheme = self.of.in_scheme.arrays()
        tops, topped = self.of.has_top.arrays()
        first = np.concatenate([members[inside], concepts, topped])
        second = np.concatenate([collections[inside], scheme, tops])
        kept = self.concepts[first]
        self.builder.collections.extend(*with_above(first[kept], second[kept], *nested, self.n))

    def _listed(self) -> tuple[np.ndarray, np.ndarray]:
        """Ordered collections and their members, which stand in lists."""
        first = dict(zip(self.of.first.first, self.of.first.second, strict=True))
        rest = dict(zip(self.of.rest.first, self.of.rest.second, strict=True))
        found = Pairs()
        for collection, node in zip(self.of.lists.first, self.of.lists.second, strict=True):
            seen: set[int] = set()
            while node in first and node not in seen:
                seen.add(node)
                found.add(collection, first[node])
                node = rest.get(node, -1)
        return found.arrays()

    # ------------------------------------------------------------------ what is told
    def _note(self) -> None:
        of, notes = self.of, self.builder.notes
        subjects, counts = of.runs.arrays()
        total = np.bincount(subjects, counts, self.n).astype(np.int64)
        for kind, which in (
            ("about the scheme", self.schemes),
            ("about terms", self.terms & ~self.schemes),
            (
                "about others",
                ~(self.concepts | self.schemes | self.terms | self.collections | self.holders),
            ),
        ):
            where = np.flatnonzero(which & (total > 0))
            notes.add(kind, self._examples(where), int(total[where].sum()))
        names = list(of.predicates)
        for kind, pairs in (("property not read", of.unread), ("wrong value", of.misfits)):
            things, predicates = pairs.arrays()
            unread = Counter(predicates[self.concepts[things]].tolist())
            most = unread.most_common(Notes.EXAMPLES)
            shown = [f"{names[predicate]} ({count:,})" for predicate, count in most]
            notes.add(kind, shown, unread.total())

    def _tell(self, kind: str, which: np.ndarray) -> None:
        where = np.flatnonzero(which)
        self.builder.notes.add(kind, self._examples(where), len(where))

    def _tell_rows(self, kind: str, one: np.ndarray, other: np.ndarray) -> None:
        pairs = zip(one[: Notes.EXAMPLES].tolist(), other[: Notes.EXAMPLES].tolist(), strict=True)
        shown = [f"{self.iris[a]} → {self.iris[b]}" for a, b in pairs]
        self.builder.notes.add(kind, shown, len(one))

    def _examples(self, numbers: np.ndarray) -> list[str]:
        return [self.iris[number] for number in numbers[: Notes.EXAMPLES].tolist()]


def with_above(
    first: np.ndarray, group: np.ndarray, lower: np.ndarray, upper: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Members and their groups, and all groups that these are in: `lower` is in `upper`.

    Examples
    --------
    >>> pairs = with_above(*(np.array(part) for part in ([5], [1], [1, 2], [2, 3])), 6)
    >>> [part.tolist() for part in pairs]
    [[5, 5, 5], [1, 2, 3]]
    """
    order = np.argsort(lower, kind="stable")
    starts, upper = starts_of(lower, n), upper[order]
    first, group = unique_pairs(first, group)
    fresh_first, fresh = first, group
    while len(lower) and len(fresh):
        whose, rows = spans(starts, fresh)
        one, above = unique_pairs(fresh_first[whose], upper[rows])
        new = ~np.isin(one * n + above, first * n + group)
        fresh_first, fresh = one[new], above[new]
        first, group = np.append(first, fresh_first), np.append(group, fresh)
    return unique_pairs(first, group)


def _not_in(
    texts: Texts, owners: np.ndarray, languages: np.ndarray, form: int, more: pa.LargeStringArray
) -> np.ndarray:
    """Which of more texts of a form are not among some already."""
    mine = np.flatnonzero(np.array(texts.forms, np.int64) == form)
    n = len(mine)
    column = strings(texts.column().take(pa.array(mine)))
    again = repeated(
        np.append(np.array(texts.owners, np.int64)[mine], owners),
        np.append(np.array(texts.languages, np.int64)[mine], languages),
        np.append(text_hashes(column), text_hashes(more)),
    )
    return ~again[n:]
