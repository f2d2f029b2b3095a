"""Tagger: features, classifier, calibration and decision in a row. Text in, label names out."""

from __future__ import annotations

import datetime
import json
import logging
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel import __version__, html, store
from megalabel.answering import as_corpus, as_inputs, most_left_out
from megalabel.base import (
    Check,
    check_argument,
    clone,
    instance,
    integer,
    number,
    one_of,
)
from megalabel.calibrating import calibrated
from megalabel.calibration import METHODS
from megalabel.calibration import create as create_calibrator
from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.data.corpus import by_name
from megalabel.data.examples import Examples
from megalabel.data.hashes import known_hashes, text_hashes
from megalabel.decision import TopK
from megalabel.errors import DataError, ParameterError
from megalabel.features import Precomputed, Tfidf
from megalabel.labels import LabelPoints
from megalabel.labels.cooccurrence import METHODS as METHODS_OF_POINTS
from megalabel.labels.points import as_label_points
from megalabel.machine import memory_in_use
from megalabel.metrics import Evaluation
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
from megalabel.rankers.thinning import with_fan_in
from megalabel.relabelling import Relabelling
from megalabel.retrieval import NearestNeighbours

log = logging.getLogger(__name__)

_FEWEST = 20  # texts to calibrate on: fewer would say nothing


class Tagger(Relabelling):
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
        width += most_left_out(excluded)
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

        Calibration stays as it is, but for the labels' frequencies. So do the features, but of
        nearest neighbours: new words join theirs.
        """
        if not self.fitted:
            return self.fit(X, y, labels=labels)
        if labels is None:
            labels = self._labels_for(y)
        corpus = as_corpus(X, y, labels).aligned(self.labels)
        if len(corpus.labels) > len(self.labels) and hasattr(self.classifier_, "joined_"):
            # what is trained on all rows at once takes labels in by their names first
            new = corpus.labels.take(np.arange(len(self.labels), len(corpus.labels)))
            made = self.add_labels(new).partial_fit(corpus)
            self.restore(made.learned())
            self.classifier = made.classifier
            return self
        with store.blaming(self):
            self._let_words_join(corpus)
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

    def _let_words_join(self, corpus: Corpus) -> None:
        """Let neighbours be found by words that are new with these texts."""
        features, classifier = self.features_, self.classifier_
        if not isinstance(features, Tfidf) or not isinstance(classifier, NearestNeighbours):
            return
        grown = features.grown(corpus)
        if grown.n_features > features.n_features:
            self.classifier_ = classifier.widened(grown.n_features)
            self.features_ = grown

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
        ranking = self._scores(corpus, calibrator.k + most_left_out(excluded)).without(excluded)
        self._calibrate(calibrator, ranking, corpus.targets, self.label_counts_)
        self.calibration = calibrator
        by = {"date": _now(), "method": repr(calibrator), **described}
        self.provenance_ = self.provenance_ | {"calibrated": by}
        return self

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
            inputs = as_corpus(X, y, self._labels_for(y)) if y is not None else as_inputs(X)
            truth = inputs.aligned(self.labels).targets if labelled else None
            ranking = self.candidates(inputs, rule, 1)
            rule.fit(ranking, truth, (self.label_counts_, self.n_texts_))
        self.decision, self.decision_ = clone(decision), rule
        return self

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

    def prune(
        self,
        threshold: float = 0.0,
        *,
        max_per_label: int | None = None,
        fan_in: int | None = None,
        group: int = 1,
    ) -> Tagger:
        """A smaller tagger of the largest weights; this one stays as it is, as does calibration.

        Parameters
        ----------
        threshold : float
            Weights of at most this size are dropped. Biases stay.
        max_per_label : int, optional
            Only so many of the largest weights of each classifier stay, beside the bias.
        fan_in : int, optional
            In place of both: a sparse output layer (`rankers.SparseLabels`), of exactly so many
            features of each label. Of what scores labels by one linear layer: `dismec`, `renee`, …
        group : int
            With `fan_in`: so many labels, about as frequent, share their features, which are those
            with the largest weights on average.

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
        check_argument("fan_in", fan_in, integer(1) | one_of(None))
        check_argument("group", group, integer(1))
        if fan_in is not None and (threshold or max_per_label is not None):
            raise ParameterError("fan_in says what stays: leave out threshold and max_per_label")
        if fan_in is None and group > 1:
            raise ParameterError("group is of labels that share their features: give fan_in too")
        by = {"threshold": threshold, "max_per_label": max_per_label}
        if fan_in is not None:
            by = {"fan_in": fan_in, "group": group}
        result: Tagger = clone(self)
        result.restore(self.learned() | {"metrics_": {}, "reliability_": {}})
        with store.blaming(self):
            if fan_in is None:
                result.classifier_ = self.classifier_.pruned(threshold, max_per_label)
            else:
                counts = self.label_counts_ if group > 1 else None
                result.classifier_ = with_fan_in(
                    self.classifier_, fan_in, group=group, counts=counts
                )
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


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
