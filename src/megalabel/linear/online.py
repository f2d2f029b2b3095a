"""OnlineTree: a probabilistic label tree that learns text by text and takes in new labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix, vstack

from megalabel import _native
from megalabel.base import Check, Learned, array, boolean, integer, list_of, number, part, value
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import (
    check_targets,
    check_width,
    clamped,
    row_numbers,
    sparse_rows,
    with_values,
)
from megalabel.errors import ParameterError, ShapeError
from megalabel.labels import GrowingTree, LabelTree, label_vectors
from megalabel.labels.growing import TOP, Raised
from megalabel.linear.chunks import ChunkedWeights, beam_search
from megalabel.linear.explanation import Step, explain_path
from megalabel.linear.training import rows_of
from megalabel.parts import Classifier
from megalabel.progress import progress

if TYPE_CHECKING:
    from megalabel.base import Matrix

# Feature starts, features, weights, squares: see OnlineTree.
Blocks = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]

# The margin of a node that is there for the shape of the tree alone: its probability is 1, and of
# one for labels that no text has had yet, as good as 0.
CERTAIN = 60.0


class OnlineTree(Classifier):
    """A tree of logistic regressions, each trained by one step of AdaGrad a text.

    Every node is told from its siblings on the texts of its parent, as in a probabilistic label
    tree that is trained in one go; a label's score is the product down its path, which estimates
    its probability. What is learned from a stream of texts does not depend on how the tree came to
    be as it is: each node has beside its children a classifier of the child to come, which takes
    all its texts for negatives, and a child that joins starts as a copy of it. So the outcome is
    that of the final tree had it been there from the first text (Jasinska-Kobus et al. 2021).

    `fit` clusters the labels into a tree and goes through the texts several times, in an order
    drawn by the seed; `partial_fit` goes through new texts once, in the order given. The new labels
    among them join the tree before, where the nodes' classifiers see their texts.

    Parameters
    ----------
    arity : int
        Nodes below a node, at most; a power of two.
    max_leaf : int
        Labels below a node, at most.
    passes : int
        How often `fit` goes through the texts.
    rate, epsilon : float
        A step of a weight with gradient g is rate * g / sqrt(epsilon + sum of all g^2 so far).
    balance : float
        How much new labels are drawn to small branches rather than to like ones: 0 to 1.
    bias : float
        The value of the constant feature; 0: none.
    prune : float
        Weights of at most this size are not searched by; training goes on with all of them.
    beam : int
    exact : bool
        Search best first for the exact answer instead of by beam.
    seed : int

    Attributes
    ----------
    labels_ : LabelSet
    n_features_ : int
    tree_ : GrowingTree
    feature_starts_ : int64 array (nodes + 1,)
        The block of node p has a row for each of the features `features_[feature_starts_[p] :
        feature_starts_[p + 1]]` (the bias has the number of features), and a column for each place.
    features_ : int32 array
    weights_, squares_ : float32 arrays
        The blocks, one after another, and the sums of squared gradients.
    levels_ : list of ChunkedWeights
        The weights as they are searched.
    label_of_leaf_ : int32 array (labels,)
        The labels in the order of the last level.

    Examples
    --------
    >>> X = csr_matrix([[1.0, 0, 0], [1, 1, 0], [0, 0, 1]])
    >>> Y = csr_matrix([[1.0, 0], [1, 0], [0, 1]])
    >>> model = OnlineTree().fit(X, Y, LabelSet(["cat", "dog"]))
    >>> new = csr_matrix([[0, 0, 1.0]] * 2)  # two texts on something not met before
    >>> labels = LabelSet(["cat", "dog", "hen"])
    >>> model = model.partial_fit(csr_matrix([[0, 1.0, 0]] * 2), new, labels)
    >>> [tags[0].label for tags in model.rank(np.eye(3), k=1).tags()]
    ['cat', 'hen', 'dog']
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "arity": integer(2),
        "max_leaf": integer(2),
        "passes": integer(1),
        "rate": number(1e-6),
        "epsilon": number(1e-12),
        "balance": number(0, 1),
        "bias": number(0),
        "prune": number(0),
        "beam": integer(1),
        "exact": boolean(),
        "seed": integer(0),
    }

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "n_features_": value(integer(0, 2**31 - 2)),
        "tree_": part(GrowingTree),
        "feature_starts_": array(np.int64, "nodes+1"),
        "features_": array(np.int32, "rows"),
        "weights_": array(np.float32, "weights"),
        "squares_": array(np.float32, "weights"),
        "levels_": list_of(part(ChunkedWeights)),
        "label_of_leaf_": array(np.int32, "labels"),
    }

    n_features_: int
    tree_: GrowingTree
    feature_starts_: np.ndarray
    features_: np.ndarray
    weights_: np.ndarray
    squares_: np.ndarray
    levels_: list[ChunkedWeights]
    label_of_leaf_: np.ndarray

    def __init__(
        self,
        *,
        arity: int = 16,
        max_leaf: int = 15,
        passes: int = 3,
        rate: float = 1.0,
        epsilon: float = 1e-3,
        balance: float = 0.5,
        bias: float = 1.0,
        prune: float = 0.1,
        beam: int = 10,
        exact: bool = True,
        seed: int = 0,
    ) -> None:
        self.arity = arity
        self.max_leaf = max_leaf
        self.passes = passes
        self.rate = rate
        self.epsilon = epsilon
        self.balance = balance
        self.bias = bias
        self.prune = prune
        self.beam = beam
        self.exact = exact
        self.seed = seed

    # --- learning

    @property
    def learns_label_points(self) -> bool:
        """True: as texts that carry the labels which are more likely than not."""
        return True

    def _fit(self, examples: Examples) -> None:
        """Cluster the labels into a tree, and go through the rows several times."""
        X, Y, labels = rows_of(examples.rows), _likely(examples), examples.labels
        seen = np.unique(Y.indices)
        tree = None
        if len(seen):
            vectors = label_vectors(X, Y[:, seen])
            tree = LabelTree.balanced(
                vectors, arity=self.arity, max_leaf=self.max_leaf, seed=self.seed
            )
        growing = GrowingTree.of(tree, seen, len(labels))
        nodes = len(growing.node_parents_)
        empty = np.empty(0, np.float32)
        blocks: Blocks = (np.zeros(nodes + 1, np.int64), np.empty(0, np.int32), empty, empty)
        columns = np.zeros(nodes, np.int32)
        random = np.random.default_rng(self.seed)
        with progress("passes", self.passes) as bar:
            for _ in range(self.passes):
                order = random.permutation(X.shape[0])
                blocks = self._learn(X, Y, growing, blocks, columns, order)
                columns = growing.columns()
                bar.advance()
        self._keep(X.shape[1], labels, growing, blocks)

    def partial_fit(self, X: Matrix, Y: csr_matrix, labels: LabelSet) -> Self:
        """Go through more rows once; `labels` is the known set, with any new labels at its end."""
        if not self.fitted:
            return self.fit(X, Y, labels)
        self.check_parameters()
        check_width(self, X, self.n_features_)
        Y = check_targets(X, Y)
        X = rows_of(X)
        known = len(self.labels_)
        if not known <= len(labels) == Y.shape[1]:
            raise ShapeError(f"Y is {Y.shape}, there are {len(labels)} labels and were {known}")
        tree = GrowingTree()
        tree.restore(self.tree_.learned())
        tree.expect(len(labels))
        columns = self.tree_.columns()
        raised = self._join(X, Y, tree)
        blocks: Blocks = (self.feature_starts_, self.features_, self.weights_, self.squares_)
        blocks, columns = _opened(blocks, columns, raised, len(tree.node_parents_))
        blocks = self._learn(X, Y, tree, blocks, columns, np.arange(X.shape[0]))
        self._keep(self.n_features_, labels, tree, blocks)
        return self

    def _join(self, X: csr_matrix, Y: csr_matrix, tree: GrowingTree) -> list[Raised]:
        """Let the labels that are met for the first time join, in the order of their texts."""
        met, first = np.unique(Y.indices, return_index=True)
        is_new = tree.label_parents_[met] < 0
        new = met[is_new][np.argsort(first[is_new], kind="stable")]
        if not len(new):
            return []
        vectors = label_vectors(X, Y[:, new])
        row_of = {int(label): i for i, label in enumerate(new)}
        columns = self.tree_.columns()
        begins = _begins(self.feature_starts_, columns)
        known = len(columns)

        def scores(label: int, node: int) -> np.ndarray:
            if node >= known:  # raised with this batch: nothing tells its children apart yet
                return np.zeros(0)
            x = vectors[row_of[label]]
            own = self.features_[self.feature_starts_[node] : self.feature_starts_[node + 1]]
            block = self.weights_[begins[node] : begins[node + 1]].reshape(-1, columns[node])
            _, at_x, at = np.intersect1d(x.indices, own, assume_unique=True, return_indices=True)
            margins = x.data[at_x] @ block[at]
            if len(own) and own[-1] == self.n_features_:
                margins = margins + self.bias * block[-1]
            scores: np.ndarray = 1 / (1 + np.exp(-margins[1:].astype(np.float64)))
            return scores

        return tree.grow(
            new.tolist(), scores, arity=self.arity, max_leaf=self.max_leaf, balance=self.balance
        )

    def _learn(
        self,
        X: csr_matrix,
        Y: csr_matrix,
        tree: GrowingTree,
        blocks: Blocks,
        columns: np.ndarray,
        order: np.ndarray,
    ) -> Blocks:
        """The blocks after one pass over the rows in some order; `columns` is how wide they are."""
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        rows = rank[np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))]
        starts, visitors, place_starts, places = tree.visits(rows, Y.indices, Y.shape[0])
        feature_starts, features, weights, squares = blocks
        return _native.update_blocks(
            rows=sparse_rows(X),
            visits=_native.Visits(
                starts=starts.astype(np.int64, copy=False),
                rows=order[visitors].astype(np.int32),
                place_starts=place_starts.astype(np.int64, copy=False),
                places=places,
            ),
            blocks=_native.Blocks(
                feature_starts=feature_starts,
                features=features,
                columns=columns,
                weights=weights,
                squares=squares,
            ),
            columns=tree.columns(),
            rate=self.rate,
            epsilon=self.epsilon,
            bias=self.bias,
        )

    def _keep(self, width: int, labels: LabelSet, tree: GrowingTree, blocks: Blocks) -> None:
        """Take over what was learned, all at once, and make it ready for search."""
        levels, label_of_leaf = _levels(tree, blocks, width, self.prune)
        self.n_features_, self.labels_, self.tree_ = width, labels, tree
        self.feature_starts_, self.features_, self.weights_, self.squares_ = blocks
        self.levels_, self.label_of_leaf_ = levels, label_of_leaf

    # --- answering

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k labels of the highest probability; with `exact=False`, of those the beam meets."""
        return self._searched(X, k)

    @property
    def may_miss(self) -> bool:
        """True where the beam may not meet all labels."""
        return not self.exact

    def _rank_allowed(self, X: Matrix, k: int, allowed: np.ndarray) -> Ranking:
        return self._searched(X, k, allowed)

    def _searched(self, X: Matrix, k: int, allowed: np.ndarray | None = None) -> Ranking:
        self.check_fitted()
        check_width(self, X, self.n_features_)
        k = clamped(k, max(1, len(self.labels_)))
        ids, scores = beam_search(
            self.levels_,
            self.label_of_leaf_,
            X,
            k,
            beam=self.beam,
            post="sigmoid",
            bias=self.bias,
            exact=self.exact,
            n_labels=len(self.labels_),
            allowed=allowed,
        )
        return Ranking(ids, scores, self.labels_)

    def explain(self, x: csr_matrix, label: int) -> list[Step]:
        """The features of one row that spoke for and against each node on the way to a label."""
        self.check_fitted()
        path = [int(np.flatnonzero(self.label_of_leaf_ == label)[0])]
        for level in reversed(self.levels_[1:]):
            path.insert(0, int(np.searchsorted(level.child_starts_, path[0], side="right")) - 1)
        steps = explain_path(self.levels_, path, x, self.bias)
        depth, node = 1, int(self.tree_.label_parents_[label])
        while node > TOP:
            depth, node = depth + 1, int(self.tree_.node_parents_[node])
        return steps[:depth]  # below it the label is carried on to the last level

    def check_learned(self) -> None:
        """Tree and weights must fit each other."""
        me, labels, columns = "OnlineTree", len(self.labels_), self.tree_.columns()
        if len(self.tree_.label_parents_) != labels:
            raise ValueError(f"a tree of {len(self.tree_.label_parents_)} labels for {labels}")
        starts = self.feature_starts_
        if len(starts) != len(columns) + 1:
            raise ValueError(f"feature_starts_ of {me} must be of {len(columns)} nodes")
        if starts[0] != 0 or starts[-1] != len(self.features_) or (np.diff(starts) < 0).any():
            raise ValueError(f"feature_starts_ of {me} must rise from 0 to its features")
        if _begins(starts, columns)[-1] != len(self.weights_):
            raise ValueError(f"the weights of {me} do not fill its blocks")
        if not np.array_equal(np.sort(self.label_of_leaf_), np.arange(labels)):
            raise ValueError(f"label_of_leaf_ of {me} must hold each of its labels once")
        if (
            not self.levels_
            or self.levels_[-1].n_nodes != labels
            or any(level.n_features_ != self.n_features_ for level in self.levels_)
        ):
            raise ValueError(f"levels_ of {me} must lead to its {labels} labels")

    def take_labels(self, numbers: Any) -> Self:
        """Not possible: its nodes keep a column for each label that they have met."""
        raise ParameterError("an OnlineTree cannot be cut to some of its labels")


def _likely(examples: Examples) -> csr_matrix:
    """The labels of texts, and of label points those whose targets are above one half."""
    Y = examples.targets
    if examples.label_points is None:
        return Y
    point = np.zeros(len(examples), bool)
    point[examples.label_points] = True
    likely = with_values(Y, np.where(point[row_numbers(Y)] & (Y.data <= 0.5), 0, Y.data))
    likely.eliminate_zeros()
    return likely


def _begins(feature_starts: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Where the weights of each block begin, and where the last one's end."""
    return np.append(0, np.cumsum(np.diff(feature_starts) * columns))


