"""What the linear systems share: features, calibration, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix

import megalabel
from megalabel.base import Classifier, clone
from megalabel.calibration import Isotonic
from megalabel.clock import Clock
from megalabel.data import Corpus
from megalabel.features import Precomputed, Tfidf
from megalabel.linear import OneVsAll, TreeClassifier, training
from megalabel.linear.chunks import ChunkedWeights
from megalabel.linear.one_vs_all import LABELS_AT_ONCE
from megalabel.machine import memory_available, memory_in_use
from megalabel.systems.planning import (
    Plan,
    learned_bytes,
    too_large,
    working_bytes,
)
from megalabel.tagger import Tagger

# What a plan trains to measure the machine, in feature values times blocks of labels: of a level
# of a tree, or of one-versus-all.
_WORK = 4_000_000
# From so many on, some of a level's groups, half as many at least, stand for all; or so many of the
# blocks of labels in its groups.
_GROUPS = 28
_LARGE = 16  # from so many blocks of labels a group on, it is blocks
_MATCHED = 64_000  # texts that are led down a tree to see where they get


def linear_tagger(
    classifier: Classifier, system: str, min_df: int | float, calibrate: bool, seed: int
) -> Tagger:
    """A linear classifier over tf-idf. Calibration trains it a second time, without some texts."""
    calibration = Isotonic() if calibrate else None
    return Tagger(classifier, Tfidf(min_df=min_df), calibration, seed=seed, system=system)


@dataclass
class _Cost:
    """Of training some labels, or a level of a tree."""

    seconds: float
    """Of all threads together."""
    model: float
    """Bytes learned."""
    entries: float
    """Weights, before they are stored by parent."""
    weights: Any = None
    """Those that were trained to know."""

    def times(self, work: float, size: float | None = None) -> _Cost:
        size = work if size is None else size
        return _Cost(self.seconds * work, self.model * size, self.entries * size, self.weights)


def _by_rows(cost_of: Callable[[np.ndarray], _Cost], share: float, texts: int, seed: int) -> _Cost:
    """The cost of all rows from that of a share of them; sizes by a power law, as more rows have
    fewer and fewer features that are new."""
    order = np.random.default_rng(seed).permutation(texts)
    if share >= 1:
        return cost_of(np.arange(texts))
    rows = max(2, int(share * texts))
    small, large = (cost_of(np.sort(order[:count])) for count in (rows // 2, rows))

    def power(before: float, after: float, least: float, most: float) -> float:
        exponent = np.log2(after / before) if 0 < before < after else least
        return float((texts / rows) ** np.clip(exponent, least, most))

    return large.times(
        power(small.seconds, large.seconds, 0.5, 1.2), power(small.model, large.model, 0.0, 1.0)
    )


class _Job:
    """A corpus as a linear classifier gets it, with what that takes."""

    def __init__(self, tagger: Tagger, corpus: Corpus) -> None:
        self.tagger, self.corpus = tagger, corpus
        self.available, self.held = memory_available(), memory_in_use()
        watch = Clock()
        features = tagger.features if corpus.texts is not None else Precomputed()
        self.features = clone(features) if features is not None else Tfidf()
        self.X = training.rows_of(self.features.fit_transform(corpus))
        self.Y = corpus.targets
        self.seconds = watch.seconds()

    def label_features(self) -> Any:
        """The labels' own texts as vectors, for classifiers that read them."""
        if not self.tagger.classifier.reads_labels:
            return None
        tagger = clone(self.tagger)
        tagger.features_ = self.features
        return tagger.label_features(self.corpus.labels)

    def plan(
        self, costs: Sequence[_Cost], seconds: float, blocks: int, *, joined: bool = False
    ) -> Plan:
        """The plan, given the costs of all levels and the seconds of their training.

        `blocks` is how many blocks of labels are trained on all rows. `joined`: the model is made
        of parts in the end, which are a little larger than it, as each has its own features.
        """
        labels = self.corpus.labels
        model = sum(cost.model for cost in costs)
        rows, width = self.X.shape
        solvers = min(blocks, megalabel.get_threads())
        loss = cast(training.LinearClassifier, self.tagger.classifier).loss
        memory = working_bytes(rows, width, self.X.nnz, solvers, loss)
        # the weights as they are trained and put together, and stored
        memory += model + 16 * max(cost.entries for cost in costs)
        if joined:
            memory = max(memory, 8 * self.X.nnz + 2.3 * model)
        memory += 32 * rows + 24 * self.Y.nnz
        if self.tagger.held_out(rows):  # the vectors without the texts that calibrate
            memory += 8 * self.X.nnz
        disk = model + learned_bytes(self.features) + learned_bytes(labels) + 8 * len(labels)
        times = self.tagger.trainings(rows)
        return Plan(
            int(self.held + memory),
            int(disk),
            float(self.seconds + times * seconds),
            self.available,
        )


