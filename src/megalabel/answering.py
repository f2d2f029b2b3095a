"""Answering: what a tagger does once it is fitted."""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self, overload

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix, issparse

from megalabel import store
from megalabel.base import (
    Component,
    Learned,
    array,
    boolean,
    check_argument,
    clone,
    instance,
    integer,
    made_once,
    optional,
    part,
    value,
)
from megalabel.data import Corpus, LabelSet, Ranking, Tag
from megalabel.data.hashes import count_known, text_hashes
from megalabel.data.matrix import clamped, filled_rows
from megalabel.data.selecting import mask_of
from megalabel.decision import Threshold, TopK
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.explaining import LOOKED_AT, Asked, Explanation, reasons_for
from megalabel.features import Precomputed
from megalabel.filtering import ranked_among
from megalabel.labels import read_propensities
from megalabel.labels.own import OwnLabels
from megalabel.metrics import Evaluation, evaluate
from megalabel.parts import Calibrator, Classifier, Decision, Featurizer
from megalabel.progress import progress

log = logging.getLogger(__name__)

_BATCH = 8192  # texts ranked at a time: bounds memory, changes no answer


class Answering(Component, ABC):
    """A fitted tagger as it answers: ranks, tags, decides, is measured and explains.

    `Tagger` adds how it learns and how it is kept.
    """

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "features_": part(Featurizer),
        "classifier_": part(Classifier),
        "calibration_": optional(part(Calibrator)),
        "decision_": part(Decision),
        "provenance_": value(instance(dict)),
        "metrics_": value(instance(dict)),
        "reliability_": value(instance(dict)),
        "label_counts_": array(np.int64, "labels"),
        "n_texts_": value(integer(0)),
        "in_names_": optional(value(boolean())),
        "text_hashes_": optional(array(np.uint64, "texts")),
        "leaves_own_out_": optional(value(boolean())),
    }

    decision: Decision | None  # a parameter of what learns

    features_: Featurizer
    classifier_: Classifier
    calibration_: Calibrator | None
    decision_: Decision
    provenance_: dict[str, Any]
    metrics_: dict[str, float]
    reliability_: dict[str, Any]
    label_counts_: np.ndarray
    n_texts_: int
    in_names_: bool = False  # whether y were lists of names, as what predict answers with is then
    text_hashes_: np.ndarray | None = None  # of the texts of training, sorted; of vectors none
    leaves_own_out_: bool = False  # whether a text that is a label is not answered with that label

    _own_labels: OwnLabels | None = None
    _language: str | None = None  # of the names of labels; None: as they were learned

    @abstractmethod
    def fit(self, X: Any, y: Any = None, *, labels: LabelSet | None = None) -> Self:
        """Learn from a corpus, or from texts (or vectors) X with their labels y."""

    @property
    def labels(self) -> LabelSet:
        """The labels this tagger can answer with."""
        self.check_fitted()
        return self.classifier_.labels_.in_language(self._language)

    def in_language(self, language: str | None) -> Self:
        """The same tagger, which calls its labels as a language of their vocabulary does; a label
        without a name in it keeps its own. Arrays are shared.

        Examples
        --------
        >>> from megalabel import Corpus, systems
        >>> from megalabel.data import Concept, Vocabulary
        >>> animals = Vocabulary.of([Concept("http://x/Q144", {"en": "dog", "fi": "koira"})])
        >>> corpus = Corpus(["it barks"], targets=[["dog"]]).joined(animals)
        >>> systems.create("knn").fit(corpus).in_language("fi").tag("who barks?")[0].label
        'koira'
        """
        self.labels.in_language(language)  # an error where no name is in it
        spoken = copy.copy(self)
        spoken._language = language
        return spoken

    def rank(self, X: Any, k: int = 10, *, unknown: bool = True, allowed: Any = None) -> Ranking:
        """The k best labels of each text with their probabilities, best first.

        Cells that a Corpus leaves out (`excluded`) are not among them, nor with `label_points` the
        own labels of texts that are labels. A text of which nothing is
        known (`known`) is ranked by what is frequent; with `unknown=False` it has no labels.

        Parameters
        ----------
        X : Corpus, sequence of str, CSR matrix or array
        k : int
        unknown : bool
            Whether texts of which nothing is known have labels.
        allowed : bool array (labels,), or list of labels, optional
            The labels to answer with, as `labels.select` gives them, or by id or name. There are k
            of them still, where so many are allowed, with the probabilities that they have among
            all labels.

        Examples
        --------
        >>> from megalabel import systems
        >>> texts = ["red dress", "red evening dress", "blue jeans", "faded blue jeans"]
        >>> tagger = systems.create("knn").fit(texts, [["dress"]] * 2 + [["jeans"]] * 2)
        >>> ranking = tagger.rank(["a red dress"], allowed=~tagger.labels.select(label="dress"))
        >>> [tag.label for tag in ranking.tags()[0]]
        ['jeans']
        """
        self.check_fitted()
        mask = None if allowed is None else mask_of(self.labels, allowed)
        if mask is not None and mask.all():
            mask = None
        excluded = self._left_out(X, self.labels)
        wide = k if excluded is None else k + most_left_out(excluded)
        ranking = self._ranked(X, wide, unknown, mask)
        if excluded is not None:
            ranking = ranking.without(excluded).top(k)
        return ranking.in_language(self._language)

    def _left_out(self, X: Any, labels: LabelSet) -> csr_matrix | None:
        """The cells of texts and labels that are not ranked: those that a Corpus leaves out, and
        the own labels of texts that are labels; None: there are none."""
        excluded: csr_matrix | None = None
        if isinstance(X, Corpus) and X.excluded is not None:
            cells: Any = X.aligned(labels).excluded
            excluded = cells[:, : len(labels)]
        if not self.leaves_own_out_:
            return excluded
        inputs = X if isinstance(X, list) else as_inputs(X)
        own = made_once(self, "_own_labels", lambda: OwnLabels(labels)).cells(inputs)
        return own if excluded is None else own + excluded

    def known(self, X: Any) -> np.ndarray:
        """Of each text whether it holds anything that was met in training, such as one of its
        words; of vectors, whether they are not all zeros.

        Examples
        --------
        >>> from megalabel import systems
        >>> tagger = systems.create("knn").fit(["red dress", "blue jeans"], [["dress"], ["jeans"]])
        >>> tagger.known(["a dress", "un cappello", ""]).tolist()
        [True, False, False]
        """
        self.check_fitted()
        inputs = as_inputs(X)
        with store.blaming(self):
            return self.features_.known(inputs, self.features_.transform(inputs))

    def _ranked(self, X: Any, k: int, unknown: bool, allowed: np.ndarray | None) -> Ranking:
        calibration = self.calibration_
        wide = k if calibration is None else calibration.shortlist(k)

        def calibrate(vectors: Any, ranking: Ranking) -> Ranking:
            if calibration is None:
                return ranking
            return self._within_shares(vectors, calibration.apply(ranking))

        def answer(inputs: Any) -> Ranking:
            if allowed is None:
                vectors, ranking = self._rank_batch(inputs, wide)
            else:
                vectors = self._vectors(inputs)
                with store.blaming(self, own_input=self._makes_vectors):
                    ranking = ranked_among(
                        self.classifier_, vectors, k, allowed, calibration, calibrate
                    )
            with store.blaming(self):
                if allowed is None:
                    ranking = calibrate(vectors, ranking).top(k)
                if not unknown:
                    ranking = ranking.emptied(~self.features_.known(inputs, vectors))
                return ranking

        return self._in_batches(X, k, answer)

    def _within_shares(self, vectors: Any, ranking: Ranking) -> Ranking:
        """The ranking, in which a text without any known word has no probability above the share of
        training texts that carry the label."""
        if not issparse(vectors):
            return ranking
        blank = ~filled_rows(vectors)
        if not blank.any():
            return ranking
        counts = np.append(self.label_counts_, 0)[ranking.ids[blank]]
        scores = ranking.scores.copy()
        scores[blank] = np.minimum.accumulate(
            np.minimum(scores[blank], counts / max(1, self.n_texts_)), axis=1
        )
        return Ranking(ranking.ids, scores, ranking.labels)

    def _scores(self, X: Any, k: int) -> Ranking:
        """The k best labels of each text as the classifier scores them."""
        return self._in_batches(X, k, lambda inputs: self._rank_batch(inputs, k)[1])

    def _in_batches(self, X: Any, k: int, answer: Callable[[Any], Ranking]) -> Ranking:
        """The answers for the k best labels of each text, made some texts at a time."""
        # texts as they are: making a corpus takes longer than ranking a single text
        texts = isinstance(X, list) and bool(X) and isinstance(X[0], str)
        inputs = X if texts else as_inputs(X)
        if len(inputs) <= _BATCH:
            return answer(inputs)
        # all at once, so that no second copy is ever made
        width = clamped(k, len(self.labels))
        ids = np.empty((len(inputs), width), np.int32)
        scores = np.empty((len(inputs), width), np.float32)
        with progress("ranking", len(inputs)) as bar:
            for start in range(0, len(inputs), _BATCH):
                rows = slice(start, start + _BATCH)
                part = answer(inputs[rows])
                ids[rows], scores[rows] = part.ids, part.scores
                bar.advance(len(part))
        return Ranking(ids, scores, self.labels)

    def _rank_batch(self, inputs: Any, k: int) -> tuple[Any, Ranking]:
        """Vectors of texts, and their k best labels as the classifier scores them."""
        vectors = self._vectors(inputs)
        with store.blaming(self, own_input=self._makes_vectors):
            return vectors, self.classifier_.rank(vectors, k)

    def _vectors(self, inputs: Any) -> Any:
        with store.blaming(self):
            return self.features_.transform(inputs)

    @property
    def _makes_vectors(self) -> bool:
        """Whether vectors are not as they were given."""
        return not isinstance(self.features_, Precomputed)

    @overload
    def tag(
        self,
        texts: str,
        k: int = 5,
        threshold: float | None = None,
        *,
        language: str | None = None,
        allowed: Any = None,
    ) -> list[Tag]: ...
    @overload
    def tag(
        self,
        texts: list[str] | Corpus | pa.Array,
        k: int = 5,
        threshold: float | None = None,
        *,
        language: str | None = None,
        allowed: Any = None,
    ) -> list[list[Tag]]: ...
    def tag(
        self,
        texts: Any,
        k: int = 5,
        threshold: float | None = None,
        *,
        language: str | None = None,
        allowed: Any = None,
    ) -> list[Tag] | list[list[Tag]]:
        """Label names with probabilities: a list for one text, a list of lists for several.

        Labels with a probability below `threshold` are left out. A text of which nothing is known
        has no labels at all. With a vocabulary, names may be asked for in a `language`; `allowed`
        is as for `rank`.

        Examples
        --------
        >>> from megalabel import systems
        >>> texts = ["red dress", "red evening dress", "blue jeans", "faded blue jeans"]
        >>> tagger = systems.create("knn").fit(texts, [["dress"]] * 2 + [["jeans"]] * 2)
        >>> [tag.label for tag in tagger.tag("a red dress", threshold=0.5)]
        ['dress']
        >>> tagger.tag("un cappello")
        []
        """
        several = [texts] if isinstance(texts, str) else texts
        decided = self.decide(several, k, threshold=threshold, allowed=allowed)
        tags = decided.in_language(language).tags()
        return tags[0] if isinstance(texts, str) else tags

    def decide(
        self,
        X: Any,
        k: int = 5,
        decision: Decision | None = None,
        *,
        threshold: float | None = None,
        allowed: Any = None,
    ) -> Ranking:
        """The labels to answer with, within the budget of k a text; none for a text of which
        nothing is known.

        Parameters
        ----------
        X : Corpus, sequence of str, CSR matrix or array
        k : int
            The budget: the decision rule says whether so many labels, at most, or on average.
        decision : Decision, optional
            A rule for this call in place of the tagger's own. One that has to learn and has not
            learns from the probabilities of the texts given.
        threshold : float, optional
            Of these labels, those with a lower probability are left out. It takes the place of
            one that the tagger's own rule has learned.
        allowed : bool array (labels,), or list of labels, optional
            The labels to decide among, as for `rank`.
        """
        self.check_fitted()
        rule = self.decision_ if decision is None else decision
        if threshold is not None and decision is None and isinstance(rule, Threshold):
            rule = TopK()
        ranking = self.candidates(X, rule, k, unknown=False, allowed=allowed)
        if rule.learns and not rule.fitted:
            rule = clone(rule).fit(ranking, None, (self.label_counts_, self.n_texts_))
        with store.blaming(self) if decision is None else nullcontext():
            decided = rule.apply(ranking, k, overwrite=True)
        if threshold is None:
            return decided
        return TopK(threshold=threshold).apply(decided, max(1, decided.k))

    def candidates(
        self,
        X: Any,
        decision: Decision,
        k: int,
        *,
        unknown: bool = True,
        allowed: Any = None,
    ) -> Ranking:
        """The labels of each text that a decision of k of them looks at, with probabilities;
        `unknown` and `allowed` are as for `rank`."""
        width, calibration = decision.shortlist(k), self.calibration_
        if calibration is not None and width > k and calibration.k < min(width, len(self.labels)):
            log.warning(
                "probabilities were calibrated on the %d best labels of a text, and a decision "
                "looks at %d: further down they are too high. Train with calibration.k=%d, or "
                "calibrate with k=%d, for better decisions",
                *(calibration.k, width, width, width),
            )
        return self.rank(X, width, unknown=unknown, allowed=allowed)

    def predict(self, X: Any) -> csr_matrix | list[list[str]]:
        """The decided labels: lists of names if `fit` was given such, else a sparse 0/1 matrix.

        Scikit-learn's tools expect the matrix.

        Without a decision rule of its own, a calibrated tagger answers with the labels that are
        more likely than not, and the best one at least; otherwise with as many labels as the rule
        gives, or as training texts have on average. A text of which nothing is known has none.
        """
        self.check_fitted()
        usual = max(1, round(float(self.label_counts_.sum()) / max(1, self.n_texts_)))
        if self.decision is None and self.calibration_ is not None:
            rule = TopK(threshold=0.5, at_least=1)
            ranking = self.decide(X, 4 * usual + 10, rule)
        else:
            ranking = self.decide(X, self.decision_.most or usual)
        if self.in_names_:
            return [[tag.label for tag in tags] for tags in ranking.tags()]
        decided = ranking.to_csr()
        return csr_matrix(
            (np.ones(decided.nnz, np.int8), decided.indices, decided.indptr), shape=decided.shape
        )

    def decision_function(self, X: Any) -> np.ndarray:
        """The probabilities of all labels of each text, or their scores without calibration.

        An array (texts, labels), which scikit-learn's scorers of rankings need: for some thousand
        labels. `rank` and `predict_proba` have the best labels of each text alone.
        """
        ranking = self.rank(X, len(self.labels))
        rows, places = np.nonzero(ranking.present)
        lowest = ranking.scores[rows, places].min(initial=0)
        scores = np.full((len(ranking), len(self.labels)), lowest, np.float32)
        scores[rows, ranking.ids[rows, places]] = ranking.scores[rows, places]
        return scores

    def predict_proba(self, X: Any, k: int = 100) -> csr_matrix:
        """The probabilities of the k best labels of each text as a sparse matrix."""
        return self.rank(X, k).to_csr()

    def score(self, X: Any, y: Any = None) -> float:
        """The share of texts whose best label is right (P@1)."""
        return float(self.evaluate(X, y, k=1)["P@1"])

    def _labels_for(self, y: Any) -> LabelSet | None:
        """What the columns of y mean if it is a matrix: the labels known, in their order."""
        shape: tuple[int, ...] = getattr(y, "shape", ())
        if len(shape) != 2:
            return None
        if shape[1] == len(self.labels):
            return self.labels
        if self.labels == LabelSet.numbered(len(self.labels)):
            return LabelSet.numbered(shape[1])
        raise ShapeError(
            f"y is {shape} but the tagger knows {len(self.labels)} labels: say what its columns "
            "mean (labels=…)"
        )

    def evaluate(
        self,
        X: Any,
        y: Any = None,
        *,
        k: int | Sequence[int] = (1, 3, 5),
        propensities: Any = None,
        beta: float = 2.0,
        ranking: Ranking | None = None,
    ) -> Evaluation:
        """How good the ranking is on a corpus, or on texts X with their labels y.

        `propensities` and `beta` are as for `megalabel.evaluate`, an array with a value for each
        label of `corpus.aligned(tagger.labels)`, or a Path: a file that `labels.read_propensities`
        reads. `ranking` is what `rank` gave for the texts, where it is there already. That texts
        were trained on, for which a ranking is better than for others, is logged.
        """
        corpus = self._measurable(X, y)
        if seen := self.seen_texts(corpus):
            log.warning(
                "%s of the %s texts (%.1f%%) were in the training data: on these a model is better "
                "than on new ones",
                *(f"{seen:,}", f"{len(corpus):,}", 100 * seen / len(corpus)),
            )
        if isinstance(propensities, Path):
            propensities = read_propensities(propensities, corpus.labels)
        if ranking is None:
            ranking = self.rank(corpus, int(np.max(k)))
        return evaluate(
            ranking,
            corpus,
            train_labels=(self.label_counts_, self.n_texts_),
            propensities=propensities,
            k=k,
            beta=beta,
            probabilities=self.calibration_ is not None,
        )

    def seen_texts(self, X: Any) -> int:
        """How many of some texts are equal to one that was trained on; 0 where that is not known.

        Examples
        --------
        >>> from megalabel import systems
        >>> tagger = systems.create("knn").fit(["red dress", "blue jeans"], [["a"], ["b"]])
        >>> tagger.seen_texts(["blue jeans", "blue dress"])
        1
        """
        self.check_fitted()
        inputs = as_inputs(X)
        if self.text_hashes_ is None or inputs.texts is None:
            return 0
        return count_known(text_hashes(inputs.texts), self.text_hashes_)

    def _measurable(self, X: Any, y: Any) -> Corpus:
        """A corpus whose labels are numbered as here, with some that can be ranked."""
        known = self.labels
        corpus = as_corpus(X, y, self._labels_for(y)).aligned(known)
        if not corpus.targets.nnz:
            raise DataError("the corpus has no labels to be measured against")
        if corpus.targets.indices.min() >= len(known):
            raise DataError(
                f"none of the corpus's labels is among the {len(known):,} that the tagger knows"
            )
        return corpus

    def explain(self, text: str, label: str | None = None, words: int = 10) -> Explanation:
        """Why a label was given, or was not.

        Parameters
        ----------
        text : str
        label : str, optional
            By its id or name; without one, the best label of the text.
        words : int
            At most so many words, or neighbours, are named in each reason.

        Returns
        -------
        Explanation
            Its reasons are the words that spoke for the label and against it, of each classifier on
            the way; of nearest neighbours, the training texts that voted for it; of all others,
            what happens when words are left out.

        Examples
        --------
        >>> from megalabel import systems
        >>> texts = ["red dress", "red evening dress", "blue jeans", "faded blue jeans"]
        >>> tagger = systems.create("dismec").fit(texts, [["dress"]] * 2 + [["jeans"]] * 2)
        >>> [reason] = tagger.explain("a blue dress", "dress").reasons
        >>> sorted((word.text, word.share > 0) for word in reason.evidence)
        [('blue', False), ('dress', True)]
        """
        self.check_fitted()
        check_argument("words", words, integer(1))
        if isinstance(self.features_, Precomputed):
            raise ParameterError(
                "this model was trained on vectors made elsewhere and reads no texts: there are no "
                "words to explain by"
            )
        number = None if label is None else self.labels.index(label)
        found = self.rank([text], 1 if number is None else LOOKED_AT, unknown=number is not None)
        if number is None:
            if not found.present[0, 0]:
                raise DataError("nothing in the text is known: say which label to explain")
            number = int(found.ids[0, 0])
        at = np.flatnonzero(found.ids[0] == number)
        probability = float(str(found.scores[0, at[0]])) if len(at) else None
        with store.blaming(self):
            members = self.provenance_.get("mix", {}).get("members", ())
            asked = Asked(self.features_, text, number, words, members)
            reasons = reasons_for(self.classifier_, asked)
        return Explanation(self.labels.name(number), probability, reasons)


def as_corpus(X: Any, y: Any, labels: LabelSet | None) -> Corpus:
    """What a fit is given: a Corpus, or texts or vectors X with their labels y."""
    if isinstance(X, Corpus):
        if y is not None or labels is not None:
            raise DataError("a Corpus brings its labels: give either a Corpus, or texts and y")
        return X
    if y is None:
        raise DataError(
            "texts need their labels: give a Corpus (megalabel.read makes one of files and data "
            "frames), or texts and y"
        )
    inputs = as_inputs(X)
    return Corpus(inputs.texts, inputs.features, y, labels)


def as_inputs(X: Any) -> Corpus:
    """Texts or vectors as a corpus without labels; a Corpus as it is."""
    if isinstance(X, Corpus):
        return X
    if isinstance(X, str):
        raise DataError("expected several texts, found one string: put it in a list")
    vectors = issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2)
    return Corpus(features=X) if vectors else Corpus(texts=X)


def most_left_out(excluded: csr_matrix | None) -> int:
    """The most cells that are left out of a row: so much further a ranking must look."""
    return 0 if excluded is None else int(np.diff(excluded.indptr).max(initial=0))
