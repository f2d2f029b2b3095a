"""How classifiers of all kinds take labels in without being trained."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix, diags, hstack, issparse

from megalabel.data import Corpus, LabelSet
from megalabel.data.matrix import as_dense, canonical, filled_rows, normalised_rows
from megalabel.errors import ParameterError, ShapeError
from megalabel.features import Concat, Each, Precomputed, StemmedWords, Tfidf
from megalabel.linear import OneVsAll, Prior, TreeClassifier
from megalabel.linear.blend import (
    Blend,
    Linear,
    Parts,
    Texts,
    affordable_shift,
    blended,
    levels_of,
    nearest,
    neighbours_of,
    raised,
)
from megalabel.parts import Classifier, Featurizer
from megalabel.rankers import ByText, DualVectors, Ensemble, LabelVectors, LexicalMatcher, Mix
from megalabel.rankers.by_text import definition_vectors
from megalabel.retrieval import NearestNeighbours

if TYPE_CHECKING:
    from megalabel.base import Matrix

log = logging.getLogger(__name__)

LinearT = TypeVar("LinearT", OneVsAll, TreeClassifier)

HOW: Mapping[str, Blend] = {
    "all": Blend(),
    "text": Blend(neighbours=0.0, shift=-1.0),
    "neighbours": Blend(text=0.0, vectors=0.0, neighbours=0.15, shift=-0.9),
}
"""How a classifier is made of a label without texts, by name."""
AS_LOGITS: Mapping[str, Blend] = {
    "all": Blend(text=8.0, vectors=16.0, neighbours=0.2, shift=-7.0),
    "text": Blend(text=8.0, vectors=16.0, neighbours=0.0, shift=-7.5),
    "neighbours": Blend(text=0.0, vectors=0.0, neighbours=0.4, shift=-5.0),
}
"""The same where margins are logits."""
AS_VECTORS: Mapping[str, Blend] = {
    "all": Blend(vectors=0.5, neighbours=0.5, shift=0.0, temperature=0.1),
    "text": Blend(vectors=0.6, neighbours=0.0, shift=0.0),
    "neighbours": Blend(vectors=0.0, neighbours=1.0, shift=0.0, temperature=0.1),
}
"""The same where labels have vectors of their own beside those of their texts."""

_USUAL = 300  # labels that are known, to learn what texts of labels have in common
_PREFIX, _SPREAD = 6, 0.5  # words that agree in so many first characters count, beside a name's own
_DESCRIBED = 0.5  # what the words of a description count beside those of names


def blend_of(how: str | Blend) -> Blend:
    """What linear classifiers of new labels are made of, by name or as it is."""
    if isinstance(how, Blend):
        return how
    if how not in HOW:
        raise ParameterError(f"how must be one of {', '.join(map(repr, HOW))}, not {how!r}")
    return HOW[how]


@dataclass(frozen=True)
class NewLabels:
    """Labels that are to join, and how they are known."""

    labels: LabelSet
    features: Any
    """What makes the classifier's rows of texts."""
    blend: Blend = HOW["all"]
    vectors: Any = None
    """A row for each of them, in place of what `features` would make of their texts."""
    texts: Texts | None = None
    """Texts that training has not seen, to learn from."""

    def rows(self) -> Matrix:
        """A row for the name of each label, as the classifier sees texts."""
        if self.vectors is not None:
            return self._given()
        if isinstance(self.features, Precomputed):
            raise ParameterError(
                "this model was trained on vectors made elsewhere and reads no texts: give vectors "
                "of the labels (vectors=…)"
            )
        made: Matrix = self.features.transform(self.labels.names)
        return made

    def text_rows(self) -> tuple[Matrix, np.ndarray]:
        """A row for the longer text of each label, or its name where there is none, as where labels
        are trained by their texts; and whether anything is known of it."""
        if self.vectors is not None:
            rows = self._given()
            return rows, filled_rows(rows)
        labels = self.labels
        texts = labels.names if labels.texts is None else labels.texts
        rows = self.features.transform(texts)
        return rows, self.features.known(texts, rows)

    def _given(self) -> Matrix:
        vectors = self.vectors
        shape, wanted = np.shape(vectors), (len(self.labels), self.features.n_features)
        if isinstance(self.features, Each) or shape != wanted:
            wide = "one width" if isinstance(self.features, Each) else f"{wanted[1]} columns"
            raise ShapeError(
                f"vectors are {shape}, for {wanted[0]} labels of a model whose rows have {wide}"
            )
        rows: Matrix = (
            self.features.transform(vectors) if isinstance(self.features, Precomputed) else vectors
        )
        return rows

    def own_rows(self) -> tuple[csr_matrix, csr_matrix]:
        """The words of all names of each label, with like words and what describes it; and the
        vectors of names that encoders give. Products with rows of texts are cosines."""
        width = self.features.n_features
        if self.vectors is not None:
            return canonical(self._given(), "vectors"), csr_matrix((len(self.labels), width))
        starts, names = self.labels.all_names()
        owners = np.repeat(np.arange(len(self.labels)), np.diff(starts))
        words, vectors = [], []
        for part, weight in _blocks(self.features):
            first = part.transform(names)
            nothing = csr_matrix((len(self.labels), first.shape[1]), dtype=np.float32)
            scale = np.float32(1 / weight if weight else 0)
            if not issparse(first):  # an encoder's: several names would blur each other
                words.append(nothing)
                vectors.append(csr_matrix(normalised_rows(first[starts[:-1]])) * scale)
                continue
            rows = _largest(normalised_rows(first), owners, len(self.labels))
            if self.labels.texts is not None:
                described = csr_matrix(part.transform(self.labels.texts))
                nameless = ~filled_rows(rows)
                share = np.where(nameless, 1.0, _DESCRIBED).astype(np.float32)
                described.data *= np.repeat(share, np.diff(described.indptr))
                rows = rows.maximum(described)
            words.append(csr_matrix(_with_like_words(part, rows)) * scale)
            vectors.append(nothing)
        return canonical(hstack(words, "csr")), canonical(hstack(vectors, "csr"))


