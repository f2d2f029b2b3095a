"""How often 95 % intervals hold the truth, near 0 and 1 and between, by simulation.

    python benchmarks/intervals.py

The truth is what test sets of the same number of texts give on average, over all that are drawn.
"""

from __future__ import annotations

import argparse
import platform
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from megalabel import set_threads
from megalabel.data import LabelSet, Ranking
from megalabel.metrics import Evaluation, evaluate
from megalabel.metrics.bootstrap import percentiles

NAMES = ("P@1", "abandonment@1", "abandonment@3", "coverage@1", "coverage@3", "coverage@5")
MOST_TRUE, ANSWERS = 9, 5


class World(NamedTuple):
    """Texts of one to nine of some labels, drawn with Zipf's frequencies to a power.

    An answer is a true label with a probability of `skill`, and any label otherwise.
    """

    labels: int
    power: float
    skill: float

    def draw(self, rng: np.random.Generator, texts: int) -> Evaluation:
        """A test set, measured."""
        shares = np.cumsum(1 / np.arange(1, self.labels + 1) ** self.power)
        shares /= shares[-1]
        true = np.searchsorted(shares, rng.random((texts, MOST_TRUE)))
        carried = np.arange(MOST_TRUE) <= rng.poisson(2, texts)[:, None]
        cells = np.nonzero(carried)[0], true[carried]
        truth = csr_matrix((np.ones(carried.sum()), cells), (texts, self.labels))
        ids = np.searchsorted(shares, rng.random((texts, ANSWERS)))
        found = carried[:, :ANSWERS] & (rng.random((texts, ANSWERS)) < self.skill)
        ids[found] = true[:, :ANSWERS][found]
        for rank in range(1, ANSWERS):  # a label is answered once
            ids[(ids[:, :rank] == ids[:, [rank]]).any(axis=1), rank] = self.labels
        scores = np.where(ids < self.labels, np.arange(ANSWERS, 0, -1), -np.inf)
        return evaluate(Ranking(ids, scores, LabelSet.numbered(self.labels)), truth)


WORLDS = (World(80, 0.7, 0.99), World(500, 0.9, 0.97), World(3000, 1.1, 0.5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=300, help="test sets of each kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    set_threads(1)
    print(f"{platform.node()}, {options.sets} test sets of each kind, seed {options.seed}")
    print(
        "| labels, skill | texts | value | on average | percentiles hold it | intervals hold it |"
    )
    print("|---|---:|---|---:|---:|---:|")
    for world in WORLDS:
        for texts in (200, 2000):
            rng = np.random.default_rng(options.seed)
            found = [world.draw(rng, texts) for _ in range(options.sets)]
            sampled = [evaluation.sampled(samples=300) for evaluation in found]
            intervals = [evaluation.intervals(samples=300) for evaluation in found]
            for name in NAMES:
                truth = np.mean([evaluation[name] for evaluation in found])
                held = []
                plain = [np.clip(percentiles(values[name], 0.95), 0, 1) for values in sampled]
                for ends in (plain, [of[name] for of in intervals]):
                    low, high = np.array(ends).T
                    held.append(np.mean((low <= truth + 1e-12) & (truth - 1e-12 <= high)))
                print(
                    f"| {world.labels:,}, {world.skill} | {texts:,} | {name} | {truth:.2%} | "
                    f"{held[0]:.0%} | {held[1]:.0%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
