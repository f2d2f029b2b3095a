"""The label tree to fold and unfold, cut where it would be too much for a page."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from megalabel.data import LabelSet
from megalabel.html import cut
from megalabel.labels import LabelTree
from megalabel.linear import OnlineTree, TreeClassifier
from megalabel.parts import Classifier

ENTRIES = 2_000  # on the page, in all
CHILDREN = 50  # of one node
DEPTH = 24  # of lists within lists
NAMED = 4  # labels that stand for a node


def label_trees(classifier: Classifier) -> list[LabelTree]:
    """The trees that a classifier leads texts down; none for those without."""
    if isinstance(classifier, TreeClassifier):
        return classifier.trees_
    if not isinstance(classifier, OnlineTree):
        return []
    grown = classifier.tree_
    nodes, labels = len(grown.node_parents_), len(grown.label_parents_)
    parents = np.concatenate([grown.node_parents_, grown.label_parents_])
    return [LabelTree.from_parents(parents, np.arange(-nodes, labels).clip(-1))]


@dataclass(frozen=True)
class Leaves:
    """The labels in the order of the tree's last level, with running sums of their counts."""

    tree: LabelTree
    labels: LabelSet
    train: np.ndarray
    positives: np.ndarray
    hits: np.ndarray

    def span(self, level: int, node: int) -> tuple[int, int]:
        """The leaves below a node: from, to."""
        first, last = node, node + 1
        for starts in self.tree.levels_[level:]:
            first, last = int(starts[first]), int(starts[last])
        return first, last

    def children(self, level: int, node: int) -> list[tuple[int, int]]:
        """Level and number of a node's children, the most frequent first.

        A child with a single child is passed over for that one.
        """
        starts = self.tree.levels_[level]
        found = []
        for child in range(int(starts[node]), int(starts[node + 1])):
            below, at = level + 1, child
            while below < self.tree.depth:
                first, last = (int(s) for s in self.tree.levels_[below][at : at + 2])
                if last - first > 1:
                    break
                below, at = below + 1, first
            found.append((below, at))
        return sorted(found, key=lambda child: -self._sum(self.train, *self.span(*child)))

    def described(self, level: int, node: int, k: int) -> str:
        """What a node is about, as HTML: its most frequent labels, and how they fare."""
        first, last = self.span(level, node)
        counts = np.diff(self.train[first : last + 1])
        top = first + np.argsort(-counts, kind="stable")[:NAMED]
        names = [cut(self.labels.name(self.tree.label_of_leaf_[leaf]), 80) for leaf in top]
        more = ", …" if last - first > NAMED else ""
        size = f"{last - first:,} labels, " if last - first > 1 else ""
        notes = f"{size}{self._sum(self.train, first, last):,} in training"
        positives = self._sum(self.positives, first, last)
        if positives:
            notes += f", R@{k} {100 * self._sum(self.hits, first, last) / positives:.0f}&nbsp;%"
        return f'{escape(", ".join(names))}{more} <span class="soft">({notes})</span>'

    @staticmethod
    def _sum(running: np.ndarray, first: int, last: int) -> int:
        return int(running[last] - running[first])


def tree_html(
    tree: LabelTree,
    labels: LabelSet,
    counts: Sequence[np.ndarray],
    k: int,
) -> str:
    """Lists within lists, opened from the top as far as they fit on a page.

    Parameters
    ----------
    tree : LabelTree
    labels : LabelSet
    counts : three arrays (labels,)
        How often each label occurs in training and in the test set, and is found in the top k.
    k : int
    """
    order = tree.label_of_leaf_
    running = (np.concatenate([[0], np.cumsum(c[order])]) for c in counts)
    leaves = Leaves(tree, labels, *running)
    opened = _opened(leaves)

    def listed(level: int, node: int) -> str:
        children = opened[level, node]
        items = "".join(f"<li>{entry(*child)}</li>" for child in children[:CHILDREN])
        rest = len(children) - CHILDREN
        if rest > 0:
            items += f'<li class="soft">… and {rest:,} more</li>'
        return items

    def entry(level: int, node: int) -> str:
        text = leaves.described(level, node, k)
        if (level, node) in opened:
            return f"<details><summary>{text}</summary><ul>{listed(level, node)}</ul></details>"
        return text if level == tree.depth else f'{text} <span class="soft">not unfolded</span>'

    return f'<ul class="tree">{listed(0, 0)}</ul>'


def _opened(leaves: Leaves) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """The children of those nodes that are opened: level by level, while there is room."""
    opened: dict[tuple[int, int], list[tuple[int, int]]] = {}
    waiting = deque([((0, 0), 0)])
    room = ENTRIES
    while waiting:
        (level, node), depth = waiting.popleft()
        children = leaves.children(level, node)
        room -= min(len(children), CHILDREN)
        if room < 0 and opened:
            break
        opened[level, node] = children
        if depth < DEPTH:
            inner = [child for child in children[:CHILDREN] if child[0] < leaves.tree.depth]
            waiting.extend((child, depth + 1) for child in inner)
    return opened