def _opened(
    blocks: Blocks, columns: np.ndarray, raised: list[Raised], n_nodes: int
) -> tuple[Blocks, np.ndarray]:
    """Blocks for nodes that are new, which have none yet, and how wide each is.

    A raised node has seen the texts of the node below it, all for positives: its first child's
    classifier is that of the child to come, with the signs turned.
    """
    feature_starts, features, weights, squares = blocks
    begins = _begins(feature_starts, columns)
    to_come: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
    for one in raised:
        if one.node < len(columns):  # one raised above a node that is new has seen nothing either
            at = slice(feature_starts[one.node], feature_starts[one.node + 1])
            block = slice(begins[one.node], begins[one.node + 1])
            weight, square = (
                a[block].reshape(-1, columns[one.node])[:, 0] for a in (weights, squares)
            )
            to_come[one.by] = (features[at], weight, square)
    lengths = np.append(np.diff(feature_starts), np.zeros(n_nodes - len(columns), np.int64))
    columns = np.append(columns, np.zeros(n_nodes - len(columns), np.int32))
    parts = [[features], [weights], [squares]]
    for node, (own, weight, square) in sorted(to_come.items()):
        lengths[node], columns[node] = len(own), 2
        parts[0].append(own)
        parts[1].append(np.stack([weight, -weight], axis=1).ravel())
        parts[2].append(np.stack([square, square], axis=1).ravel())
    features, weights, squares = map(np.concatenate, parts)
    return (np.append(0, np.cumsum(lengths)), features, weights, squares), columns