def _blocks(features: Featurizer, weight: float = 1.0) -> list[tuple[Featurizer, float]]:
    """The featurizers whose columns lie side by side, and what their rows are multiplied by."""
    if not isinstance(features, Concat):
        return [(features, weight)]
    weights = np.ones(len(features.parts_)) if features.weights is None else features.weights
    length = float(np.linalg.norm(weights)) if features.norm is not None else 1.0
    return [
        block
        for part, own in zip(features.parts_, weights, strict=True)
        for block in _blocks(part, weight * float(own) / (length or 1.0))
    ]


def _largest(rows: csr_matrix, owners: np.ndarray, count: int) -> csr_matrix:
    """The largest value in each column of the rows of each owner."""
    if len(owners) == count:
        return rows
    cells = rows.tocoo()
    at = owners[cells.row].astype(np.int64) * rows.shape[1] + cells.col
    order = np.lexsort((-cells.data, at))
    first = np.append(True, np.diff(at[order]) != 0) if len(order) else np.zeros(0, bool)
    kept = order[first]
    where = (owners[cells.row[kept]], cells.col[kept])
    return csr_matrix((cells.data[kept], where), (count, rows.shape[1]))


def _with_like_words(features: Featurizer, rows: csr_matrix) -> csr_matrix:
    """Rows in which words that begin as those of a row count too, at half their weight."""
    if not isinstance(features, Tfidf) or features.hashing is not None:
        return rows
    if features.analyzer != "word" or features.stemmer is not None:
        return rows
    terms = features.terms_
    long = pc.and_(
        pc.greater_equal(pc.utf8_length(terms), _PREFIX),
        pc.invert(pc.match_substring(terms, " ")),
    )
    places = np.flatnonzero(np.asarray(long))
    starts = pc.utf8_slice_codeunits(terms.take(pa.array(places)), 0, _PREFIX)
    numbers = np.asarray(starts.dictionary_encode().indices, dtype=np.int64)
    size = int(numbers.max(initial=-1)) + 1
    begins = csr_matrix((np.ones(len(places), np.float32), (places, numbers)), (len(terms), size))
    return csr_matrix(rows.maximum(((rows @ begins) @ begins.T) * np.float32(_SPREAD)))


@singledispatch
def features_with(classifier: Classifier, features: Any, labels: LabelSet) -> Any:
    """The features of a classifier that these labels are to join: they know all words of their
    names, where it can tell what to do with words that training has not met."""
    return features


