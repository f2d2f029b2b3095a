"""ChunkedWeights: the linear classifiers of one level of a tree, and the search through levels.

Siblings are asked about the same queries, so their weights are kept together: the chunk of a parent
is a small sparse matrix over the features that any of its children uses. One-versus-all is a level
whose labels are the children of one parent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

from megalabel import _native
from megalabel.base import (
    Component,
    array,
    check_array,
    integer,
    label_numbers,
    number,
    one_of,
    optional,
    value,
)
from megalabel.data.matrix import canonical, sparse_rows
from megalabel.errors import DataError, ParameterError, ShapeError

if TYPE_CHECKING:
    from megalabel.base import Matrix

PRECISIONS = tuple(_native.Precision.__members__)
POSTPROCESSORS = {
    "l1-hinge": _native.Post.hinge1,
    "l2-hinge": _native.Post.hinge2,
    "l3-hinge": _native.Post.hinge3,
    "l4-hinge": _native.Post.hinge4,
    "sigmoid": _native.Post.sigmoid,
    "noop": _native.Post.noop,
}
BY_NODE = ("scales_", "biases_")  # of whole weights
NOTHING = np.zeros(0, np.float32)
_COUNT, _NUMBER = integer(1), number()  # made once, as they are asked with every query
SECTION = _native.SECTION_FEATURES


class ChunkedWeights(Component):
    """The weights of all nodes of a level, stored by parent for fast scoring.

    Parent p has the nodes `child_starts_[p]` to `child_starts_[p + 1]` of the level as its
    children. Its chunk has a row for each feature that any of them uses, and a row an entry for
    each child that uses it. Made by `build`; `to_csr` gives the weights back. Scores do not depend
    on threads, on batches, or on what the processor can do. All methods may be called from several
    threads.

    Attributes
    ----------
    n_features_ : int
        d, the number of features; the bias has the number d.
    child_starts_ : int64 array (parents + 1,)
    section_starts_ : int64 array (parents * sections + 1,)
        The rows of each chunk, by sections of 65,536 features.
    row_features_ : uint16 array (rows,)
        The feature of each row, counted from the start of its section; rising within it.
    row_starts_ : uint16 array (rows + 1,)
        The first entry of each row, counted from that of its block of 2^`block_bits_` rows.
    block_starts_ : int64 array
        The first entry of each block.
    block_bits_ : int
    entry_gaps_ : uint8 array (entries,)
        The child of each entry, by its place among its siblings, counted from that of the entry
        before it in the row. Gaps that are too wide for this are bridged by entries of weight
        zero, which count 256 fold.
    entry_weights_ : float32, float16 or int8 array (entries,)
    scales_, biases_ : float32 arrays (nodes,)
        What the weights of each node are multiplied with, and its bias, which has no row. Only for
        int8.

    Examples
    --------
    >>> weights = csr_matrix([[1, 0, 0.5], [0, 2, 0], [3, 0, 0]], dtype=np.float32)
    >>> level = ChunkedWeights.build(weights, child_starts=[0, 2, 3])  # two parents
    >>> level.scores(np.array([[1.0, 10.0]]), rows=[0, 0], parents=[1, 0])
    array([ 3. ,  1.5, 20. ], dtype=float32)
    """

    LEARNED = {  # noqa: RUF012
        "n_features_": value(integer(0, 2**31 - 2)),
        "child_starts_": array(np.int64, "parents+1"),
        "section_starts_": array(np.int64, "sections+1"),
        "row_features_": array(np.uint16, "rows"),
        "row_starts_": array(np.uint16, "rows+1"),
        "block_starts_": array(np.int64, "blocks"),
        "block_bits_": value(integer(0, 16)),
        "entry_gaps_": array(np.uint8, "entries"),
        "entry_weights_": array((np.float32, np.float16, np.int8), "entries"),
        "scales_": optional(array(np.float32, "nodes")),
        "biases_": optional(array(np.float32, "nodes")),
    }

    n_features_: int
    child_starts_: np.ndarray
    section_starts_: np.ndarray
    row_features_: np.ndarray
    row_starts_: np.ndarray
    block_starts_: np.ndarray
    block_bits_: int
    entry_gaps_: np.ndarray
    entry_weights_: np.ndarray
    scales_: np.ndarray
    biases_: np.ndarray

    @classmethod
    def build(
        cls, weights: csr_matrix, child_starts: Any, precision: str = "float32"
    ) -> ChunkedWeights:
        """Store the weights of a level by parent.

        Parameters
        ----------
        weights : CSR matrix (nodes, features + 1)
            A row a node, siblings together; the last column is the bias.
        child_starts : array (parents + 1,)
            Where the children of each parent begin.
        precision : "float32", "float16" or "int8"
            What to keep of each weight: all of it; 11 bits; or its share of the largest weight of
            its node in 127ths, where weights that come to zero are left out. Of the bias, int8
            keeps all.
        """
        if not one_of(*PRECISIONS).accepts(precision):
            raise ParameterError(
                f"precision must be {one_of(*PRECISIONS).expected}, not {precision!r}"
            )
        weights = canonical(weights, "weights")
        starts = np.ascontiguousarray(child_starts, dtype=np.int64)
        if weights.shape[1] == 0 or max(weights.shape) >= 2**31:
            raise ShapeError(
                f"weights are {weights.shape}: a column for the bias and at most 31 bits are needed"
            )
        if starts.ndim != 1 or len(starts) == 0 or starts[-1] != weights.shape[0]:
            raise ShapeError(
                f"weights are {weights.shape} but child_starts {starts.shape}"
                f"{f' end at {starts[-1]}' if starts.ndim == 1 and len(starts) else ''}"
            )
        if precision == "float16":
            largest = float(max(weights.data.max(initial=0), -weights.data.min(initial=0)))
            if largest > float(np.finfo(np.float16).max):
                raise DataError(f"a weight of {largest:g} is too large for float16")
        arrays = _native.build_chunks(
            sparse_rows(weights),
            child_starts=starts,
            precision=_native.Precision[precision],
        )
        return cls._of(arrays, precision, weights.shape[1] - 1, starts)

    @classmethod
    def join(cls, parts: Sequence[ChunkedWeights], places: Sequence[Any]) -> ChunkedWeights:
        """The children of several levels with one parent each, as those of a single parent.

        Parameters
        ----------
        parts : sequence of ChunkedWeights
            With the same features and precision.
        places : sequence of int arrays
            Where the children of each part go.
        """
        precision, features = parts[0].precision, parts[0].n_features_
        numbers = [np.ascontiguousarray(part, np.int32) for part in places]
        arrays = _native.join_chunks(
            [part._level for part in parts],
            places=numbers,
            precision=_native.Precision[precision],
        )
        starts = np.array([0, sum(part.n_nodes for part in parts)])
        return cls._of(arrays, precision, features, starts)

    @classmethod
    def _of(cls, built: Any, precision: str, features: int, starts: np.ndarray) -> ChunkedWeights:
        """A level of arrays that the native core has made."""
        *arrays, gaps, weights, scales, biases = built
        names = ("section_starts_", "row_features_", "row_starts_", "block_starts_", "block_bits_")
        learned: dict[str, Any] = dict(zip(names, arrays, strict=True))
        learned |= {"entry_gaps_": gaps, "entry_weights_": weights}
        learned |= {"n_features_": features, "child_starts_": starts}
        if precision == "int8":
            learned |= {"scales_": scales, "biases_": biases}
        level = cls()
        level.restore(learned)
        return level

    @property
    def n_parents(self) -> int:
        """The number of parents: of nodes in the level above."""
        self.check_fitted()
        return len(self.child_starts_) - 1

    @property
    def n_nodes(self) -> int:
        """The number of nodes of this level."""
        self.check_fitted()
        return int(self.child_starts_[-1])

    @property
    def precision(self) -> str:
        """How the weights are stored: "float32", "float16" or "int8"."""
        self.check_fitted()
        return self.entry_weights_.dtype.name

    def to_csr(self) -> csr_matrix:
        """The weights as a matrix (nodes, features + 1), as given to `build` (zeros left out)."""
        self.check_fitted()
        nodes, features, weights = self.chunks(0, self.n_parents)
        shape = (self.n_nodes, self.n_features_ + 1)
        matrix = csr_matrix((weights, (nodes, features)), shape)
        matrix.sort_indices()
        return matrix

    def chunks(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The weights of the children of parents `first` to `last`, by rows of their chunks.

        Returns
        -------
        nodes, features, weights : arrays (entries,)
            The weight of the bias has the feature d.
        """
        self.check_fitted()
        nodes, features, weights = self._stored(first, last)
        if self.precision != "int8":
            return nodes, features, weights
        children = slice(self.child_starts_[first], self.child_starts_[last])
        with_bias = children.start + np.flatnonzero(self.biases_[children])
        bias = np.full(len(with_bias), self.n_features_)
        return (
            np.append(nodes, with_bias),
            np.append(features, bias),
            np.append(weights * self.scales_[nodes], self.biases_[with_bias]),
        )

    def _stored(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same as they are stored: of int8 without scales and biases."""
        sections = self.n_features_ // SECTION + 1
        bounds = np.asarray(self.section_starts_[first * sections : last * sections + 1])
        _check_rising(bounds, len(self.row_features_))
        rows = np.arange(bounds[0], bounds[-1] + 1)
        starts = self.block_starts_[rows >> self.block_bits_] + self.row_starts_[rows]
        _check_rising(starts, len(self.entry_gaps_))
        children = np.asarray(self.child_starts_[first : last + 1])
        _check_rising(children, self.n_nodes)
        in_section, in_row = np.diff(bounds), np.diff(starts)
        base = SECTION * np.tile(np.arange(sections), last - first)
        features = self.row_features_[rows[:-1]] + np.repeat(base, in_section)
        parents = np.repeat(np.repeat(np.arange(last - first), sections), in_section)
        entries = slice(starts[0], starts[-1])
        # the place of a child is the sum of the gaps since its row began
        kept = self.entry_weights_[entries] != 0  # the others bridge gaps
        ends = np.cumsum(np.where(kept, 1, 256) * self.entry_gaps_[entries])
        before = np.concatenate([[0], ends])[starts[:-1] - starts[0]]
        nodes = ends + np.repeat(children[parents] - before, in_row)
        weights = self.entry_weights_[entries].astype(np.float32)
        if (nodes >= np.repeat(children[parents + 1], in_row)).any():
            raise ValueError("entry_gaps_ of ChunkedWeights lead to no child")
        return nodes[kept], np.repeat(features, in_row)[kept], weights[kept]

    def scores(self, X: Matrix, rows: Any, parents: Any, bias: float = 1.0) -> np.ndarray:
        """The scores of all children of some parents for some rows of X.

        Parameters
        ----------
        X : CSR matrix or array (n, features)
        rows, parents : int array (pairs,)
            Pairs of a row of X and a parent.
        bias : float
            The value of the bias feature.

        Returns
        -------
        float32 array
            The scores of the first pair's children, then those of the second's, and so on.
        """
        self.check_fitted()
        rows, parents = (np.ascontiguousarray(pair, dtype=np.int64) for pair in (rows, parents))
        if rows.ndim != 1 or rows.shape != parents.shape:
            raise ShapeError(f"rows are {rows.shape} but parents {parents.shape}")
        return _native.score_pairs(
            self._level, _queries(X, self), bias=_bias(bias), rows=rows, parents=parents
        )

    def check_learned(self) -> None:
        """Sizes are checked here, every position when it is used."""
        owner = type(self).__name__
        if not 0 <= self.child_starts_[-1] < 2**31:
            raise ValueError(f"child_starts_ of {owner} must end at the number of nodes")
        sections = self.n_parents * (self.n_features_ // SECTION + 1)
        check_array(owner, "section_starts_", self.section_starts_, np.int64, (sections + 1,))
        blocks = (len(self.row_features_) >> self.block_bits_) + 1
        check_array(owner, "block_starts_", self.block_starts_, np.int64, (blocks,))
        for name in BY_NODE:
            if self.precision == "int8":
                check_array(owner, name, getattr(self, name, None), np.float32, (self.n_nodes,))
            elif getattr(self, name, None) is not None:
                raise ValueError(f"{name} of {owner} are for int8, not {self.precision}")
        # Kept, as it is asked for with every query.
        self._level = _native.Level(
            child_starts=self.child_starts_,
            section_starts=self.section_starts_,
            row_features=self.row_features_,
            row_starts=self.row_starts_,
            block_starts=self.block_starts_,
            block_bits=self.block_bits_,
            entry_gaps=self.entry_gaps_,
            entry_weights=self.entry_weights_,
            scales=getattr(self, "scales_", NOTHING),
            biases=getattr(self, "biases_", NOTHING),
            features=self.n_features_,
        )

    def take_labels(self, numbers: Any) -> ChunkedWeights:
        """Some of the nodes, all of which must be the children of one parent."""
        if self.n_parents != 1:
            raise ParameterError(
                "of ChunkedWeights with several parents, nodes are taken together with the tree"
            )
        numbers = label_numbers(numbers, self.n_nodes)
        return self.take_nodes(numbers, np.array([0, len(numbers)]))

    def take_nodes(self, nodes: np.ndarray, child_starts: np.ndarray) -> ChunkedWeights:
        """A level of some of the nodes, in that order, with their parents' new starts. Weights are
        those that were stored: they are not rounded again."""
        at, features, weights = self._stored(0, self.n_parents)
        matrix = csr_matrix((weights, (at, features)), (self.n_nodes, self.n_features_ + 1))
        by_node = {}
        if self.precision == "int8":
            by_node = {name: getattr(self, name)[nodes] for name in BY_NODE}
        return self._of_stored(matrix[nodes], child_starts, by_node)

    def with_nodes(self, weights: csr_matrix, parents: np.ndarray) -> ChunkedWeights:
        """A level with more nodes, each the last child of its parent. Weights of the nodes that are
        there are those that were stored: they are not rounded again.

        Examples
        --------
        >>> level = ChunkedWeights.build(csr_matrix([[1.0, 0], [2, 0]]), [0, 1, 2])
        >>> level.with_nodes(csr_matrix([[3.0, 0]]), np.array([0])).to_csr().toarray()[:, 0]
        array([1., 3., 2.], dtype=float32)
        """
        more, counts = self._alike(weights), np.diff(self.child_starts_)
        of_each = np.append(np.repeat(np.arange(len(counts)), counts), parents)
        places = np.empty(len(of_each), np.int64)
        places[np.argsort(of_each, kind="stable")] = np.arange(len(of_each))
        starts = np.append(0, np.cumsum(np.bincount(of_each, minlength=len(counts))))
        return self._with(more, np.split(places, [self.n_nodes]), starts)

    def with_replaced(self, nodes: np.ndarray, weights: csr_matrix) -> ChunkedWeights:
        """The level with other weights for some of its nodes; those of the others stay as stored.

        Examples
        --------
        >>> level = ChunkedWeights.build(csr_matrix([[1.0, 0], [2, 0]]), [0, 1, 2])
        >>> level.with_replaced(np.array([1]), csr_matrix([[3.0, 0]])).to_csr().toarray()[:, 0]
        array([1., 3.], dtype=float32)
        """
        places = np.arange(self.n_nodes)
        places[nodes] = -1  # nowhere
        return self._with(self._alike(weights), [places, nodes], self.child_starts_)

    def widened(self, features: int) -> ChunkedWeights:
        """The level over more features, which follow its own; no node has a weight there.

        Examples
        --------
        >>> level = ChunkedWeights.build(csr_matrix([[1.0, 0, 0.5]]), [0, 1])
        >>> level.widened(3).to_csr().toarray()
        array([[1. , 0. , 0. , 0.5]], dtype=float32)
        """
        nodes, columns, values = self._stored(0, self.n_parents)
        columns = np.where(columns == self.n_features_, features, columns)
        stored = csr_matrix((values, (nodes, columns)), (self.n_nodes, features + 1))
        by_node = {}
        if self.precision == "int8":
            by_node = {name: getattr(self, name) for name in BY_NODE}
        return self._of_stored(stored, self.child_starts_, by_node)

    def _alike(self, weights: csr_matrix) -> ChunkedWeights:
        """Weights in the form that these have, below one parent."""
        return self.build(weights, [0, weights.shape[0]], self.precision)

    def _with(
        self, more: ChunkedWeights, places: Sequence[np.ndarray], child_starts: np.ndarray
    ) -> ChunkedWeights:
        """A level of the nodes of this one and of another, which go to some places; -1: to none."""
        if self.n_parents == 1 and (places[0] >= 0).all():
            return self.join([self, more], places)
        own = [level._stored(0, level.n_parents) for level in (self, more)]
        nodes = np.concatenate([place[at] for place, (at, _, _) in zip(places, own, strict=True)])
        features, values = (np.concatenate([part[i] for part in own]) for i in (1, 2))
        kept, size = nodes >= 0, int(child_starts[-1])
        stored = csr_matrix(
            (values[kept], (nodes[kept], features[kept])), (size, self.n_features_ + 1)
        )
        by_node: dict[str, np.ndarray] = {}
        if self.precision == "int8":
            for name in BY_NODE:
                by_node[name] = np.empty(size, np.float32)
                for level, place in zip((self, more), places, strict=True):
                    by_node[name][place[place >= 0]] = getattr(level, name)[place >= 0]
        return self._of_stored(stored, child_starts, by_node)

    def _of_stored(
        self, stored: csr_matrix, child_starts: np.ndarray, by_node: Mapping[str, np.ndarray]
    ) -> ChunkedWeights:
        """A level of weights as they are stored in this precision; `by_node` is of int8."""
        level = self.build(stored, child_starts)
        learned = level.learned()
        learned["entry_weights_"] = level.entry_weights_.astype(self.precision)
        level.restore(learned | dict(by_node))
        return level


def _check_rising(starts: np.ndarray, most: int) -> None:
    if starts.min() < 0 or starts.max() > most or (np.diff(starts) < 0).any():
        raise ValueError(f"the starts of ChunkedWeights must rise from 0 to {most}")


def beam_search(
    levels: Sequence[ChunkedWeights],
    label_of_leaf: Any,
    X: Matrix,
    k: int,
    *,
    beam: int = 10,
    post: str = "l3-hinge",
    bias: float = 1.0,
    exact: bool = False,
    weights: Any = None,
    n_labels: int | None = None,
    allowed: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The k best labels of each row of X in a tree.

    The score of a label is the product of the scores of the nodes on its path, each a function of
    its margin v. At every level the children of the `beam` best parents are looked at; all parents
    of the first level are. Sums of logarithms are compared, so that scores too small for float32
    keep their order; ties go to the lower number.

    Parameters
    ----------
    levels : list of ChunkedWeights
        From the top. The parents of a level are the nodes of the one before it.
    label_of_leaf : int32 array
        The label of each node of the last level, each at most once.
    X : CSR matrix or array (n, features)
    k : int
    beam : int
        At least the number of nodes of each inner level: all labels are looked at.
    post : str
        "l1-hinge" to "l4-hinge": exp(-max(0, 1 - v)^p); "sigmoid": 1 / (1 + exp(-v)); "noop": the
        margin of the last level alone.
    bias : float
        The value of the bias feature.
    exact : bool
        Best-first search instead: the exact k best, however many parents that takes (Jasinska et
        al. 2016). `beam` has no effect.
    weights : float array (labels,), optional
        With `exact`: what the score of each label is multiplied by, not negative. What
        `subtree_weights` makes of them may be given instead: that takes a pass over all nodes.
    n_labels : int, optional
        The number of labels. None: as many as leaves.
    allowed : bool array (labels,), optional
        Which labels may be answers. Nodes without any of them below are not gone to.

    Returns
    -------
    ids : int32 array (n, k)
        Label numbers; places left over hold the number of labels.
    scores : float32 array (n, k)
        Best first; -inf in places left over.

    Examples
    --------
    >>> top = ChunkedWeights.build(csr_matrix([[1.0, 0, 0], [0, 1, 0]]), [0, 2])
    >>> leaves = ChunkedWeights.build(csr_matrix([[2.0, 0, 0], [0, 2, 0], [1, 1, 0]]), [0, 1, 3])
    >>> ids, scores = beam_search([top, leaves], np.arange(3), np.array([[0.5, 1]]), k=2)
    >>> ids.tolist(), scores.round(3).tolist()
    ([[1, 2]], [[1.0, 1.0]])
    """
    if weights is not None and not exact:
        raise ParameterError("weights are for exact=True")
    labels = np.ascontiguousarray(label_of_leaf, dtype=np.int32)
    prepared = isinstance(weights, list) and all(isinstance(w, np.ndarray) for w in weights)
    if weights is not None and not prepared:
        weights = subtree_weights(levels, labels, weights)
    log_weights = [] if weights is None else [weights]
    tree = [(levels, labels)]
    return _searched(tree, X, k, beam, post, bias, exact, n_labels, allowed, log_weights)


def forest_search(
    trees: Sequence[tuple[Sequence[ChunkedWeights], Any]],
    X: Matrix,
    k: int,
    *,
    beam: int = 10,
    post: str = "l3-hinge",
    bias: float = 1.0,
    exact: bool = False,
    n_labels: int | None = None,
    allowed: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The k best labels of each row of X by the mean of their scores in several trees.

    Each tree gives its best labels, k or twice the beam, whichever is more. A label that a tree did
    not meet has 0 there or, with "noop", whose margins may be below 0, the lowest that the tree met
    for that row. Ties go to the lower number.

    Parameters
    ----------
    trees : list of pairs
        The levels of each tree and the label of each leaf. The rest is as for `beam_search`.

    Examples
    --------
    >>> level = ChunkedWeights.build(csr_matrix([[1.0, 0], [0.5, 0]]), [0, 2])
    >>> trees = [([level], [0, 1]), ([level], [2, 0])]
    >>> ids, scores = forest_search(trees, [[2.0]], k=2, n_labels=3)
    >>> ids.tolist(), scores.tolist()
    ([[0, 1]], [[1.0, 0.5]])
    """
    return _searched(trees, X, k, beam, post, bias, exact, n_labels, allowed, [])


def _searched(
    trees: Sequence[tuple[Sequence[ChunkedWeights], Any]],
    X: Matrix,
    k: int,
    beam: int,
    post: str,
    bias: float,
    exact: bool,
    n_labels: int | None,
    allowed: np.ndarray | None,
    log_weights: list[list[np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """What `beam_search` and `forest_search` give; weights are those of `subtree_weights`, of each
    tree."""
    for name, given in (("k", k), ("beam", beam)):
        if not _COUNT.accepts(given):
            raise ParameterError(f"{name} must be an integer of at least 1, not {given!r}")
    if post not in POSTPROCESSORS:
        raise ParameterError(f"post must be {one_of(*POSTPROCESSORS).expected}, not {post!r}")
    if not trees or not all(levels for levels, _ in trees):
        raise ParameterError("a tree has at least one level")
    if exact and post == "noop":
        raise ParameterError("exact needs scores that fall along a path, which noop has not")
    labels = [np.ascontiguousarray(leaves, dtype=np.int32) for _, leaves in trees]
    count = max(map(len, labels)) if n_labels is None else int(n_labels)
    found = max(1, min(int(k), count))  # more would only be padding
    search: dict[str, Any] = {
        "levels": [[level._level for level in levels] for levels, _ in trees],
        "label_of_leaf": labels,
        "labels": count,
        "post": POSTPROCESSORS[post],
        "queries": _queries(X, trees[0][0][0]),
        "bias": _bias(bias),
        "k": found,
        "wide": found if len(trees) == 1 else max(found, min(2 * int(beam), count)),
        "allowed": marks_of(allowed),
    }
    if exact:
        ids, scores = _native.best_first_search(**search, log_weights=log_weights)
    else:
        ids, scores = _native.beam_search(**search, beam=int(beam))
    if found < k:
        left = ((0, 0), (0, k - found))
        ids = np.pad(ids, left, constant_values=count)
        scores = np.pad(scores, left, constant_values=-np.inf)
    return ids, scores


def marks_of(allowed: np.ndarray | None) -> np.ndarray:
    """A mask of labels as the native core takes it; none: all are allowed."""
    return np.zeros(0, np.uint8) if allowed is None else np.ascontiguousarray(allowed, np.uint8)


def subtree_weights(
    levels: Sequence[ChunkedWeights], label_of_leaf: Any, weights: Any
) -> list[np.ndarray]:
    """The logarithm of the largest label weight below each node, an array a level.

    Examples
    --------
    >>> top = ChunkedWeights.build(csr_matrix((2, 1), dtype=np.float32), [0, 2])
    >>> leaves = ChunkedWeights.build(csr_matrix((3, 1), dtype=np.float32), [0, 1, 3])
    >>> [np.exp(w).tolist() for w in subtree_weights([top, leaves], [2, 0, 1], np.arange(3.0))]
    [[2.0, 1.0], [2.0, 0.0, 1.0]]
    """
    weights = np.asarray(weights, dtype=np.float32)
    if weights.ndim != 1 or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ParameterError("weights must be a number of at least 0 for each label")
    labels = np.asarray(label_of_leaf)
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(weights):
        raise ShapeError(f"weights are {weights.shape} but labels reach {labels.max()}")
    with np.errstate(divide="ignore"):
        nodes = np.log(weights)[labels]
    result = [nodes]
    for level in reversed(levels[1:]):
        parents = np.repeat(np.arange(level.n_parents), np.diff(level.child_starts_))
        if len(parents) != len(nodes):
            raise ShapeError(f"a level has {len(parents)} nodes but {len(nodes)} are below it")
        above = np.full(level.n_parents, -np.inf, np.float32)
        np.maximum.at(above, parents, nodes)
        result.insert(0, nodes := above)
    return result


def _queries(X: Matrix, level: ChunkedWeights) -> Any:
    """What the native core takes rows as."""
    if not issparse(X):
        X = np.ascontiguousarray(X, dtype=np.float32)
    if X.ndim != 2 or X.shape[1] != level.n_features_:
        raise ShapeError(f"X is {X.shape} but the weights have {level.n_features_} features")
    if not issparse(X):
        if not np.isfinite(X).all():
            raise DataError("X holds a value that is not a finite number")
        return X
    return sparse_rows(canonical(X, "X"))


def _bias(bias: float) -> float:
    if not _NUMBER.accepts(bias):
        raise ParameterError(f"bias must be a number, not {bias!r}")
    return float(bias)
