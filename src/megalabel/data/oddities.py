"""What may be odd in a vocabulary: each with how bad it is, and what people are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

ERROR, WARNING, INFO = "error", "warning", "info"

# in the order they are told
ODDITIES = {
    "two preferred names": (ERROR, "names beside another preferred one of the same language"),
    "cycle": (ERROR, "rings of concepts, each broader than the next"),
    "link to itself": (ERROR, "links of a concept to itself, left out"),
    "dangling link": (ERROR, "links to what is no concept here, left out"),
    "unknown replacement": (ERROR, "concepts replaced by what is no concept here"),
    "no name": (ERROR, "current concepts without a preferred name, shown by their identifier"),
    "no language": (WARNING, "names without a language"),
    "shared name": (WARNING, "preferred names that a concept before has in the same language"),
    "shared notation": (WARNING, "notations that a concept before has"),
    "name twice": (WARNING, "other names that their concept has already"),
    "blank text": (WARNING, "empty names, notations or descriptions, left out"),
    "several replacements": (WARNING, "replacements beside the first one, left out"),
    "name without text": (ERROR, "names that are nodes of their own, which hold no text"),
    "wrong value": (WARNING, "links to a text, and texts that are links or statements, left out"),
    "name by rdfs:label": (WARNING, "names given by rdfs:label alone, taken as preferred ones"),
    "not said to be a concept": (WARNING, "concepts that are not said to be a skos:Concept"),
    "members not read": (WARNING, "members of collections that are no concepts, left out"),
    "deprecated": (INFO, "deprecated concepts"),
    "deprecated without replacement": (INFO, "deprecated concepts that nothing replaces"),
    "link given one way": (INFO, "links given from one side, completed"),
    "about the scheme": (INFO, "statements about the scheme itself, not read"),
    "about terms": (INFO, "statements that define terms, such as those of SKOS, not read"),
    "about others": (INFO, "statements about what is no concept, not read"),
    "property not read": (INFO, "statements about concepts by properties that are not read"),
}


@dataclass(frozen=True)
class Note:
    """How often something odd was met, with a few examples."""

    count: int
    examples: tuple[str, ...] = ()


class Notes:
    """Counts what is odd, and keeps a few examples of each."""

    EXAMPLES = 5

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._examples: dict[str, list[str]] = {}

    def add(self, kind: str, examples: Iterable[str], count: int | None = None) -> None:
        """Count some of a kind: as many as there are examples, or `count`; blank ones are not
        kept."""
        shown = list(examples)
        self.count(kind, len(shown) if count is None else count)
        kept = self._examples.setdefault(kind, [])
        kept += [text for text in shown if text][: self.EXAMPLES - len(kept)]

    def count(self, kind: str, count: int) -> None:
        """Count some of a kind without examples."""
        self._counts[kind] = self._counts.get(kind, 0) + count

    def to_dict(self) -> dict[str, list[Any]]:
        """Count and examples of each kind that was met, in the order they are told."""
        return {
            kind: [self._counts[kind], self._examples.get(kind, [])]
            for kind in ODDITIES
            if self._counts.get(kind)
        }


def told(notes: dict[str, Note]) -> Iterator[tuple[str, str, Note]]:
    """How bad, in words, and the note of each kind that was met."""
    for kind, (level, words) in ODDITIES.items():
        if kind in notes:
            yield level, words, notes[kind]
