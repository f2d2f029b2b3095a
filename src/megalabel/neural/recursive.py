"""RecursiveClassifier: an encoder fine-tuned down a label tree, then a linear ranker over it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csc_matrix, csr_matrix, vstack
from torch import Tensor, nn

from megalabel.base import Check, clone, instance, integer, number, one_of
from megalabel.checkpoints import Checkpoint
from megalabel.data.examples import Examples
from megalabel.data.matrix import scaled_rows
from megalabel.labels import LabelTree, label_vectors
from megalabel.linear.chunks import ChunkedWeights
from megalabel.linear.training import train
from megalabel.neural.batches import Batch, TextSource
from megalabel.neural.classifier import (
    RANKERS,
    ViewsClassifier,
    held_out_rows,
    make_ranker,
    precision_at,
)
from megalabel.neural.encoders import Encoder, EncoderModule
from megalabel.neural.encoding import encoded
from megalabel.neural.heads import ShortlistModule
from megalabel.neural.losses import SquaredHinge
from megalabel.neural.models import Group, Model, Pass
from megalabel.neural.shortlists import Candidates, best, children
from megalabel.neural.trainer import Trainer
from megalabel.neural.views import joined
from megalabel.parts import Classifier

log = logging.getLogger(__name__)

_SOLVER: dict[str, Any] = {"loss": "squared-hinge", "eps": 0.1, "bias": 1.0}
_SCORED = 8192  # rows whose nodes are scored at a time


class RecursiveClassifier(ViewsClassifier):
    """XR-Transformer (Zhang et al. 2021).

    The encoder learns to tell ever finer clusters of labels apart, level by level of a tree: each
    level starts from the encoder of the one above, with a head that was solved on its vectors, and
    sees for each text only the children of clusters that the level above finds likely. At the end
    a linear classifier is trained on the words and the encoder's vectors side by side.

    Parameters
    ----------
    encoder : Encoder
    trainer : Trainer, optional
        For each level.
    ranker : Classifier, "one-vs-all", "trees" or None
        The linear classifier at the end, whose trees are made anew of words and vectors; None:
        one-versus-all for up to 10,000 labels, else three trees.
    arity, max_leaf : int
        Of the preliminary tree.
    min_clusters, max_clusters : int
        Levels with fewer or more nodes are not fine-tuned.
    beam : int
        Clusters of a text whose children the next level sees, beside the true ones.
    max_active : int
        Nodes of a text that a step looks at: all true ones, and some of the others.
    bootstrap : "linear" or "random"
        How a level's head starts.
    relevance : "counts" or "shares"
        The weight of a true cluster: how many of the text's labels it holds (the published code),
        or their share (the paper), and then `negative_weight` of the others.
    negative_weight : float
    dropout : float
    validation : float
        The share of rows held out to choose the best epoch of each level; 0: the last one stays.
    seed : int

    Attributes
    ----------
    encoder_ : Encoder
    ranker_ : Classifier
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "encoder": instance(Encoder),
        "trainer": instance(Trainer) | one_of(None),
        "ranker": instance(Classifier) | one_of(None, *RANKERS),
        "arity": integer(2),
        "max_leaf": integer(2),
        "min_clusters": integer(1),
        "max_clusters": integer(1),
        "beam": integer(1),
        "max_active": integer(1),
        "bootstrap": one_of("linear", "random"),
        "relevance": one_of("counts", "shares"),
        "negative_weight": number(0),
        "dropout": number(0, 1),
        "validation": number(0, 0.5),
        "seed": integer(0),
    }

    def __init__(
        self,
        encoder: Encoder,
        trainer: Trainer | None = None,
        ranker: Classifier | str | None = None,
        *,
        arity: int = 16,
        max_leaf: int = 16,
        min_clusters: int = 16,
        max_clusters: int = 32_768,
        beam: int = 5,
        max_active: int = 1000,
        bootstrap: str = "linear",
        relevance: str = "counts",
        negative_weight: float = 1.0,
        dropout: float = 0.1,
        validation: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.encoder = encoder
        self.trainer = trainer
        self.ranker = ranker
        self.arity = arity
        self.max_leaf = max_leaf
        self.min_clusters = min_clusters
        self.max_clusters = max_clusters
        self.beam = beam
        self.max_active = max_active
        self.bootstrap = bootstrap
        self.relevance = relevance
        self.negative_weight = negative_weight
        self.dropout = dropout
        self.validation = validation
        self.seed = seed

    def _train(self, examples: Examples, checkpoint: Checkpoint) -> None:
        """Fine-tune level by level, then train the ranker."""
        X, Y = examples.rows, examples.targets
        vectors_of_labels = label_vectors(X.words, Y, "pifa")
        tree = LabelTree.balanced(
            vectors_of_labels, arity=self.arity, max_leaf=self.max_leaf, seed=self.seed
        )
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            module = self.encoder.begin(X.tokens, self.seed, self.training, checkpoint)
            module.to(self.training.torch_device)
        vectors = encoded(module, X.tokens, self.training)
        tuned = self._tuned(tree)
        # the first level tells all its nodes apart
        above = 1 if tuned[0] == 0 else tree.level_sizes[tuned[0] - 1]
        parents = csr_matrix(np.ones((len(X), above), np.float32))
        for depth in tuned:
            level = _TunedLevel(tree, depth, Y, parents)
            log.info("fine-tuning on level %d of %d: %d nodes", depth + 1, tree.depth, level.size)
            self._tune(module, level, examples, vectors, checkpoint)
            vectors = encoded(module, X.tokens, self.training)
            if depth != tuned[-1]:
                parents = self._matched(level, joined(X.words, vectors), checkpoint)
        self.encoder_ = clone(self.encoder).keep(module)
        ranker = make_ranker(self.ranker, Y.shape[1], self.seed)
        self.ranker_ = ranker.fit_examples(examples.with_rows(joined(X.words, vectors)))

    def _tuned(self, tree: LabelTree) -> list[int]:
        """The levels to fine-tune on: those of a size to learn something from, one at least."""
        sizes = tree.level_sizes
        few = [d for d, n in enumerate(sizes) if self.min_clusters <= n <= self.max_clusters]
        return few or [min(range(len(sizes)), key=lambda d: abs(sizes[d] - self.min_clusters))]

    def _tune(
        self,
        module: EncoderModule,
        level: _TunedLevel,
        examples: Examples,
        vectors: np.ndarray,
        checkpoint: Checkpoint,
    ) -> None:
        """Fine-tune the encoder on the nodes of a level."""
        X = examples.rows
        negative = 1.0 if self.relevance == "counts" else self.negative_weight
        loss = SquaredHinge(relevance=True, negative_weights=negative, reduction="mean")
        head = ShortlistModule(module.width, level.size, loss, seed=self.seed + level.depth)
        if self.bootstrap == "linear":
            level.solve(head, csr_matrix(vectors))
        targets = level.targets
        if self.relevance == "shares":
            targets = scaled_rows(targets, "l1")
        device = self.training.torch_device
        model = _TunedModel(module, head, level, self.dropout, self.max_active, device)
        rows, judged = held_out_rows(examples, self.validation, self.seed)
        model.rows = rows
        evaluate = None
        if len(judged):

            def evaluate() -> float:
                made = torch.from_numpy(encoded(module, X.tokens[judged], self.training))
                return level.precision(head, made.to(device), judged)

        self.training.fit(
            model,
            TextSource(X.tokens[rows], targets[rows]),
            evaluate=evaluate,
            checkpoint=checkpoint,
            name=f"level-{level.depth + 1}",
        )

    def _matched(
        self, level: _TunedLevel, features: csr_matrix, checkpoint: Checkpoint
    ) -> csr_matrix:
        """The nodes of a level that a linear ranker finds likely for each row."""
        weights = checkpoint.done(f"ranker-{level.depth + 1}", lambda: level.ranker(features))
        chunks = ChunkedWeights.build(weights, level.starts, "float32")
        parts = []
        for start in range(0, features.shape[0], _SCORED):
            part = level.parents[start : start + _SCORED]
            pairs = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))
            margins = chunks.scores(features[start : start + _SCORED], pairs, part.indices)
            numbers = children(part, level.starts)
            scores = np.zeros(numbers.shape, np.float32)
            above = np.repeat(part.data, np.diff(level.starts)[part.indices])
            # the cubed hinge down the path, as the ranker at the end scores
            scores[numbers >= 0] = np.exp(-(np.maximum(0, 1 - margins) ** 3)) * above
            parts.append(best(scores, numbers, self.beam, level.size))
        return vstack(parts, "csr")


