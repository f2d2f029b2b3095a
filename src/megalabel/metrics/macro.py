"""Metrics of each label, their means over all labels, and what frequent and rare labels add.

A label's confusion counts are those of the top-k lists: tp, fp, fn and tn texts. 0/0 is 0, so a
label without positives has a recall of 0, and one that is never predicted a precision of 0.
"""

from __future__ import annotations

import numpy as np

from megalabel.metrics.instance import ratio


def label_metrics(
    predicted: np.ndarray, hits: np.ndarray, positives: np.ndarray, n: int | np.ndarray, beta: float
) -> dict[str, np.ndarray]:
    """Metrics by name from the counts of labels, (..., labels)."""
    tp, fp, fn = hits, predicted - hits, positives - hits
    precision, recall = ratio(tp, predicted), ratio(tp, positives)
    specificity = ratio(n - tp - fp - fn, n - positives)
    square = beta * beta
    found = {"P": precision, "R": recall, "F1": ratio(2 * tp, predicted + positives)}
    if beta != 1:
        found[f"F{beta:g}"] = ratio((1 + square) * tp, predicted + square * positives)
    return found | {
        "balanced-accuracy": (recall + specificity) / 2,
        "G-mean": np.sqrt(recall * specificity),
        "H-mean": ratio(2 * recall * specificity, recall + specificity),
        "Fowlkes-Mallows": np.sqrt(precision * recall),
        "Jaccard": ratio(tp, tp + fp + fn),
    }


def averaged_metrics(
    predicted: np.ndarray, hits: np.ndarray, positives: np.ndarray, n: int | np.ndarray, beta: float
) -> dict[str, np.ndarray]:
    """What macro metrics are the means of: those of labels, and whether they are ever hit."""
    found = label_metrics(predicted, hits, positives, n, beta)
    averaged = {f"macro-{name}": values for name, values in found.items()}
    return averaged | {"coverage": (hits > 0).astype(np.float64)}


def macro_names(beta: float) -> tuple[str, ...]:
    """The names of macro metrics."""
    none = np.zeros(0, np.int64)
    return tuple(averaged_metrics(none, none, none, 0, beta))


def macro_metrics(
    predicted: np.ndarray, hits: np.ndarray, positives: np.ndarray, n: int, beta: float
) -> dict[str, np.ndarray]:
    """The means over all labels, for (cutoffs, labels)."""
    found: dict[str, list[float]] = {}
    for at_cutoff in zip(predicted, hits, strict=True):  # one at a time: labels may be millions
        for name, values in averaged_metrics(*at_cutoff, positives, n, beta).items():
            found.setdefault(name, []).append(float(values.mean()))
    return {name: np.array(values) for name, values in found.items()}


ALTERNATING = 0.75  # how much labels found twice, thrice … count below those found once


def coverage_spread(hits: np.ndarray, jackknife: float) -> float:
    """The standard deviation of coverage from that of the jackknife, for the hits of all labels.

    The jackknife sees labels that are found once, N1, and no others. Where labels are found by
    chance, so many texts give a variance of N1 - N2 + N3 - … labels, on average, that is below N1
    (the series of Good and Toulmin 1956 for as many texts again). Its terms are damped by powers
    of ALTERNATING, as the whole series is all noise; what is left errs on the wide side. The
    jackknife is scaled to it. One label more or less is never ruled out: without a label that is
    found once, the jackknife is 0.

    Examples
    --------
    >>> round(coverage_spread(np.array([0, 1, 1, 2]), jackknife=0.4), 3)
    0.403
    """
    found = np.bincount(np.minimum(hits, 32), minlength=2)[1:32]  # later terms are damped away
    series = float(found @ (-ALTERNATING) ** np.arange(len(found)))
    scale = np.clip(series / max(int(found[0]), 1), 0.3, 1)  # the series may fall to 0 by chance
    return float(np.sqrt(scale * jackknife**2 + 1 / len(hits) ** 2))


def equal_volumes(train_counts: np.ndarray, bins: int) -> np.ndarray:
    """The bin of each label, 0 for the most frequent, so that bins hold equally many positives.

    Labels are lined up from frequent to rare, equal ones by number; a label belongs where the
    positives of those before it end. So the most frequent label is always in the first bin, a
    label larger than a bin leaves the next one empty, and labels never seen are in the last.

    Examples
    --------
    >>> equal_volumes(np.array([1, 6, 2, 3, 0]), 2).tolist()
    [1, 0, 1, 1, 1]
    """
    order = np.argsort(-train_counts, kind="stable")
    before = np.cumsum(train_counts[order]) - train_counts[order]
    found = np.empty(len(order), np.int64)
    found[order] = np.minimum(bins * before // max(int(train_counts.sum()), 1), bins - 1)
    found[train_counts == 0] = bins - 1
    return found


def ends_of(
    train_counts: np.ndarray, number: np.ndarray, bins: int
) -> tuple[list[int | None], list[int | None]]:
    """The lowest and the highest count of the labels in each bin; none of an empty one.

    Examples
    --------
    >>> ends_of(np.array([1, 6, 2]), np.array([1, 0, 1]), 3)
    ([6, 1, None], [6, 2, None])
    """
    low, high = np.full(bins, np.iinfo(np.int64).max), np.full(bins, -1)
    np.minimum.at(low, number, train_counts)
    np.maximum.at(high, number, train_counts)
    filled = (high >= 0).tolist()
    return (
        [int(end) if there else None for end, there in zip(low, filled, strict=True)],
        [int(end) if there else None for end, there in zip(high, filled, strict=True)],
    )
