"""Labels joined to a vocabulary: each finds its concept by identifier, notation or name."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel.data.concepts import PREFERRED
from megalabel.data.labelset import LabelSet
from megalabel.data.strings import strings
from megalabel.data.vocabulary import Vocabulary, last_parts

# how a label may find its concept, and in what words that is told
RULES = {
    "id": "whole identifier",
    "part": "the last part of an identifier",
    "notation": "notation",
    "name": "name",
}
_UNKNOWN, _AMBIGUOUS = -1, -2
_EXAMPLES = 5
_MOST_STEPS = 100  # from a deprecated concept to the current one that replaces it
_SPOKEN = 0.5  # share of labels whose own names are in a language, for it to be that of the names


@dataclass(frozen=True)
class Joining:
    """How the labels of a corpus found their concepts in a vocabulary, in counts.

    Examples
    --------
    >>> print(Joining(10, {"part": 8, "name": 1}, unknown=1, unknown_examples=["x"]))
    9 of 10 labels are joined to the vocabulary: 8 by the last part of an identifier, 1 by name; \
1 is not in it, such as 'x'
    """

    labels: int
    """How many there were."""
    by: dict[str, int] = field(default_factory=dict)
    """How many were found by each of RULES, in the order in which these were tried."""
    unknown: int = 0
    ambiguous: int = 0
    """Those that may be any of several concepts, and are joined to none."""
    replaced: int = 0
    """Labels whose concept is deprecated, which became the one that replaces it."""
    deprecated: int = 0
    """Labels whose concept is deprecated and stays."""
    merged: int = 0
    """Labels that were the same concept as another one."""
    added: int = 0
    """Concepts that became labels although no text carries them."""
    unknown_examples: list[str] = field(default_factory=list)
    ambiguous_examples: list[str] = field(default_factory=list)

    @property
    def found(self) -> int:
        """How many labels have a concept."""
        return sum(self.by.values())

    def to_dict(self) -> dict[str, Any]:
        """All counts that are not 0, and `labels`, for JSON."""
        return {name: value for name, value in asdict(self).items() if value or name == "labels"}

    def __str__(self) -> str:
        by = ", ".join(f"{count:,} by {RULES[rule]}" for rule, count in self.by.items())
        parts = [f"{self.found:,} of {self.labels:,} labels are joined to the vocabulary"]
        parts[0] += f": {by}" if by else ""
        for count, what, examples in (
            (self.unknown, "not in it", self.unknown_examples),
            (self.ambiguous, "joined to none of several concepts", self.ambiguous_examples),
            (self.replaced, "deprecated and replaced", []),
            (self.deprecated, "deprecated and kept", []),
            (self.merged, "the same concept as another", []),
        ):
            if count:
                shown = f", such as {', '.join(map(repr, examples))}" if examples else ""
                parts.append(f"{count:,} {'is' if count == 1 else 'are'} {what}{shown}")
        if self.added:
            parts.append(f"{self.added:,} concepts are labels without a text")
        return "; ".join(parts)


class Joined(NamedTuple):
    """What `join` gives."""

    labels: LabelSet
    numbers: np.ndarray
    """The number, in these labels, of each label before."""
    joining: Joining


def join(
    labels: LabelSet,
    vocabulary: Vocabulary,
    language: str | None = None,
    *,
    all_concepts: bool = False,
    keep_deprecated: bool = False,
) -> Joined:
    """Labels with their concepts in a vocabulary.

    A label finds its concept by its whole identifier; else by the last part of that, by a notation
    or by any name, where these lead to a single concept. Of the last three, that which finds the
    most labels of the set is tried first, then the others in this order. Where several concepts
    have a name, those are preferred that have it in the labels' language, then those that have it
    as preferred name, then those that are not deprecated.

    A label then has the identifier of its concept, unless it has one of its own and was found by
    name. Labels of one concept become one label.

    Parameters
    ----------
    labels : LabelSet
    vocabulary : Vocabulary
    language : str, optional
        The language that names are to be in. By default labels keep their names, and those known by
        an identifier alone get names in the vocabulary's first language.
    all_concepts : bool
        Whether concepts that are no labels come after them as labels, but for deprecated ones.
    keep_deprecated : bool
        Whether deprecated concepts stay, also where another one replaces them.

    Examples
    --------
    >>> from megalabel.data import Concept
    >>> animals = Vocabulary.of([Concept("http://x/Q1", {"en": "dog", "fi": "koira"})])
    >>> labels, _, joining = join(LabelSet(["Q1"]), animals)
    >>> labels.ids[0].as_py(), labels.name(0), labels.name(0, "fi"), joining.by
    ('http://x/Q1', 'dog', 'koira', {'part': 1})
    """
    vocabulary.languages_like(language)  # an error where no name is in it
    n = len(labels)
    found: dict[str, np.ndarray] = {"id": vocabulary.numbers(labels.ids).astype(np.int64)}
    if n and (found["id"] < 0).any():
        found["part"] = _by_part(labels, vocabulary)
        found["notation"] = _single(n, vocabulary, *vocabulary.matches("notation", labels.ids))
        found["name"] = _by_name(labels, vocabulary, language)
    # sorted() leaves those of equal counts in the order of RULES
    order = ["id", *sorted([*found][1:], key=lambda rule: -int((found[rule] >= 0).sum()))]
    concepts, by_rule = np.full(n, _UNKNOWN, np.int64), np.full(n, "", "<U8")
    by: dict[str, int] = {}
    for rule in order:
        open_still = concepts < 0
        hit = open_still & (found[rule] >= 0)
        concepts[hit], by_rule[hit] = found[rule][hit], rule
        concepts[open_still & ~hit & (found[rule] == _AMBIGUOUS)] = _AMBIGUOUS
        if hit.any():
            by[rule] = int(hit.sum())
    unknown, ambiguous = (np.flatnonzero(concepts == kind) for kind in (_UNKNOWN, _AMBIGUOUS))
    concepts = np.maximum(concepts, -1)
    current = concepts if keep_deprecated else _current(concepts, vocabulary)
    replaced = current != concepts
    deprecated = (current >= 0) & vocabulary.deprecated[current] if len(vocabulary) else replaced
    own_id = labels.identified & (by_rule == "name")
    made, numbers = _labels_of(labels, vocabulary, current, own_id, by_rule, replaced, language)
    merged = n - len(made)
    added = 0
    if all_concepts:
        others = np.ones(len(vocabulary), bool)
        others[made.concepts[made.concepts >= 0]] = False
        numbers_of_others = np.flatnonzero(others & ~vocabulary.deprecated)
        added = len(numbers_of_others)
        more = of_concepts(vocabulary, numbers_of_others, made.language or language)
        made = made.extended(more) if n else more
    return Joined(
        made,
        numbers,
        Joining(
            n,
            by,
            len(unknown),
            len(ambiguous),
            int(replaced.sum()),
            int(deprecated.sum()),
            merged,
            added,
            [labels.name(i) for i in unknown[:_EXAMPLES]],
            [labels.name(i) for i in ambiguous[:_EXAMPLES]],
        ),
    )


def of_concepts(
    vocabulary: Vocabulary, concepts: np.ndarray | None = None, language: str | None = None
) -> LabelSet:
    """Some concepts of a vocabulary as labels, or all but deprecated ones.

    Examples
    --------
    >>> from megalabel.data import Concept
    >>> of_concepts(Vocabulary.of([Concept("Q1", {"en": "dog", "fi": "koira"})]), None, "fi")
    LabelSet(1 labels: 'koira')
    """
    if concepts is None:
        concepts = np.flatnonzero(~vocabulary.deprecated)
    ids = vocabulary.ids.take(pa.array(concepts))
    names = vocabulary.names(concepts, language)
    language = language or next(iter(vocabulary.languages), None)
    return LabelSet(ids, names, None, vocabulary, concepts, language)


def _by_part(labels: LabelSet, vocabulary: Vocabulary) -> np.ndarray:
    """Concepts by the last part of identifiers; that of a label too, where it is a URI."""
    uri = pc.match_substring_regex(labels.ids, r"^(urn:|[A-Za-z][A-Za-z0-9+.-]*://)")
    parts = strings(pc.if_else(uri, last_parts(labels.ids), labels.ids))
    return _single(len(labels), vocabulary, *vocabulary.matches("part", parts))


def _by_name(labels: LabelSet, vocabulary: Vocabulary, language: str | None) -> np.ndarray:
    owner, concepts, languages, forms = vocabulary.naming(labels.names)
    if not len(owner):
        return np.full(len(labels), _UNKNOWN, np.int64)
    if language is None:  # the one that most labels have a name in
        pairs = np.unique(np.stack([languages.astype(np.int64), owner]), axis=1)
        wanted = [int(np.argmax(np.bincount(pairs[0], minlength=len(vocabulary.languages))))]
    else:
        wanted = [vocabulary.languages.index(tag) for tag in vocabulary.languages_like(language)]
    current = ~vocabulary.deprecated[concepts]
    class_of = (
        4 * np.isin(languages, wanted) + 2 * ((forms == PREFERRED) & current) + current
    ).astype(np.int64)
    best = np.full(len(labels), -1, np.int64)
    np.maximum.at(best, owner, class_of)
    kept = class_of == best[owner]
    return _single(len(labels), vocabulary, owner[kept], concepts[kept])


def _single(n: int, vocabulary: Vocabulary, owner: np.ndarray, concepts: np.ndarray) -> np.ndarray:
    """The one concept that each of n texts leads to, of several the one that is not deprecated;
    below 0 where there is none, or no single one."""
    result = np.full(n, _UNKNOWN, np.int64)
    if not len(owner):
        return result
    pairs = np.unique(np.stack([owner, concepts]), axis=1)
    owner, concepts = pairs[0], pairs[1]
    current = ~vocabulary.deprecated[concepts]
    with_current = np.bincount(owner[current], minlength=n) > 0
    kept = current | ~with_current[owner]
    owner, concepts = owner[kept], concepts[kept]
    result[owner] = concepts
    result[np.bincount(owner, minlength=n) > 1] = _AMBIGUOUS
    return result


def _current(concepts: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """The concepts that are to be used in place of deprecated ones, as far as there are any."""
    result = concepts.copy()
    if not len(vocabulary):
        return result
    for _ in range(_MOST_STEPS):  # an end to rings
        following = vocabulary.replaced_by[result]
        stale = (result >= 0) & vocabulary.deprecated[result] & (following >= 0)
        if not stale.any():
            return result
        result[stale] = following[stale]
    return np.where(stale, concepts, result)


def _labels_of(
    labels: LabelSet,
    vocabulary: Vocabulary,
    concepts: np.ndarray,
    own_id: np.ndarray,
    by_rule: np.ndarray,
    replaced: np.ndarray,
    language: str | None,
) -> tuple[LabelSet, np.ndarray]:
    """Labels with their concepts, those of one concept as one label; and the number that each
    label has among them."""
    n, known = len(labels), concepts >= 0
    takes_id = known & ~own_id
    key = np.where(takes_id, concepts, len(vocabulary) + np.arange(n))
    _, first, numbers = np.unique(key, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))  # in the order in which they come
    numbers, first = place[numbers], np.sort(first)
    several = np.bincount(numbers, minlength=len(first))[numbers] > 1
    spoken = language or _spoken(labels, vocabulary, concepts)
    # of these the vocabulary has the name; the others have names that the corpus gives them
    unnamed = known & ((not labels.identified) | replaced | several) & ~own_id
    names = _chosen(labels.names, vocabulary.names(concepts[unnamed], spoken), unnamed)
    ids = _chosen(labels.ids, vocabulary.ids.take(pa.array(concepts[takes_id])), takes_id)
    at = pa.array(first)
    made = LabelSet(
        ids.take(at),
        names.take(at),
        None if labels.texts is None else labels.texts.take(at),
        vocabulary,
        concepts[first],
        spoken,
    )
    if language is not None:
        made = LabelSet(
            made.ids, made.names_in(language), made.texts, vocabulary, made.concepts, language
        )
    return made, numbers


def _chosen(ours: pa.Array, theirs: pa.Array, where: np.ndarray) -> pa.LargeStringArray:
    """Ours, but where a mask is true theirs, which has a value for each such place."""
    at = np.arange(len(where))
    at[where] = len(ours) + np.arange(int(where.sum()))
    return strings(pa.concat_arrays([ours, strings(theirs)]).take(pa.array(at)))


def _spoken(labels: LabelSet, vocabulary: Vocabulary, concepts: np.ndarray) -> str | None:
    """The language that the names of labels are in, as far as that can be told: the one in which
    most labels of a concept have the name that they have here; the vocabulary's first one where
    labels have no names."""
    known = np.flatnonzero(concepts >= 0)
    first = next(iter(vocabulary.languages), None)
    owner, named, languages, _ = vocabulary.naming(labels.names.take(pa.array(known)))
    same = named == concepts[known][owner]
    if not same.any():
        return None if labels.identified else first
    pairs = np.unique(np.stack([languages[same].astype(np.int64), owner[same]]), axis=1)
    counts = np.bincount(pairs[0], minlength=len(vocabulary.languages))
    most = int(np.argmax(counts))
    return vocabulary.languages[most] if counts[most] >= _SPOKEN * len(known) else None