def _levels(
    tree: GrowingTree, blocks: Blocks, width: int, prune: float
) -> tuple[list[ChunkedWeights], np.ndarray]:
    """The weights level by level, as search takes them, and the labels of the last level.

    There every label is on the last level: those that end above are carried on through nodes of
    probability 1. Labels that no text has had are below a node of their own.
    """
    columns = tree.columns()
    feature_starts, features, of_blocks, squares = blocks
    starts, indices, values = _native.block_child_rows(
        _native.Blocks(
            feature_starts=feature_starts,
            features=features,
            columns=columns,
            weights=of_blocks,
            squares=squares,
        ),
        width=width,
        prune=prune,
    )
    children, nodes, n_labels = len(starts) - 1, len(columns), len(tree.label_parents_)
    fixed = csr_matrix(([CERTAIN, -CERTAIN], [width, width], [0, 1, 2]), (2, width + 1))
    certain, unseen = children, children + 1
    weights = csr_matrix((values, indices, starts), (children, width + 1))
    weights = vstack([weights, fixed], "csr", dtype=np.float32)

    # The children of all nodes by place: a label has its number, a node that and `n_labels`. After
    # them the children of one node more: labels that have not joined.
    first = np.append(0, np.cumsum(columns - 1))
    waiting = np.flatnonzero(tree.label_parents_ < 0)
    names = np.append(np.empty(children, np.int64), waiting)
    rows_of_names = np.append(np.arange(children), np.full(len(waiting), certain))
    for offset, parents, places in (
        (0, tree.label_parents_, tree.label_places_),
        (n_labels, tree.node_parents_, tree.node_places_),
    ):
        joined = np.flatnonzero(parents >= 0)
        names[first[parents[joined]] + places[joined] - 1] = offset + joined
    first = np.append(first, len(names))

    level, rows = names[first[TOP] : first[TOP + 1]], rows_of_names[first[TOP] : first[TOP + 1]]
    if len(waiting):
        level, rows = np.append(level, n_labels + nodes), np.append(rows, unseen)
    counts = np.array([len(level)])
    levels = []
    while True:
        levels.append(ChunkedWeights.build(weights[rows], np.append(0, np.cumsum(counts))))
        done = level < n_labels
        if done.all():
            return levels, level.astype(np.int32)
        node = np.where(done, 0, level - n_labels)
        counts = np.where(done, 1, first[node + 1] - first[node])
        above = np.repeat(np.arange(len(level)), counts)
        at = np.arange(len(above)) - np.repeat(np.cumsum(counts) - counts, counts)
        at += first[node][above]
        rows = np.where(done[above], certain, rows_of_names[at])
        level = np.where(done[above], level[above], names[at])
