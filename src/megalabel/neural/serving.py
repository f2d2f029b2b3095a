"""Taggers without torch: encoders as ONNX, and what ranks labels in NumPy and native code."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from megalabel import store
from megalabel.base import Component, clone
from megalabel.errors import ParameterError
from megalabel.features import BagEmbedding, Concat, Each, OnnxEmbedding, OnnxTokens
from megalabel.features.onnx import MODEL, TOKENIZER, opened_graph
from megalabel.labels import LabelTree
from megalabel.neural import Embedding
from megalabel.neural.attention import AttentionClassifier
from megalabel.neural.batches import rows_on
from megalabel.neural.cascade import CascadeClassifier
from megalabel.neural.classifier import NeuralClassifier
from megalabel.neural.encoders import BagEncoder, Encoder
from megalabel.neural.encoders.bag import ResidualBlock
from megalabel.neural.export import check_close, made_up, write_graph, written
from megalabel.neural.full import FullClassifier
from megalabel.neural.recursive import RecursiveClassifier
from megalabel.neural.staged import StagedClassifier
from megalabel.neural.tokens import Tokenizer
from megalabel.neural.views import TextViews
from megalabel.parts import Classifier, Featurizer
from megalabel.rankers import AttentionTree, DenseTree, Ensemble, NearestLabels
from megalabel.tagger import Tagger

_COMPARED = 10  # labels of a text

Part = TypeVar("Part", bound=Component)


def without_torch(tagger: Tagger | str | Path, *, int8: bool = False, texts: Any = None) -> Tagger:
    """A tagger with the same answers, to 1e-3, that neither needs torch nor loads it.

    Its encoder is run by onnxruntime (`pip install 'megalabel[onnx]'`); everything else is NumPy
    and native code. It is saved and loaded as any tagger is, but not trained again.

    Parameters
    ----------
    tagger : Tagger, or the folder of a saved one
        Of any neural system, or one whose features are `Embedding`s.
    int8 : bool
        Keep the encoder's weights in 8 bits: a quarter of the size and quicker, but not quite the
        same.
    texts : corpus or texts, optional
        What to measure the difference on.

    Returns
    -------
    tagger : Tagger
        With texts, its `provenance_["without_torch"]` says what was measured: `difference`, the
        largest one of a label's probability among the ten best of a text, and `agreement`, the
        share of texts with the same best label.

    Examples
    --------
    >>> from megalabel.neural import without_torch
    >>> without_torch("model").save("served")  # doctest: +SKIP
    """
    fitted: Tagger = store.load(tagger) if isinstance(tagger, str | Path) else tagger
    fitted.check_fitted()
    export = _Export(int8)
    features, classifier = export.parts(fitted.features_, fitted.classifier_)
    if not export.encoders:
        raise ParameterError(f"{fitted.system or type(classifier).__name__} needs no torch")
    made = Tagger(**fitted.get_params(deep=False))
    made.set_params(classifier=clone(classifier), features=clone(features))
    about: dict[str, Any] = {"int8": int8}
    learned = fitted.learned() | {"features_": features, "classifier_": classifier}
    made.restore(learned | {"provenance_": fitted.provenance_ | {"without_torch": about}})
    if texts is not None:
        about |= _compared(fitted, made, texts)
    return made


class _Export:
    """The parts of taggers, each as one that does without torch."""

    def __init__(self, int8: bool) -> None:
        self.int8 = int8
        self.encoders = 0
        """How many there were."""

    def parts(self, features: Featurizer, classifier: Classifier) -> tuple[Featurizer, Classifier]:
        """Features and a classifier that go together."""
        if isinstance(classifier, Ensemble):
            return self._ensemble(features, classifier)
        if not isinstance(classifier, NeuralClassifier):
            return self._features(features), classifier
        if isinstance(classifier, CascadeClassifier) and classifier.ranker_ is None:
            return self._cascade(features, classifier)
        if isinstance(classifier, RecursiveClassifier | CascadeClassifier):
            assert isinstance(features, TextViews)
            vectors = self._onnx(classifier.encoder_.module(), features.tokens_, "l2")
            assert classifier.ranker_ is not None
            return _concat([features.words_, vectors]), classifier.ranker_
        if isinstance(classifier, FullClassifier):
            return self._full(features, classifier)
        if isinstance(classifier, StagedClassifier):
            return self._staged(features, classifier)
        if isinstance(classifier, AttentionClassifier):
            return self._attention(features, classifier)
        raise ParameterError(
            f"{type(classifier).__name__} ranks with torch alone; its encoder can be exported by "
            "itself (neural.export_onnx)"
        )

    def _ensemble(self, features: Featurizer, several: Ensemble) -> tuple[Featurizer, Classifier]:
        both = [self.parts(features, member) for member in several.members_]
        rows, members = [part for part, _ in both], [member for _, member in both]
        if not self.encoders:
            return features, several
        made = Ensemble(**several.get_params(deep=False)).set_params(model=clone(members[0]))
        each = _learned(Each([clone(part) for part in rows]), parts_=rows)
        return each, _learned(made, members_=members, labels_=several.labels_)

    def _full(self, features: Featurizer, full: FullClassifier) -> tuple[Featurizer, Classifier]:
        """Vectors under weights of all labels: a tree of one level."""
        made = _learned(
            DenseTree(),
            tree_=LabelTree.from_parents(np.full(len(full.labels_), -1)),
            weights_=[full.weights_],
            biases_=[full.bias_],
            labels_=full.labels_,
        )
        return self._vectors(features, full.encoder_, full.projection_), made

    def _staged(
        self, features: Featurizer, staged: StagedClassifier
    ) -> tuple[Featurizer, Classifier]:
        """Vectors, then the labels nearest to them."""
        block = ResidualBlock(staged.weights_.shape[1], 0.0, "sum")
        block.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in staged.block_.items()})
        made = _learned(
            NearestLabels(shortlist=staged.shortlist, beta=staged.beta),
            centroids_=staged.centroids_,
            weights_=staged.weights_,
            bias_=staged.bias_,
            block_=_block(block),
            label_counts_=staged.label_counts_,
            labels_=staged.labels_,
        )
        return self._vectors(features, staged.encoder_, None), made

    def _cascade(
        self, features: Featurizer, classifier: CascadeClassifier
    ) -> tuple[Featurizer, Classifier]:
        """A network that answers itself: what its levels see as vectors, then the levels."""
        assert isinstance(features, TextViews)
        network = copy.deepcopy(classifier.network()).cpu()  # the tagger's own stays where it is
        levels = range(classifier.tree_.depth)
        made = _learned(
            DenseTree(beams=list(network.shape.beams), prediction=classifier.prediction),
            tree_=classifier.tree_,
            weights_=[classifier.heads_[f"{t}.weights"] for t in levels],
            biases_=[classifier.heads_[f"{t}.bias"] for t in levels],
            labels_=classifier.labels_,
        )
        vectors = _Vectors(network, network.vectors, network.width)
        return self._onnx(vectors, features.tokens_, None), made

    def _attention(
        self, tokens: Featurizer, classifier: AttentionClassifier
    ) -> tuple[Featurizer, Classifier]:
        """Labels that attend to the states of tokens: those as ONNX, of each level's encoder."""
        assert isinstance(tokens, Tokenizer)
        heads, levels = classifier.heads_, range(classifier.tree_.depth)
        shared = range(0, 2 * len(classifier.hidden) + 1, 2)  # between them are the ReLUs
        made = _learned(
            AttentionTree(beam=classifier.beam),
            tree_=classifier.tree_,
            graphs_=[self._states(e, tokens) for e in (*classifier.coarse_, classifier.encoder_)],
            queries_=[heads[f"{t}.queries.weight"] for t in levels],
            layers_=[
                [heads[f"{t}.shared.{i}.{kind}"] for i in shared for kind in ("weight", "bias")]
                for t in levels
            ],
            pad_=tokens.special_["pad"],
            label_counts_=classifier.label_counts_,
            labels_=classifier.labels_,
        )
        with tempfile.TemporaryDirectory() as folder:
            tokens.write(Path(folder))
            text = (Path(folder) / TOKENIZER).read_text(encoding="utf-8")
        return _learned(OnnxTokens(), tokenizer_=text), made

    def _states(self, encoder: Encoder, tokenizer: Tokenizer) -> np.ndarray:
        """The last states that an encoder has of tokens, as ONNX."""
        module = encoder.module()
        network = _Vectors(module, lambda inputs: module.hidden(inputs)[-1], module.state_width)
        with tempfile.TemporaryDirectory() as folder:
            write_graph(network, Path(folder) / MODEL, self.int8)
            graph = np.fromfile(Path(folder) / MODEL, np.uint8)
        self.encoders += 1
        if not self.int8:
            some = rows_on(made_up(tokenizer), np.arange(0, 64, 8), torch.device("cpu"))
            arrays = {"input_ids": some.ids.numpy(), "attention_mask": some.mask.long().numpy()}
            found = opened_graph(type(encoder).__name__, graph).run(None, arrays)[0]
            with torch.inference_mode():
                wanted = network.eval()(some).numpy()
            apart = np.abs(found - wanted)[arrays["attention_mask"] > 0].max()
            check_close(apart / np.linalg.norm(wanted, axis=2).max(), type(encoder).__name__)
        return graph

    def _vectors(
        self, features: Featurizer, encoder: Encoder, projection: np.ndarray | None
    ) -> Featurizer:
        """An encoder's vectors as they are, or projected."""
        module: Any = encoder.module()
        if isinstance(features, Tokenizer):
            network = module if projection is None else _projected(module, projection)
            return self._onnx(network, features, None)
        if not isinstance(encoder, BagEncoder) or projection is not None:
            raise ParameterError(
                "of encoders that read words, a BagEncoder without a bottleneck can be exported, "
                f"not {encoder!r}"
            )
        if self.int8:
            raise ParameterError(
                "int8 is for encoders that read tokens; a bag of words is exported without"
            )
        self.encoders += 1
        return _learned(
            BagEmbedding(clone(features)),
            words_=features,
            table_=np.asarray(encoder.weights_["words.weight"]),
            block_={} if module.residual is None else _block(module.residual),
        )

    def _features(self, features: Featurizer) -> Featurizer:
        """Features of a classifier that does without torch already."""
        if isinstance(features, Embedding):
            return self._onnx(features.encoder_.module(), features.tokenizer_, "l2")
        if isinstance(features, Concat):
            parts = [self._features(part) for part in features.parts_]
            return _concat(parts, features)
        return features

    def _onnx(self, module: Any, tokenizer: Tokenizer, norm: str | None) -> OnnxEmbedding:
        with tempfile.TemporaryDirectory() as folder:
            written(module, tokenizer, Path(folder), type(module).__name__, self.int8, None)
            read = OnnxEmbedding(folder, norm=norm).fit()
        self.encoders += 1
        read.folder = None
        return read