def plan_one_vs_all(tagger: Tagger, corpus: Corpus) -> Plan:
    """Some blocks of labels, frequent and rare, are trained: on all texts, or on as many as a
    second or two allow."""
    if (refusal := too_large(tagger, corpus)) is not None:
        return refusal
    job = _Job(tagger, corpus)
    X, Y, classifier = job.X, job.Y, cast(OneVsAll, tagger.classifier)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    order = np.argsort(-counts, kind="stable")
    used = int(np.count_nonzero(counts))
    blocks = -(-used // training.LANES)
    chosen = min(blocks, max(8, 2 * _WORK // max(1, X.nnz)))
    at = ((np.arange(chosen) + 0.5) * blocks / max(1, chosen)).astype(np.int64)
    places = (at[:, None] * training.LANES + np.arange(training.LANES)).ravel()
    labels = order[places[places < used]]

    def cost_of(rows: np.ndarray) -> _Cost:
        part = classifier.for_labels(labels)
        started = time.process_time()
        part.fit(X[rows], Y[rows][:, labels])
        seconds = time.process_time() - started
        weights = part.weights_.to_csr()
        half = ChunkedWeights.build(weights[1::2], [0, len(labels) // 2], part.weights_.precision)
        # all labels share one list of features: only what more of them add is in proportion
        model = 2 * (learned_bytes(part.weights_) - learned_bytes(half))
        return _Cost(seconds, model, weights.nnz)

    share = 8 * _WORK / max(1, chosen * X.nnz)
    cost = _by_rows(cost_of, share, len(corpus), tagger.seed).times(blocks / max(1, chosen))
    # all but those that are trained at a time are stored already
    cost.entries *= min(1.0, LABELS_AT_ONCE / max(1, used))
    threads = min(blocks, megalabel.get_threads())
    return job.plan([cost], cost.seconds / max(1, threads), blocks, joined=True)


def plan_tree(tagger: Tagger, corpus: Corpus) -> Plan:
    """The tree is made; of every level some groups of siblings are trained, or, where they are few
    or large, some blocks of labels in them; or all of them on some of the texts. The rest is in
    proportion to the feature values of a group's rows times its blocks of labels."""
    if (refusal := too_large(tagger, corpus)) is not None:
        return refusal
    job = _Job(tagger, corpus)
    X, Y, classifier = job.X, job.Y, clone(tagger.classifier)
    trees = classifier.trees
    watch = Clock()
    made = classifier.set_params(trees=1).make_trees(X, Y, job.label_features())
    tree = made[0]
    trees = len(made) if classifier.tree or tree.depth == 1 else trees
    seconds = trees * watch.seconds()
    label_costs = classifier.label_costs(Y)
    matcher = classifier.negatives == "teacher+matcher"
    costs: list[_Cost] = []
    reach = csc_matrix(np.ones((X.shape[0], 1), np.float32))  # all rows belong to the root
    for levels in classifier.stages(tree):
        longest = 0.0
        for depth in levels:
            starts = tree.levels_[depth]
            targets = classifier.targets_of_level(Y, tree, depth)
            options = classifier.options_of_levels(tree, range(depth, depth + 1), label_costs)
            level = _Level(X, targets, starts, reach, options, classifier.precision)
            inner = depth + 1 < tree.depth
            cost = level.cost(tagger.seed, whole=matcher and inner)
            longest = max(longest, cost.seconds * level.largest)
            costs.append(cost)
            reach = targets
        together = sum(costs[depth].seconds for depth in levels)
        seconds += trees * max(together / megalabel.get_threads(), longest)
        if matcher and inner:
            done = [
                ChunkedWeights.build(cost.weights, starts, classifier.precision)
                for cost, starts in zip(costs, tree.levels_, strict=False)
            ]
            reach, taken = _with_matched(classifier, done, X, targets, tagger.seed)
            seconds += trees * taken
    # all trees are kept, but the weights of one at a time are trained
    sizes = [replace(cost, model=trees * cost.model) for cost in costs]
    top = -(-tree.level_sizes[0] // training.LANES)
    return job.plan([*sizes, _Cost(0, trees * learned_bytes(tree), 0)], seconds, top)


@dataclass
class _Level:
    """A level of a tree: groups of siblings, and the rows that each is trained on."""

    X: csr_matrix
    targets: csc_matrix
    starts: np.ndarray
    reach: csc_matrix
    options: training.Options
    precision: str

    def __post_init__(self) -> None:
        self.values = training.values_of_groups(self.X, self.reach)
        self.blocks = training.blocks_of_groups(self.targets, self.starts)
        self.work = self.values * self.blocks

    @property
    def largest(self) -> float:
        """The share of the largest block, which one thread solves."""
        return float(self.values[self.blocks > 0].max(initial=0) / max(1, self.work.sum()))

    def cost(self, seed: int, whole: bool) -> _Cost:
        """Measured on a sample that takes a second or so; `whole`: of texts, not of nodes."""
        share = _WORK / max(1, int(self.work.sum()))
        busy = np.flatnonzero(self.work)
        if whole or share >= 1 or int(self.blocks.sum()) < _GROUPS:
            return _by_rows(self._of_rows, share, self.X.shape[0], seed)
        if len(busy) < _GROUPS or self.blocks.sum() >= _LARGE * len(busy):
            return self._of_blocks(share)
        busy = busy[np.argsort(self.work[busy], kind="stable")]
        step = max(1, min(2 * len(busy) // _GROUPS, int(1 / share)))
        chosen = np.sort(busy[step // 2 :: step])
        sizes = np.diff(self.starts)[chosen]
        starts = np.append(0, np.cumsum(sizes))
        nodes = np.repeat(self.starts[chosen] - starts[:-1], sizes) + np.arange(starts[-1])
        reach = self.reach[:, chosen]
        cost = self._measured(self.X, self.targets[:, nodes], starts, reach, nodes)
        share = self.work[chosen].sum() / self.work.sum()
        return cost.times(1 / share, self._growth(nodes, cost))

    def _of_blocks(self, share: float) -> _Cost:
        """Measured on some blocks of labels in each group, frequent and rare."""
        step = max(1, min(int(self.blocks.sum()) // _GROUPS, int(1 / share)))
        counts = np.diff(self.targets.indptr)
        group = np.repeat(np.arange(len(self.blocks)), np.diff(self.starts))
        order = np.lexsort((-counts, group))  # as they are solved: of a group, frequent ones first
        order = order[counts[order] > 0]
        place = np.arange(len(order)) - np.searchsorted(group[order], group[order])
        block = (np.cumsum(self.blocks) - self.blocks)[group[order]] + place // training.LANES
        picked = block % step == step // 2
        nodes = np.sort(order[picked])
        first = order[picked][np.unique(block[picked], return_index=True)[1]]  # of each block
        starts = np.searchsorted(nodes, self.starts)
        cost = self._measured(self.X, self.targets[:, nodes], starts, self.reach, nodes)
        half = ChunkedWeights.build(
            cost.weights[1::2], np.searchsorted(nodes[1::2], self.starts), self.precision
        )
        # the labels of a group share its list of features: what more of them add is in proportion
        cost.model = 2 * (cost.model - learned_bytes(half))
        share = self.values[group[first]].sum() / self.work.sum()
        return cost.times(1 / share, self._growth(nodes, cost))

    def _growth(self, nodes: np.ndarray, cost: _Cost) -> float:
        """How many times as many weights all nodes have as some: a node has a power of the feature
        values of its own rows."""
        values = training.values_of_groups(self.X, self.targets).astype(np.float64)
        weights = np.diff(cost.weights.indptr)
        used = values[nodes] > 0
        x, y = np.log(values[nodes][used]), np.log(weights[used])
        spread = float(np.var(x))
        power = float(np.clip(np.cov(x, y, bias=True)[0, 1] / spread, 0, 1)) if spread else 0.0
        expected = np.where(values > 0, np.maximum(values, 1) ** power, 0)
        return float(expected.sum() / expected[nodes].sum())

    def _of_rows(self, rows: np.ndarray) -> _Cost:
        some = slice(None) if len(rows) == self.X.shape[0] else rows
        reach = self.reach[some]
        return self._measured(self.X[some], self.targets[some], self.starts, reach, slice(None))

    def _measured(
        self,
        X: csr_matrix,
        targets: csc_matrix,
        starts: np.ndarray,
        reach: csc_matrix,
        nodes: slice | np.ndarray,
    ) -> _Cost:
        started, cpu = time.perf_counter(), time.process_time()
        weights = training.train(
            X, targets, group_starts=starts, reach=reach, **self.options.of(nodes)
        )
        passed, seconds = time.perf_counter() - started, time.process_time() - cpu
        # threads that share a block, as there are no others, take nearly as long as one would
        seconds = min(seconds, passed * max(1, training.blocks_of_groups(targets, starts).sum()))
        level = ChunkedWeights.build(weights, starts, self.precision)
        return _Cost(seconds, learned_bytes(level), weights.nnz, weights)


def _with_matched(
    classifier: TreeClassifier,
    levels: list[ChunkedWeights],
    X: csr_matrix,
    targets: csc_matrix,
    seed: int,
) -> tuple[csc_matrix, float]:
    """The rows of each node with those that the beam leads there, and the seconds of the search.

    Of many rows only some are searched; the others go where one with the same node goes.
    """
    random = np.random.default_rng(seed)
    searched = np.sort(random.permutation(X.shape[0])[:_MATCHED])
    watch = Clock()
    matched = classifier.matched(levels, X[searched]).tocsr()
    taken = watch.seconds() * X.shape[0] / len(searched)
    if len(searched) < X.shape[0]:
        own = targets.tocsr()
        node = np.full(X.shape[0], -1)
        labelled = np.diff(own.indptr) > 0
        node[labelled] = own.indices[own.indptr[:-1][labelled]]
        order = np.argsort(node[searched], kind="stable")
        known = node[searched][order]
        first, last = (np.searchsorted(known, node, side) for side in ("left", "right"))
        place = first + (random.random(len(node)) * (last - first)).astype(np.int64)
        like = order[place.clip(max=len(order) - 1)]
        like[searched] = np.arange(len(searched))
        matched = matched[like]
    return (targets + matched.tocsc()).tocsc(), taken
