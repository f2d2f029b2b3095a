"""GrowingTree: a tree of labels that new labels join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from megalabel.base import Component, array
from megalabel.errors import ParameterError
from megalabel.labels.tree import LabelTree

TOP = 0
NOWHERE = -1  # the parent of the top, and of a label that no text has had yet


class GrowingTree(Component):
    """A tree whose nodes have either nodes or labels for children, each at a place of its own.

    Places count from 1, in the order of joining, and are kept for good: they are the columns of a
    node's weights (column 0 is the child to come). Labels need not all be equally deep. Node 0, the
    top, has one child, the root: all texts belong to the top, those with labels to the root.

    Attributes
    ----------
    node_parents_, node_places_ : int32 arrays (nodes,)
        Of the top the parent is -1 and the place 0.
    label_parents_, label_places_ : int32 arrays (labels,)
        Of a label that has not joined yet, the parent is -1 and the place 0.

    Examples
    --------
    >>> tree = GrowingTree.of(LabelTree.from_parents([-1, -1]), np.array([0, 2]), n_labels=3)
    >>> tree.label_parents_.tolist(), tree.columns().tolist()
    ([1, -1, 1], [2, 3])
    >>> tree.grow([1], lambda label, node: np.zeros(0), arity=2, max_leaf=2, balance=0.5)
    [Raised(node=1, by=2)]
    >>> tree.label_parents_.tolist(), tree.node_parents_.tolist()
    ([1, 3, 1], [-1, 2, 0, 2])
    """

    LEARNED = {  # noqa: RUF012
        "node_parents_": array(np.int32, "nodes"),
        "node_places_": array(np.int32, "nodes"),
        "label_parents_": array(np.int32, "labels"),
        "label_places_": array(np.int32, "labels"),
    }

    node_parents_: np.ndarray
    node_places_: np.ndarray
    label_parents_: np.ndarray
    label_places_: np.ndarray

    @classmethod
    def of(cls, tree: LabelTree | None, labels: np.ndarray, n_labels: int) -> GrowingTree:
        """From a tree whose label i is the label `labels[i]`; None: a root and nothing below."""
        grown = cls()
        grown.label_parents_ = np.full(n_labels, NOWHERE, np.int32)
        grown.label_places_ = np.zeros(n_labels, np.int32)
        parents, places = [np.array([NOWHERE, TOP])], [np.array([0, 1])]
        first = 1  # the first node of the level above
        for starts in tree.levels_ if tree is not None else ():
            counts = np.diff(starts)
            parents.append(first + np.repeat(np.arange(len(counts)), counts))
            places.append(np.arange(1, starts[-1] + 1) - np.repeat(starts[:-1], counts))
            first += len(counts)
        if tree is not None:
            ends = labels[tree.label_of_leaf_]
            grown.label_parents_[ends] = parents.pop()
            grown.label_places_[ends] = places.pop()
        grown.node_parents_ = np.concatenate(parents).astype(np.int32)
        grown.node_places_ = np.concatenate(places).astype(np.int32)
        return grown

    def columns(self) -> np.ndarray:
        """How many places each node has, that of the child to come included."""
        nodes = len(self.node_parents_)
        counts = np.ones(nodes, np.int32)
        for parents in (self.node_parents_, self.label_parents_):
            counts += np.bincount(parents[parents >= 0], minlength=nodes).astype(np.int32)
        return counts

    def visits(self, rows: np.ndarray, labels: np.ndarray, n: int) -> tuple[np.ndarray, ...]:
        """What the nodes see of n rows, given pairs of a row and one of its labels.

        Every row visits the top, and each node above one of its labels.

        Returns
        -------
        starts, rows, place_starts, places
            The rows that visit node p are `rows[starts[p] : starts[p + 1]]`, rising; the places of
            the children that are positive for visit v `places[place_starts[v] :
            place_starts[v + 1]]`.
        """
        most = int(self.columns().max())
        nodes, places = self.label_parents_[labels].astype(np.int64), self.label_places_[labels]
        found = [(TOP * n + np.arange(n)) * most]  # place 0: the visit itself
        while len(nodes):
            visit = (nodes * n + rows) * most
            found += [visit, visit + places]
            rows, nodes = rows[nodes != TOP], nodes[nodes != TOP]
            nodes, places = self.node_parents_[nodes].astype(np.int64), self.node_places_[nodes]
        keys = np.unique(np.concatenate(found))
        visit, place = np.divmod(keys, most)
        at = np.flatnonzero(place == 0)
        node, row = np.divmod(visit[at], n)
        starts = np.searchsorted(node, np.arange(len(self.node_parents_) + 1))
        place_starts = np.append(at, len(keys)) - np.arange(len(at) + 1)
        return starts, row.astype(np.int32), place_starts, place[place > 0].astype(np.int32)

    def expect(self, n_labels: int) -> None:
        """Make room for labels that have been named but not yet joined."""
        more = n_labels - len(self.label_parents_)
        self.label_parents_ = np.append(self.label_parents_, np.full(more, NOWHERE, np.int32))
        self.label_places_ = np.append(self.label_places_, np.zeros(more, np.int32))

    def grow(
        self,
        labels: Any,
        scores: Callable[[int, int], np.ndarray],
        *,
        arity: int,
        max_leaf: int,
        balance: float,
    ) -> list[Raised]:
        """Let labels join, one after another.

        From the root down, a node of fewer than `arity` nodes opens a new branch for the label;
        otherwise the way is that of the child with the largest
        (1 - balance) score + balance log(mean / leaves), where `leaves` are the labels below the
        child and `mean` those below a child of that node on average. A node of labels takes the
        label if it has fewer than `max_leaf`, or else the best sibling does that has; if none has,
        a node is raised above it, and the label starts a new branch of that one
        (Jasinska-Kobus et al. 2021).

        Parameters
        ----------
        labels : sequence of int
        scores : callable
            Of a label and a node: the probability of each of the node's children for the label's
            texts, by place from 1; children that joined since may be missing.

        Returns
        -------
        list of Raised
            The nodes that have taken another's place, in order.
        """
        nodes = _Nodes(self)
        raised = []
        for label in labels:
            (node,) = nodes.children[TOP]
            while nodes.children[node] and len(nodes.children[node]) >= arity:
                node = nodes.best(node, scores(label, node), balance)
            if nodes.children[node]:  # nodes, and room for another
                node = nodes.add(node)
            elif nodes.leaves[node] >= max_leaf:
                above = nodes.parents[node]
                open_ = [
                    n
                    for n in nodes.children[above]
                    if not nodes.children[n] and nodes.leaves[n] < max_leaf
                ]
                if open_:
                    node = nodes.best(above, scores(label, above), balance, among=open_)
                else:
                    raised.append(Raised(node, nodes.put_above(node)))
                    node = nodes.add(raised[-1].by)
            self.label_parents_[label] = node
            self.label_places_[label] = nodes.leaves[node] + 1
            while node != NOWHERE:
                nodes.leaves[node] += 1
                node = nodes.parents[node]
        self.node_parents_ = np.array(nodes.parents, np.int32)
        self.node_places_ = np.array(nodes.places, np.int32)
        return raised

    def check_learned(self) -> None:
        """Raise a ValueError where it is not a tree."""
        nodes = len(self.node_parents_)
        for parents in (self.node_parents_, self.label_parents_):
            if len(parents) and not -1 <= parents.min() <= parents.max() < nodes:
                raise ValueError(f"GrowingTree has a parent outside its {nodes} nodes")
        reached = at = np.flatnonzero(self.node_parents_ == NOWHERE)
        if at.tolist() != [TOP] or np.count_nonzero(self.node_parents_ == TOP) != 1:
            raise ValueError("GrowingTree must have one top, and that one child")
        while len(at):
            at = np.flatnonzero(np.isin(self.node_parents_, at))
            reached = np.append(reached, at)
        if len(reached) != nodes:
            raise ValueError("GrowingTree has a node that is below itself")
        parents = np.append(self.node_parents_, self.label_parents_)
        places = np.append(self.node_places_, self.label_places_)[parents >= 0]
        parents = parents[parents >= 0]
        order = np.lexsort((places, parents))
        firsts = np.searchsorted(parents[order], parents[order])
        if (places[order] != np.arange(len(order)) - firsts + 1).any():
            raise ValueError("the places of GrowingTree must count each node's children")
        if np.isin(self.node_parents_, self.label_parents_[self.label_parents_ >= 0]).any():
            raise ValueError("a node of GrowingTree has both nodes and labels below it")

    def take_labels(self, numbers: Any) -> Self:
        """Not possible: places are kept for good."""
        raise ParameterError("a GrowingTree cannot be cut to some of its labels")


@dataclass(frozen=True)
class Raised:
    """A node that took the place of another, which became its first child."""

    node: int
    by: int


class _Nodes:
    """The nodes of a tree while it grows."""

    def __init__(self, tree: GrowingTree) -> None:
        self.parents: list[int] = tree.node_parents_.tolist()
        self.places: list[int] = tree.node_places_.tolist()
        self.children: list[list[int]] = [[] for _ in self.parents]  # by place
        for node in np.lexsort((tree.node_places_, tree.node_parents_))[1:].tolist():
            self.children[self.parents[node]].append(node)
        below = np.bincount(
            tree.label_parents_[tree.label_parents_ >= 0], minlength=len(self.parents)
        )
        order = [TOP]
        for node in order:
            order += self.children[node]
        for node in reversed(order[1:]):
            below[self.parents[node]] += below[node]
        self.leaves: list[int] = below.tolist()

    def best(
        self, node: int, scores: np.ndarray, balance: float, among: list[int] | None = None
    ) -> int:
        """The child to which a label should go; ties to the one that joined first."""
        children = self.children[node]
        mean = max(1, self.leaves[node]) / len(children)

        def worth(child: int) -> float:
            place = self.places[child] - 1
            score = float(scores[place]) if place < len(scores) else 0.0
            return (1 - balance) * score + balance * float(
                np.log(mean / max(1, self.leaves[child]))
            )

        return max(children if among is None else among, key=worth)

    def add(self, parent: int) -> int:
        """A new child, with nothing below it."""
        node = len(self.parents)
        self.children[parent].append(node)
        self.parents.append(parent)
        self.places.append(len(self.children[parent]))
        self.children.append([])
        self.leaves.append(0)
        return node

    def put_above(self, node: int) -> int:
        """A new node in the place of another, which becomes its only child."""
        above, place = self.parents[node], self.places[node]
        new = len(self.parents)
        self.parents.append(above)
        self.places.append(place)
        self.children.append([node])
        self.leaves.append(self.leaves[node])
        self.children[above][place - 1] = new
        self.parents[node], self.places[node] = new, 1
        return new
