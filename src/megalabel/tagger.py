"""Tagger: features, classifier, calibration and decision in a row. Text in, label names out."""

from __future__ import annotations

import datetime
import json
import logging
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self, overload

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix, issparse

from megalabel import __version__, html, store
from megalabel.base import (
    Check,
    Component,
    Learned,
    array,
    boolean,
    check_argument,
    clone,
    instance,
    integer,
    made_once,
    number,
    one_of,
    optional,
    part,
    value,
)
from megalabel.calibrating import calibrated
from megalabel.calibration import METHODS
from megalabel.calibration import create as create_calibrator
from megalabel.data import Corpus, LabelSet, Ranking, Tag
from megalabel.data.corpus import by_name
from megalabel.data.examples import Examples
from megalabel.data.hashes import count_known, known_hashes, text_hashes
from megalabel.data.matrix import clamped, filled_rows
from megalabel.decision import TopK
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.explaining import LOOKED_AT, Asked, Explanation, reasons_for
from megalabel.features import Precomputed, Tfidf
from megalabel.labels import LabelPoints, read_propensities
from megalabel.labels.cooccurrence import METHODS as METHODS_OF_POINTS
from megalabel.labels.own import OwnLabels
from megalabel.labels.points import as_label_points
from megalabel.machine import memory_in_use
from megalabel.metrics import Evaluation, evaluate
from megalabel.parts import Calibrator, Classifier, Decision, Featurizer
from megalabel.preparing import (
    LabelRows,
    Prepared,
    check_label_points,
    check_learnable,
    examples_of,
    in_random_order,
    titles_of,
)
from megalabel.progress import progress

log = logging.getLogger(__name__)

_BATCH = 8192  # texts ranked at a time: bounds memory, changes no answer
_FEWEST = 20  # texts to calibrate on: fewer would say nothing


