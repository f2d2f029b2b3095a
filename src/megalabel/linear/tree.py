"""TreeClassifier: linear classifiers along a tree of labels, searched by beam."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from megalabel.base import Check, Classifier, boolean, instance, integer, one_of
from megalabel.checkpoints import Steps
from megalabel.data import LabelSet, Ranking
from megalabel.errors import ShapeError
from megalabel.labels import LabelTree, label_vectors
from megalabel.linear import training
from megalabel.linear.chunks import POSTPROCESSORS, ChunkedWeights, beam_search
from megalabel.linear.explanation import Step, explain_path
from megalabel.linear.prior import check_targets, check_width, clamped
from megalabel.progress import progress

if TYPE_CHECKING:
    from megalabel.base import Matrix


class TreeClassifier(Classifier):
    """Linear classifiers along label trees: each node is told from its siblings on its rows.

    Labels are clustered into a tree by their vectors; the classifier of a node is trained on the
    texts that belong to its parent, and a text is led down the tree by a beam of the best nodes
    (Parabel, Bonsai, XR-Linear, probabilistic label trees). Several trees vote by their mean.

    Parameters
    ----------
    trees : int
        How many trees, each from its own seed.
    arity : int
        Children of a node.
    max_leaf : int
        Labels of a node above the last level.
    shape : "balanced" or "kmeans"
        Clusters of equal size, halved again and again; or plain k-means of `arity` clusters.
    tree : LabelTree, optional
        A ready-made tree instead; then there is one.
    negatives : "teacher" or "teacher+matcher"
        The rows of a node: those of its parent; and also those that the levels above would lead
        there by their beam.
    beam : int
    post : str
        How margins become scores along a path: see `linear.chunks.beam_search`.
    exact : bool
        Search best first for the exact answer instead of by beam; needs scores that fall.
    loss, cost, eps, bias, prune, precision, seed
        As for `OneVsAll`.

    Attributes
    ----------
    trees_ : list of LabelTree
    levels_ : list (a tree) of lists (a level) of ChunkedWeights
    labels_ : LabelSet

    Examples
    --------
    >>> X = csr_matrix([[1.0, 0, 0], [1, 1, 0], [0, 0, 1]])
    >>> Y = csr_matrix([[1.0, 0], [1, 0], [0, 1]])
    >>> model = TreeClassifier().fit(X, Y, LabelSet(["cat", "dog"]))
    >>> [tags[0].label for tags in model.rank(X, k=1).tags()]
    ['cat', 'cat', 'dog']
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **training.PARAMETERS,
        "trees": integer(1, 100),
        "arity": integer(2),
        "max_leaf": integer(2),
        "shape": one_of("balanced", "kmeans"),
        "tree": instance(LabelTree) | one_of(None),
        "negatives": one_of("teacher", "teacher+matcher"),
        "beam": integer(1),
        "post": one_of(*POSTPROCESSORS),
        "exact": boolean(),
    }

    trees_: list[LabelTree]
    levels_: list[list[ChunkedWeights]]

    def __init__(
        self,
        *,
        trees: int = 1,
        arity: int = 16,
        max_leaf: int = 100,
        shape: str = "balanced",
        tree: LabelTree | None = None,
        negatives: str = "teacher",
        beam: int = 10,
        post: str = "l3-hinge",
        exact: bool = False,
        loss: str = "squared-hinge",
        cost: float = 1.0,
        eps: float = 0.01,
        bias: float = 1.0,
        prune: float = 0.1,
        precision: str = "float32",
        seed: int = 0,
    ) -> None:
        self.trees = trees
        self.arity = arity
        self.max_leaf = max_leaf
        self.shape = shape
        self.tree = tree
        self.negatives = negatives
        self.beam = beam
        self.post = post
        self.exact = exact
        self.loss = loss
        self.cost = cost
        self.eps = eps
        self.bias = bias
        self.prune = prune
        self.precision = precision
        self.seed = seed

    def fit(self, X: Matrix, Y: csr_matrix, labels: LabelSet | None = None) -> Self:
        """Cluster the labels and train the tree from the top."""
        self.check_parameters()
        Y = check_targets(X, Y)
        X = training.rows_of(X)
        self.labels_ = LabelSet.numbered(Y.shape[1]) if labels is None else labels
        if len(self.labels_) != Y.shape[1]:
            raise ShapeError(f"Y is {Y.shape} but there are {len(self.labels_)} labels")
        if self.tree is not None and self.tree.n_labels != Y.shape[1]:
            raise ShapeError(f"Y is {Y.shape} but the tree has {self.tree.n_labels} labels")
        self.trees_ = [self.tree] if self.tree is not None else self._make_trees(X, Y)
        self.levels_ = []
        steps = Steps(self, X, Y)
        nodes = sum(sum(tree.level_sizes) for tree in self.trees_)
        with progress("training nodes", nodes) as bar:
            for number in range(len(self.trees_)):
                self.levels_.append([])
                for level in self._train(X, Y, number, steps):
                    self.levels_[-1].append(level)
                    bar.advance(level.n_nodes)
        return self

    def _make_trees(self, X: csr_matrix, Y: csr_matrix) -> list[LabelTree]:
        vectors = label_vectors(X, Y)
        make = LabelTree.balanced if self.shape == "balanced" else LabelTree.kmeans
        return [
            make(vectors, arity=self.arity, max_leaf=self.max_leaf, seed=self.seed + i)
            for i in range(self.trees)
        ]

    def _train(
        self, X: csr_matrix, Y: csr_matrix, number: int, steps: Steps
    ) -> Iterator[ChunkedWeights]:
        """The levels of one tree, from the top."""
        tree = self.trees_[number]
        done: list[ChunkedWeights] = []
        reach: csc_matrix | None = None  # the rows of each parent; all rows belong to the root
        for depth, starts in enumerate(tree.levels_):
            targets = self._targets(Y, tree, depth)
            columns = targets.shape[1]
            train = partial(
                training.train,
                X,
                targets,
                group_starts=starts,
                reach=reach,
                positive_costs=np.full(columns, self.cost),
                negative_costs=np.full(columns, self.cost),
                loss=self.loss,
                eps=self.eps,
                bias=self.bias,
                prune=self.prune,
            )
            weights = steps.done(f"tree-{number}-level-{depth}", train)
            done.append(ChunkedWeights.build(weights, starts, self.precision))
            yield done[-1]
            reach = targets
            if self.negatives == "teacher+matcher" and depth + 1 < tree.depth:
                reach = (targets + self._matched(done, X)).tocsc()

    @staticmethod
    def _targets(Y: csr_matrix, tree: LabelTree, depth: int) -> csc_matrix:
        """Which rows belong to which node of a level: those of the labels below it."""
        node = tree.leaf_of_label
        for starts in reversed(tree.levels_[depth + 1 :]):
            node = np.searchsorted(starts, node, side="right") - 1
        size = len(tree.label_of_leaf_)
        if depth + 1 < tree.depth:
            size = len(tree.levels_[depth + 1]) - 1
        targets = csr_matrix(
            (np.ones(Y.nnz, np.float32), node[Y.indices], Y.indptr.copy()), (Y.shape[0], size)
        )
        targets.sum_duplicates()
        return targets.tocsc()

    def _matched(self, levels: list[ChunkedWeights], X: csr_matrix) -> csc_matrix:
        """The nodes of the last level so far to which the beam leads each row."""
        size = levels[-1].n_nodes
        ids, _ = beam_search(
            levels,
            np.arange(size),
            X,
            min(self.beam, size),
            beam=self.beam,
            post=self.post,
            bias=self.bias,
        )
        found = ids < size
        rows = np.repeat(np.arange(len(ids)), found.sum(axis=1))
        return csc_matrix((np.ones(len(rows), np.float32), (rows, ids[found])), (len(ids), size))

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k best labels that the beam meets; ensembles take the mean over trees."""
        self.check_fitted()
        check_width(self, X, self.levels_[0][0].n_features_)
        k = clamped(k, max(1, len(self.labels_)))
        wide = k if len(self.trees_) == 1 else max(k, 2 * self.beam)
        answers = [
            beam_search(
                levels,
                tree.label_of_leaf_,
                X,
                wide,
                beam=self.beam,
                post=self.post,
                bias=self.bias,
                exact=self.exact,
                n_labels=len(self.labels_),
            )
            for tree, levels in zip(self.trees_, self.levels_, strict=True)
        ]
        if len(answers) == 1:
            return Ranking(*answers[0], self.labels_).top(k)
        return self._mean(answers, k)

    def _mean(self, answers: list[tuple[np.ndarray, np.ndarray]], k: int) -> Ranking:
        """The mean of the trees' scores; a label that a tree did not meet has 0 there."""
        n = len(answers[0][0])
        rows, columns, values = [], [], []
        for ids, scores in answers:
            present = ids < len(self.labels_)
            rows.append(np.repeat(np.arange(n), present.sum(axis=1)))
            columns.append(ids[present])
            values.append(scores[present] / len(answers))
        total = csr_matrix(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))),
            shape=(n, len(self.labels_)),
        )
        return Ranking.from_csr(total, k, self.labels_)

    def explain(self, x: csr_matrix, label: int) -> list[Step]:
        """The features of one row that spoke for and against each node on the way to a label,
        in the first tree."""
        self.check_fitted()
        tree = self.trees_[0]
        path = [int(tree.leaf_of_label[label])]
        for starts in reversed(tree.levels_[1:]):
            path.insert(0, int(np.searchsorted(starts, path[0], side="right")) - 1)
        return explain_path(self.levels_[0], path, x, self.bias)

    def restore(self, learned: Mapping[str, Any]) -> None:
        """Take trees and weights back; they must fit each other."""
        super().restore(learned)
        trees, levels = getattr(self, "trees_", None), getattr(self, "levels_", None)
        if not isinstance(getattr(self, "labels_", None), LabelSet):
            raise ValueError("labels_ of TreeClassifier must be a label set")
        if not (
            isinstance(trees, list) and isinstance(levels, list) and 0 < len(trees) == len(levels)
        ):
            raise ValueError("TreeClassifier must have the levels of each of its trees")
        for tree, weights in zip(trees, levels, strict=True):
            if not isinstance(tree, LabelTree) or not isinstance(weights, list):
                raise ValueError("trees_ of TreeClassifier must fit its levels_")
            if not all(isinstance(level, ChunkedWeights) for level in weights):
                raise ValueError("levels_ of TreeClassifier must be ChunkedWeights")
            if tree.n_labels != len(self.labels_):
                raise ValueError(f"a tree of {tree.n_labels} labels for {len(self.labels_)}")
            if tree.level_sizes != [level.n_nodes for level in weights]:
                raise ValueError(
                    f"a tree with levels of {tree.level_sizes} nodes, but weights for "
                    f"{[level.n_nodes for level in weights]}"
                )
        if len({level.n_features_ for weights in levels for level in weights}) != 1:
            raise ValueError("levels_ of TreeClassifier differ in their features")
