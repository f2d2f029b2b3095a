"""What is in a vocabulary, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from megalabel.data.concepts import Group
from megalabel.data.ragged import spans
from megalabel.data.vocabulary import Vocabulary


def summary(vocabulary: Vocabulary) -> dict[str, Any]:
    """Counts of what is in a vocabulary, ready for JSON.

    Examples
    --------
    >>> from megalabel.data import Concept
    >>> found = summary(Vocabulary.of([
    ...     Concept("Q1", {"en": "animal"}), Concept("Q2", {"en": "dog"}, broader=["Q1"])
    ... ]))
    >>> found["concepts"], found["levels"], found["languages"]
    (2, 2, {'en': 2})
    """
    preferred = vocabulary.preferred()
    links = {kind: len(vocabulary.linked(kind)[1]) for kind in ("broader", "related")}
    return {
        "concepts": len(vocabulary),
        "deprecated": int(vocabulary.deprecated.sum()),
        "preferred names": int(preferred.sum()),
        "other names": vocabulary.count("names") - int(preferred.sum()),
        "notations": vocabulary.count("notations"),
        "descriptions": vocabulary.count("descriptions"),
        "links to broader concepts": links["broader"],
        "links to related concepts": links["related"] // 2,
        "concepts without a broader one": len(_tops(vocabulary)),
        "levels": levels(vocabulary),
        "languages": dict(zip(vocabulary.languages, preferred.tolist(), strict=True)),
        "types": _counts(vocabulary.types, vocabulary.typed()[1]),
        "collections": _counts(vocabulary.collections, vocabulary.collected()[1]),
    }


def levels(vocabulary: Vocabulary) -> int:
    """How many levels of narrower concepts there are, each concept as near to the top as it is."""
    starts, narrower = vocabulary.linked("narrower")
    reached, depth = np.zeros(len(vocabulary), bool), 0
    level = _tops(vocabulary)
    while len(level):
        depth += 1
        reached[level] = True
        below = narrower[spans(starts, level)[1]]
        level = np.unique(below[~reached[below]])
    return depth


def _tops(vocabulary: Vocabulary) -> np.ndarray:
    return np.flatnonzero(np.diff(vocabulary.linked("broader")[0]) == 0)


def _counts(groups: Sequence[Group], numbers: np.ndarray) -> dict[str, int]:
    """How many concepts are in each group, by its name where no other one has that."""
    counts = np.bincount(numbers, minlength=len(groups)).tolist()
    names = [" / ".join(group.names) for group in groups]
    shared = Counter(names)
    named = {
        name if name and shared[name] == 1 else group.id: count
        for group, name, count in zip(groups, names, counts, strict=True)
    }
    return dict(sorted(named.items(), key=lambda item: -item[1]))
