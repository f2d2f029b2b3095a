"""Vocabularies as folders, and all that is done with one."""

from __future__ import annotations

import contextlib
from pathlib import Path

from megalabel.data import Concept, LabelSet, Vocabulary
from megalabel.data.vocabularies import folder
from megalabel.errors import ParameterError, UnknownConceptError


def small() -> Vocabulary:
    """A vocabulary that has something in every column."""
    red = Concept("http://x/red", {"en": "red", "fi": "punainen"}, {"en": ["crimson"]})
    red.notations, red.descriptions = ["R"], {"en": ["The colour of blood."]}
    red.related, red.types, red.collections = ["http://x/blue"], ["http://x/C"], ["http://x/all"]
    return Vocabulary.of(
        [
            Concept("http://x/colour", {"en": "colour"}, narrower=["http://x/red"]),
            red,
            Concept("http://x/blue", {"en": "blue"}, broader=["http://x/colour"]),
            Concept("http://x/old", deprecated=True, replaced_by="http://x/blue"),
        ]
    )


def joined(labels: LabelSet) -> LabelSet:
    """Labels joined to the vocabulary, whatever they are."""
    concepts = [i % 4 - (i > 6) for i in range(len(labels))]
    return LabelSet(labels.ids, labels.names, labels.texts, small(), concepts, "en")


def write(out: Path) -> None:
    """A folder with a vocabulary."""
    folder.save(small(), out / "colours")


def use(path: Path) -> None:
    """All that a person does with a vocabulary."""
    vocabulary = folder.load(path)
    use_vocabulary(vocabulary)
    folder.save(vocabulary, path.with_name("again"))


def use_labels(labels: LabelSet) -> None:
    """All that is done with labels that have a vocabulary."""
    vocabulary = labels.known_vocabulary()
    use_vocabulary(vocabulary)
    labels.all_names()
    for language in vocabulary.languages:
        labels.names_in(language)
    for kind in ("broader", "related", "collection"):
        labels.links(kind)
    for i in range(len(labels)):
        labels.notation(i)


def use_vocabulary(vocabulary: Vocabulary) -> None:
    """Look at all of it, and look up what is there and what is not."""
    for number in range(min(9, len(vocabulary))):
        vocabulary[number].to_dict()
        vocabulary.subtree(number)
    for asked in ("http://x/red", "red", "R", "crimson", "none"):
        # what is not found, or is found twice, is told
        with contextlib.suppress(UnknownConceptError, ParameterError):
            vocabulary.find(asked)
    vocabulary.search("re")
    vocabulary.names()
