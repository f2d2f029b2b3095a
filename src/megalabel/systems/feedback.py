"""Training by a judge's feedback: rounds of candidates, judgements, and a map over frozen vectors.

After Zhang et al. 2024 (LMTX): each round's candidates come from what the round before learned, and
each round's training begins anew, so that no mistake is carried on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import unfitted, with_learned
from megalabel.data import Ranking
from megalabel.data.matrix import normalised_rows
from megalabel.errors import BudgetError, DataError
from megalabel.features.mapped import mapped
from megalabel.judges import Cost, Judgements
from megalabel.judges.judgements import says_yes
from megalabel.rankers import ByText
from megalabel.rankers.ensemble import combined

log = logging.getLogger(__name__)

_MOST_DEVELOPMENT = 800  # texts whose best label is judged after each round
_DEVELOPMENT = 0.1  # of all texts, at most
_HARD = 3  # times as many labels that were judged not to fit are kept as are drawn

Train = Callable[[np.ndarray, np.ndarray, csr_matrix, np.ndarray, int], dict[str, np.ndarray]]
"""Makes the arrays of a map of vectors of texts and names, the pairs that go together, labels that
are hard, and the number of the round."""


@dataclass(frozen=True)
class Material:
    """What is known of unlabelled texts and of labels."""

    texts: Sequence[str]
    words: csr_matrix
    """The counts of their words."""
    vectors: np.ndarray
    """Theirs, as a frozen model makes them, of length one."""
    names: Sequence[str]
    """What the judge reads of labels."""
    name_vectors: np.ndarray
    definition_vectors: np.ndarray | None
    """Rows of zeros where a label has no definition."""

    def at(self, rows: np.ndarray) -> Material:
        """The same with some of the texts."""
        texts = [self.texts[row] for row in rows.tolist()]
        return Material(
            texts,
            self.words[rows],
            self.vectors[rows],
            self.names,
            self.name_vectors,
            self.definition_vectors,
        )


@dataclass(frozen=True)
class Round:
    """What a round was, for provenance."""

    number: int
    """0: before any training."""
    texts: int = 0
    """How many were judged."""
    pairs: int = 0
    fit: int = 0
    """Pairs that the judge took for right."""
    precision: float = 0.0
    """The share of texts kept apart whose best label by vectors alone is right, says the judge."""


@dataclass(frozen=True)
class Learned:
    """What was learned: a map of vectors and the ranker over them."""

    ranker: ByText
    map: dict[str, np.ndarray] | None = None
    """As `features.mapped` takes it; None: vectors stay as they are."""
    activation: str | None = None
    rounds: list[Round] = field(default_factory=list)

    def told(self) -> list[dict[str, Any]]:
        """The rounds, ready for JSON."""
        return [asdict(one) for one in self.rounds]

    @classmethod
    def of(
        cls,
        lexical: ByText,
        material: Material,
        hubs: float,
        map: dict[str, np.ndarray] | None = None,
        activation: str | None = None,
        own: np.ndarray | None = None,
    ) -> Learned:
        """What a map makes of the names of labels, less what they have with any text; `own` is
        added to each label's vector."""
        made = cls(lexical, map, activation)
        vectors = made.seen(material.name_vectors)
        if own is not None:
            vectors = np.asarray(normalised_rows(vectors + own))
        mean = made.seen(material.vectors).mean(axis=0, dtype=np.float64)
        said = None
        if material.definition_vectors is not None:
            said = made.seen(material.definition_vectors)
            said[~np.any(material.definition_vectors, axis=1)] = 0
        return cls(lexical.with_vectors(vectors, hubs * mean, said), map, activation)

    def seen(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors of a frozen model as the ranker sees them, of length one."""
        if self.map is not None:
            vectors = mapped(vectors, self.map, self.activation)
        return np.asarray(normalised_rows(vectors))

    def rank(self, part: Material, k: int, *, words: bool = True) -> Ranking:
        """The k best labels of texts; without words, those of vectors alone."""
        ranker = self.ranker
        if not words:
            alone = unfitted(ranker).set_params(words=0.0, matches=0.0)
            ranker = with_learned(alone, **ranker.learned())
        return ranker.rank([self.seen(part.vectors), part.words], k)


@dataclass(frozen=True)
class Feedback:
    """How rounds are made.

    Parameters
    ----------
    judgements : Judgements
    train : callable
        As of `Train`.
    activation : str, optional
        Of the map.
    rounds : int
    shortlist : int
        Labels of a text that are judged in a round.
    negatives : int
        Labels judged not to fit that a text is compared with at a time.
    hubs : float
        How much of the mean similarity of a name with any text is taken off.
    own : float
        What the texts judged to fit count in a label's vector, beside its name.
    seed : int
    """

    judgements: Judgements
    train: Train
    activation: str | None = None
    rounds: int = 2
    shortlist: int = 15
    negatives: int = 0
    hubs: float = 0.7
    own: float = 0.3
    seed: int = 0

    def cost(self, lexical: ByText, material: Material) -> tuple[Cost, int]:
        """What the first round costs, with the texts kept apart, and how many pairs all rounds can
        have at most; nothing is asked."""
        some, apart = self._split(len(material.texts))
        first = material.at(some[: _texts_of(1, self.rounds, len(some))])
        kept = material.at(apart)
        before = Learned.of(lexical, material, self.hubs)
        cost = self.judgements.cost(*_asked(first, *self._pairs(before, lexical, first)))
        cost += self.judgements.cost(*_asked(kept, *_best(before, kept)))
        return cost, most_pairs(len(material.texts), self.rounds, self.shortlist)

    def learn(self, lexical: ByText, material: Material) -> Learned:
        """Go through the rounds, from a ranker by words alone.

        It stops where a round's labels are judged no better than those before; the best round is
        what stays.
        """
        some, apart = self._split(len(material.texts))
        development = material.at(apart)
        last = best = Learned.of(lexical, material, self.hubs)
        rounds = [Round(0, precision=self._precision(last, development))]
        for number in range(1, self.rounds + 1):
            part = material.at(some[: _texts_of(number, self.rounds, len(some))])
            try:
                last, counts = self._round(number, last, lexical, material, part)
                precision = self._precision(last, development)
            except BudgetError as error:
                if number == 1:
                    raise
                log.warning("round %d is left out: %s", number, error)
                break
            before = max(one.precision for one in rounds)
            better = precision > before or (number == 1 and precision == before)
            rounds.append(Round(number, *counts, precision))
            log.info(
                "round %d: %s of %s pairs fit; of the best labels of %s other texts by vectors "
                "alone %.1f%% do, and %.1f%% did before training",
                *(number, f"{counts[2]:,}", f"{counts[1]:,}", f"{len(apart):,}"),
                *(100 * precision, 100 * rounds[0].precision),
            )
            if not better:
                break
            best = last
        if best.map is None:
            log.warning("training did not help, by the judge's own word: vectors stay as they came")
        return replace(best, rounds=rounds)

    def _split(self, texts: int) -> tuple[np.ndarray, np.ndarray]:
        """The texts to learn from, and those kept apart."""
        order = np.random.default_rng(self.seed).permutation(texts)
        apart = _kept_apart(texts)
        return order[apart:], order[:apart]

    def _round(
        self, number: int, before: Learned, lexical: ByText, material: Material, part: Material
    ) -> tuple[Learned, tuple[int, int, int]]:
        """What a round learns; how many texts and pairs it had judged, and how many fit."""
        rows, labels = self._pairs(before, lexical, part)
        fits = says_yes(self.judgements.grades(*_asked(part, rows, labels)))
        if not fits.any():
            raise DataError(
                f"the judge took none of {len(rows):,} pairs of a text and a label for right, so "
                "there is nothing to learn from: ask another judge, or see whether the labels are "
                "those of the texts"
            )
        pairs = csr_matrix(
            (np.ones(fits.sum(), np.float32), (rows[fits], labels[fits])),
            (len(part.texts), len(part.names)),
        )
        hard = _hard(rows[~fits], labels[~fits], len(part.texts), _HARD * self.negatives)
        some = np.flatnonzero(np.diff(pairs.indptr))
        found = self.train(part.vectors[some], part.name_vectors, pairs[some], hard[some], number)
        texts = Learned(lexical, found, self.activation).seen(part.vectors)
        own = self.own * np.asarray(normalised_rows(np.asarray(pairs.T @ texts)))
        made = Learned.of(lexical, material, self.hubs, found, self.activation, own)
        return made, (len(part.texts), len(rows), int(fits.sum()))

    def _pairs(
        self, learned: Learned, lexical: ByText, part: Material
    ) -> tuple[np.ndarray, np.ndarray]:
        """The candidates of texts, by rows and labels: of the mix, of vectors and of words in
        turn."""
        k = self.shortlist
        rankings = [learned.rank(part, k), learned.rank(part, k, words=False)]
        rankings.append(_named(lexical, part.words, k))
        found = combined(rankings, "round-robin").top(k)
        rows, places = np.nonzero(found.present)
        return rows, found.ids[rows, places].astype(np.int64)

    def _precision(self, learned: Learned, development: Material) -> float:
        """The share of texts whose best label by vectors alone fits, by the judge."""
        if not len(development.texts):
            return 0.0
        asked = _asked(development, *_best(learned, development))
        return float(says_yes(self.judgements.grades(*asked)).mean())


def most_pairs(texts: int, rounds: int, shortlist: int) -> int:
    """The most pairs that rounds can have judged, of so many texts with so many candidates each.

    Examples
    --------
    >>> most_pairs(100, rounds=2, shortlist=4)
    570
    """
    apart = _kept_apart(texts)
    judged = sum(_texts_of(number, rounds, texts - apart) for number in range(1, rounds + 1))
    return judged * shortlist + apart * (rounds + 1)


def _kept_apart(texts: int) -> int:
    """How many texts are kept apart."""
    return min(_MOST_DEVELOPMENT, int(texts * _DEVELOPMENT))


def _texts_of(number: int, rounds: int, texts: int) -> int:
    """How many texts a round has: the later, the more, as its candidates are better."""
    return math.ceil(texts * number / rounds)


def _best(learned: Learned, part: Material) -> tuple[np.ndarray, np.ndarray]:
    """The best label of each text by vectors alone, by rows and labels."""
    found = learned.rank(part, 1, words=False)
    return np.arange(len(found)), found.ids[:, 0].astype(np.int64)


def _asked(part: Material, rows: np.ndarray, labels: np.ndarray) -> tuple[list[str], list[str]]:
    """What a judge reads of pairs."""
    texts = [part.texts[row] for row in rows.tolist()]
    return texts, [part.names[label] for label in labels.tolist()]


def _named(lexical: ByText, words: csr_matrix, k: int) -> Ranking:
    """The labels that share a word with each text, the best k."""
    labels = len(lexical.labels_)
    found = lexical.rank([words], k)
    nothing = lexical.rank([csr_matrix((1, words.shape[1]), dtype=np.float32)], 1).scores[0, 0]
    none = found.scores <= nothing
    scores = np.where(none, -np.inf, found.scores).astype(np.float32)
    return Ranking(np.where(none, labels, found.ids), scores, found.labels)


def _hard(rows: np.ndarray, labels: np.ndarray, texts: int, most: int) -> np.ndarray:
    """The first labels of each row, int32 (texts, most); -1 where there are no more.

    Examples
    --------
    >>> _hard(np.array([0, 0, 2]), np.array([5, 6, 7]), 3, 1).tolist()
    [[5], [-1], [7]]
    """
    found = np.full((texts, most), -1, np.int32)
    starts = np.searchsorted(rows, np.arange(texts))
    place = np.arange(len(rows)) - starts[rows]
    there = place < most
    found[rows[there], place[there]] = labels[there]
    return found