@features_with.register(OneVsAll)
@features_with.register(TreeClassifier)
@features_with.register(NearestNeighbours)
def _for_rows(classifier: Classifier, features: Any, labels: LabelSet) -> Any:
    # texts keep their values in the columns that are there: scores of known labels do not move
    return features.grown(labels.all_names()[1], apart=True) if _can_grow(features) else features


def _can_grow(features: Any) -> bool:
    """False too where words that were left out for being common would come back as new ones."""
    return isinstance(features, Tfidf) and features.max_df == 1.0 and features.max_features is None


_TEXTS, _LABELS = 1000, 2000  # that are looked at for how loud new labels may be


def suited(classifier: Classifier, new: NewLabels, on: Corpus) -> NewLabels:
    """The same new labels with some texts that training has not seen.

    Other classifiers than linear ones have nothing to learn from them.
    """
    if not isinstance(classifier, OneVsAll | TreeClassifier):
        log.warning("nothing is learned from texts (on) but by linear systems")
        return new
    some = np.sort(np.random.default_rng(0).permutation(len(on))[:_TEXTS])
    rows = canonical(new.features.transform(on[some]))
    targets = on.aligned(classifier.labels_).targets[some]
    return replace(new, texts=Texts(rows, csr_matrix(targets[:, : len(classifier.labels_)])))


# ---------------------------------------------------------------------- more labels
@singledispatch
def added(classifier: Classifier, new: NewLabels) -> Classifier:
    """A classifier that knows more labels, after its own.

    `added.register(SomeClassifier)` takes a function that adds to classifiers of another kind.
    """
    raise ParameterError(
        f"labels cannot be added to a {type(classifier).__name__}, which has no rows of labels "
        "that could be made without training: fit the model anew, or mix it with one that can "
        "(such as xr-linear, dismec or knn)"
    )


def parts_of(classifier: Linear, new: NewLabels) -> Parts:
    """What classifiers of new labels are made of."""
    rows, (words, vectors) = canonical(new.rows()), new.own_rows()
    later = _later_columns(new.features)
    if new.vectors is not None or not later.any():
        return Parts(words, vectors, neighbours_of(classifier, rows, new.blend))
    known, unmet = diags(~later, dtype=np.float32), diags(later, dtype=np.float32)
    # no classifier was trained on these words; a name of no other has what else is said of it
    names = canonical(rows @ known)
    nameless = ~filled_rows(names)
    near = canonical(names + diags(nameless, dtype=np.float32) @ words @ known)
    # what an encoder finds is among the neighbours, and not led to by words
    alone = (filled_rows(canonical(rows @ unmet)) & ~filled_rows(vectors)) | ~filled_rows(near)
    leading = canonical(diags(alone, dtype=np.float32) @ words @ unmet)
    return Parts(words, vectors, neighbours_of(classifier, near, new.blend), leading)


def _later_columns(features: Featurizer) -> np.ndarray:
    """Which columns are of words that only names of new labels have."""
    counted = [(getattr(part, "counted_", None), part.n_features) for part, _ in _blocks(features)]
    return np.concatenate([np.arange(n) >= (n if first is None else first) for first, n in counted])


def _wide(classifier: LinearT, columns: int) -> LinearT:
    """The classifier over so many columns."""
    known = levels_of(classifier)[0][0][0].n_features_
    return classifier if known == columns else classifier.widened(columns)


def without_later_words(
    features: Featurizer, classifier: Classifier
) -> tuple[Featurizer, Classifier]:
    """Features without words that only labels had which are gone, and the classifier over them; the
    same two where there are none, or where some are of use."""
    if not isinstance(features, Tfidf) or features.counted_ is None:
        return features, classifier
    if isinstance(classifier, OneVsAll | TreeClassifier):
        levels = [level.to_csr()[:, :-1] for tree, _ in levels_of(classifier) for level in tree]
    elif isinstance(classifier, NearestNeighbours):
        levels = [csr_matrix(classifier.index_.rows)]
    else:
        return features, classifier
    if any(level[:, features.counted_ :].nnz for level in levels):
        return features, classifier
    return features.shrunk(), classifier.widened(features.counted_)


