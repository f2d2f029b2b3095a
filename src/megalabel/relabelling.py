"""Labels that come and go: a tagger with more of them, with fewer, or with other names."""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel import store
from megalabel.answering import Answering
from megalabel.base import Component, clone, unfitted, with_learned
from megalabel.data import Corpus, LabelSet
from megalabel.errors import DataError, ParameterError, UnknownConceptError
from megalabel.features import Concat
from megalabel.linear import OneVsAll, TreeClassifier
from megalabel.linear.blend import Blend
from megalabel.new_labels import (
    NewLabels,
    added,
    blend_of,
    features_with,
    suited,
    without_later_words,
)
from megalabel.parts import Classifier, Featurizer

_SHOWN = 5  # labels that an error names

PartT = TypeVar("PartT", bound=Component)


class Relabelling(Answering, ABC):
    """A fitted tagger whose labels change: each change gives a new one, which shares arrays."""

    classifier: Classifier  # parameters of what learns
    features: Featurizer | None

    @abstractmethod
    def partial_fit(self, X: Any, y: Any = None, *, labels: LabelSet | None = None) -> Self:
        """Learn more texts."""

    def add_labels(
        self,
        labels: LabelSet | Sequence[str | tuple[str, str]],
        *,
        texts: Sequence[str] | None = None,
        vectors: Any = None,
        positives: Corpus | None = None,
        on: Corpus | None = None,
        encoder: Featurizer | None = None,
        how: str | Blend = "all",
    ) -> Self:
        """A tagger that knows more labels, by their texts alone; this one stays as it is.

        The new tagger shares arrays with this one: scores of the labels that are there do not move
        (but for votes of neighbours). Its probabilities are those of labels without training texts.

        Parameters
        ----------
        labels : LabelSet, list of str, or list of (identifier, name)
            Where the labels have a vocabulary, a string is a concept's identifier, notation or
            name, and all of its names are read.
        texts : list of str, optional
            What describes each label at more length.
        vectors : CSR matrix or array (labels, features), optional
            A row for each label, in place of what the features would make of its texts.
        positives : Corpus, optional
            Texts that carry some of the new labels: they are learned as by `partial_fit`.
        on : Corpus, optional
            Texts that training has not seen, with labels that are known: how loud new labels of a
            linear system may be is learned from them. Texts without labels help an encoder.
        encoder : Featurizer, optional
            Of linear systems whose features are words alone: what compares texts with the names of
            new labels besides, such as `neural.Embedding`. It becomes part of the features; labels
            that are there do not look at it.
        how : "all", "text", "neighbours" or Blend
            What linear classifiers are made of: the label's own text, the trained classifiers of
            the labels nearest to it, or both.

        Examples
        --------
        >>> from megalabel import systems
        >>> texts = ["red dress", "red evening dress", "blue jeans", "faded blue jeans"]
        >>> tagger = systems.create("dismec").fit(texts, [["dress"]] * 2 + [["trousers"]] * 2)
        >>> more = tagger.add_labels(["faded things"])
        >>> more.labels.names.to_pylist(), len(tagger.labels)
        (['dress', 'trousers', 'faded things'], 2)
        """
        self.check_fitted()
        joining = labels_to_add(self.labels, labels, texts)
        if encoder is not None and vectors is not None:
            raise ParameterError(
                "an encoder reads the names of labels: give it or vectors, not both"
            )
        if encoder is not None:
            with store.blaming(self):
                wider = self._relabelled(self.learned() | with_encoder(self, encoder, joining))
            return wider.add_labels(joining, positives=positives, on=on, how=how)
        with store.blaming(self):
            features = self.features_
            if vectors is None:
                features = features_with(self.classifier_, features, joining)
            new = NewLabels(joining, features, blend_of(how), vectors)
            if on is not None:
                new = suited(self.classifier_, new, on)
            learned = with_added(self, new, {"date": _now(), "how": str(how)})
        made = self._relabelled(learned)
        return made if positives is None else made.partial_fit(positives)

    def remove_labels(self, labels: Sequence[str]) -> Self:
        """A tagger without some labels, by identifier or name; this one stays as it is.

        Examples
        --------
        >>> from megalabel import systems
        >>> tagger = systems.create("knn").fit(["red dress", "blue jeans"], [["a"], ["b"]])
        >>> tagger.remove_labels(["a"]).tag("red jeans")[0].label
        'b'
        """
        self.check_fitted()
        gone = numbers_of(self.labels, labels)
        if len(gone) == len(self.labels):
            raise ParameterError("a tagger needs at least one label: these are all it has")
        made = self.take_labels(np.delete(np.arange(len(self.labels)), gone))
        made.features_, made.classifier_ = without_later_words(made.features_, made.classifier_)
        made.provenance_ = changed(made, "removed", {"date": _now(), "labels": len(gone)})
        return made

    def rename_labels(self, names: Mapping[str, str]) -> Self:
        """A tagger that calls some labels otherwise; this one stays as it is.

        Identifiers stay, and so does all that was learned: only names in answers change.

        Parameters
        ----------
        names : mapping
            From a label's identifier, or its name, to its new name.

        Examples
        --------
        >>> from megalabel import systems
        >>> tagger = systems.create("knn").fit(["red dress", "blue jeans"], [["a"], ["b"]])
        >>> tagger.rename_labels({"a": "dresses"}).tag("red dress")[0].label
        'dresses'
        """
        self.check_fitted()
        if blank := [label for label, name in names.items() if not str(name).strip()]:
            raise ParameterError(f"the new name of {blank[0]!r} is empty")
        ids = self.labels.ids
        numbers = {self.labels.index(old): str(new) for old, new in names.items()}
        named = {ids[number].as_py(): name for number, name in numbers.items()}
        rest = np.delete(np.arange(len(ids)), list(numbers))
        others = set(self.labels.names.take(pa.array(rest)).to_pylist())
        if twice := [name for name in named.values() if name in others]:
            raise ParameterError(f"another label is called {twice[0]!r} already")
        about = {"date": _now(), "labels": len(named)}
        made = renamed(self, named)
        made.provenance_ = changed(self, "renamed", about)
        return made

    def _relabelled(self, learned: Mapping[str, Any]) -> Self:
        """A tagger of the same parts, with what it has learned once labels have changed."""
        made: Self = clone(self)
        if type(self.features_) is not type(learned["features_"]):
            made.features = unfitted(learned["features_"])
        if type(self.classifier) is type(learned["classifier_"]):  # parameters by label are longer
            made.classifier = unfitted(learned["classifier_"])
        made.restore(learned)
        return made


