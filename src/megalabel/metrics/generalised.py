"""How well labels are found that training has seen, and those that it has not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from megalabel.metrics.instance import ratio
from megalabel.metrics.tallies import Tallies

GROUPS = ("seen", "unseen", "all", "harmonic mean")


def seen_and_unseen(tallies: Tallies, seen: np.ndarray) -> pa.Table:
    """Recall and what is added to precision, by whether labels were seen in training.

    One row a group of labels, then the harmonic mean of the first two, 2 S U / (S + U), which is
    high only where both are. Labels that no row carries count in none.
    """
    carried = tallies.positives > 0
    members = [carried & seen, carried & ~seen, carried]
    columns: dict[str, list[float | int | None]] = {
        "labels": [int(of.sum()) for of in members] + [None],
        "positives": [int(tallies.positives[of].sum()) for of in members] + [None],
    }
    for k, hits in zip(tallies.cutoffs.tolist(), tallies.hits, strict=True):
        recall = ratio(hits, tallies.positives)
        found = {
            "R": [float(ratio(hits[of].sum(), tallies.positives[of].sum())) for of in members],
            "macro-R": [float(recall[of].mean()) if of.any() else 0.0 for of in members],
        }
        for name, values in found.items():
            columns[f"{name}@{k}"] = [*values, harmonic_mean(values[0], values[1])]
        shares = [float(hits[of].sum()) / max(1, tallies.rows * k) for of in members]
        columns[f"P@{k}"] = [*shares, None]
    return pa.table({"group": list(GROUPS), **columns})


def harmonic_mean(seen: float, unseen: float) -> float:
    """2 S U / (S + U); 0 where both are.

    Examples
    --------
    >>> round(harmonic_mean(0.6, 0.3), 3)
    0.4
    """
    return 2 * seen * unseen / (seen + unseen) if seen + unseen else 0.0
