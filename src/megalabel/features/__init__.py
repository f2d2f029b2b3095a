"""Text to vectors."""

from megalabel.features.bag import BagEmbedding
from megalabel.features.concat import Concat, Each
from megalabel.features.mapped import Mapped
from megalabel.features.match import NameWords, WordRows
from megalabel.features.onnx import OnnxEmbedding, OnnxTokens
from megalabel.features.plain import PlainTexts
from megalabel.features.precomputed import Precomputed
from megalabel.features.projected import Projected
from megalabel.features.static import StaticEmbedding
from megalabel.features.tfidf import Tfidf

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
    "Tfidf",
    "WordRows",
]
