"""TreeClassifier: linear classifiers along a tree of labels, searched by beam."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, hstack, vstack

from megalabel.base import (
    Check,
    Learned,
    array,
    boolean,
    clone,
    instance,
    integer,
    list_of,
    number,
    one_of,
    optional,
    part,
    sequence_of,
    unfitted,
    with_learned,
)
from megalabel.checkpoints import Checkpoint
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import check_width, clamped, column_slice, filled_rows, row_slice
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.labels import LabelTree, label_vectors
from megalabel.labels.vectors import METHODS
from megalabel.linear import training
from megalabel.linear.chunks import POSTPROCESSORS, ChunkedWeights, beam_search, forest_search
from megalabel.linear.explanation import Step, explain_path
from megalabel.linear.late import joined, learnable, updated
from megalabel.work import Job, Unit, execute

if TYPE_CHECKING:
    from megalabel.base import Matrix


# What is taken for trees, leaves and the cost of errors where they are left open: up to so many
# labels one-versus-all, as one tree without clusters; for more of them several trees
# (benchmarks/defaults.py).
ONE_VS_ALL, ONE_VS_ALL_COST = 10_000, 0.7
TREES, MAX_LEAF, COST = 3, 100, 1.0
PASSES = 30.0  # a margin whose score is 1, by any hinge and by the sigmoid in float32
# of a branch of new labels: the weight of what leads there, the margin without that, and how many
# labels it has: few branches take few places of a beam
LEADS, STAYS, BRANCH = 300.0, -30.0, 10_000


class TreeClassifier(training.LinearClassifier):
    """Linear classifiers along label trees: each node is told from its siblings on its rows.

    Labels are clustered into a tree by their vectors; the classifier of a node is trained on the
    texts that belong to its parent, and a text is led down the tree by a beam of the best nodes
    (Parabel, Bonsai, XR-Linear, probabilistic label trees). Several trees vote by their mean.

    Parameters
    ----------
    trees : int, optional
        How many trees, each from its own seed; one where labels are too few to be clustered. None:
        three; where `max_leaf` is None too, up to 10,000 labels are not clustered at all, so that
        each is trained on all rows, one-versus-all.
    arity : int
        Children of a node.
    max_leaf : int, optional
        Labels of a node above the last level. None: 100, unless labels are not clustered.
    shape : "balanced" or "kmeans"
        Clusters of equal size, halved again and again; or plain k-means of `arity` clusters.
    tree : LabelTree or list of LabelTree, optional
        Ready-made trees instead, such as those of another model (`trees_for`).
    label_vectors : "pifa", "pifa-paper", "text" or "pifa+text"
        What labels are clustered by: the texts that carry them, their own texts, or both. See
        `labels.label_vectors`.
    label_mix : float from 0 to 1, optional
        For "pifa+text": mix the two in one vector, with this share of the former, instead of
        putting them side by side.
    negatives : "teacher" or "teacher+matcher"
        The rows of a node: those of its parent; and also those that the levels above would lead
        there by their beam.
    beam : int
    post : str
        How margins become scores along a path: see `linear.chunks.beam_search`. Several trees
        give the mean of their scores; a label that a tree did not meet has 0 there or, with
        "noop", whose margins may be below 0, the lowest that the tree met for that text.
    exact : bool
        Search best first for the exact answer instead of by beam; needs scores that fall.
    weighting, propensities, positive_costs, negative_costs
        As for `OneVsAll`, on the last level, where the labels are.
    relevance : None, "labels" or "nodes"
        "labels": on the last level the cost of a positive is multiplied with its relevance, the
        value in Y. "nodes": on all levels, where the relevance of a node is the sum of those of
        the labels below it.
    relevance_norm : None, "l1", "l2" or "max"
        First divide the relevances of each text, on each level, by their sum, length or maximum.
    cost : float, optional
        As for `OneVsAll`. None: 1, or 0.7 where labels are not clustered as they are few.
    loss, eps, bias, prune, precision, seed
        As for `OneVsAll`.

    Attributes
    ----------
    trees_ : list of LabelTree
    levels_ : list (a tree) of lists (a level) of ChunkedWeights
    labels_ : LabelSet
    joined_ : bool array (labels,), optional
        Which labels came after training.

    Examples
    --------
    >>> X = csr_matrix([[1.0, 0, 0], [1, 1, 0], [0, 0, 1]])
    >>> Y = csr_matrix([[1.0, 0], [1, 0], [0, 1]])
    >>> model = TreeClassifier().fit(X, Y, LabelSet(["cat", "dog"]))
    >>> [tags[0].label for tags in model.rank(X, k=1).tags()]
    ['cat', 'cat', 'dog']
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **training.LinearClassifier.PARAMETERS,
        "cost": training.LinearClassifier.PARAMETERS["cost"] | one_of(None),
        "trees": integer(1, 100) | one_of(None),
        "arity": integer(2),
        "max_leaf": integer(2) | one_of(None),
        "shape": one_of("balanced", "kmeans"),
        "tree": instance(LabelTree) | sequence_of(instance(LabelTree)) | one_of(None),
        "label_vectors": one_of(*METHODS),
        "label_mix": number(0, 1) | one_of(None),
        "relevance": one_of(None, "labels", "nodes"),
        "negatives": one_of("teacher", "teacher+matcher"),
        "beam": integer(1),
        "post": one_of(*POSTPROCESSORS),
        "exact": boolean(),
    }

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "trees_": list_of(part(LabelTree), "trees"),
        "levels_": list_of(list_of(part(ChunkedWeights)), "trees"),
        "joined_": optional(array(bool, "labels")),
    }

    cost: Any
    trees: Any
    max_leaf: Any
    trees_: list[LabelTree]
    levels_: list[list[ChunkedWeights]]
    joined_: np.ndarray | None = None

    def __init__(
        self,
        *,
        trees: int | None = 1,
        arity: int = 16,
        max_leaf: int | None = 100,
        shape: str = "balanced",
        tree: LabelTree | Sequence[LabelTree] | None = None,
        label_vectors: str = "pifa",
        label_mix: float | None = None,
        negatives: str = "teacher",
        beam: int = 10,
        post: str = "l3-hinge",
        exact: bool = False,
        loss: str = "squared-hinge",
        cost: float | None = 1.0,
        weighting: str | None = None,
        propensities: Any = None,
        positive_costs: Any = None,
        negative_costs: Any = None,
        relevance: str | None = None,
        relevance_norm: str | None = None,
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
        self.label_vectors = label_vectors
        self.label_mix = label_mix
        self.negatives = negatives
        self.beam = beam
        self.post = post
        self.exact = exact
        self.loss = loss
        self.cost = cost
        self.weighting = weighting
        self.propensities = propensities
        self.positive_costs = positive_costs
        self.negative_costs = negative_costs
        self.relevance = relevance
        self.relevance_norm = relevance_norm
        self.eps = eps
        self.bias = bias
        self.prune = prune
        self.precision = precision
        self.seed = seed

    def settings_for(self, labels: int) -> dict[str, Any]:
        """How many trees a fit on so many labels makes, with which leaves, at which cost of errors.

        Examples
        --------
        >>> TreeClassifier(trees=None, max_leaf=None, cost=None).settings_for(1_000_000)
        {'trees': 3, 'max_leaf': 100, 'cost': 1.0}
        """
        left_open = self.trees is None and self.max_leaf is None and self.tree is None
        flat = left_open and labels <= ONE_VS_ALL
        chosen = {
            "trees": 1 if flat else TREES,
            "max_leaf": max(2, labels) if flat else MAX_LEAF,
            "cost": ONE_VS_ALL_COST if flat else COST,
        }
        given = {name: getattr(self, name) for name in chosen}
        return {name: chosen[name] if own is None else own for name, own in given.items()}

    def settled(self, labels: int) -> Self:
        """An unfitted copy whose parameters are all set as a fit on so many labels takes them.

        Examples
        --------
        >>> TreeClassifier(trees=None, cost=None).settled(20_000)
        TreeClassifier(trees=3)
        """
        copy: Self = clone(self)
        copy.set_params(**self.settings_for(labels))
        return copy

    def _fit(self, examples: Examples) -> None:
        """Cluster the labels and train the tree from the top."""
        model = self.settled(len(examples.labels))
        examples = replace(examples, rows=training.rows_of(examples.rows))
        costs = model.label_costs(examples)
        self.trees_ = model.make_trees(examples)
        shapes = [array for tree in self.trees_ for array in (*tree.levels_, tree.label_of_leaf_)]
        arrays: list[Any] = []
        if examples.label_points is not None:
            arrays = [examples.label_points, np.array(examples.label_point_weight)]
        if examples.silent is not None:
            arrays.append(examples.silent)
        checkpoint = Checkpoint(self, examples.rows, examples.targets, *costs, *shapes, *arrays)
        self.levels_ = []
        for tree in self.trees_:
            job = TreeJob(model, tree, examples, costs, f"tree-{len(self.levels_)}")
            execute(job, checkpoint)
            self.levels_.append(job.levels)

    def make_trees(self, examples: Examples) -> list[LabelTree]:
        """The trees: ready-made ones, or as the parameters ask for them."""
        ready = [self.tree] if isinstance(self.tree, LabelTree) else list(self.tree or ())
        Y = examples.targets
        for tree in ready:
            if tree.n_labels != Y.shape[1]:
                raise ShapeError(f"Y is {Y.shape} but the tree has {tree.n_labels} labels")
        if ready:
            return ready
        method = cast(Any, self.label_vectors)
        own = examples.label_rows if "text" in method else None
        # label points are among the texts of a label: rare ones are better placed by their names
        vectors = label_vectors(examples.rows, Y, method, own, mix=self.label_mix)
        if vectors.shape[0] != Y.shape[1]:
            raise ShapeError(f"label_rows are of {vectors.shape[0]} labels but Y is {Y.shape}")
        make = LabelTree.balanced if self.shape == "balanced" else LabelTree.kmeans
        trees: list[LabelTree] = []
        # a tree without clusters would be the same each time
        while len(trees) < self.trees and not (trees and trees[0].depth == 1):
            seed = self.seed + len(trees)
            trees.append(make(vectors, arity=self.arity, max_leaf=self.max_leaf, seed=seed))
        return trees

    def trees_for(self, labels: LabelSet) -> list[LabelTree]:
        """The trees with labels numbered as in another set, for a model of those labels.

        Labels are the same by id. Those that are not in that set are left out; it may have none
        that the trees have not.
        """
        self.check_fitted()
        known, wanted = LabelSet(self.labels_.ids), LabelSet(labels.ids)
        numbers = known.indices(wanted.ids)
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            raise DataError(
                f"{len(unknown)} of {len(labels)} labels are not in the tree, such as "
                f"{labels.name(unknown[0])!r}"
            )
        return [tree.take_labels(numbers) for tree in self.trees_]

    def with_labels(self, others: Sequence[Self], labels: LabelSet) -> Self:
        """The trees of all, side by side below one root.

        Classifiers of the first level are trained on all texts whatever is beside them, so the
        search goes on as in a tree that was made of these branches and trained at once.
        """
        models = (self, *others)
        merged = self._with_labels(others)
        counts = [len(model.trees_) for model in models]
        # one tree without clusters stands for any number of them
        if len({n for n, one in zip(counts, models, strict=True) if one.trees_[0].depth > 1}) > 1:
            raise ParameterError(f"models of {counts} trees")
        trees, levels = [], []
        for i in range(max(counts)):
            places = [min(i, count - 1) for count in counts]
            both = list(zip(models, places, strict=True))
            tree = LabelTree.joined([one.trees_[place] for one, place in both])
            branches = [one._branch(place, tree.depth) for one, place in both]
            trees.append(tree)
            levels.append(
                [
                    ChunkedWeights.build(vstack(level, format="csr"), starts, merged.precision)
                    for *level, starts in zip(*branches, tree.levels_, strict=True)
                ]
            )
        if merged.tree is not None:
            merged.tree = trees
        merged.restore({"trees_": trees, "levels_": levels, "labels_": labels})
        return merged

    def _branch(self, number: int, depth: int) -> list[csr_matrix]:
        """The weights of a tree's levels, as deep as `LabelTree.joined` makes it."""
        weights = [level.to_csr() for level in self.levels_[number]]
        parents = self.levels_[number][-1].n_parents
        if len(weights) < depth and (self.bias == 0 or self.post == "noop"):
            raise ParameterError(
                f"trees of {len(weights)} and {depth} levels cannot be joined with bias=0 or "
                "post='noop'"
            )
        while len(weights) < depth:  # nodes that let everything through
            bias = np.full(parents, PASSES / self.bias, np.float32)
            where = (np.arange(parents), np.full(parents, weights[0].shape[1] - 1))
            weights.insert(-1, csr_matrix((bias, where), shape=(parents, weights[0].shape[1])))
        return weights

    def rank(self, X: Matrix, k: int) -> Ranking:
        """The k best labels that the beam meets; ensembles take the mean over trees."""
        return self._searched(X, k)

    @property
    def may_miss(self) -> bool:
        """True where the beam may not meet all labels."""
        return not self.exact and any(tree.depth > 1 for tree in self.trees_)

    def _rank_allowed(self, X: Matrix, k: int, allowed: np.ndarray) -> Ranking:
        return self._searched(X, k, allowed)

    def _searched(self, X: Matrix, k: int, allowed: np.ndarray | None = None) -> Ranking:
        self.check_fitted()
        check_width(self, X, self.levels_[0][0].n_features_)
        k = clamped(k, max(1, len(self.labels_)))
        ids, scores = forest_search(
            [
                (levels, tree.label_of_leaf_)
                for tree, levels in zip(self.trees_, self.levels_, strict=True)
            ],
            X,
            k,
            beam=self.beam,
            post=self.post,
            bias=self.bias,
            exact=self.exact,
            n_labels=len(self.labels_),
            allowed=allowed,
        )
        return Ranking(ids, scores, self.labels_)

    def add_labels(
        self,
        labels: LabelSet,
        weights: Sequence[csr_matrix],
        beside: np.ndarray,
        leading: csr_matrix | None = None,
    ) -> Self:
        """A copy that knows more labels, after its own; what is known of these stays as it is.

        Parameters
        ----------
        labels : LabelSet
        weights : list of CSR matrices (labels, features + 1)
            Their classifiers in each of the trees; the last column is the bias.
        beside : int array (labels,)
            The label whose cluster each one joins.
        leading : CSR matrix (labels, features), optional
            What leads to branches of their own, which labels with such features join in place of
            clusters.
        """
        self.check_fitted()
        more, trees, levels = self._grown(len(labels)), [], []
        for tree, own, rows in zip(self.trees_, self.levels_, weights, strict=True):
            parents, inner = tree.parents(tree.depth)[tree.leaf_of_label[beside]], own[:-1]
            branches = 0
            if leading is not None and leading.nnz and inner and self.bias:
                alone = filled_rows(leading)
                groups = np.arange(alone.sum()) // BRANCH
                branches = int(groups[-1]) + 1
                parents[alone] = own[-1].n_parents + groups
                inner = self._with_branches(inner, leading[alone], groups)
            trees.append(tree.with_leaves(parents, branches))
            levels.append([*inner, own[-1].with_nodes(rows, parents)])
        if more.tree is not None:
            more.tree = trees
        more.restore(
            {
                "trees_": trees,
                "levels_": levels,
                "labels_": self.labels_.extended(labels),
                "joined_": joined(self, len(labels)),
            }
        )
        return more

    def _with_branches(
        self, levels: Sequence[ChunkedWeights], rows: csr_matrix, groups: np.ndarray
    ) -> list[ChunkedWeights]:
        """The levels above the leaves with more branches, each for a group of labels."""
        labels, columns = rows.nonzero()
        shape = (int(groups[-1]) + 1, rows.shape[1] + 1)
        leads = csr_matrix((np.ones(len(labels), np.float32), (groups[labels], columns)), shape)
        leads.data[:] = LEADS
        biases = [STAYS, *[PASSES] * (len(levels) - 1)]
        made, nodes = [], np.arange(shape[0])
        for depth, (level, bias) in enumerate(zip(levels, biases, strict=True)):
            own = np.full(len(nodes), bias / self.bias, np.float32)
            weights = csr_matrix((own, (nodes, np.full(len(nodes), shape[1] - 1))), shape)
            parents = nodes + level.n_parents if depth else np.zeros_like(nodes)
            made.append(level.with_nodes(weights if depth else leads + weights, parents))
        return made

    def widened(self, features: int) -> Self:
        """A copy for rows of more columns, which follow those there are and have no weight."""
        self.check_fitted()
        levels = [[level.widened(features) for level in own] for own in self.levels_]
        return with_learned(unfitted(self), **(self.learned() | {"levels_": levels}))

    def partial_fit(self, X: Matrix, Y: csr_matrix, labels: LabelSet) -> Self:
        """Learn more texts of labels that came after training (`add_labels`), as `OneVsAll` does;
        what was trained stays as it is. `OnlineTree` goes on learning all of its labels."""
        if not self.fitted:
            return self.fit(X, Y, labels)
        numbers = learnable(self, X, Y, labels, self.levels_[0][0].n_features_)
        rows, targets = training.rows_of(X), csr_matrix(Y)[:, numbers]
        cost = self.settings_for(len(self.labels_))["cost"]
        levels = []
        for tree, own in zip(self.trees_, self.levels_, strict=True):
            nodes = tree.leaf_of_label[numbers]
            before = own[-1].to_csr()[nodes]
            moved = updated(before, rows, targets, self.loss, cost, self.bias)
            levels.append([*own[:-1], own[-1].with_replaced(nodes, moved)])
        self.levels_ = levels
        return self

    def explain(self, x: csr_matrix, label: int) -> list[Step]:
        """The features of one row that spoke for and against each node on the way to a label,
        tree by tree."""
        self.check_fitted()
        steps = []
        for which, (tree, levels) in enumerate(zip(self.trees_, self.levels_, strict=True)):
            path = [int(tree.leaf_of_label[label])]
            for starts in reversed(tree.levels_[1:]):
                path.insert(0, int(np.searchsorted(starts, path[0], side="right")) - 1)
            steps += explain_path(levels, path, x, self.bias, which)
        return steps

    def check_learned(self) -> None:
        """Trees and weights must fit each other."""
        if not self.trees_:
            raise ValueError("trees_ of TreeClassifier must not be empty")
        for tree, weights in zip(self.trees_, self.levels_, strict=True):
            if tree.n_labels != len(self.labels_):
                raise ValueError(f"a tree of {tree.n_labels} labels for {len(self.labels_)}")
            if tree.level_sizes != [level.n_nodes for level in weights]:
                raise ValueError(
                    f"a tree with levels of {tree.level_sizes} nodes, but weights for "
                    f"{[level.n_nodes for level in weights]}"
                )
        if len({level.n_features_ for weights in self.levels_ for level in weights}) != 1:
            raise ValueError("levels_ of TreeClassifier differ in their features")

    def _taken(self, numbers: np.ndarray) -> dict[str, Any]:
        """The branches of the labels; other nodes go."""
        trees = [tree.take_labels(numbers) for tree in self.trees_]
        levels = [
            [
                level.take_nodes(nodes, starts)
                for level, nodes, starts in zip(
                    weights, old.nodes_above(numbers), new.levels_, strict=True
                )
            ]
            for old, new, weights in zip(self.trees_, trees, self.levels_, strict=True)
        ]
        taken = {"trees_": trees, "levels_": levels, "labels_": self.labels_.take(numbers)}
        return taken if self.joined_ is None else taken | {"joined_": self.joined_[numbers]}


class TreeJob(Job):
    """The levels of one tree, from the top; a stage is one or several of them.

    Parameters
    ----------
    model : TreeClassifier
        How nodes are trained.
    tree : LabelTree
    examples : Examples
        Their rows are a CSR matrix.
    label_costs : two arrays (labels,)
        What errors on positives and on negatives of each label cost.
    name : str
        Begins the names of units.
    """

    title = "training nodes"
    run = staticmethod(training.run_unit)

    def __init__(
        self,
        model: TreeClassifier,
        tree: LabelTree,
        examples: Examples,
        label_costs: Sequence[np.ndarray],
        name: str = "tree",
    ) -> None:
        self.rows, self.size = examples.rows, sum(tree.level_sizes)
        self.levels: list[ChunkedWeights] = []
        self._model, self._tree, self._examples = model, tree, examples
        self._label_costs, self._name = label_costs, name
        self._stages = self.levels_at_once()
        self._next = 0
        self._reach = csc_matrix(np.ones((len(examples), 1), np.float32))  # all belong to the root

    def levels_at_once(self) -> list[range]:
        """Which levels are trained at once, so that threads need not wait for a level of few nodes.

        The rows of the teacher are known for all levels; those of the matcher wait for the level
        above. The last level, which takes the most memory, is trained by itself.
        """
        depth = self._tree.depth
        taught = self._model.negatives == "teacher"
        ends = {0, depth - 1, depth} if taught else range(depth + 1)
        return [range(first, last) for first, last in pairwise(sorted(ends))]

    @property
    def matches(self) -> bool:
        """True if the stage needs weights of the stages before."""
        return self._model.negatives == "teacher+matcher" and self._next > 0

    def stage(self) -> Unit | None:
        """All nodes of the next stage as one unit; None if there is no stage left.

        A stage that is asked for counts as begun: `assemble` takes its weights, but the next one
        can do without where it is the teacher who says which rows belong to a node.
        """
        if self._next == len(self._stages):
            return None
        levels, tree = self._stages[self._next], self._tree
        if self.matches:
            self._reach = (self._reach + self._matched()).tocsc()
        below = (self._targets_of_level(depth) for depth in levels)
        rows_of = hstack([self._reach, *below], "csc")  # of each node; parents come first
        sizes = np.concatenate([np.diff(tree.levels_[depth]) for depth in levels])
        reach = column_slice(rows_of, slice(0, len(sizes)))
        targets = column_slice(rows_of, slice(self._reach.shape[1], rows_of.shape[1]))
        self._reach = column_slice(rows_of, slice(len(sizes), rows_of.shape[1]))
        costs, numbers = self._options(levels)
        name = f"{self._name}-stage-{self._next}"
        self._next += 1
        starts = np.append(0, np.cumsum(sizes))
        return training.unit_of(name, targets, costs, numbers, starts, reach)

    def units(self) -> list[Unit]:
        """Groups of siblings, some seconds of work each."""
        whole = self.stage()
        return [] if whole is None else training.cut(self.rows, whole)

    def assemble(self, parts: Iterable[csr_matrix]) -> None:
        """Take the weights of the stage, level by level."""
        together = list(parts)
        weights = together.pop() if len(together) == 1 else vstack(together, "csr")
        del together
        tree, first = self._tree, 0
        for depth in self._stages[self._next - 1]:
            level = row_slice(weights, slice(first, first + tree.level_sizes[depth]))
            first += tree.level_sizes[depth]
            precision = self._model.precision
            self.levels.append(ChunkedWeights.build(level, tree.levels_[depth], precision))

    def _options(self, levels: range) -> tuple[list[np.ndarray], dict[str, Any]]:
        """Costs of the nodes of a stage, and how they are trained; only the last one's are labels
        with costs of their own."""
        model, tree = self._model, self._tree
        last = levels.stop == tree.depth
        costs = [np.full(sum(tree.level_sizes[depth] for depth in levels), model.cost)] * 2
        if last:
            costs = [own[tree.label_of_leaf_] for own in self._label_costs]
        points = self._examples.label_points is not None
        return costs, {"weighed": points or self._weighed(last), **model.solver()}

    def _weighed(self, last: bool) -> bool:
        """Whether relevances of texts weigh, on the last level or above."""
        relevance = self._model.relevance
        return relevance == "nodes" or (last and relevance is not None)

    def _targets_of_level(self, depth: int) -> csc_matrix:
        """Which rows belong to which node of a level, those of the labels below it, and the sum of
        their relevances."""
        return training.weighed_targets(
            self._examples,
            self._model.relevance_norm,
            self._weighed(depth + 1 == self._tree.depth),
            lambda Y: self._tree.targets(Y, depth),
        ).tocsc()

    def _matched(self) -> csc_matrix:
        """The nodes of the last level so far to which the beam leads each row."""
        size = self.levels[-1].n_nodes
        ids, _ = beam_search(
            self.levels,
            np.arange(size),
            self.rows,
            min(self._model.beam, size),
            beam=self._model.beam,
            post=self._model.post,
            bias=self._model.bias,
        )
        there = ids < size
        rows = np.repeat(np.arange(len(ids)), there.sum(axis=1))
        ones = np.ones(len(rows), np.float32)
        return csc_matrix((ones, (rows, ids[there])), (len(ids), size))
