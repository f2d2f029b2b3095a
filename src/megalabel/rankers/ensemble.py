"""Ensemble: several classifiers that differ by their seeds, and one answer of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import (
    Check,
    Learned,
    clone,
    instance,
    integer,
    list_of,
    one_of,
    part,
    unfitted,
    with_learned,
)
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import clamped
from megalabel.data.ranking import unnamed_scores
from megalabel.features import Each
from megalabel.parts import Classifier, Featurizer


class Ensemble(Classifier):
    """Several classifiers of one kind on the same rows, each from its own seed.

    Scores of different models are brought to a common scale, then added up; a label that a model
    does not name counts 0 there, or the lowest score that it names where that is below 0.

    Parameters
    ----------
    model : Classifier
    models : int
        How many. Every seed in the model and its parts is raised by one from each to the next.
    combine : str
        "average": the mean of the scores. "sigmoid": of their sigmoids. "softmax": of their
        softmax over the labels that the model names. "rank": of their places, the best the most.
        "round-robin": the best label of each model in turn, then the second best, and so on.
    retained : int
        How many labels of each model are looked at, where no more are asked for.

    Attributes
    ----------
    members_ : list of Classifier

    Examples
    --------
    >>> from megalabel.linear import TreeClassifier
    >>> X = csr_matrix([[1.0, 0, 0], [1, 1, 0], [0, 0, 1]])
    >>> Y = csr_matrix([[1.0, 0], [1, 0], [0, 1]])
    >>> Ensemble(TreeClassifier(), models=2, combine="rank").fit(X, Y).rank(X, k=1).ids.ravel()
    array([0, 0, 1], dtype=int32)
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "model": instance(Classifier),
        "models": integer(1),
        "combine": one_of("average", "rank", "sigmoid", "softmax", "round-robin"),
        "retained": integer(1),
    }

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "members_": list_of(part(Classifier)),
    }

    members_: list[Classifier]

    def __init__(
        self,
        model: Classifier,
        models: int = 3,
        *,
        combine: str = "average",
        retained: int = 100,
    ) -> None:
        self.model = model
        self.models = models
        self.combine = combine
        self.retained = retained

    @property
    def reads_texts(self) -> bool:
        """Whether the model does."""
        return self.model.reads_texts

    @property
    def learns_label_points(self) -> bool:
        """Whether the model does."""
        return self.model.learns_label_points

    def _fit(self, examples: Examples) -> None:
        """Fit one model after another."""
        self.members_ = [
            _reseeded(self.model, number).fit_examples(examples) for number in range(self.models)
        ]

    def rank(self, X: Any, k: int) -> Ranking:
        """The k best labels of all models together; of a list (`features.Each`), each model sees
        its own rows."""
        return self._combined(X, k, lambda member, own, wide: member.rank(own, wide))

    @property
    def may_miss(self) -> bool:
        """Whether any of the models may."""
        return any(member.may_miss for member in self.members_)

    def _rank_allowed(self, X: Any, k: int, allowed: np.ndarray) -> Ranking:
        if self.combine not in ("average", "sigmoid"):  # places count: they must be those of all
            return super()._rank_allowed(X, k, allowed)
        return self._combined(
            X, k, lambda member, own, wide: member.rank_allowed(own, wide, allowed)
        )

    def _combined(self, X: Any, k: int, rank: Callable[[Classifier, Any, int], Ranking]) -> Ranking:
        self.check_fitted()
        k = clamped(k, max(1, len(self.labels_)))
        wide = max(k, min(self.retained, len(self.labels_)))
        rows = X if isinstance(X, list) else [X] * len(self.members_)
        found = [rank(member, own, wide) for member, own in zip(self.members_, rows, strict=True)]
        return combined(found, self.combine).top(k)

    def parts(self, features: Featurizer) -> tuple[Featurizer, Classifier]:
        """Those of each model; where these have features of their own, each sees its own rows."""
        pairs = [member.parts(features) for member in self.members_]
        if all(own is features for own, _ in pairs):
            return features, self
        members = [member for _, member in pairs]
        return Each.of([own for own, _ in pairs]), self.with_members(members)

    def onnx_twin(self, int8: bool) -> Classifier:
        """The same over models that need no torch."""
        return self.with_members([member.onnx_twin(int8) for member in self.members_])

    def with_members(self, members: list[Classifier]) -> Ensemble:
        """The same of other members, which are fitted for the same labels."""
        made = unfitted(self).set_params(model=unfitted(members[0]))
        return with_learned(made, members_=members, labels_=members[0].labels_)

    def check_learned(self) -> None:
        """The members must know the same labels."""
        if not self.members_ or any(len(m.labels_) != len(self.labels_) for m in self.members_):
            raise ValueError("members_ of Ensemble must be classifiers of its labels")


