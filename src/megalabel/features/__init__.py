"""Text to vectors."""

from megalabel.features.bag import BagEmbedding
from megalabel.features.concat import Concat, Each
from megalabel.features.mapped import Mapped
from megalabel.features.match import NameWords
from megalabel.features.onnx import OnnxEmbedding, OnnxTokens
from megalabel.features.plain import PlainTexts
from megalabel.features.precomputed import Precomputed
from megalabel.features.projected import Projected
from megalabel.features.static import StaticEmbedding
from megalabel.features.stemmed import StemmedWords
from megalabel.features.tfidf import Tfidf
from megalabel.features.words import WordRows

__all__ = [
    "BagEmbedding",
    "Concat",
    "Each",
    "Mapped",
    "NameWords",
    "OnnxEmbedding",
    "OnnxTokens",
    "PlainTexts",
    "Precomputed",
    "Projected",
    "StaticEmbedding",
    "StemmedWords",
    "Tfidf",
    "WordRows",
]
