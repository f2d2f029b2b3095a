"""OneVsAll: a linear classifier for each label, trained on all texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import array, optional, part, unfitted, with_learned
from megalabel.checkpoints import Checkpoint
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import check_width, clamped
from megalabel.linear import training
from megalabel.linear.chunks import ChunkedWeights, beam_search
from megalabel.linear.explanation import Step, explain_path
from megalabel.linear.late import joined, learnable, updated
from megalabel.linear.training import rows_of
from megalabel.work import Job, Unit, execute

if TYPE_CHECKING:
    from megalabel.base import Matrix

LABELS_AT_ONCE = 512  # between two checkpoints; changes no weight


class OneVsAll(training.LinearClassifier):
    """One linear classifier a label, all of them trained on all texts (DiSMEC).

    For each label, 1/2 |w|² + Σᵢ Cᵢ loss(tᵢ <xᵢ, w>) is minimised by truncated Newton from a
    mean-separating start; the bias is a weight like the others. Weights below `prune` are dropped
    as soon as a label is solved, so that dense weights of all labels never exist.

    Parameters
    ----------
    loss : "squared-hinge" or "logistic"
    cost : float
        C, the price of an error against the ridge.
    weighting : str, optional
        How much positives and negatives of each label cost, times `cost`: see
        `labels.label_costs`. "balanced", "propensity", "propensity-negatives",
        "propensity-balanced" or "propensity-rebalanced"; None: all the same.
    propensities : str, PropensityModel or array (labels,), optional
        What such a weighting takes for the propensities of labels: see
        `labels.label_propensities`. None: the model of Jain, Prabhu and Varma (2016).
    positive_costs, negative_costs : arrays (labels,), optional
        What an error on a text with, and on a text without, each label costs, times `cost`; in
        place of `weighting`.
    relevance : None or "labels"
        "labels": the cost of a positive is multiplied with its relevance, the value in Y.
    relevance_norm : None, "l1", "l2" or "max"
        First divide the relevances of each text by their sum, length or maximum.
    eps : float
        When to stop: the gradient's length against that at zero, times the share of the rarer
        class; a tenth of it where all features are dense.
    bias : float
        The value of the bias feature; 0 for none.
    prune : float
        Weights of at most this size are dropped. The bias stays, and gets what they added to the
        margins of the label's own texts, on average.
    precision : "float32", "float16" or "int8"
        How weights are stored.
    seed : int
        For likeness to other classifiers: training here is not random.

    Attributes
    ----------
    weights_ : ChunkedWeights
    labels_ : LabelSet
    joined_ : bool array (labels,), optional
        Which labels came after training.

    Examples
    --------
    >>> X = csr_matrix([[1.0, 0, 0], [1, 1, 0], [0, 0, 1]])
    >>> Y = csr_matrix([[1.0, 0], [1, 0], [0, 1]])
    >>> model = OneVsAll().fit(X, Y, LabelSet(["cat", "dog"]))
    >>> [tags[0].label for tags in model.rank(X, k=1).tags()]
    ['cat', 'cat', 'dog']
    """

    LEARNED = {  # noqa: RUF012
        "labels_": part(LabelSet, "labels"),
        "weights_": part(ChunkedWeights),
        "joined_": optional(array(bool, "labels")),
    }

    weights_: ChunkedWeights
    joined_: np.ndarray | None = None

    def __init__(
        self,
        *,
        loss: str = "squared-hinge",
        cost: float = 1.0,
        weighting: str | None = None,
        propensities: Any = None,
        positive_costs: Any = None,
        negative_costs: Any = None,
        relevance: str | None = None,
        relevance_norm: str | None = None,
        eps: float = 0.01,
        bias: float = 1.0,
        prune: float = 0.05,
        precision: str = "float32",
        seed: int = 0,
    ) -> None:
        self.loss = loss
        self.cost = cost
        self.weighting = weighting
        self.propensities = propensities
        self.positive_costs = positive_costs
        self.negative_costs = negative_costs
        self.relevance = relevance
        self.relevance_norm = relevance_norm
        self.eps = eps
        self.bias = bias
        self.prune = prune
        self.precision = precision
        self.seed = seed

    def _fit(self, examples: Examples) -> None:
        """Train a classifier for each label."""
        job = OneVsAllJob(self, examples)
        execute(job, Checkpoint(self, job.rows, job.targets, *job.costs))
        self.weights_ = job.weights()

    def with_labels(self, others: Sequence[Self], labels: LabelSet) -> Self:
        """The classifiers of all labels: what training on all of them at once gives."""
        levels = [one.weights_ for one in (self, *others)]
        ends = np.cumsum([level.n_nodes for level in levels])
        places = np.split(np.arange(ends[-1]), ends[:-1])
        merged = self._with_labels(others)
        merged.restore({"weights_": ChunkedWeights.join(levels, places), "labels_": labels})
        return merged

    def add_labels(self, labels: LabelSet, weights: csr_matrix) -> Self:
        """A copy that knows more labels, after its own; what is known of these stays as it is.

        Parameters
        ----------
        labels : LabelSet
        weights : CSR matrix (labels, features + 1)
            Their classifiers; the last column is the bias.
        """
        self.check_fitted()
        more = self._grown(len(labels))
        more.restore(
            {
                "weights_": self.weights_.with_nodes(weights, np.zeros(len(labels), np.int64)),
                "labels_": self.labels_.extended(labels),
                "joined_": joined(self, len(labels)),
            }
        )
        return more

    def widened(self, features: int) -> Self:
        """A copy for rows of more columns, which follow those there are and have no weight."""
        self.check_fitted()
        weights = self.weights_.widened(features)
        return with_learned(unfitted(self), **(self.learned() | {"weights_": weights}))

    def partial_fit(self, X: Matrix, Y: csr_matrix, labels: LabelSet) -> Self:
        """Learn more texts of labels that came after training (`add_labels`); the classifiers that
        were trained stay as they are.

        A classifier moves as little as it can to tell the label's own texts from the others given.
        """
        if not self.fitted:
            return self.fit(X, Y, labels)
        numbers = learnable(self, X, Y, labels, self.weights_.n_features_)
        own = self.weights_.to_csr()[numbers]
        moved = updated(own, rows_of(X), csr_matrix(Y)[:, numbers], self.loss, self.cost, self.bias)
        self.weights_ = self.weights_.with_replaced(numbers, moved)
        return self

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k best labels of each row; scores estimate probabilities, and are not calibrated."""
        return self._searched(X, k)

    def _rank_allowed(self, X: Matrix, k: int, allowed: np.ndarray) -> Ranking:
        return self._searched(X, k, allowed)

    def _searched(self, X: Matrix, k: int, allowed: np.ndarray | None = None) -> Ranking:
        self.check_fitted()
        check_width(self, X, self.weights_.n_features_)
        ids, scores = beam_search(
            [self.weights_],
            _leaves(len(self.labels_)),
            X,
            clamped(k, max(1, len(self.labels_))),
            post="sigmoid" if self.loss == "logistic" else "noop",
            bias=self.bias,
            allowed=allowed,
        )
        if self.loss == "squared-hinge":
            # the minimiser of the squared hinge is 2 P - 1 (Bartlett et al. 2006)
            present = ids < len(self.labels_)
            scores[present] = np.minimum(np.maximum((scores[present] + 1) / 2, 0), 1)
        return Ranking(ids, scores, self.labels_)

    def explain(self, x: csr_matrix, label: int) -> list[Step]:
        """The features of one row that spoke for and against a label."""
        self.check_fitted()
        return explain_path([self.weights_], [label], x, self.bias)

    def linear_layer(self) -> tuple[csr_matrix, np.ndarray, str]:
        """The weights of all labels, and biases."""
        self.check_fitted()
        weights = self.weights_.to_csr()
        bias = self.bias * weights[:, -1].toarray().ravel()
        return weights[:, :-1], bias, "sigmoid" if self.loss == "logistic" else "hinge"

    def check_learned(self) -> None:
        """Weights and labels must fit each other."""
        if self.weights_.n_nodes != len(self.labels_) or self.weights_.n_parents != 1:
            raise ValueError(
                f"OneVsAll has weights for {self.weights_.n_nodes} of {len(self.labels_)} labels"
            )


