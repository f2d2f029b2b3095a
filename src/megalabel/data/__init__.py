"""What comes in: corpora, label sets, rankings; readers and writers, splits, built-in corpora."""

from megalabel.data.concepts import Concept
from megalabel.data.corpus import Corpus, Record
from megalabel.data.frames import from_frame
from megalabel.data.labelset import LabelSet
from megalabel.data.problems import Problems
from megalabel.data.ranking import Ranking, Tag
from megalabel.data.reading import Stream, read, splits_of, stream
from megalabel.data.splits import split
from megalabel.data.statistics import Statistics, statistics
from megalabel.data.vocabularies import read_vocabulary, write_vocabulary
from megalabel.data.vocabulary import Vocabulary
from megalabel.data.writing import write

__all__ = [
    "Concept",
    "Corpus",
    "LabelSet",
    "Problems",
    "Ranking",
    "Record",
    "Statistics",
    "Stream",
    "Tag",
    "Vocabulary",
    "from_frame",
    "read",
    "read_vocabulary",
    "split",
    "splits_of",
    "statistics",
    "stream",
    "write",
    "write_vocabulary",
]
