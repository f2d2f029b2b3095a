"""merge: one tagger of several, each trained on the same texts for its own labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from megalabel.base import Component, clone
from megalabel.data import LabelSet
from megalabel.errors import DataError, ParameterError
from megalabel.store import fingerprint
from megalabel.tagger import Tagger


def merge(taggers: Sequence[Tagger]) -> Tagger:
    """One tagger that knows the labels of all: for training parts of a label set apart.

    The taggers must be of one system with the same parameters, be trained on the same texts, have
    no label in common and no calibration, which is of all labels together. Labels keep the order
    of the taggers. One-versus-all models become what training on all labels at once gives; trees
    are joined below one root.

    Examples
    --------
    >>> from megalabel import Corpus, systems
    >>> texts = ["red dress", "red evening dress", "blue jeans", "faded blue jeans"]
    >>> corpus = Corpus(texts, targets=[["dress"], ["dress"], ["jeans"], ["jeans"]])
    >>> parts = [corpus.label_shard(i, 2) for i in (1, 2)]
    >>> merged = merge([systems.create("dismec").fit(part) for part in parts])
    >>> merged.tag("a blue dress", k=2)[0].label in ("dress", "jeans"), len(merged.labels)
    (True, 2)
    """
    if not taggers:
        raise ParameterError("there is no model to merge")
    taggers = [tagger.plain() for tagger in taggers]
    first = taggers[0]
    for number, other in enumerate(taggers, 1):
        other.check_fitted()
        if other.calibration_ is not None:
            raise ParameterError(
                f"model {number} is calibrated for its own labels, which says nothing of all of "
                "them together: train the parts without calibration (calibrate=false)"
            )
        if other.decision_.fitted:
            raise ParameterError(
                f"model {number} has learned its decision, {type(other.decision_).__name__}, for "
                "its own labels alone: train the parts without it, and decide once they are merged"
            )
        _check_same(first, other, number)
    if first.classifier_.get_params().get("relevance_norm") is not None:
        raise ParameterError(
            "relevances were divided by those of a part's own labels alone (relevance_norm): such "
            "models are not what all labels together would have given"
        )
    classifiers = [tagger.classifier_ for tagger in taggers]
    labels = _joined([classifier.labels_ for classifier in classifiers])
    merged: Tagger = clone(first)
    made = classifiers[0].with_labels(classifiers[1:], labels)
    merged.classifier = clone(made)
    provenances = [tagger.provenance_ for tagger in taggers]
    corpora = [dict(provenance.get("corpus", {})) for provenance in provenances]
    shards = [corpus.pop("label_shard", None) for corpus in corpora]
    merged.restore(
        {
            "features_": first.features_,
            "classifier_": made,
            "calibration_": None,
            "decision_": first.decision_,
            "provenance_": provenances[0]
            | {
                "seconds": round(sum(float(p.get("seconds", 0)) for p in provenances), 3),
                "corpus": corpora[0] | {"labels": len(labels)},
                "merged": [
                    {"date": p.get("date"), "labels": len(c.labels_), "label_shard": shard}
                    for p, c, shard in zip(provenances, classifiers, shards, strict=True)
                ],
            },
            "metrics_": {},
            "reliability_": {},
            "label_counts_": np.concatenate([tagger.label_counts_ for tagger in taggers]),
            "n_texts_": first.n_texts_,
            "in_names_": first.in_names_,
            "text_hashes_": first.text_hashes_,
            "leaves_own_out_": first.leaves_own_out_,
        }
    )
    return merged


def _check_same(first: Tagger, other: Tagger, number: int) -> None:
    """Raise unless a tagger differs from the first in its labels alone."""
    kinds = [type(tagger.classifier_).__name__ for tagger in (first, other)]
    if kinds[0] != kinds[1]:
        raise ParameterError(f"model 1 is a {kinds[0]} but model {number} a {kinds[1]}")
    where = _difference(first.features_, other.features_)
    if where is not None:
        raise DataError(
            f"the features of model {number} differ from those of model 1: {where}; all parts "
            "must be trained on the same texts with the same settings"
        )
    if fingerprint(clone(first.decision_)) != fingerprint(clone(other.decision_)):
        raise ParameterError(
            f"model 1 decides by {first.decision_!r} but model {number} by {other.decision_!r}"
        )
    if first.n_texts_ != other.n_texts_:
        raise DataError(
            f"model 1 was trained on {first.n_texts_} texts but model {number} on {other.n_texts_}"
        )


def _difference(a: Any, b: Any, name: str = "the featurizer") -> str | None:
    """Where two learned values differ, in words; None where they do not."""
    if type(a) is not type(b):
        return f"{name} is a {type(a).__name__} and a {type(b).__name__}"
    if isinstance(a, Component):
        of = {**a.get_params(deep=False), **a.learned()}
        others = {**b.get_params(deep=False), **b.learned()}
        found = (_difference(of[key], others.get(key), key) for key in of)
        return next(filter(None, found), None)
    if isinstance(a, list | tuple) and len(a) == len(b):
        return next(filter(None, map(_difference, a, b, [name] * len(a))), None)
    if isinstance(a, pa.Array):
        return None if a.equals(b) else f"{name} has {len(a)} and {len(b)} values{_only(a, b)}"
    if isinstance(a, np.ndarray):
        return None if np.array_equal(a, b) else f"{name} differs"
    return None if a == b else f"{name} is {a!r} and {b!r}"


def _only(a: pa.Array, b: pa.Array) -> str:
    """A value that one column has and the other has not, as an example."""
    for here, there in ((a, b), (b, a)):
        alone = here.filter(pc.invert(pc.is_in(here, value_set=there)))
        if len(alone):
            return f", {alone[0].as_py()!r} in one of them only"
    return ""


def _joined(sets: Sequence[LabelSet]) -> LabelSet:
    """The labels of several sets in a row; a DataError where one is in two of them."""
    ids = pa.concat_arrays([labels.ids for labels in sets])
    counted = pc.value_counts(ids)
    twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    if len(twice):
        shown = ", ".join(repr(label) for label in twice[:3].to_pylist())
        raise DataError(
            f"{len(twice)} labels are in several of the models: {shown}"
            f"{', …' if len(twice) > 3 else ''}"
        )
    texts = None
    if any(labels.texts is not None for labels in sets):
        texts = pa.concat_arrays([s.names if s.texts is None else s.texts for s in sets])
    return LabelSet(ids, pa.concat_arrays([labels.names for labels in sets]), texts)
