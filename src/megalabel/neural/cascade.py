"""CascadeClassifier: one encoder, label clusters at several resolutions, trained end to end."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_matrix

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
from megalabel.data import Ranking
from megalabel.data.examples import Examples
from megalabel.errors import ParameterError
from megalabel.labels import LabelTree, label_vectors
from megalabel.neural.batches import TextSource
from megalabel.neural.cascade_network import Cascade, Shape
from megalabel.neural.classifier import (
    RANKERS,
    ViewsClassifier,
    held_out_rows,
    make_ranker,
    precision_at,
)
from megalabel.neural.encoders import Encoder, EncoderModule
from megalabel.neural.encoding import encoded
from megalabel.neural.trainer import Trainer
from megalabel.neural.views import Views, joined
from megalabel.parts import Classifier
from megalabel.rankers import DenseTree

_FINER = 8  # how many times as many nodes each level has as the one above
_RANKED = 256  # rows ranked at a time
_UNSEEN = -1e4  # the bias of a label that no row has: nothing speaks for it

_LAYERS = sequence_of(integer() | sequence_of(integer()))


class CascadeClassifier(ViewsClassifier):
    """CascadeXML (Kharbanda et al. 2022), and LightXML (Jiang et al. 2021) as a case of it.

    Labels are clustered into a tree. A lower layer of the encoder tells coarse clusters apart,
    higher ones finer clusters and at last labels; each level scores only the children of those
    clusters that the level above finds likely, and all levels learn together in one pass. At the
    end a linear classifier is trained on the words and the encoder's vectors side by side.

    Parameters
    ----------
    encoder : Encoder
    trainer : Trainer, optional
    ranker : Classifier, "one-vs-all", "trees", "network" or None
        The linear classifier at the end; None: one-versus-all for up to 10,000 labels, else three
        trees; "network": the network answers itself.
    resolutions : list of int, optional
        How many clusters each level has, from the top: powers of two. None: by the number of
        labels, each level with 8 times as many as the one above.
    max_first : int
        The most nodes of the first level, all of which are scored; no more labels than that are
        not clustered at all. For `resolutions=None`.
    cluster_size : int
        About how many labels a cluster of the last level of clusters has; likewise.
    layers : list, "vector" or None
        The layer that each level sees, or a list of layers, whose vectors it sees side by side;
        -1 is the last, and of a list those are left out that the encoder does not have. One for
        each level, or one for all. "vector": all see the encoder's own vector. None: the last
        levels see the last layers, a sixth of all layers apart, and the first of several levels
        sees two.
    projection : "layer", int or None
        Vectors of several layers are projected to the width of one ("layer"), or those of the last
        of several levels to so many numbers, or none are.
    pooling : "auto", "first", "last", "mean" or "max"
        How the states of a layer become a vector; "auto": as the encoder does it.
    beam : int or list of int, optional
        The clusters of a text whose children the next level sees, in training beside the true
        ones. None: 64 with up to three levels; with more, 128, 256 and then 512.
    dropouts : list of float, optional
        Of what each level sees. One for each level, or one for all. None: 0.4 for the last, 0.5
        where there are more than three levels, and 0.1 less for each level above.
    input_dropout : float
        Of vectors before they are projected.
    detached : float
        The share of the training, at first, in which the labels do not move the encoder, only the
        clusters above them do.
    prediction : "weighted" or "level"
        The network's score of a label: its probability times that of its cluster, or its own.
    validation : float
        The share of rows held out to choose the best epoch by P@1; 0: the last one stays.
    seed : int

    Attributes
    ----------
    encoder_ : Encoder
    tree_ : LabelTree
    heads_ : dict of arrays
        The weights of the levels, by name.
    ranker_ : Classifier or None
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "encoder": instance(Encoder),
        "trainer": instance(Trainer) | one_of(None),
        "ranker": instance(Classifier) | one_of(None, *RANKERS, "network"),
        "resolutions": sequence_of(integer(2)) | one_of(None),
        "max_first": integer(1),
        "cluster_size": integer(2),
        "layers": _LAYERS | one_of(None, "vector"),
        "projection": one_of("layer", None) | integer(1),
        "pooling": one_of("auto", "first", "last", "mean", "max"),
        "beam": integer(1) | sequence_of(integer(1)) | one_of(None),
        "dropouts": sequence_of(number(0, 1)) | one_of(None),
        "input_dropout": number(0, 1),
        "detached": number(0, 1),
        "prediction": one_of("weighted", "level"),
        "validation": number(0, 0.5),
        "seed": integer(0),
    }

    tree_: LabelTree
    heads_: dict[str, np.ndarray]

    def __init__(
        self,
        encoder: Encoder,
        trainer: Trainer | None = None,
        ranker: Classifier | str | None = None,
        *,
        resolutions: Sequence[int] | None = None,
        max_first: int = 1024,
        cluster_size: int = 8,
        layers: Sequence[int | Sequence[int]] | str | None = None,
        projection: str | int | None = "layer",
        pooling: str = "auto",
        beam: int | Sequence[int] | None = None,
        dropouts: Sequence[float] | None = None,
        input_dropout: float = 0.2,
        detached: float = 0.0,
        prediction: str = "weighted",
        validation: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.encoder = encoder
        self.trainer = trainer
        self.ranker = ranker
        self.resolutions = resolutions
        self.max_first = max_first
        self.cluster_size = cluster_size
        self.layers = layers
        self.projection = projection
        self.pooling = pooling
        self.beam = beam
        self.dropouts = dropouts
        self.input_dropout = input_dropout
        self.detached = detached
        self.prediction = prediction
        self.validation = validation
        self.seed = seed

    def _train(self, examples: Examples, checkpoint: Checkpoint) -> None:
        """Train all levels together, then the ranker."""
        X, Y, trainer = examples.rows, examples.targets, self.training
        self.tree_ = self._clustered(X.words, Y)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            module = self.encoder.begin(X.tokens, self.seed, trainer, checkpoint)
            network = self._built(module)
        targets = Y.copy()
        np.minimum(targets.data, 1, out=targets.data)
        self._start(network, targets)
        rows, judged = held_out_rows(examples, self.validation, self.seed)
        if len(network.heads) > 1:
            batches = trainer.total_steps(len(rows)) * trainer.accumulate
            network.detached = round(self.detached * batches)
        evaluate = None
        if len(judged):

            def evaluate() -> float:
                ids = self._ranked(network, X.tokens[judged], 1)
                return precision_at(ids, Y[judged])

        source = TextSource(X.tokens[rows], targets[rows])
        trainer.fit(network, source, evaluate=evaluate, checkpoint=checkpoint)
        self.encoder_ = clone(self.encoder).keep(module)
        self.heads_ = self._kept(network, Y)
        self.ranker_ = None
        if self.ranker != "network":
            features = joined(X.words, encoded(module, X.tokens, trainer))
            ranker = make_ranker(self.ranker, Y.shape[1], self.seed)
            self.ranker_ = ranker.fit_examples(examples.with_rows(features))

    def label_ranker(self) -> Classifier:
        """The linear classifier over words and vectors, or else the levels of the network."""
        if self.ranker_ is not None:
            return self.ranker_
        depths = range(self.tree_.depth)
        beams = list(self._shape(self.module()).beams)
        return with_learned(
            DenseTree(beams=beams, prediction=self.prediction),
            tree_=self.tree_,
            weights_=[self.heads_[f"{t}.weights"] for t in depths],
            biases_=[self.heads_[f"{t}.bias"] for t in depths],
            labels_=self.labels_,
        )

    def encoder_levels(self) -> list[dict[str, Any]]:
        """What the levels of the network see, where it answers itself."""
        if self.ranker_ is not None:
            return []
        narrowed = [
            {kind: self.heads_.get(f"{t}.projection.{kind}") for kind in ("weight", "bias")}
            for t in range(self.tree_.depth)
        ]
        layers = self._shape(self.module()).layers
        return [{"layers": list(seen), **own} for seen, own in zip(layers, narrowed, strict=True)]

    def encoder_pooling(self) -> str:
        """The pooling of the network as it was trained."""
        return self._shape(self.module()).pooling

    def rank_by_network(self, X: Views, k: int) -> Ranking:
        """The k best labels that the network finds, whatever the ranker would say."""
        alone = copy.copy(self)
        alone.ranker_ = alone._ranker = None
        return alone.rank(X, k)

    # ------------------------------------------------------------------ the network
    def _clustered(self, words: csr_matrix, Y: csr_matrix) -> LabelTree:
        """A balanced tree of labels with the wanted numbers of clusters."""
        labels = Y.shape[1]
        sizes = list(self.resolutions or [])
        if self.resolutions is None and labels > self.max_first:
            sizes = [2 ** max(1, round(math.log2(labels / self.cluster_size)))]
            while sizes[0] > self.max_first:
                sizes.insert(0, sizes[0] // _FINER)
        rises = all(a < b for a, b in pairwise([*sizes, labels]))
        if not rises or any(size & (size - 1) for size in sizes):
            raise ParameterError(
                f"resolutions must be rising powers of two below the {labels} labels, not {sizes}"
            )
        if not sizes:
            return LabelTree.from_parents(np.full(labels, -1))
        vectors = label_vectors(words, Y, "pifa")
        halved = LabelTree.balanced(
            vectors, arity=2, max_leaf=max(2, -(-labels // sizes[-1])), seed=self.seed
        )
        return _with_levels(halved, sizes)

    def _shape(self, module: EncoderModule) -> Shape:
        """What each level is made of, with the defaults filled in."""
        levels, depth = self.tree_.depth, module.depth

        def each(name: str, given: Sequence[Any]) -> list[Any]:
            if len(given) not in (1, levels):
                raise ParameterError(
                    f"{name} of CascadeClassifier must be one for all or one for each of the "
                    f"{levels} levels, not {len(given)}"
                )
            return list(given) * (levels if len(given) == 1 else 1)

        layers = _spread(levels, depth) if self.layers is None else [[]] * levels
        if self.layers not in (None, "vector"):
            layers = [[x] if isinstance(x, int) else list(x) for x in each("layers", self.layers)]
        layers = [[x % (depth + 1) for x in several if -depth <= x <= depth] for several in layers]
        if self.layers != "vector" and not all(layers):
            raise ParameterError(f"layers must be some of -{depth} to {depth}, not {self.layers}")
        last = 0.4 if levels <= 3 else 0.5
        dropouts = [round(last - 0.1 * above, 2) for above in reversed(range(levels))]
        if self.dropouts is not None:
            dropouts = each("dropouts", self.dropouts)
        widths: list[int | None] = [None] * levels
        if self.projection == "layer":
            widths = [module.state_width if len(x) > 1 else None for x in layers]
        elif self.projection is not None and levels > 1:
            widths[-1] = int(self.projection)
            dropouts[-1] = 0.0  # as published: what is dropped before the projection is enough
        beams = [64] * levels if levels <= 3 else [128, 256, *[512] * levels]
        if self.beam is not None:
            beams = [self.beam] * levels if isinstance(self.beam, int) else list(self.beam)
        if len(beams) < levels - 1:
            raise ParameterError(
                f"beam of CascadeClassifier must be one number or {levels - 1}, not {beams}"
            )
        pooling = self.pooling
        if pooling == "auto":
            pooling = getattr(module, "pooling", "mean")
        return Shape(
            layers=layers,
            widths=widths,
            dropouts=dropouts,
            beams=beams[: levels - 1],
            pooling=pooling,
            input_dropout=self.input_dropout,
            prediction=self.prediction,
        )

    def _built(self, module: EncoderModule) -> Cascade:
        return Cascade(module, self.tree_, self._shape(module), module.state_width)

    def _start(self, network: Cascade, Y: csr_matrix) -> None:
        """Give each node the bias that makes it as likely, among what is scored, as it is
        frequent: scores of 0 for all would throw the encoder about before it has learned."""
        above, beams = 1, [1, *network.shape.beams]
        for t, level in enumerate(network.heads):
            counts = np.bincount(self.tree_.targets(Y, t).indices, minlength=level.nodes)
            # a node is a candidate where its parent is in the beam
            share = (counts + 0.5) / (Y.shape[0] + 1) * max(1.0, above / beams[t])
            share = np.minimum(share, 0.5)
            with torch.no_grad():
                level.bias.copy_(torch.from_numpy(np.log(share / (1 - share))))
            above = level.nodes

    def _kept(self, network: Cascade, Y: csr_matrix) -> dict[str, np.ndarray]:
        """The weights of the levels; nodes' own in half precision."""
        kept = {k: v.cpu().numpy().copy() for k, v in network.levels.state_dict().items()}
        last = self.tree_.depth - 1
        unseen = np.bincount(Y.indices, minlength=Y.shape[1])[self.tree_.label_of_leaf_] == 0
        kept[f"{last}.weights"][unseen] = 0
        kept[f"{last}.bias"][unseen] = _UNSEEN
        return {k: v.astype(_type(k)) for k, v in kept.items()}

    def _ranked(self, network: Any, tokens: Any, k: int) -> np.ndarray:
        """The numbers of each row's k best labels by the network."""
        vectors = torch.from_numpy(encoded(network, tokens, self.training, what=network.vectors))
        device = next(network.parameters()).device
        ids = np.empty((len(vectors), k), np.int32)
        for start in range(0, len(vectors), _RANKED):
            part = slice(start, start + _RANKED)
            ids[part] = network.top_k(vectors[part].to(device), k)[1].cpu().numpy()
        return ids


def _type(name: str) -> np.dtype[Any]:
    """How an array of the heads is kept."""
    return np.dtype(np.float16 if name.endswith(".weights") else np.float32)


def _spread(levels: int, depth: int) -> list[list[int]]:
    """The layers of each level: the last ones, a sixth of the depth apart; two for the first."""
    apart = max(1, round(depth / 6))
    layers = [[max(1, depth - apart * above)] for above in reversed(range(levels))]
    if levels > 1 and layers[0][0] > 1:
        layers[0].insert(0, layers[0][0] - 1)
    return layers


def _with_levels(tree: LabelTree, sizes: Sequence[int]) -> LabelTree:
    """The tree without levels of other numbers of clusters; those of labels stay."""
    chain, merged = [], None
    for matrix in tree.chain():
        merged = matrix if merged is None else matrix @ merged
        if matrix.shape[0] in sizes or matrix.shape[0] == tree.n_labels:
            chain.append(merged)
            merged = None
    return LabelTree.from_chain(chain)
