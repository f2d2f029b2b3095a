"""What a fit without labelled texts begins with: words and vectors of texts and of labels."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from megalabel.base import clone, unfitted, with_learned
from megalabel.data import LabelSet
from megalabel.data.matrix import as_dense, normalised_rows
from megalabel.data.strings import strings
from megalabel.errors import MissingExtraError
from megalabel.features import Mapped, StaticEmbedding, Tfidf
from megalabel.features.languages import LANGUAGES, language_name
from megalabel.features.static_folder import is_static
from megalabel.judges import Judge
from megalabel.parts import Featurizer
from megalabel.progress import progress
from megalabel.rankers import ByText
from megalabel.rankers.by_text import definition_vectors, definitions_of
from megalabel.systems.feedback import Material
from megalabel.systems.neural_parts import FROZEN, neural

log = logging.getLogger(__name__)

_AT_ONCE = 16_384  # texts whose words are counted together
_LEAST_IDF = 0.01  # so that a name of common words alone has shares too


@dataclass(frozen=True)
class Words:
    """How words are counted, how rare they are in texts, and the labels by the words of names."""

    counts: Tfidf
    ranker: ByText

    @classmethod
    def of(cls, texts: pa.Array, labels: LabelSet, language: str | None, **weights: float) -> Words:
        """Those of texts and of all names of labels; `weights` are parameters of `ByText`."""
        starts, names = labels.all_names()
        counts = _counter(language, labels).fit([texts, names])
        idf, rarest = _idf(counts, texts)
        rows = counts.transform(names)
        return cls(counts, ByText.of(labels, rows, idf, rarest, name_starts=starts, **weights))


def material_of(texts: pa.Array, labels: LabelSet, counts: Tfidf, vectors: Featurizer) -> Material:
    """What rounds of training learn from."""

    def seen(column: Any) -> np.ndarray:
        return np.asarray(normalised_rows(as_dense(vectors.transform(column))))

    with progress("encoding texts and labels"):
        return Material(
            texts.to_pylist(),
            counts.transform(texts),
            seen(texts),
            labels.names.to_pylist(),
            seen(labels.names),
            definition_vectors(labels, seen),
        )


def encoder_features(encoder: str | Featurizer, max_length: int) -> Featurizer:
    """What makes vectors of texts, and stays as it is: one that was fitted, fitted as it is."""
    if isinstance(encoder, Featurizer):
        made: Featurizer = encoder if encoder.fitted else clone(encoder)
        return made
    source = encoder.removeprefix(FROZEN)
    if is_static(Path(source)):
        return StaticEmbedding(source, norm="l2", max_length=max_length)
    found: Featurizer = neural().FrozenEncoder(source).features(max_length)
    return found


def mapped_features(
    vectors: Featurizer, arrays: dict[str, np.ndarray] | None, activation: str | None
) -> Featurizer:
    """Vectors, and a map over them where there is one."""
    if arrays is None:
        return vectors
    made = Mapped(unfitted(vectors), activation=activation)
    return with_learned(made, vectors_=vectors, map_=arrays, projection_=None)


def as_judged(labels: LabelSet, judge: Judge) -> list[str]:
    """What a judge reads of each label: its name, and its definition where there is one."""
    names: list[str] = labels.names.to_pylist()
    definitions = definitions_of(labels) if judge.reads_definitions else None
    if definitions is None:
        return names
    pairs = zip(names, definitions, strict=True)
    return [f"{name} ({told})" if told else name for name, told in pairs]


def _counter(language: str | None, labels: LabelSet) -> Tfidf:
    """What counts words, or their stems."""
    stemmer = language
    if language == "auto":
        known = None if labels.language is None else language_name(labels.language)
        stemmer = known if known in LANGUAGES else None
    made = Tfidf(use_idf=False, norm=None, sublinear_tf=False, min_word_length=1, stemmer=stemmer)
    if language == "auto" and stemmer is not None:
        try:
            made.fit(["a word"])
        except MissingExtraError as error:
            log.info("words are not stemmed: %s", error)
            made.set_params(stemmer=None)
    if language == "auto" and stemmer is None:
        log.info("words are compared as they are: say their language for stems (language='en')")
    return made


def _idf(counts: Tfidf, texts: pa.Array) -> tuple[np.ndarray, float]:
    """How rare words are in texts, and how rare one that is in none."""
    found = np.zeros(counts.n_features, np.int64)
    for start in range(0, len(texts), _AT_ONCE):
        rows = counts.transform(strings(texts[start : start + _AT_ONCE]))
        found += np.bincount(rows.indices, minlength=len(found))
    n = len(texts) + 1
    idf = np.maximum(np.log(n / (found + 0.5)), _LEAST_IDF).astype(np.float32)
    return idf, float(np.log(2 * n))
