"""AttentionClassifier: each label attends to the tokens that speak for it, down a label tree."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_matrix, vstack
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from megalabel.base import (
    Check,
    clone,
    instance,
    integer,
    number,
    one_of,
    sequence_of,
    with_learned,
)
from megalabel.checkpoints import Checkpoint
from megalabel.data.examples import Examples
from megalabel.features import OnnxTokens
from megalabel.labels import LabelTree, label_vectors
from megalabel.neural.batches import Batch, TextSource, lengths_of, rows_on, words_of
from megalabel.neural.classifier import (
    NeuralClassifier,
    held_out_rows,
    precision_at,
)
from megalabel.neural.encoders import Encoder, EncoderModule
from megalabel.neural.heads.base import best
from megalabel.neural.heads.shortlist import SPARSE, without_padding
from megalabel.neural.losses import BCE
from megalabel.neural.models import Group, Model
from megalabel.neural.shortlists import Candidates
from megalabel.neural.states import EncoderStates
from megalabel.neural.tokens import Tokenizer, Tokens
from megalabel.neural.trainer import Trainer
from megalabel.parts import Featurizer
from megalabel.progress import progress
from megalabel.rankers import AttentionTree

log = logging.getLogger(__name__)

_AT_ONCE = 64  # texts whose nodes are scored together
_PAIRS = 1 << 18  # texts times nodes whose vectors are held at a time, where all nodes are scored


class AttentionClassifier(NeuralClassifier):
    """AttentionXML (You et al. 2019).

    Every label has a vector of its own by which it weighs the states of a text's tokens; the
    weighted mean goes through layers that all labels share to the label's score. Of many labels a
    tree is made. Each level is a model of its own that starts from the one above (encoder and
    shared layers), and sees of each text the children of those clusters that the level above
    finds most likely, in training of the true ones too.

    Parameters
    ----------
    encoder : Encoder
        One that reads tokens; the states of its last layer are attended to.
    trainer : Trainer, optional
        For each level.
    hidden : list of int
        Widths of the shared layers.
    clustered_above : int
        No more labels than that are scored all at once, without a tree.
    levels : int
        Of clusters, at most.
    arity : int
        Children of a cluster: a power of two.
    max_leaf : int
        The most labels in a cluster of the last level of clusters.
    beam : int
        The clusters of a text whose children the next level sees.
    validation : float
        The share of rows held out to choose the best epoch of each level; 0: the last one stays.
    seed : int

    Attributes
    ----------
    encoder_ : Encoder
        Of the labels.
    coarse_ : list of Encoder
        Those of the levels of clusters, from the top.
    heads_ : dict of arrays
        The weights of all levels, by name.
    tree_ : LabelTree
    label_counts_ : int64 array (labels,)
        How many rows have each label.

    Examples
    --------
    >>> from megalabel.neural import RecurrentEncoder, Tokenizer
    >>> tokens = Tokenizer().fit_transform(["red dress", "blue jeans"])
    >>> classifier = AttentionClassifier(
    ...     RecurrentEncoder(token_width=8, size=8), Trainer(epochs=9, head_learning_rate=0.1)
    ... )
    >>> classifier.fit(tokens, csr_matrix(np.eye(2))).rank(tokens, k=2).ids.shape
    (2, 2)
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "encoder": instance(Encoder),
        "trainer": instance(Trainer) | one_of(None),
        "hidden": sequence_of(integer(1)),
        "clustered_above": integer(1),
        "levels": integer(1),
        "arity": integer(2),
        "max_leaf": integer(2),
        "beam": integer(1),
        "validation": number(0, 0.5),
        "seed": integer(0),
    }

    coarse_: list[Encoder]
    heads_: dict[str, np.ndarray]
    tree_: LabelTree
    label_counts_: np.ndarray
    pad_: int

    def __init__(
        self,
        encoder: Encoder,
        trainer: Trainer | None = None,
        *,
        hidden: Sequence[int] = (256,),
        clustered_above: int = 100_000,
        levels: int = 3,
        arity: int = 8,
        max_leaf: int = 8,
        beam: int = 160,
        validation: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.encoder = encoder
        self.trainer = trainer
        self.hidden = hidden
        self.clustered_above = clustered_above
        self.levels = levels
        self.arity = arity
        self.max_leaf = max_leaf
        self.beam = beam
        self.validation = validation
        self.seed = seed

    def _train(self, examples: Examples, checkpoint: Checkpoint) -> None:
        """Train level after level."""
        X, Y = examples.rows, examples.targets
        truth = Y.copy()  # its relevances are cut off at 1
        # a label of no text is answered too, by its label point
        self.label_counts_ = np.maximum(examples.label_counts, examples.taught)
        self.pad_ = X.pad
        self.tree_ = self._clustered(X, Y)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            module = self.encoder.begin(X, self.seed, self.training, checkpoint)
        encoders: list[Encoder] = []
        self.heads_ = {}
        predicted: csr_matrix | None = None  # the likely clusters of the level above
        shared: nn.Module | None = None
        for depth in range(self.tree_.depth):
            level = _AttentionLevel(self.tree_, depth, truth, predicted)
            log.info("level %d of %d: %d nodes", depth + 1, self.tree_.depth, level.size)
            model = self._trained(module, shared, level, examples, checkpoint)
            encoders.append(clone(self.encoder).keep(module))
            for name, value in model.attention.state_dict().items():
                self.heads_[f"{depth}.{name}"] = value.cpu().numpy().astype(_type(name))
            if depth + 1 < self.tree_.depth:
                find = partial(self._scored, model, level, X, predicted, self.beam)
                predicted = checkpoint.done(f"clusters-{depth + 1}", find)
            shared = model.attention.shared
        self.encoder_, self.coarse_ = encoders[-1], encoders[:-1]

    def _trained(
        self,
        module: EncoderModule,
        shared: nn.Module | None,
        level: _AttentionLevel,
        examples: Examples,
        checkpoint: Checkpoint,
    ) -> AttentionModel:
        """The model of a level, from the encoder and the shared layers of the one above."""
        X = examples.rows
        with torch.random.fork_rng():
            torch.manual_seed(self.seed + level.depth)
            model = AttentionModel(module, self.hidden, level)
        if shared is None:
            model.attention.start(level.targets)
        else:
            model.attention.shared.load_state_dict(shared.state_dict())
        model.rows, judged = held_out_rows(examples, self.validation, self.seed)
        evaluate = None
        if len(judged):

            def evaluate() -> float:
                likely = None if level.predicted is None else level.predicted[judged]
                found = self._scored(model, level, X[judged], likely, 1)
                return precision_at(found.indices[:, None], level.targets[judged])

        self.training.fit(
            model,
            TextSource(X[model.rows], level.targets[model.rows]),
            evaluate=evaluate,
            checkpoint=checkpoint,
            name=f"level-{level.depth + 1}",
        )
        return model

    def label_ranker(self) -> AttentionTree:
        """The levels, each over the states of its encoder."""
        device, precision = self.training.device, self.training.precision
        shared = range(0, 2 * len(self.hidden) + 1, 2)  # between them are the ReLUs
        depths = range(self.tree_.depth)
        return with_learned(
            AttentionTree(beam=self.beam),
            tree_=self.tree_,
            states_=[
                with_learned(EncoderStates(device=device, precision=precision), encoder_=encoder)
                for encoder in (*self.coarse_, self.encoder_)
            ],
            queries_=[self.heads_[f"{t}.queries.weight"] for t in depths],
            layers_=[
                [
                    self.heads_[f"{t}.shared.{i}.{kind}"]
                    for i in shared
                    for kind in ("weight", "bias")
                ]
                for t in depths
            ],
            pad_=self.pad_,
            label_counts_=self.label_counts_,
            labels_=self.labels_,
        )

    def features(self, X: Tokens) -> np.ndarray:
        """The numbers of tokens, -1 after the last one of a text."""
        self.check_known(X)
        places = np.arange(max(1, int(X.lengths.max(initial=1))))
        numbers = np.full((len(X), len(places)), -1, np.int32)
        numbers[places < X.lengths[:, None]] = X.ids
        return numbers

    def encoding(self, features: Featurizer) -> OnnxTokens:
        """Texts to the numbers of their tokens."""
        assert isinstance(features, Tokenizer)
        return with_learned(OnnxTokens(), tokenizer_=features.as_json())

    def _clustered(self, X: Any, Y: csr_matrix) -> LabelTree:
        """The tree: its lowest levels of clusters, and the labels."""
        if Y.shape[1] <= self.clustered_above:
            return LabelTree.from_parents(np.full(Y.shape[1], -1))
        vectors = label_vectors(words_of(X), Y, "pifa")
        whole = LabelTree.balanced(
            vectors, arity=self.arity, max_leaf=self.max_leaf, seed=self.seed
        )
        levels = whole.levels_[-self.levels :]
        if len(levels) < whole.depth:  # the first of them hang on the root
            levels = [np.array([0, len(levels[0]) - 1]), *levels]
        tree = LabelTree()
        tree.restore({"levels_": levels, "label_of_leaf_": whole.label_of_leaf_})
        return tree

    @torch.inference_mode()
    def _scored(
        self,
        model: AttentionModel,
        level: _AttentionLevel,
        X: Any,
        parents: csr_matrix | None,
        k: int,
    ) -> csr_matrix:
        """The k best nodes of each row, among the children of its parents, as a matrix of scores:
        probabilities times those of the parents."""
        device = next(model.parameters()).device
        order = np.argsort(-lengths_of(X), kind="stable")  # as in `encoded`
        candidates = None if parents is None else level.candidates(parents, device)
        parts = []
        with progress("scoring", len(order)) as bar, self.training.arithmetic(device):
            for start in range(0, len(order), _AT_ONCE):
                rows = order[start : start + _AT_ONCE]
                inputs = rows_on(X, rows, device)
                if candidates is None:
                    sure = torch.sigmoid(model.scores(inputs).float())
                    numbers = torch.arange(level.size, device=device).expand_as(sure)
                else:
                    numbers, above = candidates.all_of(rows)
                    sure = torch.sigmoid(model.scores(inputs, numbers).float()) * above
                found, at = best(sure.masked_fill(numbers < 0, -torch.inf), numbers, k)
                parts.append(_sparse(found.cpu().numpy(), at.cpu().numpy(), level.size))
                bar.advance(len(rows))
        if not parts:
            return csr_matrix((0, level.size), dtype=np.float32)
        return vstack(parts, "csr")[np.argsort(order)]


class _AttentionLevel:
    """A level of the tree, its nodes numbered as in the tree, those of the last one as labels;
    with the rows' nodes and with what the level above finds likely."""

    def __init__(
        self,
        tree: LabelTree,
        depth: int,
        Y: csr_matrix,
        predicted: csr_matrix | None = None,
    ) -> None:
        self.depth, self.size = depth, tree.level_sizes[depth]
        self._starts = tree.levels_[depth]
        self._labels = tree.label_of_leaf_ if depth + 1 == tree.depth else None
        self.predicted, self.parents = predicted, predicted
        self.targets = tree.targets(Y, depth) if self._labels is None else Y
        np.minimum(self.targets.data, 1, out=self.targets.data)
        if predicted is not None:
            true = tree.targets(Y, depth - 1)
            true.data[:] = 1
            self.parents = predicted.maximum(true)

    def candidates(self, parents: csr_matrix, device: torch.device) -> Candidates:
        """The children of each row's parents."""
        return Candidates(parents, self._starts, device, self._labels)


class AttentionModel(Model):
    """An encoder, and nodes that attend to its states."""

    def __init__(
        self, encoder: EncoderModule, hidden: Sequence[int], level: _AttentionLevel
    ) -> None:
        super().__init__()
        self.encoder = encoder
        sparse = level.depth > 0 and level.size > SPARSE
        self.attention = LabelAttention(encoder.state_width, level.size, hidden, sparse=sparse)
        self.loss = BCE(reduction="mean")
        self._level = level
        self._candidates: Candidates | None = None
        self.rows = np.empty(0, np.int64)
        """The numbers, in the level, of the rows that are trained on."""

    def groups(self) -> dict[str, Group]:
        return {
            "encoder": Group([self.encoder]),
            "attention": Group([self.attention], "head_learning_rate"),
        }

    def scores(self, inputs: Any, shortlist: Tensor | None = None) -> Tensor:
        """Of all nodes, or of those on a shortlist."""
        states = self.encoder.hidden(inputs)[-1]
        made: Tensor = self.attention(states, inputs.mask, shortlist)
        return made

    def forward(self, batch: Batch) -> Tensor:
        parents = self._level.parents
        if parents is None:
            targets = batch.targets.dense(0, self._level.size)
            return self.loss(self.scores(batch.inputs), targets).mean()
        if self._candidates is None:
            self._candidates = self._level.candidates(parents, batch.targets.device)
        shortlist, _ = self._candidates.all_of(self.rows[batch.rows])
        scores = self.scores(batch.inputs, shortlist)
        return self.loss(scores, batch.targets.of(shortlist), mask=shortlist >= 0).mean()


class LabelAttention(nn.Module):
    """Scores of labels, each from the states of tokens as the label weighs them.

    The weights of label l over tokens t are softmax_t(<h_t, u_l>); their mean of the states goes
    through layers that all labels share.

    Parameters
    ----------
    width : int
        Of the states.
    labels : int
    hidden : list of int
        Widths of the shared layers.
    sparse : bool
        Whether gradients hold only the shortlisted labels.
    """

    def __init__(
        self, width: int, labels: int, hidden: Sequence[int], *, sparse: bool = False
    ) -> None:
        super().__init__()
        self.queries = nn.Embedding(labels, width, sparse=sparse)
        nn.init.xavier_uniform_(self.queries.weight)
        layers: list[nn.Module] = []
        for narrow, wide in zip([*hidden, 1], [width, *hidden], strict=True):
            linear = nn.Linear(wide, narrow)
            nn.init.xavier_uniform_(linear.weight)
            layers += [linear, nn.ReLU()]
        self.shared = nn.Sequential(*layers[:-1])

    @torch.no_grad()
    def start(self, targets: csr_matrix) -> None:
        """Make all labels as likely as one is on average: scores of 0 would throw the encoder
        about before it has learned."""
        share = (targets.nnz + 0.5) / (targets.shape[0] * targets.shape[1] + 1)
        last = self.shared[-1]
        assert isinstance(last, nn.Linear)
        last.bias.fill_(math.log(share / (1 - share)))

    def forward(self, states: Tensor, mask: Tensor, shortlist: Tensor | None = None) -> Tensor:
        """Scores (rows, labels) of all labels, or of a shortlist (rows, candidates) that has -1
        where there is none; states are (rows, tokens, width), real where the mask says so."""
        if shortlist is not None:
            return self._scores(states, mask, self.queries(without_padding(shortlist)))
        chunks = torch.split(self.queries.weight, max(1, _PAIRS // len(states)))
        if len(chunks) == 1 or not torch.is_grad_enabled():
            return torch.cat([self._scores(states, mask, chunk) for chunk in chunks], 1)
        # the vectors of a chunk are made a second time rather than kept
        made = [checkpoint(self._scores, states, mask, c, use_reentrant=False) for c in chunks]
        return torch.cat(made, 1)

    def _scores(self, states: Tensor, mask: Tensor, queries: Tensor) -> Tensor:
        matches = queries.to(states.dtype) @ states.transpose(1, 2)
        weights = matches.masked_fill(~mask[:, None], -torch.inf).softmax(2)
        made: Tensor = self.shared(weights.to(states.dtype) @ states)[..., 0]
        return made


def _sparse(scores: np.ndarray, numbers: np.ndarray, size: int) -> csr_matrix:
    """Scores of some nodes of each row, those of minus infinity left out, as a matrix."""
    there = scores > -np.inf
    indptr = np.append(0, np.cumsum(there.sum(1)))
    made = csr_matrix((scores[there], numbers[there], indptr), (len(scores), size))
    made.sort_indices()
    return made


def _type(name: str) -> np.dtype[Any]:
    """How an array of the levels is kept: the vectors of nodes in half precision."""
    return np.dtype(np.float16 if name.startswith("queries") else np.float32)
