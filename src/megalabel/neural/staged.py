"""StagedClassifier: an encoder learned on label clusters, then classifiers of nearest labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from megalabel.base import Check, clone, instance, integer, number, one_of, with_learned
from megalabel.checkpoints import Checkpoint
from megalabel.data.examples import Examples
from megalabel.data.matrix import normalised_rows
from megalabel.labels import LabelTree, label_vectors
from megalabel.neural.batches import Batch, TextSource, words_of
from megalabel.neural.classifier import NeuralClassifier, held_out_rows, precision_at
from megalabel.neural.encoders import Encoder, EncoderModule
from megalabel.neural.encoders.bag import ResidualBlock
from megalabel.neural.encoding import encoded
from megalabel.neural.full import FullModel
from megalabel.neural.heads import DenseHead, ShortlistModule, begin
from megalabel.neural.heads.base import best_of_chunks
from megalabel.neural.losses import BCE
from megalabel.neural.models import Group, Model
from megalabel.neural.tokens import on_device
from megalabel.neural.trainer import Trainer
from megalabel.progress import progress
from megalabel.rankers import NearestLabels

_SCORES = 1 << 24  # scores held at a time
_ROWS = 256  # rows whose shortlists are found and scored at a time


class StagedClassifier(NeuralClassifier):
    """Astec (Dahiya et al. 2021, DeepXML): easy lessons first, and never all labels at once.

    I. The encoder learns a surrogate task: to tell clusters of labels apart. II. In its space each
    label is the centroid of its texts, and a text's shortlist are the labels nearest to it. III.
    The encoder stays as it is; a residual block over it and a classifier for each label are
    trained on shortlists and true labels. A label's score is a mean of two probabilities, the
    classifier's and that of the nearness.

    Parameters
    ----------
    encoder : Encoder
    trainer : Trainer, optional
        For both trainings.
    surrogate_learning_rate : float
        Of encoder and clusters in stage I; `trainer` has that of stage III.
    clusters : int
        The most clusters of the surrogate task; no more labels than that are their own clusters.
    shortlist : int
        How many of the nearest labels are looked at.
    beta : float
        The share of the classifier in a label's score.
    dropout : float
        Of the residual block.
    validation : float
        The share of rows held out to choose the best epoch of stage III by P@1; 0: the last one
        stays.
    seed : int

    Attributes
    ----------
    encoder_ : Encoder
    centroids_ : float16 array (labels, width)
        Of unit length; zeros for a label that no row has.
    block_ : dict of arrays
        The residual block.
    weights_ : float16 array (labels, width)
    bias_ : float32 array (labels,)
    label_counts_ : int64 array (labels,)
        How many rows have each label.

    Examples
    --------
    >>> from megalabel.neural import BagEncoder
    >>> X = csr_matrix(np.eye(6, 4, dtype=np.float32))
    >>> trainer = Trainer(epochs=2, device="cpu")
    >>> model = StagedClassifier(BagEncoder(width=8, residual=None), trainer)
    >>> model.fit(X, X).rank(X, k=3).ids.shape
    (6, 3)
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "encoder": instance(Encoder),
        "trainer": instance(Trainer) | one_of(None),
        "surrogate_learning_rate": number(0),
        "clusters": integer(1),
        "shortlist": integer(1),
        "beta": number(0, 1),
        "dropout": number(0, 1),
        "validation": number(0, 0.5),
        "seed": integer(0),
    }

    centroids_: np.ndarray
    block_: dict[str, np.ndarray]
    weights_: np.ndarray
    bias_: np.ndarray
    label_counts_: np.ndarray

    def __init__(
        self,
        encoder: Encoder,
        trainer: Trainer | None = None,
        *,
        surrogate_learning_rate: float = 0.02,
        clusters: int = 65_536,
        shortlist: int = 500,
        beta: float = 0.5,
        dropout: float = 0.5,
        validation: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.encoder = encoder
        self.trainer = trainer
        self.surrogate_learning_rate = surrogate_learning_rate
        self.clusters = clusters
        self.shortlist = shortlist
        self.beta = beta
        self.dropout = dropout
        self.validation = validation
        self.seed = seed

    def _train(self, examples: Examples, checkpoint: Checkpoint) -> None:
        """Train stage after stage."""
        X, Y = examples.rows, examples.targets.copy()
        np.minimum(Y.data, 1, out=Y.data)
        # a label of no text is answered too, by its label point
        self.label_counts_ = np.maximum(examples.label_counts, examples.taught)
        module = self._surrogate(X, Y, checkpoint, examples.columns)
        self.encoder_ = clone(self.encoder).keep(module)
        vectors = normalised_rows(encoded(module, X, self.training))
        self.centroids_ = label_vectors(vectors, Y, "pifa-paper").toarray().astype(np.float16)
        capped = replace(examples, rows=X, targets=Y)
        model = self._extreme(module, capped, self._nearest(vectors), checkpoint)
        self.block_ = {k: v.cpu().numpy().copy() for k, v in model.block.state_dict().items()}
        self.weights_ = model.head.weights.weight.detach().cpu().numpy().astype(np.float16)
        assert model.head.bias is not None
        self.bias_ = model.head.bias.weight.detach()[:, 0].cpu().numpy().copy()

    def label_ranker(self) -> NearestLabels:
        """The labels nearest to a vector, and their classifiers."""
        block = ResidualBlock(self.weights_.shape[1], 0.0, "sum")
        block.load_state_dict({k: torch.from_numpy(v) for k, v in self.block_.items()})
        return with_learned(
            NearestLabels(shortlist=self.shortlist, beta=self.beta),
            centroids_=self.centroids_,
            weights_=self.weights_,
            bias_=self.bias_,
            block_=block.arrays(),
            label_counts_=self.label_counts_,
            labels_=self.labels_,
        )

    def _surrogate(
        self, X: Any, Y: csr_matrix, checkpoint: Checkpoint, names: Sequence[str] | None
    ) -> EncoderModule:
        """Stage I: the encoder, trained on clusters of labels."""
        rate = self.surrogate_learning_rate
        trainer = clone(self.training).set_params(learning_rate=rate, head_learning_rate=rate)
        targets = self._clustered(X, Y)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            module = self.encoder.begin(X, self.seed, trainer, checkpoint, names)
        counts = np.bincount(targets.indices, minlength=targets.shape[1])
        head = begin(
            DenseHead(precision="float32", optimiser="adam"),
            module.width,
            counts,
            Y.shape[0],
            BCE(),
            device=trainer.torch_device,
            seed=self.seed,
        )
        model = FullModel(module, head)
        trainer.fit(model, TextSource(X, targets), checkpoint=checkpoint, name="surrogate")
        return module

    def _clustered(self, X: Any, Y: csr_matrix) -> csr_matrix:
        """The clusters of labels that each row has."""
        if Y.shape[1] <= self.clusters:
            return Y
        most = 1 << (self.clusters.bit_length() - 1)  # the tree's are a power of two
        size = max(2, -(-Y.shape[1] // most))
        vectors = label_vectors(words_of(X), Y, "pifa")
        tree = LabelTree.balanced(vectors, arity=2, max_leaf=size, seed=self.seed)
        targets = tree.targets(Y, max(0, tree.depth - 2))
        np.minimum(targets.data, 1, out=targets.data)
        return targets

    def _nearest(self, vectors: np.ndarray) -> np.ndarray:
        """Stage II: the nearest labels of each row, int32, -1 where there are none."""
        device = self.training.torch_device
        centroids = torch.from_numpy(self.centroids_.astype(np.float32)).to(device)
        found = np.empty((len(vectors), min(self.shortlist, len(centroids))), np.int32)
        with progress("finding the nearest labels", len(vectors)) as bar:
            for start in range(0, len(vectors), _ROWS):
                part = torch.from_numpy(vectors[start : start + _ROWS]).to(device)
                _, ids = nearest(part, centroids, found.shape[1])
                found[start : start + _ROWS] = ids.cpu().numpy()
                bar.advance(len(part))
        found[self.label_counts_[found] == 0] = -1
        return found

    def _extreme(
        self,
        module: EncoderModule,
        examples: Examples,
        shortlists: np.ndarray,
        checkpoint: Checkpoint,
    ) -> ShortlistModel:
        """Stage III: the residual block and the classifiers, trained on shortlists."""
        X, Y = examples.rows, examples.targets
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            block = ResidualBlock(module.width, self.dropout, "sum")
        head = ShortlistModule(module.width, Y.shape[1], BCE(reduction="mean"), seed=self.seed)
        # at first every label is as likely as it is frequent where it is looked at
        looked = np.bincount(shortlists[shortlists >= 0], minlength=Y.shape[1])
        counts = self.label_counts_
        share = np.minimum((counts + 0.5) / (np.maximum(looked, counts) + 1), 0.5)
        assert head.bias is not None
        with torch.no_grad():
            head.bias.weight.copy_(torch.from_numpy(np.log(share / (1 - share)))[:, None])
        rows, judged = held_out_rows(examples, self.validation, self.seed)
        model = ShortlistModel(module, block, head, shortlists[rows])
        evaluate = None
        if len(judged):
            vectors = torch.from_numpy(encoded(module, X[judged], self.training))
            vectors = vectors.to(self.training.torch_device)
            near = torch.from_numpy(shortlists[judged].astype(np.int64)).to(vectors.device)

            @torch.no_grad()
            def evaluate() -> float:
                ids = head.top_k(block(vectors), 1, near)[1]
                return precision_at(ids.cpu().numpy(), Y[judged])

        source = TextSource(X[rows], Y[rows])
        self.training.fit(model, source, evaluate=evaluate, checkpoint=checkpoint, name="extreme")
        return model


class ShortlistModel(Model):
    """A frozen encoder, a residual block over it, and a head of shortlisted labels."""

    def __init__(
        self,
        encoder: EncoderModule,
        block: ResidualBlock,
        head: ShortlistModule,
        shortlists: np.ndarray,
    ) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        self.block, self.head = block, head
        self._shortlists = shortlists

    def groups(self) -> dict[str, Group]:
        return {"head": Group([self.block, self.head], "head_learning_rate")}

    def forward(self, batch: Batch) -> Tensor:
        near = torch.from_numpy(self._shortlists[batch.rows].astype(np.int64))
        near = on_device(near, batch.targets.device)
        # true labels are all there, and once
        near = near.masked_fill(batch.targets.of(near) > 0, -1)
        true, _, there = batch.targets.padded()
        shortlist = torch.cat([near, true.masked_fill(~there, -1)], 1)
        made: Tensor = self.head(self.block(self.encoder(batch.inputs)), batch.targets, shortlist)
        return made


def nearest(vectors: Tensor, centroids: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Cosines and numbers of the k nearest centroids, those of zeros last: an exact search.

    Examples
    --------
    >>> nearest(torch.eye(2), torch.tensor([[0.0, 1.0], [0.6, 0.8]]), 1)
    (tensor([[0.6000],
            [1.0000]]), tensor([[1],
            [0]]))
    """

    def chunks() -> Iterator[tuple[Tensor, int]]:
        size = max(1, _SCORES // max(1, len(vectors)))
        for first in range(0, len(centroids), size):
            part = centroids[first : first + size]
            empty = (part == 0).all(1)
            yield (vectors @ part.T).masked_fill(empty, -2.0), first

    return best_of_chunks(chunks(), k)
