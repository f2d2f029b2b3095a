"""Which test texts to look at: where the tagger was most sure and wrong, and where it did worst."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from megalabel.data import Corpus, Ranking
from megalabel.data.truth import hits
from megalabel.report.page import Example, examples

SHOWN = 12


class Mistakes(NamedTuple):
    """Examples of both kinds; a text is in one of them at most."""

    confident: list[Example]
    worst: list[Example]


def mistakes(ranking: Ranking, corpus: Corpus, count: int = SHOWN) -> Mistakes:
    """The most confident mistakes and the worst texts of a corpus.

    Parameters
    ----------
    ranking : Ranking
        The answers: every label of it counts as one.
    corpus : Corpus
    count : int
        At most so many of each.

    Returns
    -------
    Mistakes
        `confident`: texts with the highest score of a wrong label, of equal ones those with
        fewer right labels; the same wrong label is shown twice at most, so that one habit does
        not hide the others. `worst`: texts of which the
        most true labels were missed that the ranking had room for, the surest first.
    """
    corpus = corpus.aligned(ranking.labels)
    right = hits(ranking, corpus)
    scores = np.where(ranking.present & ~right, ranking.scores, -np.inf)
    place = scores.argmax(axis=1)
    best = scores[np.arange(len(scores)), place]
    label = ranking.ids[np.arange(len(scores)), place]
    chosen: list[int] = []
    seen: dict[int, int] = {}
    for row in np.lexsort((right.sum(axis=1), -best)):
        if best[row] == -np.inf or len(chosen) == count:
            break
        wrong = int(label[row])
        if seen.setdefault(wrong, 0) < 2:
            seen[wrong] += 1
            chosen.append(int(row))
    carried = np.asarray((corpus.targets > 0).sum(axis=1)).ravel()
    missed = np.minimum(carried, ranking.k) - right.sum(axis=1)
    missed[chosen] = 0
    order = np.lexsort((-best, -missed))[:count]
    worst = [int(row) for row in order if missed[row] > 0]
    return Mistakes(_shown(ranking, corpus, chosen), _shown(ranking, corpus, worst))


def _shown(ranking: Ranking, corpus: Corpus, rows: list[int]) -> list[Example]:
    chosen = corpus[np.array(rows, int)]
    headings = [f"text {row + 1:,}" for row in rows]
    if chosen.ids is not None:
        names = chosen.ids.to_pylist()
        headings = [f"{h}: {name}" for h, name in zip(headings, names, strict=True)]
    return examples(ranking[np.array(rows, int)], chosen, headings)
