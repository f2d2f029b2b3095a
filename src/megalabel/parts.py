"""The four parts of a tagger: featurizer, classifier, calibrator, decision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from megalabel.base import Component, Learned
from megalabel.data import Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import clamped, filled_rows, row_count, some_rows
from megalabel.errors import ParameterError, ShapeError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from scipy.sparse import csr_matrix

    from megalabel import _native
    from megalabel.base import Matrix
    from megalabel.data import LabelSet

_CELLS = 1 << 24  # of rankings held at a time


class Featurizer(Component, ABC):
    """Text to vectors. Inputs are a Corpus, or texts, or (for some) a feature matrix."""

    @abstractmethod
    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Learn what is needed to turn inputs into vectors; y is not looked at."""

    @abstractmethod
    def transform(self, inputs: Any) -> Matrix:
        """One row of float32 a text: a CSR matrix or a dense array."""

    def fit_transform(self, inputs: Any, y: Any = None) -> Matrix:
        """`fit(inputs)` then `transform(inputs)`, in one pass where that is possible."""
        return self.fit(inputs).transform(inputs)

    def held_out(self, vectors: Any, some: np.ndarray, left_out: np.ndarray | None) -> Any:
        """Some rows of the vectors of all texts, as they would be had this been fitted without the
        texts `left_out`; None: each as if without itself.

        By default they are the same.
        """
        return vectors[some]

    def known(self, inputs: Any, vectors: Any) -> np.ndarray:
        """Which of the inputs hold anything that was met in training; `vectors` is what `transform`
        made of them.

        By default those whose row is not empty: with a word of the vocabulary.
        """
        return filled_rows(vectors)

    def take_labels(self, numbers: Any) -> Self:
        """Itself: features know no labels."""
        return self

    @property
    @abstractmethod
    def n_features(self) -> int:
        """The number of columns that transform gives."""

    def onnx_twin(self, int8: bool) -> Featurizer:
        """One that gives the same vectors, to 1e-3, without torch; itself where it needs none.

        With `int8` the weights of encoders are kept in 8 bits, and the vectors not quite the same.
        """
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(string=True, sparse=True),
        )