@lru_cache(maxsize=8)
def _leaves(labels: int) -> np.ndarray:
    """The label of each node of the only level: its number."""
    numbers = np.arange(labels, dtype=np.int32)
    numbers.setflags(write=False)
    return numbers


class OneVsAllJob(Job):
    """The labels of a one-versus-all model, some at a time."""

    title = "training labels"
    run = staticmethod(training.run_unit)

    def __init__(self, model: OneVsAll, examples: Examples) -> None:
        self.rows = training.rows_of(examples.rows)
        self.size = len(examples.labels)
        self.costs = model.label_costs(examples)
        self._model = model
        self._weighed = model.relevance is not None or examples.label_points is not None
        self.targets = training.weighed_targets(
            examples, model.relevance_norm, weighed=model.relevance is not None
        ).tocsc()
        # labels of like frequency are solved side by side, frequent ones first
        order = np.argsort(-np.diff(self.targets.indptr), kind="stable")
        starts = range(0, max(1, self.size), LABELS_AT_ONCE)
        self._places = [order[start : start + LABELS_AT_ONCE] for start in starts]
        self._parts: list[ChunkedWeights] = []

    def units(self) -> list[Unit]:
        """All of them, in one stage."""
        if self._parts:
            return []
        names = (f"labels-{place * LABELS_AT_ONCE}" for place in range(len(self._places)))
        return [self.unit(*named) for named in zip(names, self._places, strict=True)]

    def unit(self, name: str, labels: np.ndarray) -> Unit:
        """The unit of some of the labels."""
        numbers = {"weighed": self._weighed, **self._model.solver()}
        costs = [own[labels] for own in self.costs]
        return training.unit_of(name, self.targets[:, labels], costs, numbers)

    def assemble(self, parts: Iterable[csr_matrix]) -> None:
        """Take weights as they come, in less memory (int8: a third) while others are trained."""
        precision = self._model.precision
        self._parts = [ChunkedWeights.build(part, [0, part.shape[0]], precision) for part in parts]

    def weights(self) -> ChunkedWeights:
        """The weights of all labels, once the stage is assembled."""
        return ChunkedWeights.join(self._parts, self._places)