class Tagger(Component):
    """Tags texts: features + classifier + calibration + decision.

    Parameters
    ----------
    classifier : Classifier
        Ranks labels for a vector.
    features : Featurizer, optional
        Makes vectors of texts; `Tfidf()` by default. Where a corpus has feature vectors and no
        texts, `Precomputed()` takes its place: the vectors as they are, scaled to unit length.
    calibration : Calibrator or str, optional
        Turns scores into probabilities; a name is one of `megalabel.calibration.METHODS`. It learns
        from training texts that the classifier ranks as if it had not seen them. None: scores stay
        as they are, and so they do where there are too few texts to hold some out, or only a part
        of the labels (`Corpus.label_shard`).
    decision : Decision, optional
        Picks the labels to answer with; by default the k best.
    calibration_texts : int
        At most so many texts are used for calibration.
    holdout : float
        The share of texts held out for calibration when the classifier must be trained without
        them to rank them honestly.
    refit : bool or "auto"
        Whether the classifier is trained a second time then, on all texts. "auto": where more than
        a twentieth of them was held out, which by default is up to 100,000 texts; of more, the
        few held out are not worth twice the time.
    label_points : LabelPoints or str, optional
        Learn from the texts of labels too, as if they were texts that carry them: a
        `labels.LabelPoints`, or what its `targets` are, such as "self" or "cooccurrence". They are
        neither counted nor held out. Texts that are themselves labels (by the identifier, or the
        same text) are not answered with their own label then, unless such texts of training carry
        it.
    seed : int
        Fixes everything random.
    system : str, optional
        The name of the recipe that made this tagger.

    Notes
    -----
    What several threads may do with one tagger at the same time:

    ===========================================  ================================================
    `rank`, `tag`, `decide`, `candidates`,       safe, beside each other and in any number
    `predict`, `predict_proba`, `score`,
    `decision_function`, `evaluate`, `explain`,
    `seen_texts`, `prepare`, `prune`, `save`
    `fit`, `partial_fit`, `calibrate`,           not safe: they change the tagger, so no other
    `set_decision`, `set_params`, `restore`      call may run at the same time
    `load`                                       safe: each call makes a tagger of its own
    ===========================================  ================================================

    A service that changes a model makes the new tagger first, then lets its name refer to that.
    With the decision `Online`, calls are decided one after another, in the order they come in.

    Examples
    --------
    >>> from megalabel import systems
    >>> tagger = systems.create("knn")
    >>> texts = ["red summer dress", "red evening dress", "blue jeans", "faded blue jeans"]
    >>> tagger.fit(texts, [["dress"], ["dress"], ["jeans"], ["jeans"]]).tag("a red dress", k=1)
    ... # doctest: +ELLIPSIS
    [Tag(label='dress', probability=0.88...)]
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "classifier": instance(Classifier),
        "features": instance(Featurizer) | one_of(None),
        "calibration": instance(Calibrator) | one_of(*METHODS, None),
        "decision": instance(Decision) | one_of(None),
        "calibration_texts": integer(1),
        "holdout": number(0.01, 0.5),
        "refit": one_of(True, False, "auto"),
        "label_points": instance(LabelPoints) | one_of(*METHODS_OF_POINTS, None),
        "seed": integer(0),
        "system": instance(str) | one_of(None),
    }

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

    def __init__(
        self,
        classifier: Classifier,
        features: Featurizer | None = None,
        calibration: Calibrator | str | None = "joint",
        decision: Decision | None = None,
        *,
        calibration_texts: int = 5_000,
        holdout: float = 0.1,
        refit: bool | str = "auto",
        label_points: LabelPoints | str | None = None,
        seed: int = 0,
        system: str | None = None,
    ) -> None:
        self.classifier = classifier
        self.features = features
        self.calibration = calibration
        self.decision = decision
        self.calibration_texts = calibration_texts
        self.holdout = holdout
        self.refit = refit
        self.label_points = label_points
        self.seed = seed
        self.system = system

    # ------------------------------------------------------------------ learning
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        labels: LabelSet | None = None,
        prepared: Prepared | None = None,
    ) -> Self:
        """Learn from a corpus, or from texts (or vectors) X with their labels y.

        Parameters
        ----------
        X : Corpus, sequence of str, CSR matrix or array
        y : lists of label names, CSR matrix or indicator array
            The labels of each text; with a Corpus, none.
        labels : LabelSet, optional
            What the columns of a matrix y mean.
        prepared : Prepared, optional
            What `prepare` gave for the same corpus, for this fit alone.
        """
        corpus = as_corpus(X, y, labels)
        if prepared is None:
            prepared = self.prepare(corpus)
        if prepared.used or len(prepared.examples) != len(corpus):
            raise ParameterError("what was prepared is of another corpus, or was taken up before")
        started = time.perf_counter()
        self.origin = None  # what is learned now is not of the folder it was read from
        self.fit_prepared(prepared, corpus)
        self.in_names_ = y is not None and by_name(y)
        self.text_hashes_ = None
        if corpus.texts is not None:
            self.text_hashes_ = known_hashes(text_hashes(corpus.texts))
        seconds = prepared.seconds + time.perf_counter() - started
        self.provenance_ = provenance_of(corpus, seconds)
        if settings := self.classifier.settings_for(len(corpus.labels)):
            self.provenance_["settings"] = settings
        return self

    def prepare(self, corpus: Corpus) -> Prepared:
        """What a fit on a corpus begins with: features of its texts, and which texts are held out.

        It can be looked at, to say what the fit will cost, before it is given to `fit`.
        """
        self.check_parts()  # all of them, before features are made
        check_learnable(corpus)
        features = self.features if self.features is not None else Tfidf()
        if corpus.texts is None and not isinstance(features, Precomputed):
            if self.classifier.reads_texts:
                raise DataError(
                    f"{self.system or type(self.classifier).__name__} reads texts, but the corpus "
                    "has vectors alone: choose a linear system"
                )
            features = Precomputed()
        if (points := as_label_points(self.label_points)) is not None:
            name = self.system or type(self.classifier).__name__
            check_label_points(points, corpus, features, self.classifier, name)
        features, memory = clone(features), memory_in_use()
        started = time.perf_counter()
        with progress("turning texts into features"):
            vectors = features.fit_transform(corpus)
        log.info("%d texts to %d features", *vectors.shape)
        prepared = self.prepared(features, vectors, corpus)
        prepared.seconds, prepared.memory = time.perf_counter() - started, memory
        return prepared

    def prepared(self, features: Featurizer, vectors: Any, corpus: Corpus) -> Prepared:
        """What a fit begins with where fitted features have made vectors of a corpus already."""
        examples = examples_of(features, vectors, corpus)
        label_rows, points = None, as_label_points(self.label_points)
        if points is not None:
            # what ranks texts of training without themselves must not know them by their labels
            alone = self.classifier.ranks_held_out
            label_rows = LabelRows.of(points, features, corpus, alone)
        held_out = self.held_out(len(corpus))
        if "label_shard" in corpus.source:
            log.info("a part of the labels is not calibrated: calibrate when all are merged")
            held_out = 0
        order = in_random_order(examples.targets, self.seed)
        rows, rest, first = np.sort(order[:held_out]), np.sort(order[held_out:]), examples
        if held_out and not self.classifier.ranks_held_out:
            # as features of the rest alone, where features of all are learned from later
            again = self.trainings(len(corpus)) > 1
            first = examples.at(rest, features.held_out(vectors, rest, rows) if again else None)
        classifier = clone(self.classifier)
        return Prepared(features, examples, rows, first, classifier, label_rows=label_rows)

    def fit_prepared(self, prepared: Prepared, corpus: Corpus) -> None:
        """Train the classifier, and calibrate it on rankings of texts it has not seen; then
        `features_` and `classifier_` are the parts that answer."""
        self.decision_ = clone(self.decision) if self.decision is not None else TopK()
        self.n_texts_, self.label_counts_ = len(corpus), corpus.label_counts
        self.calibration_, self.metrics_, self.reliability_ = None, {}, {}
        label_rows, self._own_labels = prepared.label_rows, None
        self.leaves_own_out_ = label_rows is not None and label_rows.own is not None
        examples, rows = prepared.examples, prepared.held_out
        apart = prepared.first is not examples
        if apart:
            log.info("training without %d texts, to learn from their ranking", len(rows))

        def train(fresh: Classifier, some: Examples) -> None:
            if label_rows is not None:
                left_out = rows if apart and some is not examples else rows[:0]
                some = label_rows.added_to(some, np.delete(np.arange(len(corpus)), left_out))
            self.features_, self.classifier_ = fresh.fit_examples(some).parts(prepared.features)

        def seen(some: np.ndarray, left_out: np.ndarray | None) -> Any:
            """What is ranked of texts: rows of training as features would give them that have not
            seen the texts left out, or what other features make of these texts."""
            if self.features_ is prepared.features:
                return prepared.features.held_out(examples.rows, some, left_out)
            return self.features_.transform(corpus[some])

        prepared.used = True
        train(prepared.classifier, prepared.first)
        prepared.classifier = clone(self.classifier)  # not to hold the first one any longer
        if not len(rows):
            if self.decision_.learns:  # from texts that were trained on
                rows = np.arange(min(len(corpus), self.calibration_texts))
                none = np.zeros(0, np.int64)
                ranking = self.classifier_.rank(seen(rows, none), self.decision_.shortlist(1))
                self._fit_decision(ranking, corpus.targets[rows])
            return
        label_counts = prepared.first.label_counts
        prepared.first = examples  # a copy of most rows is not to be held any longer
        excluded = self._left_out(corpus[rows], corpus.labels)
        method = self.calibration
        calibrator = None if method is None else calibrator_for(method, self.decision_)
        width = 0 if calibrator is None else calibrator.k
        if self.decision_.learns:
            width = max(width, self.decision_.shortlist(1))
        width += _most(excluded)
        if apart:
            ranking = self.classifier_.rank(seen(rows, rows), width)
            if self.trainings(len(corpus)) > 1:
                log.info("training a second time, on all texts")
                train(clone(self.classifier), examples)
        else:
            ranking = self.classifier_.rank_held_out(seen(rows, None), rows, width)
        ranking = ranking.without(excluded)
        if calibrator is not None:
            self._calibrate(calibrator, ranking, corpus.targets[rows], label_counts, not apart)
        self._fit_decision(ranking, corpus.targets[rows])
        if self.calibration_ is not None and self.trainings(len(corpus)) > 1:
            self.calibration_ = self.calibration_.for_counts(self.label_counts_)

    def _fit_decision(self, ranking: Ranking, targets: csr_matrix | None) -> None:
        if self.decision_.learns:
            if self.calibration_ is not None:
                ranking = self.calibration_.apply(ranking)
            self.decision_.fit(ranking, targets, (self.label_counts_, self.n_texts_))

    def _calibrate(
        self,
        calibrator: Calibrator,
        ranking: Ranking,
        targets: csr_matrix,
        label_counts: np.ndarray,
        counted: bool = False,
    ) -> None:
        made = calibrated(
            calibrator,
            ranking.top(calibrator.k),
            targets,
            label_counts,
            counted,
            (self.label_counts_, self.n_texts_),
        )
        self.calibration_, self.metrics_, self.reliability_ = made

    def held_out(self, texts: int) -> int:
        """How many of so many texts calibration and decision learn from, when fitted; 0: none."""
        if self.calibration is None and not (self.decision is not None and self.decision.learns):
            return 0
        if self.classifier.ranks_held_out:
            return min(texts, self.calibration_texts)
        fewest = min(_FEWEST, self.calibration_texts)
        wanted = max(fewest, int(texts * self.holdout))
        return min(wanted, self.calibration_texts) if texts >= 2 * fewest else 0

    def trainings(self, texts: int) -> int:
        """How often the classifier is trained when fitted on so many texts: calibration may take a
        second time."""
        held_out = 0 if self.classifier.ranks_held_out else self.held_out(texts)
        again = held_out > texts / 20 if self.refit == "auto" else bool(self.refit)
        return 2 if held_out and again else 1

    def partial_fit(self, X: Any, y: Any = None, *, labels: LabelSet | None = None) -> Self:
        """Learn more texts where the classifier can; labels not seen before join the label set.

        The features and the calibration stay as they are, but for the labels' frequencies.
        """
        if not self.fitted:
            return self.fit(X, y, labels=labels)
        if labels is None:
            labels = self._labels_for(y)
        corpus = as_corpus(X, y, labels).aligned(self.labels)
        with store.blaming(self):
            vectors = self.features_.transform(corpus)
        # rows of other kinds are not vectors
        read = self.classifier_.reads_texts or isinstance(vectors, list)
        bare = 0 if read else int(np.count_nonzero(abs(vectors).sum(axis=1) == 0))
        if bare:
            log.warning(
                "%d of %d new texts hold no word known from training and cannot be found again; "
                "features with hashing have no such limit",
                bare,
                len(corpus),
            )
        more = {"titles": titles_of(corpus)} if hasattr(self.classifier_, "keep_titles") else {}
        with store.blaming(self):
            self.classifier_.partial_fit(vectors, corpus.targets, corpus.labels, **more)
        counts = corpus.label_counts
        counts[: len(self.label_counts_)] += self.label_counts_
        self.label_counts_ = counts
        self.n_texts_ += len(corpus)
        self._own_labels = None
        if self.text_hashes_ is not None and corpus.texts is not None:
            self.text_hashes_ = known_hashes(self.text_hashes_, text_hashes(corpus.texts))
        if self.calibration_ is not None:
            self.calibration_ = self.calibration_.for_counts(counts)
        return self

    def calibrate(self, X: Any, y: Any = None, *, method: Calibrator | str = "joint") -> Self:
        """Calibrate anew on texts that training has not seen; the rest stays as it is.

        Parameters
        ----------
        X, y
            A corpus, or texts and their labels, as `fit` takes them. On texts of training, scores
            are better than they will ever be, and so would be the probabilities.
        method : Calibrator or str
            One of `megalabel.calibration.METHODS`, or a calibrator.

        Examples
        --------
        >>> from megalabel import systems
        >>> from megalabel.data.synthetic import generate
        >>> shop = generate(texts=2_000, labels=200).corpus
        >>> tagger = systems.create("xr-linear", calibrate=False).fit(shop[:1_000])
        >>> tables = tagger.calibrate(shop[1_000:], method="beta").reliability_
        >>> tables["after"]["ECE"] < tables["before"]["ECE"] / 2
        True
        """
        self.check_fitted()
        calibrator = as_calibrator(method)
        corpus = self._measurable(X, y)
        described = {**corpus.source, "texts": len(corpus)}
        if "path" in described and described.items() <= self.provenance_.get("corpus", {}).items():
            log.warning("these are the texts of training: probabilities will be too high")
        excluded = self._left_out(corpus, self.labels)
        ranking = self._scores(corpus, calibrator.k + _most(excluded)).without(excluded)
        self._calibrate(calibrator, ranking, corpus.targets, self.label_counts_)
        self.calibration = calibrator
        by = {"date": _now(), "method": repr(calibrator), **described}
        self.provenance_ = self.provenance_ | {"calibrated": by}
        return self

    # ------------------------------------------------------------------ answering
    @property
    def labels(self) -> LabelSet:
        """The labels this tagger can answer with."""
        self.check_fitted()
        return self.classifier_.labels_

    def rank(self, X: Any, k: int = 10, *, unknown: bool = True) -> Ranking:
        """The k best labels of each text with their probabilities, best first.

        Cells that a Corpus leaves out (`excluded`) are not among them, nor with `label_points` the
        own labels of texts that are labels. A text of which nothing is
        known (`known`) is ranked by what is frequent; with `unknown=False` it has no labels.
        """
        self.check_fitted()
        excluded = self._left_out(X, self.labels)
        if excluded is None:
            return self._ranked(X, k, unknown)
        return self._ranked(X, k + _most(excluded), unknown).without(excluded).top(k)

    def _left_out(self, X: Any, labels: LabelSet) -> csr_matrix | None:
        """The cells of texts and labels that are not ranked: those that a Corpus leaves out, and
        the own labels of texts that are labels; None: there are none."""
        excluded: csr_matrix | None = None
        if isinstance(X, Corpus) and X.excluded is not None:
            cells: Any = X.aligned(labels).excluded
            excluded = cells[:, : len(labels)]
        if not self.leaves_own_out_:
            return excluded
        inputs = X if isinstance(X, list) else _as_inputs(X)
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
        inputs = _as_inputs(X)
        with store.blaming(self):
            return self.features_.known(inputs, self.features_.transform(inputs))

    def _ranked(self, X: Any, k: int, unknown: bool) -> Ranking:
        calibration = self.calibration_
        wide = k if calibration is None else calibration.shortlist(k)

        def answer(inputs: Any) -> Ranking:
            vectors, ranking = self._rank_batch(inputs, wide)
            with store.blaming(self):
                if calibration is not None:
                    ranking = self._within_shares(vectors, calibration.apply(ranking)).top(k)
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
        inputs = X if texts else _as_inputs(X)
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
        with store.blaming(self):
            vectors = self.features_.transform(inputs)
        with store.blaming(self, own_input=not isinstance(self.features_, Precomputed)):
            return vectors, self.classifier_.rank(vectors, k)

    @overload
    def tag(self, texts: str, k: int = 5, threshold: float | None = None) -> list[Tag]: ...
    @overload
    def tag(
        self, texts: list[str] | Corpus | pa.Array, k: int = 5, threshold: float | None = None
    ) -> list[list[Tag]]: ...
    def tag(
        self, texts: Any, k: int = 5, threshold: float | None = None
    ) -> list[Tag] | list[list[Tag]]:
        """Label names with probabilities: a list for one text, a list of lists for several.

        Labels with a probability below `threshold` are left out. A text of which nothing is known
        has no labels at all.

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
        if isinstance(texts, str):
            return self.decide([texts], k, threshold=threshold).tags()[0]
        return self.decide(texts, k, threshold=threshold).tags()

    def decide(
        self,
        X: Any,
        k: int = 5,
        decision: Decision | None = None,
        *,
        threshold: float | None = None,
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
            Of these labels, those with a lower probability are left out.
        """
        self.check_fitted()
        rule = self.decision_ if decision is None else decision
        ranking = self.candidates(X, rule, k, unknown=False)
        if rule.learns and not rule.fitted:
            rule = clone(rule).fit(ranking, None, (self.label_counts_, self.n_texts_))
        with store.blaming(self) if decision is None else nullcontext():
            decided = rule.apply(ranking, k, overwrite=True)
        if threshold is None:
            return decided
        return TopK(threshold=threshold).apply(decided, max(1, decided.k))

    def candidates(self, X: Any, decision: Decision, k: int, *, unknown: bool = True) -> Ranking:
        """The labels of each text that a decision of k of them looks at, with probabilities;
        `unknown` is as for `rank`."""
        width, calibration = decision.shortlist(k), self.calibration_
        if calibration is not None and width > k and calibration.k < min(width, len(self.labels)):
            log.warning(
                "probabilities were calibrated on the %d best labels of a text, and a decision "
                "looks at %d: further down they are too high. Train with calibration.k=%d, or "
                "calibrate with k=%d, for better decisions",
                *(calibration.k, width, width, width),
            )
        return self.rank(X, width, unknown=unknown)

    def set_decision(self, decision: Decision | None, X: Any = None, y: Any = None) -> Self:
        """Answer by another rule from now on, learned from texts that training has not seen.

        Parameters
        ----------
        decision : Decision or None
            The rule; None: the k best labels. One that has learned already is taken as it is where
            no texts are given.
        X : Corpus, sequence of str, CSR matrix or array, optional
            Texts to learn from, for a rule that learns.
        y : optional
            Their labels, as for `fit`.

        Examples
        --------
        >>> from megalabel import systems
        >>> from megalabel.decision import FrankWolfe
        >>> texts = ["red dress", "red evening dress", "blue jeans", "faded blue jeans"]
        >>> tagger = systems.create("knn").fit(texts, [["dress"]] * 2 + [["jeans"]] * 2)
        >>> tagger.set_decision(FrankWolfe("macro-f1", k=1), ["a dress", "old jeans"])
        ... # doctest: +ELLIPSIS
        Tagger(...)
        >>> tagger.tag("a red dress", k=1)[0].label
        'dress'
        """
        self.check_fitted()
        rule = TopK() if decision is None else clone(decision)
        if X is None and decision is not None and decision.fitted:
            rule = decision
        elif rule.learns:
            if X is None:
                raise DataError(f"{type(rule).__name__} learns from texts: give some")
            labelled = y is not None or (isinstance(X, Corpus) and X.targets.nnz > 0)
            inputs = as_corpus(X, y, self._labels_for(y)) if y is not None else _as_inputs(X)
            truth = inputs.aligned(self.labels).targets if labelled else None
            ranking = self.candidates(inputs, rule, 1)
            rule.fit(ranking, truth, (self.label_counts_, self.n_texts_))
        self.decision, self.decision_ = clone(decision), rule
        return self

    def predict(self, X: Any) -> csr_matrix | list[list[str]]:
        """The decided labels: lists of names if `fit` was given such, else a sparse 0/1 matrix.

        Scikit-learn's tools expect the matrix.

        Without a decision rule of its own, a calibrated tagger answers with the labels that are
        more likely than not, and the best one at least; otherwise with as many labels as training
        texts have on average. A text of which nothing is known has none.
        """
        self.check_fitted()
        usual = max(1, round(float(self.label_counts_.sum()) / max(1, self.n_texts_)))
        if self.decision is None and self.calibration_ is not None:
            rule = TopK(threshold=0.5, at_least=1)
            ranking = self.decide(X, 4 * usual + 10, rule)
        else:
            ranking = self.decide(X, usual)
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
        inputs = _as_inputs(X)
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

    def _repr_html_(self) -> str:
        """What a notebook shows: the parts and, once fitted, what was learned from and measured."""
        names = ("features", "classifier", "calibration", "decision")
        parts = {name: getattr(self, f"{name}_" if self.fitted else name) for name in names}
        shown = {name: html.cut(str(part), 200) for name, part in parts.items()}
        title = f"Tagger {self.system or ''}".strip()
        if not self.fitted:
            return html.facts(f"{title}, not fitted", shown)
        if race := self.provenance_.get("race"):
            score = f"nDCG@10 {100 * race['nDCG@10']:.1f} %"
            won = f"{race['winner']} won, {score} on {race['held_out']:,} texts held out"
            shown = {"race": won} | shown
        learned = f"{len(self.labels):,} labels learned from {self.n_texts_:,} texts"
        measured = Evaluation.from_dict(self.metrics_)._repr_html_() if self.metrics_ else ""
        note = "<p>Held out in training:</p>" if measured else ""
        return html.facts(f"{title}, {learned}", shown) + note + measured

    # ------------------------------------------------------------------ keeping
    def plain(self) -> Tagger:
        """What is saved of it: itself, but for taggers that are put together in their fit."""
        return self

    def prune(self, threshold: float = 0.0, *, max_per_label: int | None = None) -> Tagger:
        """A smaller tagger of the largest weights; this one stays as it is, as does calibration.

        Parameters
        ----------
        threshold : float
            Weights of at most this size are dropped. Biases stay.
        max_per_label : int, optional
            Only so many of the largest weights of each classifier stay, beside the bias.

        Examples
        --------
        >>> from megalabel import systems
        >>> texts, labels = ["red dress", "blue jeans", "red shoes"], [["a"], ["b"], ["a"]]
        >>> tagger = systems.create("dismec").fit(texts, labels)
        >>> tagger.classifier_.weights_.to_csr().nnz
        12
        >>> tagger.prune(max_per_label=1).classifier_.weights_.to_csr().nnz
        4
        """
        self.check_fitted()
        check_argument("threshold", threshold, number(0))
        check_argument("max_per_label", max_per_label, integer(0) | one_of(None))
        by = {"threshold": threshold, "max_per_label": max_per_label}
        result: Tagger = clone(self)
        result.restore(self.learned() | {"metrics_": {}, "reliability_": {}})
        with store.blaming(self):
            result.classifier_ = self.classifier_.pruned(threshold, max_per_label)
        result.provenance_ = self.provenance_ | {"pruned": by}
        return result

    def save(self, path: str | Path) -> None:
        """Write the model folder; an older model there is replaced in one step."""
        self.check_fitted()
        about = {
            "system": self.system,
            "labels": len(self.labels),
            "features": self.features_.n_features,
            "provenance": self.provenance_,
            "metrics": self.metrics_,
            "reliability": self.reliability_,
        }
        store.save(self, path, about)

    @classmethod
    def load(cls, path: str | Path, *, verify: bool | None = None) -> Tagger:
        """Read a model folder; see `megalabel.load`."""
        loaded = store.load(path, verify=verify)
        if not isinstance(loaded, cls):
            raise DataError(f"{path} holds a {type(loaded).__name__}, not a {cls.__name__}")
        return loaded

    def check_learned(self) -> None:
        """The counts must be of the labels; what a folder's description holds must be plain."""
        for name in ("provenance_", "metrics_", "reliability_"):
            json.dumps(getattr(self, name), allow_nan=False)
        counts, labels = len(self.label_counts_), len(self.labels)
        if counts != labels:
            raise ValueError(f"{counts} label counts for {labels} labels")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        # of an unfitted classifier's y, tools ask whether it is of classes to be stratified: they
        # are never for several labels a text, and lists of names would be refused
        return Tags(
            estimator_type="classifier" if self.fitted else None,
            target_tags=TargetTags(required=True, multi_output=True),
            classifier_tags=ClassifierTags(multi_label=True),
            input_tags=InputTags(string=True, sparse=True),
        )

    @property
    def classes_(self) -> np.ndarray:
        """The labels as scikit-learn's tools ask for them: names, or numbers if they have none."""
        if not self.in_names_ and self.labels == LabelSet.numbered(len(self.labels)):
            return np.arange(len(self.labels))
        return np.array(self.labels.names.to_pylist(), dtype=object)


def calibrator_for(method: Calibrator | str, decision: Decision) -> Calibrator:
    """A calibrator that learns from as many labels of a text as a decision looks at."""
    made = as_calibrator(method)
    deep = decision.shortlist(made.k)
    if deep <= made.k:
        return made
    own = "k" if "k" in made.get_params(deep=False) else "calibrator__k"
    deeper: Calibrator = clone(made).set_params(**{own: deep})
    return deeper


def provenance_of(corpus: Corpus, seconds: float) -> dict[str, Any]:
    """What is kept of a fit on a corpus that took so many seconds: when, by what and on what."""
    return {
        "date": _now(),
        "seconds": round(seconds, 3),
        "megalabel": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "corpus": {"texts": len(corpus), "labels": len(corpus.labels), **corpus.source},
    }


def as_calibrator(method: Calibrator | str) -> Calibrator:
    """A calibrator, by its name or as it is."""
    if isinstance(method, str):
        return create_calibrator(method)
    check_argument("method", method, instance(Calibrator))
    return method


def _most(excluded: csr_matrix | None) -> int:
    """The most cells that are left out of a row: so much further a ranking must look."""
    return 0 if excluded is None else int(np.diff(excluded.indptr).max(initial=0))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def as_corpus(X: Any, y: Any, labels: LabelSet | None) -> Corpus:
    """What a fit is given: a Corpus, or texts or vectors X with their labels y."""
    if isinstance(X, Corpus):
        if y is not None:
            raise DataError("a Corpus brings its labels: give either a Corpus, or texts and y")
        return X
    if y is None:
        raise DataError(
            "texts need their labels: give a Corpus (megalabel.read makes one of files and data "
            "frames), or texts and y"
        )
    inputs = _as_inputs(X)
    return Corpus(inputs.texts, inputs.features, y, labels)


def _as_inputs(X: Any) -> Corpus:
    """Texts or vectors as a corpus without labels; a Corpus as it is."""
    if isinstance(X, Corpus):
        return X
    if isinstance(X, str):
        raise DataError("expected several texts, found one string: put it in a list")
    vectors = issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2)
    return Corpus(features=X) if vectors else Corpus(texts=X)
