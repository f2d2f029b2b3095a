"""OneVsAll: a linear classifier for each label, trained on all texts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix, vstack

from megalabel.base import Check, Classifier, one_of
from megalabel.checkpoints import Steps
from megalabel.data import LabelSet, Ranking
from megalabel.errors import ShapeError
from megalabel.labels import jpv
from megalabel.linear import training
from megalabel.linear.chunks import ChunkedWeights, beam_search
from megalabel.linear.explanation import Step, explain_path
from megalabel.linear.prior import check_targets, check_width, clamped
from megalabel.progress import progress

if TYPE_CHECKING:
    from megalabel.base import Matrix

LABELS_AT_ONCE = 512  # between two checkpoints; changes no weight


class OneVsAll(Classifier):
    """One linear classifier a label, all of them trained on all texts (DiSMEC).

    For each label, 1/2 |w|² + Σᵢ Cᵢ loss(tᵢ <xᵢ, w>) is minimised by truncated Newton from a
    mean-separating start; the bias is a weight like the others. Weights below `prune` are dropped
    as soon as a label is solved, so that dense weights of all labels never exist.

    Parameters
    ----------
    loss : "squared-hinge" or "logistic"
    cost : float
        C, the price of an error against the ridge.
    weighting : None, "propensity" or "propensity-balanced"
        How much more a positive counts than a negative: the same; 2/p - 1 for a label with the
        propensity p (Jain et al. 2016), against missing labels; or that and class-balanced.
    eps : float
        When to stop: the gradient's length against that at zero, times the share of the rarer
        class.
    bias : float
        The value of the bias feature; 0 for none.
    prune : float
        Weights of at most this size are dropped. The bias stays.
    precision : "float32", "float16" or "int8"
        How weights are stored.
    seed : int
        For likeness to other classifiers: training here is not random.

    Attributes
    ----------
    weights_ : ChunkedWeights
    labels_ : LabelSet

    Examples
    --------
    >>> X = csr_matrix([[1.0, 0, 0], [1, 1, 0], [0, 0, 1]])
    >>> Y = csr_matrix([[1.0, 0], [1, 0], [0, 1]])
    >>> model = OneVsAll().fit(X, Y, LabelSet(["cat", "dog"]))
    >>> [tags[0].label for tags in model.rank(X, k=1).tags()]
    ['cat', 'cat', 'dog']
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **training.PARAMETERS,
        "weighting": one_of(None, "propensity", "propensity-balanced"),
    }

    weights_: ChunkedWeights

    def __init__(
        self,
        *,
        loss: str = "squared-hinge",
        cost: float = 1.0,
        weighting: str | None = None,
        eps: float = 0.01,
        bias: float = 1.0,
        prune: float = 0.05,
        precision: str = "float32",
        seed: int = 0,
    ) -> None:
        self.loss = loss
        self.cost = cost
        self.weighting = weighting
        self.eps = eps
        self.bias = bias
        self.prune = prune
        self.precision = precision
        self.seed = seed

    def fit(self, X: Matrix, Y: csr_matrix, labels: LabelSet | None = None) -> Self:
        """Train a classifier for each column of Y."""
        self.check_parameters()
        Y = check_targets(X, Y)
        X = training.rows_of(X)
        self.labels_ = LabelSet.numbered(Y.shape[1]) if labels is None else labels
        if len(self.labels_) != Y.shape[1]:
            raise ShapeError(f"Y is {Y.shape} but there are {len(self.labels_)} labels")
        targets = Y.tocsc()
        counts = np.diff(targets.indptr)
        positive = np.full(len(counts), self.cost) * self._positive_weights(counts, Y.shape[0])
        # labels of like frequency are solved side by side, frequent ones first
        order = np.argsort(-counts, kind="stable")
        steps = Steps(self, X, Y)

        def train(chosen: np.ndarray) -> csr_matrix:
            return training.train(
                X,
                targets[:, chosen],
                positive_costs=positive[chosen],
                negative_costs=np.full(len(chosen), self.cost),
                loss=self.loss,
                eps=self.eps,
                bias=self.bias,
                prune=self.prune,
            )

        parts = []
        with progress("training labels", len(order)) as bar:
            for start in range(0, len(order), LABELS_AT_ONCE):
                chosen = order[start : start + LABELS_AT_ONCE]
                parts.append(steps.done(f"labels-{start}", partial(train, chosen)))
                bar.advance(len(chosen))
        weights = (
            vstack(parts, format="csr")[np.argsort(order)]
            if parts
            else csr_matrix((0, X.shape[1] + 1))
        )
        self.weights_ = ChunkedWeights.build(weights, [0, len(order)], self.precision)
        return self

    def _positive_weights(self, counts: np.ndarray, n: int) -> np.ndarray:
        if self.weighting is None:
            return np.ones(len(counts))
        weights = 2 / jpv(counts, n) - 1
        if self.weighting == "propensity-balanced":
            share = 0.9 ** np.maximum(counts, 1)  # of Cui et al. 2019, with beta 0.9
            weights = weights * (1 - 0.9) / (1 - share)
        return np.where(counts > 0, weights, 1.0)

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k best labels of each row; scores estimate probabilities, and are not calibrated."""
        self.check_fitted()
        check_width(self, X, self.weights_.n_features_)
        ids, scores = beam_search(
            [self.weights_],
            np.arange(len(self.labels_), dtype=np.int32),
            X,
            clamped(k, max(1, len(self.labels_))),
            post="sigmoid" if self.loss == "logistic" else "noop",
            bias=self.bias,
        )
        if self.loss == "squared-hinge":
            # the minimiser of the squared hinge is 2 P - 1 (Bartlett et al. 2006)
            present = ids < len(self.labels_)
            scores[present] = np.clip((scores[present] + 1) / 2, 0, 1)
        return Ranking(ids, scores, self.labels_)

    def explain(self, x: csr_matrix, label: int) -> list[Step]:
        """The features of one row that spoke for and against a label."""
        self.check_fitted()
        return explain_path([self.weights_], [label], x, self.bias)

    def restore(self, learned: Mapping[str, Any]) -> None:
        """Take weights and labels back; they must fit each other."""
        super().restore(learned)
        if not isinstance(getattr(self, "weights_", None), ChunkedWeights):
            raise ValueError("weights_ of OneVsAll must be ChunkedWeights")
        if not isinstance(getattr(self, "labels_", None), LabelSet):
            raise ValueError("labels_ of OneVsAll must be a label set")
        if self.weights_.n_nodes != len(self.labels_) or self.weights_.n_parents != 1:
            raise ValueError(
                f"OneVsAll has weights for {self.weights_.n_nodes} of {len(self.labels_)} labels"
            )
