"""What comes in: corpora, label sets, rankings; readers and writers, splits, built-in corpora."""

from megalabel.data.corpus import Corpus
from megalabel.data.labelset import LabelSet
from megalabel.data.ranking import Ranking, Tag

__all__ = ["Corpus", "LabelSet", "Ranking", "Tag"]
