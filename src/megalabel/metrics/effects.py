"""What each text does to metrics that are not sums over texts: the jackknife.

A macro metric is a mean over labels, and a text matters to the labels that it carries or is tagged
with. What it does is the metric with it less the metric without it, all other texts as they are;
of calibration errors, the slope is taken instead. These effects are sums over texts, and samples
can be drawn of them. A test set drawn with replacement and measured anew would not do: it lacks a
third of the labels that occur once, so that it is worse than the whole one, and varies less than
another one would.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from megalabel._native import add_effects
from megalabel.metrics.batches import Batch
from megalabel.metrics.instance import ratio
from megalabel.metrics.macro import averaged_metrics, macro_names
from megalabel.metrics.reliability import BINS, CALIBRATION_ERRORS
from megalabel.metrics.tallies import Tallies


def text_effects(tallies: Tallies, batches: Iterable[Batch]) -> np.ndarray:
    """The effects of all texts, summed by group: (groups, metrics, cutoffs).

    The metrics are those of `Tallies.indirect`. Effects are without what all texts share.
    """
    rows, labels = tallies.sums[:, 0], len(macro_names(tallies.beta))
    found = np.zeros((len(rows), len(tallies.indirect), len(tallies.cutoffs)))
    for place, k in enumerate(tallies.cutoffs.tolist()):  # one at a time: labels may be millions
        by_label, slopes = _of_labels(tallies, place), _slopes(tallies, place)
        sums = np.zeros(found.shape[:2])
        for batch in batches:
            sums = add_effects(sums, *batch, k, by_label, slopes, BINS)
        if tallies.cells is not None:
            # errors are ratios, whose denominators are the pairs of all texts
            pairs = tallies.row_sums("predicted")[:, place]
            errors = ratio(sums[:, labels:].sum(axis=0), pairs.sum())
            sums[:, labels:] = ratio(sums[:, labels:] - errors * pairs[:, None], pairs.sum())
        found[:, :, place] = sums
    return np.asarray(found - rows[:, None, None] * (found.sum(axis=0) / rows.sum()))


def _of_labels(tallies: Tallies, place: int) -> np.ndarray:
    """What a row does to the macro metrics by a label of it, as the native core takes it.

    Beyond what it would do without the label: (labels, 3 * metrics), for rows where the label is
    found (beyond what it would do if missed), wrong or missed.
    """
    predicted, hits = tallies.predicted[place], tallies.hits[place]
    positives, fewer = tallies.positives, tallies.rows - 1
    width, names = len(positives), macro_names(tallies.beta)
    found = np.zeros((width, 3, len(names)), np.float32)
    missed = positives - hits
    cases = ((hits, (1, 1, 1)), (predicted - hits, (1, 0, 0)), (missed, (0, 0, 1)))
    for case, (count, (tagged, hit, true)) in enumerate(cases):
        some = np.flatnonzero(count > 0)
        counts = predicted[some], hits[some], positives[some]
        # of a text without the label; where there is none, of no matter which
        rows = np.maximum(fewer, counts[0] + counts[2] - counts[1])
        with_it = averaged_metrics(*counts, rows, tallies.beta)
        without = averaged_metrics(
            counts[0] - tagged, counts[1] - hit, counts[2] - true, fewer, tallies.beta
        )
        for i, name in enumerate(names):
            found[some, case, i] = (with_it[name] - without[name]) / width
    found[:, 0] -= found[:, 2]
    return found.reshape(width, -1)


def _slopes(tallies: Tallies, place: int) -> np.ndarray:
    """What a unit of confidence above its hit does to calibration errors: (cells, errors)."""
    if tallies.cells is None:
        return np.empty((0, 0), np.float32)
    cells = tallies.cells[place]
    slopes = [bins(cells).slopes() for bins in CALIBRATION_ERRORS.values()]
    return np.stack(slopes, axis=1).astype(np.float32)
