"""What classes are called in model folders, and where they are found.

A name says nothing about where the code lives: a class that moves, or is called otherwise, changes
its line here and no folder. A name is never given to another class.
"""

from __future__ import annotations

import importlib

from megalabel.base import Component
from megalabel.errors import MissingExtraError, StoreError

CLASSES = {
    "Tagger": "megalabel.tagger:Tagger",
    # features
    "BagEmbedding": "megalabel.features:BagEmbedding",
    "Concat": "megalabel.features:Concat",
    "Each": "megalabel.features:Each",
    "NameWords": "megalabel.features:NameWords",
    "OnnxEmbedding": "megalabel.features:OnnxEmbedding",
    "OnnxTokens": "megalabel.features:OnnxTokens",
    "PlainTexts": "megalabel.features:PlainTexts",
    "Precomputed": "megalabel.features:Precomputed",
    "Mapped": "megalabel.features:Mapped",
    "StaticEmbedding": "megalabel.features:StaticEmbedding",
    "Projected": "megalabel.features:Projected",
    "StemmedWords": "megalabel.features:StemmedWords",
    "Stems": "megalabel.features.stems:Stems",
    "Tfidf": "megalabel.features:Tfidf",
    # what is known of labels
    "GrowingTree": "megalabel.labels:GrowingTree",
    "Jpv": "megalabel.labels:Jpv",
    "LabelPoints": "megalabel.labels:LabelPoints",
    "LabelTree": "megalabel.labels:LabelTree",
    "Richards": "megalabel.labels:Richards",
    # classifiers, and what they are made of
    "AttentionTree": "megalabel.rankers:AttentionTree",
    "BoostedTrees": "megalabel.rankers:BoostedTrees",
    "Boosted": "megalabel.rankers:Boosted",
    "ByText": "megalabel.rankers:ByText",
    "ChunkedWeights": "megalabel.linear:ChunkedWeights",
    "DenseTree": "megalabel.rankers:DenseTree",
    "DualVectors": "megalabel.rankers:DualVectors",
    "Ensemble": "megalabel.rankers:Ensemble",
    "HashedLabels": "megalabel.rankers:HashedLabels",
    "InvertedIndex": "megalabel.retrieval:InvertedIndex",
    "LabelVectors": "megalabel.rankers:LabelVectors",
    "LexicalMatcher": "megalabel.rankers:LexicalMatcher",
    "Means": "megalabel.rankers:Means",
    "Mix": "megalabel.rankers:Mix",
    "NearestLabels": "megalabel.rankers:NearestLabels",
    "NearestNeighbours": "megalabel.retrieval:NearestNeighbours",
    "OneVsAll": "megalabel.linear:OneVsAll",
    "OnnxStates": "megalabel.rankers.attention:OnnxStates",
    "OnlineTree": "megalabel.linear:OnlineTree",
    "Prior": "megalabel.linear:Prior",
    "Rectified": "megalabel.rankers:Rectified",
    "SparseLabels": "megalabel.rankers:SparseLabels",
    "Stack": "megalabel.rankers:Stack",
    "TreeClassifier": "megalabel.linear:TreeClassifier",
    "VectorIndex": "megalabel.retrieval:VectorIndex",
    # calibrators and decisions
    "Beta": "megalabel.calibration:Beta",
    "BlockCoordinateAscent": "megalabel.decision:BlockCoordinateAscent",
    "ByFrequency": "megalabel.calibration:ByFrequency",
    "ByRank": "megalabel.calibration:ByRank",
    "FrankWolfe": "megalabel.decision:FrankWolfe",
    "Isotonic": "megalabel.calibration:Isotonic",
    "Joint": "megalabel.calibration:Joint",
    "Online": "megalabel.decision:Online",
    "Platt": "megalabel.calibration:Platt",
    "Temperature": "megalabel.calibration:Temperature",
    "Threshold": "megalabel.decision:Threshold",
    "TopK": "megalabel.decision:TopK",
    "Weighted": "megalabel.decision:Weighted",
    # with torch
    "AssembledEncoder": "megalabel.neural:AssembledEncoder",
    "AuxiliaryHead": "megalabel.neural.heads:AuxiliaryHead",
    "AttentionClassifier": "megalabel.neural:AttentionClassifier",
    "BCE": "megalabel.neural:BCE",
    "BagEncoder": "megalabel.neural:BagEncoder",
    "CascadeClassifier": "megalabel.neural:CascadeClassifier",
    "ConvolutionalEncoder": "megalabel.neural:ConvolutionalEncoder",
    "CosineLikelihood": "megalabel.neural:CosineLikelihood",
    "DecoupledSoftmax": "megalabel.neural:DecoupledSoftmax",
    "DenseHead": "megalabel.neural.heads:DenseHead",
    "DualClassifier": "megalabel.neural:DualClassifier",
    "Embedding": "megalabel.neural:Embedding",
    "EncoderStates": "megalabel.neural.states:EncoderStates",
    "Focal": "megalabel.neural:Focal",
    "FixedFanInHead": "megalabel.neural.heads:FixedFanInHead",
    "FrequentAndSparseHead": "megalabel.neural.heads:FrequentAndSparseHead",
    "FrozenEncoder": "megalabel.neural:FrozenEncoder",
    "FullClassifier": "megalabel.neural:FullClassifier",
    "GroupedFanInHead": "megalabel.neural.heads:GroupedFanInHead",
    "MachHead": "megalabel.neural.heads:MachHead",
    "PretrainedEncoder": "megalabel.neural:PretrainedEncoder",
    "RecurrentEncoder": "megalabel.neural:RecurrentEncoder",
    "RecursiveClassifier": "megalabel.neural:RecursiveClassifier",
    "Rewiring": "megalabel.neural:Rewiring",
    "Softmax": "megalabel.neural:Softmax",
    "SquaredHinge": "megalabel.neural:SquaredHinge",
    "StagedClassifier": "megalabel.neural:StagedClassifier",
    "StaticEncoder": "megalabel.neural:StaticEncoder",
    "StagedDualClassifier": "megalabel.neural:StagedDualClassifier",
    "SupervisedContrastive": "megalabel.neural:SupervisedContrastive",
    "TextViews": "megalabel.neural:TextViews",
    "Tokenizer": "megalabel.neural:Tokenizer",
    "Trainer": "megalabel.neural:Trainer",
    "Triplet": "megalabel.neural:Triplet",
}


def class_name(kind: type) -> str:
    """What a component class is called in a folder.

    Examples
    --------
    >>> from megalabel.linear import OneVsAll
    >>> class_name(OneVsAll), find_class("OneVsAll") is OneVsAll
    ('OneVsAll', True)
    """
    for name, place in CLASSES.items():
        module, _, own = place.partition(":")
        if own == kind.__name__ and f"{kind.__module__}.".startswith(f"{module}."):
            return name
    raise StoreError(f"{kind.__name__} is not one of megalabel's own parts, so cannot be saved")


def find_class(name: str) -> type[Component]:
    """The component class of a name; nothing else can be reached."""
    place = CLASSES.get(name) if isinstance(name, str) else None
    if place is None:
        raise StoreError(f"unknown class {name!r}: made by a newer megalabel?")
    module, _, own = place.partition(":")
    try:
        found: type[Component] = getattr(importlib.import_module(module), own)
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "torch", module.split(".")[1]) from error
    return found
