"""Text to vectors."""

from megalabel.features.tfidf import Tfidf

__all__ = ["Tfidf"]
