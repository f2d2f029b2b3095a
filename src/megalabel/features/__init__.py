"""Text to vectors."""

from megalabel.features.concat import Concat
from megalabel.features.precomputed import Precomputed
from megalabel.features.tfidf import Tfidf

__all__ = ["Concat", "Precomputed", "Tfidf"]
