"""What the linear systems share: features, calibration, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from scipy.sparse import csr_matrix

import megalabel
from megalabel.base import clone
from megalabel.calibration import Joint
from megalabel.clock import Clock
from megalabel.data import Corpus
from megalabel.data.examples import Examples
from megalabel.features import Concat, Tfidf
from megalabel.linear import OneVsAll, TreeClassifier, training
from megalabel.linear.chunks import ChunkedWeights
from megalabel.linear.one_vs_all import LABELS_AT_ONCE, OneVsAllJob
from megalabel.linear.tree import ONE_VS_ALL, TreeJob
from megalabel.parts import Classifier
from megalabel.preparing import Prepared
from megalabel.systems.planning import (
    Plan,
    Start,
    learned_bytes,
    too_large,
    with_label_texts,
    working_bytes,
)
from megalabel.tagger import Tagger
from megalabel.work import Unit

# A plan looks at so many texts, then at three times as many, and so on for as long as it stays
# within so many seconds or such a share of the job.
_FEWEST, _TIMES, _SECONDS, _SHARE = 2_000, 3, 1.6, 0.04
_WORTHWHILE = 1.4  # times as many; fewer more would say little
# What a plan trains to measure the machine, in feature values times blocks of labels: of each stage
# of a tree, and of one-versus-all.
_WORK, _LABELS_WORK = 2_000_000, 8_000_000
# From so many on, some of a stage's groups, half as many at least, stand for all; or so many of the
# blocks of labels in its groups.
_GROUPS = 28
_LARGE = 16  # from so many blocks of labels a group on, it is blocks
# How steeply the seconds of making a tree rise with the rows; and the bounds of those of a stage's
# work, where more rows fit less into a processor's caches.
_CLUSTERING, _FASTER, _SLOWER = 0.85, -0.1, 0.4
# By so much the power by which a model grows with the rows falls with every doubling of them.
_FALLING = 0.02

# Features besides words, for the race of `auto`: runs of letters, and pairs of words besides.
_LETTERS = Tfidf(analyzer="char_wb", ngram_range=(4, 4), min_df=2)
_PAIRS = Tfidf(ngram_range=(2, 2), min_df=2)
FEATURES_RACE = (
    {"features": Concat([Tfidf(), _LETTERS], weights=[1, 0.5])},
    {"features": Concat([Tfidf(), _LETTERS, _PAIRS], weights=[1, 0.5, 0.5])},
)


def few_labels(corpus: Corpus) -> bool:
    """Whether a race tries one-versus-all on the labels of a corpus."""
    return len(corpus.labels) <= 2 * ONE_VS_ALL


def many_labels(corpus: Corpus) -> bool:
    """Whether they are clustered into trees: fewer are trained one-versus-all, as `dismec` does."""
    return len(corpus.labels) > ONE_VS_ALL


def linear_tagger(
    classifier: Classifier, system: str, min_df: int | float, calibrate: bool, seed: int
) -> Tagger:
    """A linear classifier over tf-idf. Calibration trains it a second time, without some texts."""
    calibration = Joint() if calibrate else None
    return Tagger(classifier, Tfidf(min_df=min_df), calibration, seed=seed, system=system)


class _Work(NamedTuple):
    """The work of a stage: feature values times the blocks of labels that are trained on them."""

    done: float
    """What there is on the rows of a sample."""
    due: float
    """What there would be on these rows if they had every label that the corpus has."""
    seconds: float
    """How long it takes to do what there is."""

    def times(self, number: float) -> _Work:
        """The work of so many like this one."""
        return _Work(*(number * each for each in self))


@dataclass(frozen=True)
class _Cost:
    """What it takes to train all labels once on some rows."""

    making: float = 0.0
    """How many seconds it takes to make trees."""
    once: float = 0.0
    """How many seconds pass between stages."""
    stages: tuple[_Work, ...] = ()
    model: float = 0.0
    """How many bytes the weights have."""
    fixed: float = 0.0
    """How many bytes trees have, and nodes without weights, however many rows there are."""
    entries: float = 0.0
    """How many weights there are at a time before they are stored."""
    solvers: float = 0.0
    """How many threads have buffers for all rows at a time; those for some rows count in part."""
    joined: bool = False
    """True if the model is made of parts in the end, which are a little larger than it, as each
    has its own features."""


CostOf: TypeAlias = Callable[[Any, Examples, np.ndarray], _Cost]
"""Measures the cost of a classifier on examples; it is told which labels have texts at all."""


@dataclass(frozen=True)
class _Sample:
    """Some of the texts as a classifier gets them, and what it cost to train on them."""

    rows: int
    width: float
    values: float
    making: float
    """How many seconds it takes to make features."""
    features: float
    """How many bytes they have."""
    cost: _Cost

    @classmethod
    def of(
        cls,
        tagger: Tagger,
        examples: Examples,
        prepared: Prepared,
        cost_of: CostOf,
        used: np.ndarray,
    ) -> _Sample:
        examples = replace(examples, rows=training.rows_of(examples.rows))
        rows, width = examples.rows.shape
        making = prepared.seconds * rows / len(prepared.examples)
        features = learned_bytes(prepared.features)
        cost = cost_of(clone(tagger.classifier), examples, used)
        return cls(rows, width, examples.rows.nnz, making, features, cost)

    def grown(self, fewer: _Sample, rows: int) -> _Sample:
        """What more rows cost: work in proportion, all else by powers of their number, those by
        which fewer rows cost less."""
        times, apart = rows / self.rows, np.log(self.rows / fewer.rows)

        def power(small: float, large: float, least: float = 0.0, most: float = 1.0) -> float:
            exponent = np.log(large / small) / apart if min(small, large) > 0 < apart else 0.0
            return float(times ** np.clip(exponent, least, most))

        def size(small: float, large: float) -> float:
            return power(small, large) * float(times ** (-_FALLING * np.log2(times)))

        small, cost = fewer.cost, self.cost
        stages = []
        for before, now in zip(small.stages, cost.stages, strict=True):
            rates = [stage.seconds / max(1, stage.done) for stage in (before, now)]
            slower = power(rates[0], rates[1], _FASTER, _SLOWER)
            work = now.due * times
            stages.append(_Work(work, work, rates[1] * slower * work))
        return _Sample(
            rows,
            self.width * power(fewer.width, self.width),
            self.values * times,
            self.making * times,
            self.features * power(fewer.features, self.features),
            replace(
                cost,
                making=cost.making * times**_CLUSTERING,
                once=cost.once * times,
                stages=tuple(stages),
                model=cost.model * size(small.model, cost.model),
                entries=cost.entries * size(small.entries, cost.entries),
            ),
        )

    def plan(self, tagger: Tagger, corpus: Corpus, start: Start) -> Plan:
        """The plan of a fit on a corpus, of which this is all."""
        cost, labels = self.cost, corpus.labels
        loss = cast(training.LinearClassifier, tagger.classifier).loss
        solving = working_bytes(self.rows, int(self.width), self.values, cost.solvers, loss)
        model = cost.model + cost.fixed
        # weights as they are trained; when all are, buffers go and they are put together
        memory = model + max(solving + 8 * cost.entries, 8 * self.values + 16 * cost.entries)
        if cost.joined:
            memory = max(memory, 8 * self.values + 2.3 * model)
        own = 32 * self.rows + 24 * corpus.targets.nnz + self.features
        memory += own
        if tagger.label_points is not None:  # the vectors of texts beside those of both
            memory += 8 * self.values
        texts = len(corpus)
        if tagger.held_out(texts):  # the vectors without the texts that calibrate
            # or, when training a second time, the first model
            memory += max(8 * self.values, model if tagger.trainings(texts) > 1 else 0.0)
        kept = 8 * self.values + model + own
        peak = start.peak_with(tagger, texts, memory, kept)
        disk = model + self.features + learned_bytes(labels) + 8 * len(labels)
        once = cost.making + cost.once + sum(stage.seconds for stage in cost.stages)
        seconds = self.making + tagger.trainings(len(corpus)) * once
        return Plan(peak, int(disk), seconds, start.available)


def _planned(tagger: Tagger, corpus: Corpus, prepared: Prepared | None, cost_of: CostOf) -> Plan:
    """The plan of a fit, from fits on more and more of the texts, whose features are made for it
    unless they are there."""
    start = Start.now()
    if tagger.label_points is not None:  # what is prepared is of the texts alone
        corpus, prepared = with_label_texts(tagger, corpus), None
    if prepared is not None:
        start = start._replace(held=prepared.memory)
    elif (refusal := too_large(tagger, corpus)) is not None:
        return refusal
    alone = clone(tagger).set_params(calibration=None, decision=None, label_points=None)
    order = np.random.default_rng(tagger.seed).permutation(len(corpus))
    used = corpus.label_counts > 0
    rows = max(1, min(_FEWEST, len(corpus)) // _TIMES)
    fewer: _Sample | None = None
    clock, before = Clock(), 0.0
    while True:
        some = np.sort(order[:rows])
        if prepared is None:
            part = alone.prepare(corpus[some] if rows < len(corpus) else corpus)
            sample = _Sample.of(tagger, part.examples, part, cost_of, used)
        else:
            sample = _Sample.of(tagger, prepared.examples.at(some), prepared, cost_of, used)
        whole, spent = sample, clock.seconds()
        if fewer is not None and rows < len(corpus):
            whole = sample.grown(fewer, len(corpus))
        plan = whole.plan(tagger, corpus, start)
        if rows == len(corpus):
            return plan
        left = max(_SECONDS, _SHARE * (plan.seconds or 0.0)) - spent
        times = min(_TIMES, left / (spent - before)) if fewer is not None else _TIMES
        if times < _WORTHWHILE:
            return plan
        rows, fewer, before = min(len(corpus), int(times * rows)), sample, spent


def plan_one_vs_all(tagger: Tagger, corpus: Corpus, prepared: Prepared | None = None) -> Plan:
    """Some blocks of labels, frequent and rare, are trained on some of the texts."""
    return _planned(tagger, corpus, prepared, _labels_cost)


def plan_tree(tagger: Tagger, corpus: Corpus, prepared: Prepared | None = None) -> Plan:
    """A tree is made of some of the texts; of every stage some groups of siblings are trained, or,
    where they are large, some blocks of labels in them. The rest is in proportion to the feature
    values of a group's rows times its blocks of labels."""
    return _planned(tagger, corpus, prepared, _tree_cost)


