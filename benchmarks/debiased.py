"""Calibration errors of probabilities that are right, or off by a known amount, by simulation.

    python benchmarks/debiased.py

Texts have five answers with probabilities between 10 % and 90 %. In some of the test sets, the
answers of one text tend to be right or wrong together.
"""

from __future__ import annotations

import argparse
import platform

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import ndtr

from megalabel import set_threads
from megalabel.data import LabelSet, Ranking
from megalabel.metrics import Evaluation, evaluate

ANSWERS = 5


def draw(rng: np.random.Generator, texts: int, shift: float, together: float) -> Evaluation:
    """A test set whose probabilities are too high by `shift`, measured."""
    said = -np.sort(-rng.uniform(0.1, 0.9, (texts, ANSWERS)), axis=1)
    shared, own = rng.normal(size=(texts, 1)), rng.normal(size=(texts, ANSWERS))
    hit = ndtr(np.sqrt(together) * shared + np.sqrt(1 - together) * own) < said - shift
    ids = np.tile(np.arange(ANSWERS), (texts, 1))
    ranking = Ranking(ids, said, LabelSet.numbered(ANSWERS))
    return evaluate(ranking, csr_matrix(hit), k=(1, ANSWERS), probabilities=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=1200, help="test sets of 200 texts")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    set_threads(1)
    print(f"{platform.node()}, {options.sets} test sets of 200 texts, seed {options.seed}")
    print("| off by | answers of a text | texts | error | plain | debiased | varies by |")
    print("|---:|---|---:|---|---:|---:|---:|")
    for shift, together in ((0, 0), (0, 0.5), (0.1, 0)):
        for texts in (200, 500, 5000):
            rng = np.random.default_rng(options.seed)
            sets = max(options.sets * 200 // texts, 20)
            found = [draw(rng, texts, shift, together) for _ in range(sets)]
            for name in ("ECE@1", "ECE@5", "ACE@5"):
                plain = np.mean([evaluation[name] for evaluation in found])
                values = [evaluation[name.replace("@", "-debiased@")] for evaluation in found]
                print(
                    f"| {shift:.0%} | {'together' if together else 'independent'} | {texts:,} | "
                    f"{name} | {plain:.2%} | {np.mean(values):.2%} | {np.std(values):.2%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