def combined(rankings: list[Ranking], how: str) -> Ranking:
    """One ranking of several of the same rows.

    Examples
    --------
    >>> labels = LabelSet(["cat", "dog", "fox"])
    >>> first = Ranking([[0, 1]], [[0.9, 0.5]], labels)
    >>> second = Ranking([[1, 2]], [[0.7, 0.2]], labels)
    >>> combined([first, second], "average").tags()[0][0]
    Tag(label='dog', probability=0.6...)
    >>> combined([first, second], "round-robin").ids
    array([[0, 1, 2]], dtype=int32)
    """
    labels, n = rankings[0].labels, len(rankings[0])
    longest = max(ranking.k for ranking in rankings)
    rows, columns, values = [], [], []
    unnamed = np.zeros(n)  # the sum of what labels count that models do not name
    for number, ranking in enumerate(rankings):
        present = ranking.present
        rows.append(np.nonzero(present)[0])
        columns.append(ranking.ids[present])
        if how == "round-robin":
            places = np.arange(ranking.k) * len(rankings) + number
            scores = np.broadcast_to(1 - places / (longest * len(rankings)), present.shape)
        else:
            scores = _SCALES[how](ranking, longest)
        values.append(scores[present].astype(np.float64))
        if how == "average":
            lowest = unnamed_scores(ranking)
            values[-1] -= lowest[rows[-1]]
            unnamed += lowest
    flat = [np.concatenate(part) for part in (rows, columns, values)]
    if how == "round-robin":  # a label stands where it comes first
        order = np.lexsort((-flat[2], flat[1], flat[0]))
        flat = [part[order] for part in flat]
        first = np.ones(len(order), bool)
        first[1:] = (np.diff(flat[0]) != 0) | (np.diff(flat[1]) != 0)
        flat = [part[first] for part in flat]
    total = csr_matrix((flat[2], (flat[0], flat[1])), shape=(n, len(labels)))
    total.data += np.repeat(unnamed, np.diff(total.indptr))
    if how != "round-robin":
        total.data /= len(rankings) * (longest if how == "rank" else 1)
    width = int(np.diff(total.indptr).max(initial=1))
    return Ranking.from_csr(total, width, labels)


def _softmax(ranking: Ranking, longest: int) -> np.ndarray:
    scores = np.where(ranking.present, ranking.scores, -np.inf)
    grown = np.exp(scores - scores.max(1, initial=-1e30, keepdims=True))
    return np.asarray(grown / np.maximum(grown.sum(1, keepdims=True), 1e-30))


def _places(ranking: Ranking, longest: int) -> np.ndarray:
    # whole numbers, so that ties are ties
    return np.broadcast_to(longest - np.arange(ranking.k), ranking.ids.shape)


def _sigmoid(ranking: Ranking, longest: int) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(ranking.scores, -80, 80)))


_SCALES: dict[str, Callable[[Ranking, int], np.ndarray]] = {
    "average": lambda ranking, longest: ranking.scores,
    "rank": _places,
    "sigmoid": _sigmoid,
    "softmax": _softmax,
}


def _reseeded(model: Classifier, number: int) -> Classifier:
    """A new model like another, with every seed in it raised."""
    made: Classifier = clone(model)
    seeds = {k: v for k, v in made.get_params().items() if k.rpartition("__")[2] == "seed"}
    return made.set_params(**{name: seed + number for name, seed in seeds.items()})
