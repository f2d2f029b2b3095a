"""How a tagger learns words that only the names of new labels have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from megalabel.features import Each, Tfidf
from megalabel.linear import OneVsAll, TreeClassifier
from megalabel.parts import Classifier, Featurizer
from megalabel.rankers import Ensemble, Mix
from megalabel.retrieval import NearestNeighbours


def with_words(
    features: Featurizer, classifier: Classifier, names: pa.LargeStringArray
) -> tuple[Featurizer, Classifier]:
    """Features that know the words of these names, and the classifier over their columns.

    The same two where nothing is new, or where more columns would be of no use. Rows of linear
    classifiers keep the values they have, so that scores of the labels there do not move.
    """
    if not isinstance(features, Tfidf | Each):
        return features, classifier
    if isinstance(features, Tfidf):
        grown = _grown(features, [classifier], names)
        if grown.n_features == features.n_features:
            return features, classifier
        return grown, _widened(classifier, grown.n_features)
    if not isinstance(classifier, Mix | Ensemble):
        return features, classifier
    sources = _sources(classifier)
    members, parts = list(classifier.members_), list(features.parts_)
    for source, part in enumerate(features.parts_):
        if not isinstance(part, Tfidf):
            continue
        readers = np.flatnonzero(sources == source).tolist()
        parts[source] = _grown(part, [members[reader] for reader in readers], names)
        if parts[source].n_features > part.n_features:
            for reader in readers:
                members[reader] = _widened(members[reader], parts[source].n_features)
    if all(one is other for one, other in zip(parts, features.parts_, strict=True)):
        return features, classifier
    return Each.of(parts), classifier.with_members(members)


def _sources(classifier: Mix | Ensemble) -> np.ndarray:
    """Which of the features each member of a mix or an ensemble reads."""
    if isinstance(classifier, Mix):
        return np.asarray(classifier.sources_)
    return np.arange(len(classifier.members_))


def _grown(features: Tfidf, readers: list[Classifier], names: pa.LargeStringArray) -> Tfidf:
    """Features with the words of names, where all that read them can tell what to do with these."""
    if features.max_df != 1.0 or features.max_features is not None:
        return features  # common words that were left out would be new ones
    if _all(readers, OneVsAll | TreeClassifier):
        return features.grown(names, apart=True)
    return features.grown(names) if _all(readers, NearestNeighbours) else features


def _all(readers: list[Classifier], kind: Any) -> bool:
    return bool(readers) and all(
        _all(reader.members_, kind) if isinstance(reader, Ensemble) else isinstance(reader, kind)
        for reader in readers
    )


def _widened(classifier: Any, columns: int) -> Any:
    if isinstance(classifier, Ensemble):
        return classifier.with_members([_widened(one, columns) for one in classifier.members_])
    return classifier.widened(columns)
