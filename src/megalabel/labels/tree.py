"""LabelTree: labels in a hierarchy of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

from megalabel import _native
from megalabel.base import (
    Component,
    array,
    boolean,
    check_argument,
    check_array,
    integer,
    label_numbers,
    list_of,
    one_of,
)
from megalabel.data.matrix import canonical, sparse_rows
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.progress import progress

if TYPE_CHECKING:
    from megalabel.base import Matrix

GAIN = 1e-4  # of the mean cosine; where a round gains less, k-means ends


class LabelTree(Component):
    """A tree whose leaves, all on its last level, are the labels.

    Level 0 is the root alone, level `depth` has a node for each label, and the children of every
    node lie side by side, in the order of their parents. Trees are made from label vectors by
    `balanced` and `kmeans`, or taken ready-made by `from_chain` and `from_parents`.

    Attributes
    ----------
    levels_ : list of int64 arrays
        One for each level below the root: the children of node p of level t are the nodes
        `levels_[t][p]` to `levels_[t][p + 1]` of level t + 1; every node has at least one.
    label_of_leaf_ : int32 array (labels,)
        The label at each place of the last level.

    Examples
    --------
    >>> vectors = np.array([[1, 0], [0, 1], [0.9, 0.1], [0.1, 0.9]])
    >>> tree = LabelTree.balanced(vectors, max_leaf=2)
    >>> tree
    LabelTree(level_sizes=[2, 4])
    >>> [sorted(pair) for pair in tree.label_of_leaf_.reshape(2, 2).tolist()]
    [[0, 2], [1, 3]]
    """

    LEARNED = {  # noqa: RUF012
        "levels_": list_of(array(np.int64, "nodes+1")),
        "label_of_leaf_": array(np.int32, "labels"),
    }

    levels_: list[np.ndarray]
    label_of_leaf_: np.ndarray

    def __sklearn_clone__(self) -> Self:
        """Itself: as a parameter of a classifier a tree is data, not something to be learned."""
        return self

    @property
    def depth(self) -> int:
        """The number of levels below the root; the last one is the labels."""
        self.check_fitted()
        return len(self.levels_)

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        self.check_fitted()
        return len(self.label_of_leaf_)

    @property
    def level_sizes(self) -> list[int]:
        """The number of nodes on each level below the root."""
        self.check_fitted()
        return [int(starts[-1]) for starts in self.levels_]

    @property
    def leaf_of_label(self) -> np.ndarray:
        """The place of each label on the last level: the inverse of `label_of_leaf_`."""
        places = np.empty(self.n_labels, np.int32)
        places[self.label_of_leaf_] = np.arange(self.n_labels, dtype=np.int32)
        return places

    def parents(self, level: int) -> np.ndarray:
        """The parent, on the level above, of each node of a level from 1 to `depth`."""
        if not 1 <= level <= self.depth:
            raise ParameterError(f"level must be from 1 to {self.depth}, not {level!r}")
        counts = np.diff(self.levels_[level - 1])
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    def targets(self, Y: csr_matrix, depth: int) -> csr_matrix:
        """The nodes of a level (0: below the root) that each row of Y belongs to, those above its
        labels, with the sum of the labels' relevances."""
        node = self.leaf_of_label
        for starts in reversed(self.levels_[depth + 1 :]):
            node = np.searchsorted(starts, node, side="right") - 1
        shape = (Y.shape[0], self.level_sizes[depth])
        found = csr_matrix((Y.data.copy(), node[Y.indices], Y.indptr.copy()), shape)
        found.sum_duplicates()
        return found

    def chain(self) -> list[csc_matrix]:
        """The tree as cluster matrices, one a level: rows are nodes, columns those of the level
        above, with a 1 where one is the other's child. The rows of the last one are the labels by
        number."""
        parents = [self.parents(level) for level in range(1, self.depth + 1)]
        parents[-1] = parents[-1][self.leaf_of_label]
        widths = [1, *self.level_sizes]
        return [
            csc_matrix((np.ones(len(p), np.float32), (np.arange(len(p)), p)), shape=(len(p), width))
            for p, width in zip(parents, widths, strict=False)
        ]

    def check_learned(self) -> None:
        """Raise a ValueError unless this is a tree with every label in exactly one leaf."""
        if not self.levels_:
            raise ValueError("levels_ of LabelTree must not be empty")
        nodes = 1
        for i, starts in enumerate(self.levels_):
            check_array("LabelTree", f"levels_[{i}]", starts, np.int64, (nodes + 1,))
            if starts[0] != 0 or (starts[1:] <= starts[:-1]).any():
                raise ValueError(f"levels_[{i}] of LabelTree must rise from 0")
            nodes = int(starts[-1])
        check_array("LabelTree", "label_of_leaf_", self.label_of_leaf_, np.int32, (nodes,))
        _check_every_label(self.label_of_leaf_, ValueError)

    def __repr__(self) -> str:
        return f"LabelTree(level_sizes={self.level_sizes})" if self.fitted else "LabelTree()"

    # --- ready-made trees

    @classmethod
    def from_chain(cls, chain: Sequence[Any]) -> Self:
        """A tree from cluster matrices, as `chain` gives them and as PECOS keeps them.

        Parameters
        ----------
        chain : list of sparse matrices
            From the root down: each has a row for every node of its level, with one entry, in the
            column of the node's parent. The first has one column; the rows of the last are the
            labels. Nodes with no label below them are left out.
        """
        if not chain:
            raise DataError("a chain needs at least one matrix")
        parents, width = [], 1
        for level, matrix in enumerate(chain, start=1):
            matrix = canonical(matrix, f"matrix {level} of the chain").copy()
            matrix.eliminate_zeros()
            if matrix.shape[1] != width:
                raise ShapeError(
                    f"matrix {level} of the chain is {matrix.shape} but the level above has "
                    f"{width} nodes"
                )
            entries = np.diff(matrix.indptr)
            if (entries != 1).any():
                row = int(np.flatnonzero(entries != 1)[0])
                raise DataError(
                    f"row {row} of matrix {level} of the chain has {entries[row]} parents, not one"
                )
            parents.append(matrix.indices)
            width = matrix.shape[0]
        if width == 0:
            raise DataError("a label tree needs at least one label")
        return cls._from_levels(parents, np.arange(width))

    @classmethod
    def from_parents(cls, parents: Sequence[int] | np.ndarray, labels: Any = None) -> Self:
        """A tree from each node's parent, such as the hierarchy of a thesaurus.

        Labels may sit anywhere, also above other labels: one that does becomes a child of its own
        node as well, and one above the last level is carried down to it through nodes with a single
        child. Nodes with no label at or below them are left out.

        Parameters
        ----------
        parents : array of int
            The parent of every node; -1 for a node at the top, of which there may be several.
        labels : array of int, optional
            The label of every node; -1 where it has none. By default every node is the label with
            its own number.

        Examples
        --------
        Animals (0) are cats (1) and dogs (2); a stone (3) is neither:

        >>> tree = LabelTree.from_parents([-1, 0, 0, -1])
        >>> tree
        LabelTree(level_sizes=[2, 4])
        >>> tree.label_of_leaf_[: tree.levels_[1][1]].tolist()
        [1, 2, 0]
        """
        above = _integers("parents", parents)
        label = np.arange(len(above)) if labels is None else _integers("labels", labels)
        if len(label) != len(above):
            raise ShapeError(f"{len(above)} parents but {len(label)} labels")
        _check_every_label(label[label >= 0], DataError)
        levels = _levels_of_nodes(above)
        while (label[levels[-1]] < 0).all():
            levels.pop()
        place = np.zeros(len(above), np.int64)  # of a node on its level
        for nodes in levels:
            place[nodes] = np.arange(len(nodes))
        chain = [np.zeros(len(levels[0]), np.int64)]
        carried = np.empty(0, np.int64)  # labels of the levels above; they follow a level's nodes
        for upper, nodes in pairwise(levels):
            ended = upper[label[upper] >= 0]
            others = len(upper) + np.arange(len(carried))
            chain.append(np.concatenate([place[above[nodes]], others, place[ended]]))
            carried = np.concatenate([carried, ended])
        ends = np.concatenate([levels[-1], carried])
        labelled = label[ends] >= 0
        chain[-1] = chain[-1][labelled]
        return cls._from_levels(chain, label[ends][labelled])

    @classmethod
    def _from_levels(cls, parents: Sequence[np.ndarray], labels: np.ndarray) -> Self:
        """A tree from the parent of each node, level by level, and the labels of the last level.

        Nodes may be in any order, and some may have no child.
        """
        widths = [len(p) for p in parents]
        used = [np.ones(widths[-1], bool)]
        for level in range(len(parents) - 1, 0, -1):
            kept = np.zeros(widths[level - 1], bool)
            kept[parents[level][used[0]]] = True
            used.insert(0, kept)
        levels, place = [], np.zeros(1, np.int64)
        for nodes, kept in zip(parents, used, strict=True):
            above = place[nodes]
            order = np.flatnonzero(kept)
            order = order[np.argsort(above[order], kind="stable")]
            children = np.bincount(above[order])
            levels.append(np.concatenate([[0], np.cumsum(children)]))
            place = np.empty(len(nodes), np.int64)
            place[order] = np.arange(len(order))
        return cls._of(levels, labels[order])

    @classmethod
    def _of(cls, levels: list[np.ndarray], labels: np.ndarray) -> Self:
        tree = cls()
        tree.restore(
            {
                "levels_": [starts.astype(np.int64, copy=False) for starts in levels],
                "label_of_leaf_": labels.astype(np.int32, copy=False),
            }
        )
        return tree

    def nodes_above(self, labels: np.ndarray) -> list[np.ndarray]:
        """The nodes of each level below the root that are above some labels, rising; on the last
        level, the labels' own places.

        Examples
        --------
        >>> LabelTree.from_parents([-1, 0, 0, -1]).nodes_above(np.array([3, 1]))
        [array([0, 1]), array([0, 3])]
        """
        found = [np.sort(self.leaf_of_label[labels]).astype(np.int64)]
        for starts in self.levels_[:0:-1]:
            found.insert(0, np.unique(np.searchsorted(starts, found[0], side="right") - 1))
        return found

    def take_labels(self, numbers: Any) -> Self:
        """The tree of some of its labels, in the order of their numbers, without the nodes that
        are above none of them.

        Examples
        --------
        >>> LabelTree.from_parents([-1, -1, -1]).take_labels([2, 0]).label_of_leaf_
        array([1, 0], dtype=int32)
        """
        numbers = label_numbers(numbers, self.n_labels)
        if not len(numbers):
            raise DataError("a label tree needs at least one label")
        kept = self.nodes_above(numbers)
        levels, above = [], np.zeros(1, np.int64)
        for starts, nodes in zip(self.levels_, kept, strict=True):
            parents = np.searchsorted(starts, nodes, side="right") - 1
            levels.append(np.append(np.searchsorted(parents, above), len(nodes)))
            above = nodes
        places = np.empty(self.n_labels, np.int32)
        places[numbers] = np.arange(len(numbers))
        return self._of(levels, places[self.label_of_leaf_[kept[-1]]])

    def with_leaves(self, parents: np.ndarray, branches: int = 0) -> Self:
        """The tree with more labels, numbered after its own: each the last child of a node of the
        level above the labels. All levels but the last are shared.

        `branches` are added below the root first, each a node on every level, whose numbers follow.

        Examples
        --------
        >>> tree = LabelTree.from_parents([-1, -1, 0, 1]).with_leaves(np.array([0]))
        >>> tree.level_sizes, tree.label_of_leaf_.tolist()
        ([2, 5], [2, 0, 4, 3, 1])
        >>> tree.with_leaves(np.array([2, 2]), branches=1).level_sizes
        [3, 7]
        """
        inner = [*self.levels_[:-1]]
        if branches:
            inner = [
                np.append(starts, starts[-1] + np.arange(1, branches + 1))
                if level
                else np.append(starts[:-1], starts[-1] + branches)
                for level, starts in enumerate(inner)
            ]
        starts, of_each = self.levels_[-1], np.append(self.parents(self.depth), parents)
        starts = np.append(starts, np.full(branches, starts[-1]))
        counts = np.bincount(parents, minlength=len(starts) - 1)
        labels = np.append(self.label_of_leaf_, self.n_labels + np.arange(len(parents)))
        order = np.argsort(of_each, kind="stable")
        moved = starts + np.append(0, np.cumsum(counts))
        return self._of([*inner, moved], labels[order])

    def for_labels(self, numbers: np.ndarray) -> Self:
        """The same: as a parameter of a classifier a tree is data."""
        return self.take_labels(numbers)

    @classmethod
    def joined(cls, trees: Sequence[LabelTree]) -> Self:
        """Several trees side by side below one root; labels of later trees follow in number.

        Trees of less depth than the others get levels of single children above their labels.

        Examples
        --------
        >>> flat = LabelTree.from_parents([-1, -1])
        >>> LabelTree.joined([flat, LabelTree.from_parents([-1, 0, 0])])
        LabelTree(level_sizes=[2, 5])
        """
        if not trees:
            raise DataError("a label tree needs at least one label")
        depth = max(tree.depth for tree in trees)
        chains = [
            [*tree.levels_[:-1]]
            + [np.arange(len(tree.levels_[-1]))] * (depth - tree.depth)
            + [tree.levels_[-1]]
            for tree in trees
        ]
        levels = [
            np.concatenate([[0], np.cumsum(np.concatenate([np.diff(starts) for starts in level]))])
            for level in zip(*chains, strict=True)
        ]
        levels[0] = levels[0][[0, -1]]  # the roots are one
        first = np.cumsum([0] + [tree.n_labels for tree in trees])
        labels = [tree.label_of_leaf_ + offset for tree, offset in zip(trees, first, strict=False)]
        return cls._of(levels, np.concatenate(labels))

    # --- trees from label vectors

    @classmethod
    def balanced(
        cls,
        vectors: Matrix,
        *,
        max_leaf: int = 100,
        arity: int = 16,
        spherical: bool = True,
        iterations: int = 20,
        seed: int = 0,
    ) -> Self:
        """A tree of clusters of equal size: halved again and again, then made wider.

        All clusters are split by balanced 2-means to the depth at which none has more than
        `max_leaf` labels; then each level joins so many levels of halves that its nodes have
        `arity` children (Yu et al. 2022, XR-Linear; with `arity=2`, Prabhu et al. 2018, Parabel).
        Clusters of one level differ in size by at most one label. The tree does not depend on
        the number of threads.

        Parameters
        ----------
        vectors : CSR matrix or 2-d array (labels, features)
            As `label_vectors` makes them. A label of zeros goes where there is room.
        max_leaf : int
            The most labels in a cluster of the last level but one. No more labels than that, and
            the tree is flat.
        arity : int
            The children of a node: a power of two. The root may have fewer.
        spherical : bool
            Whether centres have unit length; otherwise they are means.
        iterations : int
            The most rounds of 2-means; it ends early where nothing changes.
        seed : int
            Another seed, another tree.
        """
        check_argument("max_leaf", max_leaf, integer(2))
        check_argument("arity", arity, integer(2))
        check_argument("spherical", spherical, boolean())
        max_leaf, arity = int(max_leaf), int(arity)
        if arity & (arity - 1):
            raise ParameterError(
                f"arity must be a power of two, not {arity}; LabelTree.kmeans(balanced=True) "
                "takes any"
            )
        matrix = _checked(vectors, iterations, seed)
        rows = sparse_rows(matrix)
        members, starts = _everything(matrix)
        halvings = 0
        while len(members) > max_leaf << halvings:
            halvings += 1
        with progress("clustering labels", halvings) as bar:
            for depth in range(halvings):
                members = _native.halve_level(
                    rows,
                    members=members,
                    starts=starts,
                    seed=seed,
                    depth=depth,
                    spherical=spherical,
                    iterations=iterations,
                )
                middles = starts[:-1] + np.diff(starts) // 2
                starts = np.sort(np.concatenate([starts, middles]))
                bar.advance()
        joined = arity.bit_length() - 1
        levels, above = [], 0
        for halved in [*range(halvings % joined, halvings, joined), halvings]:
            if halved > above:
                levels.append(np.arange((1 << above) + 1) << (halved - above))
                above = halved
        return cls._of([*levels, starts], members)

    @classmethod
    def kmeans(
        cls,
        vectors: Matrix,
        *,
        arity: int = 100,
        max_leaf: int = 100,
        depth: int | None = None,
        balanced: bool = False,
        iterations: int = 20,
        seed: int = 0,
    ) -> Self:
        """A wide, shallow tree by spherical k-means at every node.

        Clusters are as large as the labels lie (Khandagale et al. 2020, Bonsai), and empty ones are
        left out. With `balanced`, the clusters of a level differ in size by at most one label. The
        tree does not depend on the number of threads.

        Parameters
        ----------
        vectors : CSR matrix or 2-d array (labels, features)
            Of unit length, as `label_vectors` makes them.
        arity : int
            The most clusters that a cluster is split into. While the root is split, their centres
            take arity * features numbers of memory.
        max_leaf : int
            A cluster of no more labels is not split, but carried down to the others' level by
            nodes with a single child.
        depth : int, optional
            Split so many times, each into `arity` clusters. By default as often as it takes, and
            into no more clusters than it takes, for them to have `max_leaf` labels in the mean;
            with `balanced` none then has more.
        balanced : bool
            Whether clusters are of equal size.
        iterations : int
            The most rounds of k-means; it ends early where the mean cosine gains less than 1e-4.
        seed : int
            Another seed, another tree.
        """
        check_argument("arity", arity, integer(2))
        check_argument("max_leaf", max_leaf, integer(1))
        check_argument("depth", depth, one_of(None) | integer(1))
        check_argument("balanced", balanced, boolean())
        max_leaf, arity = int(max_leaf), int(arity)
        matrix = _checked(vectors, iterations, seed)
        rows = sparse_rows(matrix)
        members, starts = _everything(matrix)
        shaped = depth is not None
        splits = 0 if depth is None else depth
        while not shaped and len(members) > max_leaf * arity**splits:
            splits += 1
        levels: list[np.ndarray] = []
        with progress("clustering labels", splits) as bar:
            while len(levels) < splits and (largest := int(np.diff(starts).max())) > max_leaf:
                # Balanced clusters of one level are all split, and all alike.
                most = arity if shaped else min(arity, -(-largest // max_leaf))
                members, starts, child_starts = _native.cluster_level(
                    rows,
                    members=members,
                    starts=starts,
                    seed=seed,
                    depth=len(levels),
                    largest=1 if balanced else max_leaf,
                    arity=most,
                    aim=1 if balanced or shaped else max_leaf,
                    balanced=balanced,
                    iterations=iterations,
                    tolerance=GAIN,
                )
                levels.append(child_starts)
                bar.advance()
        return cls._of([*levels, starts], members)


def _checked(vectors: Matrix, iterations: int, seed: int) -> csr_matrix:
    """Label vectors as the kernels take them, once they and what goes with them are checked."""
    check_argument("iterations", iterations, integer(1))
    check_argument("seed", seed, integer(0, 2**64 - 1))
    matrix = canonical(vectors, "vectors")
    if matrix.shape[0] < 1:
        raise DataError("a label tree needs at least one label")
    return matrix


def _everything(vectors: csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """The members and starts of a level with one node, the root."""
    labels = vectors.shape[0]
    return np.arange(labels, dtype=np.int32), np.array([0, labels])


def _integers(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(
            f"{name} must be whole numbers in one dimension, not {array.dtype} {array.shape}"
        )
    return array.astype(np.int64)


def _levels_of_nodes(above: np.ndarray) -> list[np.ndarray]:
    """The nodes by their distance from the top, given each node's parent."""
    n = len(above)
    outside = np.flatnonzero((above < -1) | (above >= n))
    if len(outside):
        node = int(outside[0])
        raise DataError(f"node {node} of {n} has the parent {above[node]}")
    reached = np.zeros(n, bool)
    levels, nodes = [], np.flatnonzero(above == -1)
    while len(nodes):
        levels.append(nodes)
        reached[nodes] = True
        nodes = np.flatnonzero(~reached & (above >= 0) & reached[above])
    if not reached.all():
        node = int(np.flatnonzero(~reached)[0])
        raise DataError(f"node {node} is below itself, or below a node that is")
    return levels


def _check_every_label(labels: Any, error: type[ValueError]) -> None:
    """Raise unless `labels` holds every number from 0 on once."""
    n = len(labels)
    if n == 0:
        raise error("a label tree needs at least one label")
    if labels.min() < 0 or labels.max() >= n or (np.bincount(labels, minlength=n) != 1).any():
        missing = np.setdiff1d(np.arange(n), labels)
        raise error(
            f"a label tree has every label once: its {n} leaves hold label {labels.max()} "
            f"but not label {missing[0]}"
        )