def with_added(tagger: Answering, new: NewLabels, about: Mapping[str, Any]) -> dict[str, Any]:
    """What a tagger has learned once more labels have joined."""
    more, counts = len(new.labels), tagger.label_counts_
    known = len(counts)
    counts_then = np.append(counts, np.zeros(more, np.int64))
    learned = tagger.learned() | {
        "features_": new.features,
        "classifier_": added(tagger.classifier_, new),
        "label_counts_": counts_then,
        "decision_": tagger.decision_.with_alike(int(counts.argmin()), known, more),
        "metrics_": {},
        "reliability_": {},
        "provenance_": changed(tagger, "added", {**about, "labels": more}),
    }
    if tagger.calibration_ is not None:
        learned["calibration_"] = tagger.calibration_.with_unseen(more)
    return learned


def with_encoder(tagger: Answering, encoder: Featurizer, labels: LabelSet) -> dict[str, Any]:
    """The features and the classifier of a tagger with an encoder beside its words and those of
    new labels."""
    classifier = tagger.classifier_
    if not isinstance(classifier, OneVsAll | TreeClassifier):
        raise ParameterError(
            f"an encoder can be put beside the features of a linear system alone, and this one "
            f"answers by a {type(classifier).__name__}"
        )
    fitted = encoder if encoder.fitted else clone(encoder).fit(tagger.labels.names)
    words = features_with(classifier, tagger.features_, labels)
    features = Concat.of([words, fitted], norm=None)
    return {"features_": features, "classifier_": classifier.widened(features.n_features)}


