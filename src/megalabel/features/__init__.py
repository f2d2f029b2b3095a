"""Text to vectors."""

from megalabel.features.concat import Concat
from megalabel.features.embedding import Embedding
from megalabel.features.onnx import OnnxEmbedding
from megalabel.features.precomputed import Precomputed
from megalabel.features.tfidf import Tfidf

__all__ = ["Concat", "Embedding", "OnnxEmbedding", "Precomputed", "Tfidf"]