class _Vectors(nn.Module):
    """A module whose vectors are what one of its methods gives."""

    def __init__(self, network: nn.Module, method: Callable[[Any], Tensor], width: int) -> None:
        super().__init__()
        self.network, self.method, self.width = network, method, width

    def forward(self, inputs: Any) -> Tensor:
        return self.method(inputs)


def _projected(module: Any, projection: np.ndarray) -> nn.Module:
    narrow = nn.Linear(module.width, len(projection), bias=False)
    narrow.weight = nn.Parameter(torch.from_numpy(np.array(projection)))
    both = nn.Sequential(module, narrow).eval()
    return _Vectors(both, both.forward, len(projection))


def _block(block: ResidualBlock) -> dict[str, np.ndarray]:
    """A residual block as `features.bag.residual` takes it."""
    gates = torch.ones(2) if block.gates is None else block.gates.sigmoid()
    with torch.no_grad():
        linear: Any = block.eval().linear
        parts = {"weight": linear.weight, "bias": linear.bias, "gates": gates}
        return {name: part.detach().numpy().copy() for name, part in parts.items()}


def _concat(parts: list[Featurizer], like: Concat | None = None) -> Featurizer:
    """Parts side by side; as rankers see words and vectors, or as another Concat."""
    given: dict[str, Any] = {"norm": None} if like is None else like.get_params(deep=False)
    return _learned(Concat(**given | {"parts": clone(parts)}), parts_=parts)


def _learned(part: Part, **learned: Any) -> Part:
    """A part with what it would have learned."""
    part.restore(learned)
    return part


def _compared(before: Tagger, after: Tagger, texts: Any) -> dict[str, Any]:
    """How far the answers of two taggers are apart."""
    first, second = (tagger.rank(texts, _COMPARED) for tagger in (before, after))
    ours, theirs = first.to_csr(), second.to_csr()
    shared = (ours != 0).multiply(theirs != 0)
    apart = abs((ours - theirs).multiply(shared))
    return {
        "texts": len(first),
        "difference": float(apart.max()) if apart.nnz else 0.0,
        "agreement": float(np.mean(first.ids[:, 0] == second.ids[:, 0])) if len(first) else 1.0,
    }
