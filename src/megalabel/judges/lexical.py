"""LexicalJudge: a label fits where enough of its words are in the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from megalabel import store
from megalabel.base import check_argument, integer, number
from megalabel.data import Corpus, LabelSet
from megalabel.data.strings import from_arrays
from megalabel.errors import NotFittedError
from megalabel.features import NameWords
from megalabel.features.inputs import texts_in_memory
from megalabel.judges.base import Answer, Judge

_AT_ONCE = 4096  # texts


class LexicalJudge(Judge):
    """Says yes where at least such a share of a label's stemmed words is in the text, each weighed
    by its idf.

    It asks nobody and always says the same. `learn` gives it the texts by which words are rare.

    Parameters
    ----------
    threshold : float
        The share.
    stem_length : int
        As of `features.NameWords`.

    Examples
    --------
    >>> judge = LexicalJudge().learn(["a tale of whales", "red dress", "the tale of a dress"])
    >>> [answer.grade for answer in judge.answers(["a red whale"] * 2, ["whales", "whale tales"])]
    [1.0, 0.0]
    """

    free: ClassVar[bool] = True
    reads_definitions: ClassVar[bool] = False

    def __init__(self, *, threshold: float = 0.6, stem_length: int = 5) -> None:
        check_argument("threshold", threshold, number(0, 1))
        check_argument("stem_length", stem_length, integer(1))
        self.threshold, self.stem_length = threshold, stem_length
        self._names: NameWords | None = None

    def learn(self, texts: Any) -> Self:
        """A judge that knows how many of these texts have each word."""
        made = type(self)(threshold=self.threshold, stem_length=self.stem_length)
        arrays = texts_in_memory(texts)
        column = texts if arrays is None else from_arrays(*arrays)
        made._names = NameWords(stem_length=self.stem_length).fit(Corpus(column, labels=[]))
        return made

    @property
    def identity(self) -> str:
        """Its settings, and the words that it has learned."""
        learned = "" if self._names is None else store.fingerprint(self._names)
        return f"{self!r} {learned}"

    def answers(self, texts: Sequence[str], labels: Sequence[str]) -> Iterator[Answer]:
        """An answer for each pair, in order."""
        if self._names is None:
            raise NotFittedError("LexicalJudge must learn from texts first: call learn")
        distinct = {label: place for place, label in enumerate(dict.fromkeys(labels))}
        names = self._names.add_labels(
            LabelSet([str(n) for n in distinct.values()], names=list(distinct))
        )
        column = NameWords.FEATURES.index("stem_share")
        numbers = np.array([distinct[label] for label in labels], np.int32)
        for start in range(0, len(texts), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            rows = names.transform(list(texts[some]))
            shares = names.features(rows, numbers[some, None])[:, 0, column]
            for place, share in enumerate(shares.tolist(), start):
                yield Answer(place, float(share >= self.threshold))

    def __repr__(self) -> str:
        more = "" if self.stem_length == 5 else f", stem_length={self.stem_length}"
        return f"LexicalJudge(threshold={self.threshold}{more})"
