"""DualClassifier: labels known by their texts, and by vectors of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csr_matrix

from megalabel.base import (
    Check,
    boolean,
    clone,
    instance,
    integer,
    number,
    one_of,
    sequence_of,
)
from megalabel.checkpoints import Checkpoint
from megalabel.data.examples import Examples
from megalabel.data.matrix import check_width
from megalabel.errors import DataError, ParameterError
from megalabel.features import Concat, Projected
from megalabel.features.projected import projected
from megalabel.neural.classifier import RANKERS, NeuralClassifier, make_ranker
from megalabel.neural.dual.batches import DualSource
from megalabel.neural.dual.network import (
    DualModel,
    Objective,
    TableModel,
    View,
    temperature_of,
)
from megalabel.neural.encoders import Encoder
from megalabel.neural.encoding import encoded
from megalabel.neural.losses import BCE, Loss
from megalabel.neural.losses import create as create_loss
from megalabel.neural.tokens import Tokens
from megalabel.neural.trainer import Trainer
from megalabel.neural.views import TextViews, Views, joined
from megalabel.parts import Classifier, Featurizer
from megalabel.rankers import DualVectors


class LabelsByText(NeuralClassifier):
    """What dual encoders share: labels are ranked by products of vectors, or by a linear classifier
    of words and vectors.

    Subclasses have the parameters `ranker` and `seed`.
    """

    ranker: Classifier | str | None
    seed: int

    views_: list[dict[str, Any]]
    weights_: np.ndarray
    bias_: np.ndarray
    widths_: list[int]
    own_: list[float] | None
    temperature_: float
    ranker_: Classifier | None

    @property
    def reads_texts(self) -> bool:
        """True: labels are known by their texts, which vectors made elsewhere do not have."""
        return True

    def check_rows(self, X: Any) -> None:
        """Raise a DataError unless X is what the encoder reads, with words where a ranker does."""
        kind: Any = csr_matrix | np.ndarray
        wanted = "vectors" if self.encoder.reads == "vectors" else "a matrix of words"
        if self.encoder.reads == "tokens" and self.ranker is None:
            wanted, kind = "the tokens of a Tokenizer", Tokens
        elif self.encoder.reads == "tokens":
            wanted, kind = "words and tokens (neural.TextViews)", Views
        if not isinstance(X, kind):
            raise DataError(
                f"{type(self).__name__} with {type(self.encoder).__name__} reads {wanted}, "
                f"not {type(X).__name__}"
            )

    def learned_from(self, examples: Examples) -> list[Any]:
        """The rows and their labels, the texts of labels, and what is excluded."""
        labels = rows_read(examples.label_rows)
        excluded = [] if examples.excluded is None else [examples.excluded]
        return [*super().learned_from(examples), *getattr(labels, "arrays", [labels]), *excluded]

    def check_known(self, X: Any) -> None:
        """Raise a ShapeError where rows have columns, or tokens, that the encoder does not know."""
        known = self.module().columns
        if X.shape[1] > known or self.encoder.reads != "tokens":
            check_width(self, X, known)

    def _keep(
        self,
        model: DualModel,
        views: Sequence[View],
        vectors: Sequence[np.ndarray],
        own: Sequence[float],
        bias: np.ndarray | None = None,
        temperature: float = 1.0,
    ) -> None:
        """Take a trained network as learned: views of texts, what they are multiplied by, the share
        of labels' own vectors in that, what is added, and what labels' texts were divided by."""
        self.encoder_ = clone(self.encoder).keep(model.encoder)
        self.views_ = [view.arrays() for view in views]
        self.weights_ = np.hstack(vectors).astype(np.float16)
        self.bias_ = np.zeros(len(self.weights_), np.float32) if bias is None else bias.copy()
        self.widths_, self.temperature_ = [part.shape[1] for part in vectors], temperature
        reads_label_texts = model.label_encoder is model.encoder or min(own) == 1
        self.own_ = list(own) if reads_label_texts else None

    def _rank_by_words(self, examples: Examples) -> None:
        """Train the linear classifier on words and vectors, if there is to be one."""
        self.ranker_ = None
        if self.ranker is not None:
            ranker = None if self.ranker == "auto" else self.ranker
            words = getattr(examples.rows, "words", examples.rows)
            rows = joined(csr_matrix(words), self._vectors(examples.rows))
            made = make_ranker(ranker, examples.targets.shape[1], self.seed)
            self.ranker_ = made.fit_examples(examples.with_rows(rows))

    # ------------------------------------------------------------------ answering
    def label_ranker(self) -> Classifier:
        """The linear classifier over words and vectors, or the products."""
        if self.ranker_ is not None:
            return self.ranker_
        return DualVectors.of(
            self.labels_,
            self.weights_,
            self.widths_,
            self.own_,
            biases=self.bias_,
            temperature=self.temperature_,
        )

    def features(self, X: Any) -> Any:
        """What the ranker sees of rows."""
        vectors = self._vectors(X)
        if self.ranker_ is None:
            return vectors
        return joined(csr_matrix(getattr(X, "words", X)), vectors)

    def _vectors(self, X: Any) -> np.ndarray:
        rows, module = rows_read(X), self.module()
        self.check_known(rows)
        return projected(encoded(module, rows, self.training), self.views_)

    def encoding(self, features: Featurizer) -> Featurizer:
        """Texts to views of their vectors, and words beside them where a ranker reads these."""
        words = tokens = features
        if isinstance(features, TextViews):
            words, tokens = features.words_, features.tokens_
        vectors = Projected.of(super().encoding(tokens), self.views_)
        return vectors if self.ranker_ is None else Concat.of([words, vectors], norm=None)


class DualClassifier(LabelsByText):
    """A dual encoder: texts and labels' texts become vectors by one encoder, and a label's score is
    the product of the two; beside it, where `classifier_loss` is given, labels with vectors of
    their own, learned in the same pass (Kharbanda et al. 2024, UniDEC).

    Parameters
    ----------
    encoder : Encoder
        Of texts.
    trainer : Trainer, optional
        Its `head_learning_rate` is that of labels' own vectors.
    ranker : Classifier, "one-vs-all", "trees", "auto" or None
        None: the products rank. Else a linear classifier that is trained on words and vectors side
        by side at the end, as it is or by name; "auto": by the number of labels.
    label_encoder : Encoder, optional
        Of labels' texts; None: that of texts.
    loss : str or Loss
        Of the products of texts and labels' texts.
    classifier_loss : str or Loss, optional
        Of the products of texts and labels' own vectors; None: there are none.
    auxiliary : bool
        Add binary cross entropy to `classifier_loss`.
    symmetric : bool
        Labels look for their texts as much as texts for their labels.
    share : float
        Of the dual encoder in the loss; the rest is the classifier's.
    width, classifier_width : int, optional
        Of the projections, a linear map and tanh for the dual encoder and a linear map for the
        classifier; None: vectors stay as the encoder makes them.
    unit : bool
        Compare texts and labels by cosines.
    dropout : float
        Of projections.
    projection_rate : float
        The rate of projections, in `learning_rate` of the trainer.
    positives, negatives : int
        Labels drawn for each text of a batch: of its own, and of those mined, which it is taken for
        and does not have.
    refresh : int
        Epochs after which clusters of texts and labels to mine are found anew.
    clusters : "batch", list of float or None
        Texts near each other come in one batch: in clusters as large as a batch; in clusters of
        twice the size after each of these shares of the training; not at all.
    extra : bool
        Labels that a text has are its positives whichever text they were drawn for; False: they
        are then left out of its loss.
    all_labels : bool
        Compare the texts of a batch with all labels.
    over : "texts" or "labels"
        Batches are of texts, for which labels are drawn, or of labels, for which texts are drawn.
    bank : bool
        Cluster texts by the vectors that they had in their last step, not by vectors made anew.
    chunk : int, optional
        The most texts that an encoder reads at once in training: a batch, or all labels, in any
        memory, for a second pass (`neural.dual.caching`).
    answer : "both", "labels" or "classifier"
        By what a trained model answers: both halves' scores added up, that of labels' texts, or
        that of their own vectors.
    scores : "cosines" or "products"
        A half's score: the cosine of a text and a label, as published; or what its loss saw, the
        product divided by the loss's temperature. For products labels' own vectors have biases,
        which begin at how frequent labels are. A `ranker` reads vectors of length one either way.
    mined_by : "labels" or "both"
        The scores that texts are taken for labels by: the dual encoder's, as published, or those
        of both halves.
    seed : int

    Attributes
    ----------
    encoder_ : Encoder
    views_ : list of dict
        As of `features.Projected`.
    weights_ : float16 array (labels, width)
        What views of texts are multiplied by.
    bias_ : float32 array (labels,)
        What is added to the products.
    widths_, own_, temperature_
        As of `rankers.DualVectors`.
    ranker_ : Classifier or None

    Examples
    --------
    >>> from megalabel.neural import BagEncoder
    >>> X = csr_matrix(np.eye(6, 4, dtype=np.float32))
    >>> model = DualClassifier(BagEncoder(width=8, residual=None), Trainer(epochs=2, device="cpu"))
    >>> model.fit(X, X, label_rows=csr_matrix(np.eye(4))).rank(X, k=3).ids.shape
    (6, 3)
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "encoder": instance(Encoder),
        "trainer": instance(Trainer) | one_of(None),
        "ranker": instance(Classifier) | one_of(None, "auto", *RANKERS),
        "label_encoder": instance(Encoder) | one_of(None),
        "loss": instance(str) | instance(Loss),
        "classifier_loss": instance(str) | instance(Loss) | one_of(None),
        "auxiliary": boolean(),
        "symmetric": boolean(),
        "share": number(0, 1),
        "width": integer(1) | one_of(None),
        "classifier_width": integer(1) | one_of(None),
        "unit": boolean(),
        "dropout": number(0, 1),
        "projection_rate": number(0),
        "positives": integer(1),
        "negatives": integer(0),
        "refresh": integer(1),
        "clusters": one_of(None, "batch") | sequence_of(number(0, 1)),
        "extra": boolean(),
        "all_labels": boolean(),
        "over": one_of("texts", "labels"),
        "bank": boolean(),
        "chunk": integer(1) | one_of(None),
        "answer": one_of("both", "labels", "classifier"),
        "scores": one_of("cosines", "products"),
        "mined_by": one_of("labels", "both"),
        "seed": integer(0),
    }

    def __init__(
        self,
        encoder: Encoder,
        trainer: Trainer | None = None,
        ranker: Classifier | str | None = None,
        *,
        label_encoder: Encoder | None = None,
        loss: str | Loss = "decoupled-softmax",
        classifier_loss: str | Loss | None = None,
        auxiliary: bool = False,
        symmetric: bool = False,
        share: float = 0.5,
        width: int | None = None,
        classifier_width: int | None = None,
        unit: bool = True,
        dropout: float = 0.1,
        projection_rate: float = 2.0,
        positives: int = 1,
        negatives: int = 0,
        refresh: int = 5,
        clusters: str | Sequence[float] | None = None,
        extra: bool = True,
        all_labels: bool = False,
        over: str = "texts",
        bank: bool = False,
        chunk: int | None = None,
        answer: str = "both",
        scores: str = "cosines",
        mined_by: str = "labels",
        seed: int = 0,
    ) -> None:
        self.encoder = encoder
        self.trainer = trainer
        self.ranker = ranker
        self.label_encoder = label_encoder
        self.loss = loss
        self.classifier_loss = classifier_loss
        self.auxiliary = auxiliary
        self.symmetric = symmetric
        self.share = share
        self.width = width
        self.classifier_width = classifier_width
        self.unit = unit
        self.dropout = dropout
        self.projection_rate = projection_rate
        self.positives = positives
        self.negatives = negatives
        self.refresh = refresh
        self.clusters = clusters
        self.extra = extra
        self.all_labels = all_labels
        self.over = over
        self.bank = bank
        self.chunk = chunk
        self.answer = answer
        self.scores = scores
        self.mined_by = mined_by
        self.seed = seed

    def _train(self, examples: Examples, checkpoint: Checkpoint) -> None:
        """Train the encoder and the labels' own vectors together, then the ranker."""
        if self.over == "labels" and self.classifier_loss is not None:
            raise ParameterError("over='labels' trains no own vectors: leave out classifier_loss")
        model = self.trained(examples, checkpoint)
        cosines = self.scores == "cosines" or self.ranker is not None
        vectors, bias = model.label_halves(rows_read(examples.label_rows), cosines)
        views, own, temperature = model.views(cosines), [0.0], 1.0
        if model.table is not None:
            halves = {"labels": [0], "classifier": [1], "both": [0, 1]}[self.answer]
            views, vectors = [views[i] for i in halves], [vectors[i] for i in halves]
            own = [float(i) for i in halves]
            if not cosines and model.objective is not None:
                temperature = temperature_of(model.objective.loss)
        added = None if self.answer == "labels" else bias
        self._keep(model, views, vectors, own, added, temperature)
        self._rank_by_words(examples)

    def trained(self, examples: Examples, checkpoint: Checkpoint) -> DualModel:
        """The network, trained."""
        X, Z = rows_read(examples.rows), rows_read(examples.label_rows)
        Y, hidden = learned_cells(examples)
        trainer, counted = self.training, len(examples)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            model = self._model(X, Z, examples, checkpoint)
        if self.over == "labels":
            with_texts = np.flatnonzero(np.bincount(Y.indices, minlength=Y.shape[1]))
            if not len(with_texts):
                raise DataError("no label has a text to be compared with")
            # an epoch has as many labels as there are texts
            every = np.resize(with_texts, len(examples))
            Y, hidden = csr_matrix(Y.T)[every], csr_matrix(hidden.T)[every]
            X, Z = Z[every], X
            model.encoder, model.label_encoder = model.label_encoder, model.encoder
        batches = -(-counted // trainer.batch_of(counted))
        epochs = trainer.total_steps(counted) * trainer.accumulate / batches
        source = DualSource(
            X,
            Z,
            Y,
            hidden,
            positives=self.positives,
            negatives=self.negatives,
            mined_by="labels" if self.mined_by == "labels" else self.scores,
            refresh=self.refresh,
            cluster=self._cluster_sizes(trainer.batch_of(counted), epochs),
            extra=self.extra,
            all_labels=self.all_labels,
            chunk=self.chunk,
            seed=self.seed,
        )
        begin(source, model, trainer)
        trainer.fit(model, source, checkpoint=checkpoint, name="dual encoder")
        if self.over == "labels":
            model.encoder, model.label_encoder = model.label_encoder, model.encoder
        return model.eval()

    def _model(self, X: Any, Z: Any, examples: Examples, checkpoint: Checkpoint) -> DualModel:
        names, counts = examples.columns, examples.label_counts
        module = self.encoder.begin(X, self.seed, self.training, checkpoint, names)
        other = module
        if self.label_encoder is not None:
            other = self.label_encoder.begin(Z, self.seed + 1, self.training, checkpoint, names)
        view = View(module.width, self.width, tanh=True, unit=self.unit, dropout=self.dropout)
        own = own_objective = bias = None
        if self.classifier_loss is not None:
            loss = made_loss(self.classifier_loss)
            if self.scores == "products":
                # at first every label is as likely as it is frequent
                odds = np.log((counts + 0.5) / (len(examples.texts) + 1))
                bias = odds * temperature_of(loss)
            own = View(module.width, self.classifier_width, dropout=self.dropout)
            own_objective = Objective(
                loss,
                1 - self.share,
                self.symmetric,
                BCE() if self.auxiliary else None,
            )
        return DualModel(
            module,
            other,
            view,
            Objective(made_loss(self.loss), 1.0 if own is None else self.share, self.symmetric),
            own,
            own_objective,
            self.training,
            labels=len(counts),
            bias=bias,
            bank=len(examples) if self.bank else None,
            projection_rate=self.projection_rate,
        )

    def _cluster_sizes(self, batch: int, epochs: float) -> Callable[[int], int]:
        """The size of the clusters of each epoch."""
        clusters = self.clusters
        if clusters is None or isinstance(clusters, str):
            return lambda epoch: 1 if clusters is None else batch
        after = [share * epochs for share in clusters]
        return lambda epoch: min(batch, 1 << sum(epoch >= first for first in after))


class StagedDualClassifier(LabelsByText):
    """A dual encoder, and then, over its vectors as they are, vectors of labels of their own, which
    begin with those of the labels' texts (Dahiya et al. 2021, SiameseXML; 2023, NGAME).

    A label's score is the mean of two cosines: of the text with its text, and with its own vector.

    Parameters
    ----------
    dual : DualClassifier
        The first stage, with the ranker; it has no classifier, and is trained by `trainer`.
    trainer : Trainer, optional
        Its `learning_rate` is of the first stage, its `head_learning_rate` of the second.
    loss : str or Loss
        Of the second stage.
    epochs : float
        How many times as many epochs as the first stage the second one takes.
    positives, negatives, refresh : int
        As of `DualClassifier`, in the second stage.
    beta : float
        The share of labels' own vectors in a score.

    Attributes
    ----------
    encoder_, views_, weights_, bias_, widths_, own_, temperature_, ranker_
        As of `DualClassifier`.
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "dual": instance(DualClassifier),
        "trainer": instance(Trainer) | one_of(None),
        "loss": instance(str) | instance(Loss),
        "epochs": number(0),
        "positives": integer(1),
        "negatives": integer(0),
        "refresh": integer(1),
        "beta": number(0, 1),
    }

    def __init__(
        self,
        dual: DualClassifier,
        trainer: Trainer | None = None,
        *,
        loss: str | Loss = "triplet",
        epochs: float = 1.0,
        positives: int = 3,
        negatives: int = 5,
        refresh: int = 5,
        beta: float = 0.5,
    ) -> None:
        self.dual = dual
        self.trainer = trainer
        self.loss = loss
        self.epochs = epochs
        self.positives = positives
        self.negatives = negatives
        self.refresh = refresh
        self.beta = beta

    @property
    def encoder(self) -> Encoder:  # type: ignore[override]
        """That of the first stage."""
        return self.dual.encoder

    @property
    def ranker(self) -> Classifier | str | None:  # type: ignore[override]
        """That of the first stage."""
        return self.dual.ranker

    @property
    def seed(self) -> int:  # type: ignore[override]
        """That of the first stage."""
        return self.dual.seed

    def _train(self, examples: Examples, checkpoint: Checkpoint) -> None:
        """Train the encoder, then the labels' own vectors, then the ranker."""
        first = clone(self.dual).set_params(trainer=self.training)
        model = first.trained(examples, checkpoint)
        labels = model.seen_labels(rows_read(examples.label_rows))
        vectors = labels
        if self.beta > 0:
            table = self._second(model, labels, examples, checkpoint)
            vectors = (1 - self.beta) * labels + self.beta * table.seen_labels()
        self._keep(model, [model.view], [vectors], [self.beta])
        self._rank_by_words(examples)

    def _second(
        self, model: DualModel, labels: np.ndarray, examples: Examples, checkpoint: Checkpoint
    ) -> TableModel:
        """The labels' own vectors, trained."""
        X = encoded(
            model.encoder,
            rows_read(examples.rows),
            self.training,
            what=lambda x: model.view(model.encoder(x)),
        )
        Y, hidden = learned_cells(examples)
        trainer = clone(self.training)
        if trainer.steps is None:
            steps = trainer.total_steps(len(examples)) * self.epochs
            trainer.steps = max(1, round(steps))
        source = DualSource(
            X,
            None,
            Y,
            hidden,
            positives=self.positives,
            negatives=self.negatives,
            refresh=self.refresh,
            seed=self.seed,
        )
        table = TableModel(labels, Objective(made_loss(self.loss)))
        begin(source, table, trainer)
        trainer.fit(table, source, checkpoint=checkpoint, name="classifier")
        return table.eval()


def rows_read(X: Any) -> Any:
    """What the encoder reads of rows."""
    return X.tokens if isinstance(X, Views) else X


def made_loss(loss: str | Loss) -> Loss:
    """A loss by name, or as it is."""
    return create_loss(loss) if isinstance(loss, str) else loss


def learned_cells(examples: Examples) -> tuple[csr_matrix, csr_matrix]:
    """The labels of each row, and the cells of which nothing is learned: those excluded, and the
    label whose text the row is, unless the row carries it."""
    Y = examples.targets.copy()
    np.minimum(Y.data, 1, out=Y.data)
    hidden = own_labels(rows_read(examples.rows), rows_read(examples.label_rows))
    if examples.excluded is not None:
        hidden = hidden + csr_matrix((examples.excluded != 0).astype(np.float32))
    hidden = csr_matrix(hidden > hidden.multiply(Y > 0), dtype=np.float32)
    return Y, hidden


def own_labels(X: Any, Z: Any) -> csr_matrix:
    """Which labels' texts each text is, as far as an encoder can tell.

    Examples
    --------
    >>> X, Z = csr_matrix([[1.0, 0], [0, 1], [0, 0]]), csr_matrix([[0.0, 1], [0, 2], [0, 0]])
    >>> own_labels(X, Z).toarray()
    array([[0., 0., 0.],
           [1., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    """
    labels: dict[bytes, list[int]] = {}
    for place, key in enumerate(_keys(Z)):
        if key:  # nothing is known of a text of no word
            labels.setdefault(key, []).append(place)
    found = [labels.get(key, []) for key in _keys(X)]
    indptr = np.cumsum([0, *map(len, found)])
    indices = np.array([label for own in found for label in own], np.int64)
    values = np.ones(len(indices), np.float32)
    return csr_matrix((values, indices, indptr), (X.shape[0], Z.shape[0]))


def _keys(X: Any) -> Iterator[bytes]:
    """What tells rows from each other."""
    if isinstance(X, Tokens):
        arrays = [X.ids]
    else:
        X = csr_matrix(X, copy=True)
        X.sort_indices()
        arrays = [X.indices, X.data.astype(np.float32)]
    for first, last in pairwise(X.indptr.tolist()):
        yield b"".join(array[first:last].tobytes() for array in arrays)


def begin(source: DualSource, model: DualModel | TableModel, trainer: Trainer) -> None:
    """Mine before the first epoch, as between any two."""
    model.to(trainer.torch_device).eval()
    if getattr(model, "bank", None) is None:  # which has nothing yet
        with torch.no_grad():
            source.between_epochs(0, model)
