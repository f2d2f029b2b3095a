"""The synthetic corpus: generated whole, or streamed in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_matrix, vstack

from megalabel.base import integer, number
from megalabel.data.corpus import Corpus
from megalabel.data.ranking import Ranking
from megalabel.data.synthetic.items import Items
from megalabel.data.synthetic.shop import MAX_LABELS, MIN_LABELS, Shop
from megalabel.errors import ParameterError


@dataclass(frozen=True, eq=False)
class Synthetic:
    """A corpus of which everything is known.

    Attributes
    ----------
    corpus : Corpus
        Texts with the labels that are observed: the relevant ones less those that went missing.
    complete : CSR matrix (n, labels), float32
        All relevant labels, before any went missing.
    probabilities : CSR matrix (n, labels), float64
        P(label relevant | text). A label that is not stored has probability 0.
    propensities : float64 array (labels,)
        P(label observed | label relevant); labels go missing independently.
    parents : int32 array (labels,)
        The number of each label's parent, -1 for a root. A relevant label's parent is relevant.
    """

    corpus: Corpus
    complete: csr_matrix
    probabilities: csr_matrix
    propensities: np.ndarray
    parents: np.ndarray

    def __len__(self) -> int:
        return len(self.corpus)

    def __getitem__(self, rows: slice | np.ndarray | Sequence[int]) -> Synthetic:
        """Some of the rows."""
        rows = np.arange(len(self))[rows]
        return Synthetic(
            self.corpus[rows],
            self.complete[rows],
            self.probabilities[rows],
            self.propensities,
            self.parents,
        )

    def best(self, k: int, *, observed: bool = False) -> Ranking:
        """The best ranking there can be: by true probability, of relevance or of observation.

        No method's expected precision at k on `complete` is above this one's; with `observed`, on
        the labels of `corpus`, where a label is found with probability times propensity.
        """
        scores = self.probabilities
        if observed:
            scores = csr_matrix(
                (scores.data * self.propensities[scores.indices], scores.indices, scores.indptr),
                scores.shape,
            )
        return Ranking.from_csr(scores, k, self.corpus.labels)


def generate(
    texts: int = 20_000,
    labels: int = 2_000,
    *,
    seed: int = 0,
    draw: int = 0,
    removal: float = 0.25,
) -> Synthetic:
    """Write a corpus of shop items with known label probabilities and propensities.

    Parameters
    ----------
    texts : int
        How many items.
    labels : int
        How many labels, from 200 to 20 million.
    seed : int
        Decides everything; the same on every machine.
    draw : int
        Another draw of the labels for the same texts, from the same probabilities.
    removal : float
        How strongly labels go missing: 0 not at all, 1 as in the propensity law of Jain, Prabhu
        and Varma (2016), which keeps one in six of the rarest of 2,000 labels.

    Examples
    --------
    >>> shop = generate(texts=1000, labels=200)
    >>> shop.corpus
    Corpus(1000 texts, 200 labels)
    >>> shop.best(k=5)
    Ranking(1000 texts, top 5 of 200 labels)
    """
    batches = list(stream(texts, labels, seed=seed, draw=draw, removal=removal))
    first = batches[0]
    if len(batches) == 1:
        return first
    corpora = [batch.corpus for batch in batches]
    corpus = Corpus(
        pa.concat_arrays([c.texts for c in corpora]),
        targets=vstack([c.targets for c in corpora], "csr"),
        labels=first.corpus.labels,
        ids=pa.concat_arrays([c.ids for c in corpora]),
        source=first.corpus.source,
    )
    return Synthetic(
        corpus,
        vstack([batch.complete for batch in batches], "csr"),
        vstack([batch.probabilities for batch in batches], "csr"),
        first.propensities,
        first.parents,
    )


def stream(
    texts: int = 20_000,
    labels: int = 2_000,
    *,
    seed: int = 0,
    draw: int = 0,
    removal: float = 0.25,
    batch: int = 50_000,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[Synthetic]:
    """The corpus of `generate` in batches, for corpora larger than memory.

    The rows are the same for any size of batch. `start` and `stop` give some of the rows, so that
    several workers can write one corpus between them.

    Parameters
    ----------
    texts, labels, seed, draw, removal
        As for `generate`.
    batch : int
        Texts a batch.
    start, stop : int
        The first row, and the one after the last; all rows where not given.

    Examples
    --------
    >>> [len(part) for part in stream(texts=1000, labels=200, batch=400)]
    [400, 400, 200]
    """
    stop = texts if stop is None else stop
    for name, value, check in (
        ("texts", texts, integer(1)),
        ("labels", labels, integer(MIN_LABELS, MAX_LABELS)),
        ("seed", seed, integer(0)),
        ("draw", draw, integer(0)),
        ("removal", removal, number(0)),
        ("batch", batch, integer(1)),
        ("start", start, integer(0, texts)),
        ("stop", stop, integer(start, texts)),
    ):
        if not check.accepts(value):
            raise ParameterError(
                f"{name} of a synthetic corpus must be {check.expected}, not {value!r}"
            )
    # NumPy's integers would overflow in the hashes of keys
    shop = Shop(int(texts), int(labels), int(seed), float(removal))
    return _batches(shop, int(draw), batch, start, stop)


def _batches(shop: Shop, draw: int, batch: int, start: int, stop: int) -> Iterator[Synthetic]:
    source = {
        "corpus": "synthetic",
        "texts": shop.texts,
        "labels": len(shop),
        "seed": shop.seed,
        "draw": draw,
        "removal": shop.removal,
    }
    for first in range(start, stop, batch):
        items = Items(shop, np.arange(first, min(first + batch, stop)))
        probabilities, complete = items.labels(draw)
        corpus = Corpus(
            items.texts(),
            targets=items.observed(complete, draw),
            labels=shop.labels,
            ids=pa.array(items.rows).cast(pa.large_string()),
            source=source,
        )
        yield Synthetic(corpus, complete, probabilities, shop.propensities, shop.parents)