@added.register(OneVsAll)
def _to_one_vs_all(classifier: OneVsAll, new: NewLabels) -> Classifier:
    classifier = _wide(classifier, new.features.n_features)
    [weights], _ = _weights(classifier, new)
    return classifier.add_labels(new.labels, weights)


@added.register(TreeClassifier)
def _to_tree(classifier: TreeClassifier, new: NewLabels) -> Classifier:
    classifier = _wide(classifier, new.features.n_features)
    weights, parts = _weights(classifier, new)
    beside = nearest(parts.near, common=0)
    return classifier.add_labels(new.labels, weights, beside, parts.leading)


def _weights(classifier: Linear, new: NewLabels) -> tuple[list[csr_matrix], Parts]:
    """Classifiers of new labels in each tree, and what they are made of."""
    texts = new.texts
    blend = new.blend if classifier.loss != "logistic" else _in(AS_LOGITS, new.blend)
    middle = None if texts is None else np.asarray(texts.rows.mean(axis=0)).ravel()
    parts = parts_of(classifier, new)
    weights = blended(classifier, parts, blend, middle)
    if texts is None or not texts.targets.nnz or not classifier.bias:
        return weights, parts
    known, labels, of_rivals = len(classifier.labels_), new.labels, parts
    # few labels would not show what many do: others of those known stand for more of them
    order = np.random.default_rng(0).permutation(known)
    alike, rest = np.split(order, [max(0, min(known // 5, _LABELS) - len(new.labels))])
    others, rivals = classifier, weights
    if len(alike):
        if new.vectors is not None:
            return weights, parts
        rest = np.sort(rest)
        others = classifier.take_labels(rest)
        labels = classifier.labels_.take(alike).extended(labels)
        of_rivals = parts_of(others, replace(new, labels=labels))
        rivals = blended(others, of_rivals, blend, middle)
        texts = Texts(texts.rows, texts.targets[:, rest])
    beside = nearest(of_rivals.near, common=0)
    shift = affordable_shift(others, labels, rivals, beside, texts, of_rivals.leading)
    return [raised(one, shift / classifier.bias) for one in weights], parts


def _in(table: Mapping[str, Blend], blend: Blend) -> Blend:
    """The blend that a table has in the place of one of `HOW`; any other one as it is."""
    return next((table[name] for name, other in HOW.items() if other == blend), blend)


@added.register(NearestNeighbours)
def _to_neighbours(classifier: NearestNeighbours, new: NewLabels) -> Classifier:
    if new.features.n_features != classifier.prior_.n_features_:
        classifier = classifier.widened(new.features.n_features)
    starts, names = new.labels.all_names()
    owners = np.repeat(np.arange(len(new.labels)), np.diff(starts))
    if new.vectors is not None or isinstance(new.features, Precomputed):
        owners, names, rows = np.arange(len(new.labels)), new.labels.names, new.rows()
    else:
        rows = new.features.transform(names)
    return classifier.add_labels(new.labels, rows, owners, names)


@added.register(LabelVectors)
def _to_vectors(classifier: LabelVectors, new: NewLabels) -> Classifier:
    return classifier.add_labels(new.labels, new.text_rows()[0])


@added.register(DualVectors)
def _to_dual(classifier: DualVectors, new: NewLabels) -> Classifier:
    rows, known = new.text_rows()
    if not known.all():
        log.warning(
            "nothing is known of the words of %d of %d new labels, such as %r: they are hardly "
            "ever answered",
            int((~known).sum()),
            len(known),
            new.labels.name(int(np.flatnonzero(~known)[0])),
        )
    usual, labels = None, classifier.labels_
    if classifier.own_ is not None and classifier.own_.any():
        some = np.linspace(0, len(labels) - 1, min(_USUAL, len(labels))).astype(np.int64)
        usual = replace(new, labels=labels.take(some), vectors=None).text_rows()[0]
    blend = _in(AS_VECTORS, new.blend)
    return classifier.add_labels(new.labels, rows, blend, usual=usual, known=known)


@features_with.register(LexicalMatcher)
def _for_matches(classifier: LexicalMatcher, features: StemmedWords, labels: LabelSet) -> Any:
    return features.with_names(labels)


@added.register(LexicalMatcher)
def _to_matcher(classifier: LexicalMatcher, new: NewLabels) -> Classifier:
    _check_named(new)
    return classifier.add_labels(new.labels, new.features.names(new.labels))


def _check_named(new: NewLabels) -> None:
    """Raise a ParameterError where vectors are given in place of names."""
    if new.vectors is not None:
        raise ParameterError(
            "labels cannot be added to a model that looks for names by vectors of theirs: leave "
            "out vectors"
        )


@features_with.register(ByText)
def _for_names(classifier: ByText, features: Each, labels: LabelSet) -> Any:
    names = labels.all_names()[1]
    *vectors, counts = features.parts_
    assert isinstance(counts, Tfidf)
    return features.over([*vectors, counts.grown(names)])


@added.register(ByText)
def _to_by_text(classifier: ByText, new: NewLabels) -> Classifier:
    _check_named(new)
    *vectors, counts = new.features.parts_
    labels, more = new.labels, dict[str, Any]()
    if vectors:

        def seen(texts: Any) -> np.ndarray:
            return as_dense(vectors[0].transform(texts))

        more = {"vectors": seen(labels.names), "definitions": definition_vectors(labels, seen)}
    starts, names = labels.all_names()
    return classifier.add_labels(labels, counts.transform(names), name_starts=starts, **more)


@added.register(Prior)
def _to_prior(classifier: Prior, new: NewLabels) -> Classifier:
    raise ParameterError(
        "labels cannot be added to a Prior, which knows labels by how frequent they are alone"
    )


@features_with.register(Ensemble)
def _for_ensemble(classifier: Ensemble, features: Any, labels: LabelSet) -> Any:
    if not isinstance(features, Each):
        return features_with(classifier.members_[0], features, labels)
    pairs = zip(classifier.members_, features.parts_, strict=True)
    return features.over([features_with(member, own, labels) for member, own in pairs])


@added.register(Ensemble)
def _to_ensemble(classifier: Ensemble, new: NewLabels) -> Classifier:
    features = new.features
    of_each = (
        features.parts_ if isinstance(features, Each) else [features] * len(classifier.members_)
    )
    members = [
        added(member, replace(new, features=own))
        for member, own in zip(classifier.members_, of_each, strict=True)
    ]
    return classifier.with_members(members)


@features_with.register(Mix)
def _for_mix(classifier: Mix, features: Each, labels: LabelSet) -> Any:
    parts = list(features.parts_)
    for source, part in enumerate(features.parts_):
        readers = [classifier.members_[i] for i in np.flatnonzero(classifier.sources_ == source)]
        kinds = {features_with.dispatch(type(reader)) for reader in readers}
        if len(kinds) == 1:  # what one of them can tell something of, all can
            parts[source] = features_with(readers[0], part, labels)
    return features.over(parts)


@added.register(Mix)
def _to_mix(classifier: Mix, new: NewLabels) -> Classifier:
    labels, known = classifier.labels_.extended(new.labels), len(classifier.labels_)
    members, calibrators, numbers, more = [], [], [], len(new.labels)
    refused: list[str] = []
    for member, calibrator, source, own in zip(
        classifier.members_,
        classifier.calibrators_,
        classifier.sources_.tolist(),
        classifier.numbers_,
        strict=True,
    ):
        own = own if len(own) else np.arange(known, dtype=np.int32)
        try:
            member = added(member, replace(new, features=new.features.parts_[source]))
        except ParameterError as error:
            refused.append(str(error))
        else:
            own = np.append(own, np.arange(known, known + more, dtype=np.int32))
            calibrator = calibrator.with_unseen(more)
        members.append(member)
        calibrators.append(calibrator)
        same = len(own) == len(labels) and (own == np.arange(len(labels))).all()
        numbers.append(own[:0] if same else own)
    if len(refused) == len(members):
        raise ParameterError(f"none of the members of the mix can take labels in: {refused[0]}")
    return classifier.with_members(
        members,
        labels_=labels,
        calibrators_=calibrators,
        numbers_=numbers,
        # as if one text carried each: a mix does not list labels that none carries
        label_counts_=np.append(classifier.label_counts_, np.ones(more, np.int64)),
        names_=None if classifier.names_ is None else classifier.names_.add_labels(new.labels),
    )