def _labels_cost(classifier: OneVsAll, examples: Examples, used: np.ndarray) -> _Cost:
    """Measure blocks of frequent and of rare labels, and say what all labels cost."""
    X = examples.rows
    counts = np.diff(examples.targets.tocsc().indptr)
    order = np.argsort(-counts, kind="stable")
    labels = int(np.count_nonzero(counts))
    blocks, all_blocks = _blocks(labels), _blocks(int(np.count_nonzero(used)))
    chosen = min(blocks, max(8, _LABELS_WORK // max(1, X.nnz)))
    at = ((np.arange(chosen) + 0.5) * blocks / max(1, chosen)).astype(np.int64)
    places = (at[:, None] * training.LANES + np.arange(training.LANES)).ravel()
    unit = OneVsAllJob(classifier, examples).unit("sample", order[places[places < labels]])
    seconds, weights = _timed(X, unit)
    every = ChunkedWeights.build(weights, [0, unit.size], classifier.precision)
    half = ChunkedWeights.build(weights[1::2], [0, unit.size // 2], classifier.precision)
    times = blocks / max(1, chosen)
    threads = max(1, min(blocks, megalabel.get_threads()))
    return _Cost(
        stages=(_Work(X.nnz * blocks, X.nnz * all_blocks, seconds * times / threads),),
        # all labels share one list of features: only what more of them add is in proportion
        model=2 * (learned_bytes(every) - learned_bytes(half)) * times,
        # all but those that are trained at a time are stored already
        entries=weights.nnz * times * min(1.0, LABELS_AT_ONCE / max(1, labels)),
        solvers=min(int(np.count_nonzero(used)), megalabel.get_threads()),
        joined=True,
    )


def _tree_cost(classifier: TreeClassifier, examples: Examples, used: np.ndarray) -> _Cost:
    """Measure some nodes of each stage of one tree, and say what all trees cost."""
    watch = Clock()
    classifier = classifier.settled(len(examples.labels))
    count = classifier.trees
    first, *ready = classifier.set_params(trees=1).make_trees(examples)
    making, tree = watch.seconds(), first
    trees = 1 + len(ready) if classifier.tree or tree.depth == 1 else count
    costs = classifier.label_costs(examples)
    job = TreeJob(classifier, tree, examples, costs)
    matches = classifier.negatives == "teacher+matcher"
    once = model = entries = solvers = 0.0
    fixed = learned_bytes(tree)
    stages: list[_Work] = []
    while True:
        watch = Clock()
        stage = job.stage()
        once += watch.seconds()
        if stage is None:
            break
        measured = _Stage(examples.rows, stage, classifier.precision)
        seconds, size, most, weights = measured.cost(whole=matches)
        seconds *= max(1 / megalabel.get_threads(), measured.largest)
        last = len(job.levels_at_once()) == len(stages) + 1
        nodes = used[tree.label_of_leaf_] if last else np.ones(stage.size, bool)
        work = _Work(float(measured.work.sum()), measured.due(nodes), seconds)
        stages.append(work.times(trees))
        model, entries, fixed = model + size, max(entries, most), fixed + measured.empty
        solvers = max(solvers, measured.solvers)
        if matches:
            job.assemble([weights])
    return _Cost(
        making=making * trees,
        once=once * trees,
        stages=tuple(stages),
        model=model * trees,
        fixed=fixed * trees,
        entries=entries,
        solvers=solvers,
    )


class _Stage:
    """A stage of a tree: groups of siblings, and the rows that each is trained on."""

    def __init__(self, X: csr_matrix, unit: Unit, precision: str) -> None:
        self.X, self.unit, self.precision = X, unit, precision
        self.starts = unit.arrays["group_starts"]
        self.values = training.values_of_groups(X, unit)
        self.blocks = training.blocks_of_groups(unit)
        self.work = self.values * self.blocks
        nothing = csr_matrix((unit.size, X.shape[1] + 1), dtype=np.float32)
        self.empty = learned_bytes(ChunkedWeights.build(nothing, self.starts, precision))
        """Bytes of the nodes without a weight."""

    def due(self, used: np.ndarray) -> float:
        """The work if these nodes (a mask) had texts."""
        ends = np.append(0, np.cumsum(used))[self.starts]
        return float((self.values * -(-np.diff(ends) // training.LANES)).sum())

    @property
    def largest(self) -> float:
        """The share of the largest block, which one thread solves."""
        return float(self.values[self.blocks > 0].max(initial=0) / max(1, self.work.sum()))

    @property
    def solvers(self) -> float:
        """How many threads have buffers for all rows at a time; those for a group count by its
        share of the feature values. Several threads share a group that is much of the work."""
        threads = megalabel.get_threads()
        most = np.minimum(threads, np.diff(self.starts))
        workers = np.clip(2 * threads * self.work // max(1, self.work.sum()), self.blocks > 0, most)
        values = np.sort(np.repeat(self.values, workers))[::-1]
        return float(values[:threads].sum() / max(1, self.X.nnz))

    def cost(self, whole: bool) -> tuple[float, float, float, csr_matrix]:
        """Seconds of all threads together, bytes, number of weights, and weights: of all nodes,
        from those of a sample that takes a fraction of a second, unless `whole`."""
        times = int(self.work.sum()) // _WORK
        if whole or times < 1 or int(self.blocks.sum()) < _GROUPS:
            seconds, weights = _timed(self.X, self.unit)
            return seconds, self._bytes(weights, self.starts), weights.nnz, weights
        busy = np.flatnonzero(self.work)
        large = len(busy) < _GROUPS or self.blocks.sum() >= _LARGE * len(busy)
        nodes, share = self._some_blocks(times) if large else self._some_groups(busy, times)
        starts = np.searchsorted(nodes, self.starts)
        seconds, weights = _timed(self.X, restricted(self.X.shape[0], self.unit, nodes))
        size = self._bytes(weights, starts)
        if large:  # labels of a group share its list of features: what more add is in proportion
            size = 2 * (
                size - self._bytes(weights[1::2], np.searchsorted(nodes[1::2], self.starts))
            )
        growth = self._growth(nodes, weights)
        return seconds / share, size * growth, weights.nnz * growth, weights

    def _some_groups(self, busy: np.ndarray, times: int) -> tuple[np.ndarray, float]:
        """The nodes of some groups, small and large, and their share of the work."""
        busy = busy[np.argsort(self.work[busy], kind="stable")]
        step = max(1, min(2 * len(busy) // _GROUPS, times))
        chosen = np.sort(busy[step // 2 :: step])
        sizes = np.diff(self.starts)[chosen]
        ends = np.cumsum(sizes)
        nodes = np.repeat(self.starts[chosen] - (ends - sizes), sizes) + np.arange(ends[-1])
        return nodes, float(self.work[chosen].sum() / self.work.sum())

    def _some_blocks(self, times: int) -> tuple[np.ndarray, float]:
        """The nodes of some blocks in each group, of frequent labels and of rare ones, and their
        share of the work."""
        step = max(1, min(int(self.blocks.sum()) // _GROUPS, times))
        counts = np.diff(self.unit.arrays["target_starts"])
        group = np.repeat(np.arange(len(self.blocks)), np.diff(self.starts))
        order = np.lexsort((-counts, group))  # as they are solved: of a group, frequent ones first
        order = order[counts[order] > 0]
        place = np.arange(len(order)) - np.searchsorted(group[order], group[order])
        block = (np.cumsum(self.blocks) - self.blocks)[group[order]] + place // training.LANES
        picked = block % step == step // 2
        first = order[picked][np.unique(block[picked], return_index=True)[1]]  # of each block
        share = float(self.values[group[first]].sum() / self.work.sum())
        return np.sort(order[picked]), share

    def _growth(self, nodes: np.ndarray, weights: csr_matrix) -> float:
        """How many times as many weights all nodes have as some: a node has a power of the feature
        values of its own rows."""
        arrays = self.unit.arrays
        values = training.values_of_columns(
            self.X, arrays["target_starts"], arrays["target_rows"]
        ).astype(np.float64)
        used = values[nodes] > 0
        x, y = np.log(values[nodes][used]), np.log(np.diff(weights.indptr)[used])
        spread = float(np.var(x))
        power = float(np.clip(np.cov(x, y, bias=True)[0, 1] / spread, 0, 1)) if spread else 0.0
        expected = np.where(values > 0, np.maximum(values, 1) ** power, 0)
        return float(expected.sum() / expected[nodes].sum())

    def _bytes(self, weights: csr_matrix, starts: np.ndarray) -> float:
        """Those of the weights alone."""
        every = learned_bytes(ChunkedWeights.build(weights, starts, self.precision))
        return float(max(0.0, every - self.empty * weights.shape[0] / self.unit.size))


def _blocks(labels: int) -> int:
    return -(-labels // training.LANES)


def restricted(rows: int, unit: Unit, nodes: np.ndarray) -> Unit:
    """A unit of some of another one's nodes, trained as they are there."""
    arrays = unit.arrays
    return training.unit_of(
        unit.name,
        training.targets_of(unit, rows)[:, nodes],
        [arrays[name][nodes] for name in ("positive_costs", "negative_costs")],
        unit.numbers,
        np.searchsorted(nodes, arrays["group_starts"]),
        training.reach_of(unit, rows),
    )


def _timed(X: csr_matrix, unit: Unit) -> tuple[float, csr_matrix]:
    """Seconds that threads work on a unit, all together, and what it gives."""
    started, cpu = time.perf_counter(), time.process_time()
    weights = training.run_unit(X, unit)
    passed, seconds = time.perf_counter() - started, time.process_time() - cpu
    # threads that share a block, as there are no others, take nearly as long as one would
    grouped = "group_starts" in unit.arrays
    blocks = training.blocks_of_groups(unit).sum() if grouped else _blocks(unit.size)
    return min(seconds, passed * max(1, blocks)), weights