class Classifier(Component, ABC):
    """Vectors to ranked labels. Keeps the label set it was fitted with as `labels_`."""

    labels_: LabelSet

    @property
    def must_learn(self) -> bool:
        """True: there is no ranking without labels."""
        return True

    @property
    def reads_texts(self) -> bool:
        """Whether vectors made elsewhere will not do: it learns from the texts themselves."""
        return False

    @property
    def finds_unseen(self) -> bool:
        """Whether labels that no text of training carries are among those it may rank first."""
        return False

    @property
    def learns_label_points(self) -> bool:
        """Whether rows that are texts of labels, with soft targets, may be among the examples."""
        return False

    @property
    def weighs_label_points(self) -> bool:
        """Whether such rows count by `Examples.label_point_weight`; else as texts do."""
        return False

    def settings_for(self, labels: int) -> dict[str, Any]:
        """The parameters that the number of labels decides where they are None: what a fit on so
        many labels takes."""
        return {}

    def fit(
        self,
        X: Any,
        Y: csr_matrix,
        labels: LabelSet | None = None,
        *,
        label_rows: Matrix | None = None,
        columns: Sequence[str] | None = None,
    ) -> Self:
        """Learn from rows and the labels they carry.

        Parameters
        ----------
        X : CSR matrix, array, tokens or views
            The rows, as a featurizer gives them.
        Y : CSR matrix (rows, labels)
            The relevance of each label, in float32.
        labels : LabelSet, optional
            What the columns of Y mean; by default labels are numbered.
        label_rows : CSR matrix or array, optional
            A row for the text of each label, where the classifier looks at label texts.
        columns : list of str, optional
            What the columns of X are called, where the classifier looks words up.
        """
        more: dict[str, Any] = {}
        if label_rows is not None:
            more["find_label_rows"] = lambda: label_rows
        if columns is not None:
            more["find_columns"] = lambda: columns
        return self.fit_examples(Examples.of(X, Y, labels, **more))

    def fit_examples(self, examples: Examples) -> Self:
        """Learn from examples: what `fit` makes of its arguments."""
        self.check_parameters()
        self._fit(examples)
        self.labels_ = examples.labels
        return self

    @abstractmethod
    def _fit(self, examples: Examples) -> None:
        """Learn from examples, which are checked as parameters are; `labels_` is set afterwards."""

    @abstractmethod
    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k best labels of each row, best first, ties to the lower label number."""

    def rank_allowed(self, X: Matrix, k: int, allowed: np.ndarray) -> Ranking:
        """The k best labels of each row among those that are allowed, with the scores that `rank`
        gives them; there are places left over where there are not so many.

        Parameters
        ----------
        X : CSR matrix, array, tokens or views
        k : int
        allowed : bool array (labels,)
            Which labels may be answers.
        """
        self.check_fitted()
        allowed = np.asarray(allowed)
        if allowed.dtype != bool or allowed.shape != (len(self.labels_),):
            raise ShapeError(
                f"allowed must be a bool for each of {len(self.labels_)} labels, not "
                f"{allowed.dtype} {allowed.shape}"
            )
        k = clamped(k, max(1, len(allowed)))
        return self.rank(X, k) if allowed.all() else self._rank_allowed(X, k, allowed)

    @property
    def may_miss(self) -> bool:
        """Whether `rank_allowed` may find labels of higher scores than some that `rank` finds, as a
        beam of the best nodes goes elsewhere then."""
        return False

    def _rank_allowed(self, X: Any, k: int, allowed: np.ndarray) -> Ranking:
        """The ranking among some labels, where not all are allowed.

        By default rows are ranked deeper and deeper until enough of the labels are allowed, at last
        all labels. A classifier that can look among these labels alone writes it.
        """
        labels, rows = len(allowed), row_count(X)
        wanted = min(k, int(allowed.sum()))
        ids = np.full((rows, k), labels, np.int32)
        scores = np.full((rows, k), -np.inf, np.float32)
        waiting = np.arange(rows if wanted else 0)
        depth = min(labels, 2 * k + int(wanted / max(allowed.mean(), 1 / labels)))
        while len(waiting):
            size, left = max(1, _CELLS // depth), []
            for start in range(0, len(waiting), size):
                some = waiting[start : start + size]
                own = X if len(some) == rows else some_rows(X, some)
                found = self.rank(own, depth).only(allowed).top(k)
                done = found.present.sum(axis=1) >= wanted
                if depth == labels:
                    done[:] = True
                ids[some[done], : found.k] = found.ids[done]
                scores[some[done], : found.k] = found.scores[done]
                left.append(some[~done])
            waiting, depth = np.concatenate(left), min(labels, 2 * depth)
        return Ranking(ids, scores, self.labels_)

    def parts(self, features: Featurizer) -> tuple[Featurizer, Classifier]:
        """What answers, once trained on the vectors of `features`: features and a classifier.

        By default both stay as they are. A neural classifier takes its encoder over to the
        features and gives the ranker of its labels, which needs no torch.
        """
        return features, self

    def onnx_twin(self, int8: bool) -> Classifier:
        """One that gives the same answers, to 1e-3, without torch; itself where it needs none."""
        return self

    @property
    def ranks_held_out(self) -> bool:
        """Whether `rank_held_out` can do without a new fit."""
        return False

    def rank_held_out(self, X: Matrix, rows: np.ndarray, k: int) -> Ranking:
        """Rank some training rows, each as if it had not been seen: X holds them, `rows` are their
        numbers.

        Calibration learns from it without a second training.
        """
        raise ParameterError(
            f"{type(self).__name__} must be fitted without rows to rank them as if not seen"
        )

    def partial_fit(self, X: Matrix, Y: csr_matrix, labels: LabelSet) -> Self:
        """Learn more rows; `labels` is the known label set, with any new labels at its end."""
        raise ParameterError(
            f"{type(self).__name__} cannot learn more rows; fit it anew on all of them"
        )

    def pruned(self, threshold: float = 0.0, max_per_label: int | None = None) -> Self:
        """A copy without weights of at most `threshold`, and with at most so many a label."""
        raise ParameterError(f"{type(self).__name__} has no weights to prune")

    def linear_layer(self) -> tuple[Any, np.ndarray, str]:
        """Weights of labels for all features, an array or CSR matrix (labels, width), biases, and
        what makes scores of their products ("sigmoid", "hinge"); where labels are scored so."""
        raise ParameterError(f"{type(self).__name__} does not score labels by a linear layer")


class Calibrator(Component, ABC):
    """Scores to probabilities, learned from the first `k` labels of held-out rankings."""

    k: int

    @abstractmethod
    def fit(
        self,
        ranking: Ranking,
        Y: csr_matrix,
        *,
        label_counts: np.ndarray | None = None,
        counted: bool = False,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Learn from the ranking of rows that the classifier has not seen, and their labels.

        Parameters
        ----------
        ranking : Ranking
        Y : CSR matrix (rows, labels)
        label_counts : array (labels,), optional
            How often each label occurs in the rows that the classifier was trained on.
        counted : bool
            Whether the ranked rows are among these, each ranked without itself: then a row's own
            labels are counted once less for it.
        weights : array (rows,), optional
            How much each row counts.
        """

    def for_counts(self, label_counts: np.ndarray) -> Self:
        """The same for a classifier that was trained on other rows, in which each label occurs so
        often; itself where frequencies do not matter."""
        return self

    def with_unseen(self, more: int) -> Self:
        """The same for so many more labels, which no text of training carried; itself where
        frequencies do not matter."""
        return self

    def shortlist(self, k: int) -> int:
        """How many labels a text must be ranked for the probabilities of k of them."""
        return k

    def native(self) -> _native.Joint | None:
        """What the native core answers by in its place, row by row; None: only `apply` will do."""
        return None

    @abstractmethod
    def apply(self, ranking: Ranking) -> Ranking:
        """The same labels with probabilities for scores, in the same order where one map serves
        them all."""


class Decision(Component, ABC):
    """Probabilities to label sets. By default it learns nothing."""

    LEARNED: ClassVar[Mapping[str, Learned]] = {}

    @property
    def most(self) -> int | None:
        """How many labels of a text it gives at most where nobody says how many; None: it does not
        know when to stop."""
        return None

    @property
    def learns(self) -> bool:
        """Whether it must be fitted before it can be applied."""
        return False

    def fit(
        self,
        ranking: Ranking,
        Y: csr_matrix | None = None,
        train_labels: tuple[np.ndarray, int] | None = None,
    ) -> Self:
        """Learn, where there is something to learn, from a held-out ranking, its labels, and how
        often each label occurs in so many training texts."""
        return self

    def shortlist(self, k: int) -> int:
        """How many labels a text must be ranked to decide on k of them."""
        return k

    @abstractmethod
    def apply(self, ranking: Ranking, k: int, *, overwrite: bool = False) -> Ranking:
        """The labels to answer with, at most k a row.

        With `overwrite` the answer may take the place of the ranking given, so that memory hardly
        holds more than that. It is of no more use then, nor is what shares its arrays: a ranking
        that it is a slice of, or the arrays that it was made of.
        """