class _TunedLevel:
    """A level of the tree: its nodes, which rows have them, and which rows may come to them."""

    def __init__(self, tree: LabelTree, depth: int, Y: csr_matrix, matched: csr_matrix) -> None:
        self.depth, self.starts = depth, tree.levels_[depth]
        self.size = tree.level_sizes[depth]
        self.targets = tree.targets(Y, depth)
        above = tree.targets(Y, depth - 1) if depth else matched
        # what the level above finds likely, and the truth, with a score of 1
        true = csr_matrix(
            (np.ones(above.nnz, np.float32), above.indices, above.indptr), above.shape
        )
        self.parents: csr_matrix = matched.maximum(true)
        self.predicted = matched

    def solve(self, head: ShortlistModule, vectors: csr_matrix) -> None:
        """Give a head the weights that a linear solver finds on the vectors as they are."""
        found = torch.from_numpy(self._train(vectors, cost=100.0, weighed=True).toarray())
        assert head.bias is not None
        with torch.no_grad():
            head.weights.weight.copy_(found[:, :-1])
            head.bias.weight.copy_(found[:, -1:])

    def ranker(self, features: csr_matrix) -> csr_matrix:
        """Weights of a linear ranker of the nodes."""
        return self._train(features, cost=1.0, weighed=False)

    def _train(self, features: csr_matrix, cost: float, weighed: bool) -> csr_matrix:
        costs = np.full(self.size, cost)
        return train(
            features,
            self.targets.tocsc(),
            group_starts=self.starts,
            reach=csc_matrix(self.parents) if self.depth else None,
            positive_costs=costs,
            negative_costs=costs,
            weighed=weighed,
            prune=0.0,
            **_SOLVER,
        )

    def precision(self, head: ShortlistModule, vectors: Tensor, rows: np.ndarray) -> float:
        """P@1 among the nodes that the level above leads to."""
        shortlist, _ = Candidates(self.predicted, self.starts, vectors.device).all_of(rows)
        _, found = head.top_k(vectors, 1, shortlist)
        return precision_at(found.cpu().numpy(), self.targets[rows])


class _TunedModel(Model):
    """The encoder and the head of one level."""

    def __init__(
        self,
        encoder: EncoderModule,
        head: ShortlistModule,
        level: _TunedLevel,
        dropout: float,
        max_active: int,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.encoder, self.head, self.dropout = encoder, head, nn.Dropout(dropout)
        self._candidates = Candidates(level.parents, level.starts, device)
        self._most = max_active
        self.rows = np.arange(level.targets.shape[0])
        """The numbers, in the level, of the rows that are trained on."""

    def groups(self) -> dict[str, Group]:
        return {
            "encoder": Group([self.encoder]),
            "head": Group([self.head], "head_learning_rate"),
        }

    def passes(self) -> list[Pass]:
        return [Pass(self.encoder, self.encoder, "forward")]

    def forward(self, batch: Batch) -> Tensor:
        rows = self.rows[batch.rows]
        shortlist = self._candidates.some_of(rows, batch.targets, self._most)
        features = self.dropout(self.encoder(batch.inputs))
        loss: Tensor = self.head(features, batch.targets, shortlist)
        return loss
