"""Vocabularies as files and folders: SKOS, TSV, CSV, JSON lines, and mapped columns."""

from megalabel.data.vocabularies.reading import read_vocabulary
from megalabel.data.vocabularies.writing import write_vocabulary

__all__ = ["read_vocabulary", "write_vocabulary"]