def changed(tagger: Any, what: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance of a tagger, and that labels were added, removed or renamed."""
    history = [*tagger.provenance_.get("relabelled", []), {"what": what, **about}]
    return dict(tagger.provenance_) | {"relabelled": history}


def labels_to_add(known: LabelSet, labels: Any, texts: Any = None) -> LabelSet:
    """The labels that are to join those known, with their names; an error where one is there.

    A string that a vocabulary of the known labels has a concept for stands for that.
    """
    if isinstance(labels, str):
        raise ParameterError(f"give labels as a list, not {labels!r}: [{labels!r}]")
    new = labels if isinstance(labels, LabelSet) else _named(known, list(labels))
    if texts is not None:
        new = LabelSet(new.ids, new.names, texts, new.vocabulary, new.concepts, new.language)
    if not len(new):
        raise ParameterError("there is no label to add")
    blank = pc.equal(pc.utf8_trim_whitespace(new.names), "")
    if (first := pc.index(blank, True).as_py()) >= 0:
        raise DataError(
            f"label {first + 1} of {len(new)} ({new.ids[first].as_py()!r}) has no name: a label is "
            "added by what it is called"
        )
    twice = pc.value_counts(new.ids)
    twice = twice.field("values").filter(pc.greater(twice.field("counts"), 1))
    if len(twice):
        raise DataError(f"{_some(twice)} given twice")
    there = new.ids.filter(pa.array(known.indices(new.ids) >= 0))
    if len(there):
        raise ParameterError(
            f"{_some(there)} there already: rename, or add under another identifier"
        )
    return new


def _some(labels: pa.Array) -> str:
    """A few of some labels, and that they are."""
    shown = ", ".join(map(repr, labels[:_SHOWN].to_pylist()))
    more = f" and {len(labels) - _SHOWN:,} more" if len(labels) > _SHOWN else ""
    return f"label {shown} is" if len(labels) == 1 else f"labels {shown}{more} are"


def _named(known: LabelSet, labels: Sequence[Any]) -> LabelSet:
    """Labels given by name, by (identifier, name), or by what a vocabulary knows them by."""
    pairs = [(label, label) if isinstance(label, str) else tuple(label) for label in labels]
    if any(len(pair) != 2 or not all(isinstance(part, str) for part in pair) for pair in pairs):
        raise ParameterError("labels are given by name, or as pairs of identifier and name")
    if known.vocabulary is None:
        return LabelSet([one for one, _ in pairs], [name for _, name in pairs])
    vocabulary, concepts, given = known.vocabulary, [], []
    for label, (one, name) in zip(labels, pairs, strict=True):
        try:
            concept = vocabulary.find(one)
        except UnknownConceptError:
            if isinstance(label, str):
                raise
            concept = -1  # a label of its own
        concepts.append(concept)
        if concept < 0:
            given.append((one, name))
            continue
        by_name = vocabulary.named([concept], known.language)[0][0].as_py()
        given.append((vocabulary.ids[concept].as_py(), by_name if isinstance(label, str) else name))
    return LabelSet(
        [one for one, _ in given],
        [name for _, name in given],
        vocabulary=vocabulary,
        concepts=concepts,
        language=known.language,
    )


def numbers_of(labels: LabelSet, given: Iterable[str]) -> np.ndarray:
    """The numbers of labels given by identifier or name; an error that suggests others where one
    is unknown."""
    if isinstance(given, str):
        raise ParameterError(f"give labels as a list, not {given!r}: [{given!r}]")
    wanted = list(given)
    numbers = labels.indices(wanted)
    if (numbers < 0).any():
        labels.index(wanted[int(np.flatnonzero(numbers < 0)[0])])
    return np.unique(numbers)


def renamed(part: PartT, names: Mapping[str, str]) -> PartT:
    """A component whose labels have other names, by their identifiers; itself where none has."""
    learned = {name: _renamed(value, names) for name, value in part.learned().items()}
    if all(learned[name] is value for name, value in part.learned().items()):
        return part
    return with_learned(unfitted(part), **learned)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, LabelSet):
        ids = pa.array(list(names), pa.large_string())
        numbers = np.asarray(pc.fill_null(pc.index_in(ids, value_set=value.ids), -1))
        given = zip(numbers.tolist(), names.values(), strict=True)
        here = {number: name for number, name in given if number >= 0}
        return value.renamed(here) if here else value
    if isinstance(value, Component):
        return renamed(value, names)
    if isinstance(value, list):
        made = [_renamed(one, names) for one in value]
        same = all(one is other for one, other in zip(made, value, strict=True))
        return value if same else made
    return value


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
