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

from megalabel._native import EFFECT_LANES as LANES
from megalabel._native import add_effects
from megalabel.metrics.batches import Batch
from megalabel.metrics.instance import ratio
from megalabel.metrics.macro import averaged_metrics, macro_names
from megalabel.metrics.reliability import BINS, CALIBRATION_ERRORS
from megalabel.metrics.tallies import Tallies


def text_effects(tallies: Tallies, batches: Iterable[Batch]) -> tuple[np.ndarray, np.ndarray]:
    """The effects of all texts, and how noisy the bins of calibration errors are.

    Returns
    -------
    effects : float64 array (groups, metrics, cutoffs)
        Summed by group; the metrics are those of `Tallies.indirect`. Effects are without what all
        texts share.
    noise : float64 array (cutoffs, errors, BINS)
        The variances of the bins' summed gaps between confidence and hits if there is no
        miscalibration. The answers of one text count as one draw, as they are not independent.
    """
    rows, names = tallies.sums[:, 0], macro_names(tallies.beta)
    found = np.zeros((len(rows), *tallies.effects_shape))
    errors = tallies.effects_shape[0] - len(names)
    noise = np.zeros((len(tallies.cutoffs), errors, BINS))
    for place, k in enumerate(tallies.cutoffs.tolist()):
        (class_of, of_class), bins_of_cell = (
            _by_label(tallies, place),
            _bins_of_cell(tallies, place),
        )
        sums = np.zeros((len(rows), LANES + errors * BINS))
        for batch in batches:
            sums = add_effects(
                sums,
                first_row=batch.first_row,
                ranked=batch.ranked,
                truth=batch.truth,
                k=k,
                class_of=class_of,
                of_class=of_class,
                bins_of_cell=bins_of_cell,
                bins_of_errors=errors * BINS,
                bins=BINS,
            )
        found[:, : len(names), place] = sums[:, : len(names)] / len(tallies.labels)
        gaps = sums[:, LANES:].reshape(len(rows), errors, BINS)
        noise[place] = np.square(gaps).sum(axis=0)
        # errors are ratios, of which the denominators are the pairs of all texts
        pairs = tallies.row_sums("predicted")[:, place]
        gaps = (gaps * np.sign(gaps.sum(axis=0))).sum(axis=2)
        of_all = ratio(gaps.sum(axis=0), pairs.sum())
        found[:, len(names) :, place] = ratio(gaps - of_all * pairs[:, None], pairs.sum())
    return found - rows[:, None, None] * (found.sum(axis=0) / rows.sum()), noise


def _by_label(tallies: Tallies, place: int) -> tuple[np.ndarray, np.ndarray]:
    """The class of each label, and what a text does to the metrics of a label of each class.

    That is beyond what a text does that neither carries the label nor is tagged with it:
    (classes, 3 * LANES), if the label is found (beyond what it does if missed), wrong or missed.
    """
    class_of, predicted, hits, positives = _classes(
        tallies.predicted[place], tallies.hits[place], tallies.positives
    )
    found = np.zeros((len(hits), 3, LANES), np.float32)
    fewer, beta = tallies.rows - 1, tallies.beta
    # where no text is without the label, it does not matter what such a text would do
    rows = np.maximum(fewer, predicted + positives - hits)
    otherwise = averaged_metrics(predicted, hits, positives, rows, beta)
    cases = ((hits, (1, 1, 1)), (predicted - hits, (1, 0, 0)), (positives - hits, (0, 0, 1)))
    for case, (count, (tagged, hit, true)) in enumerate(cases):
        some = np.flatnonzero(count > 0)
        without = averaged_metrics(
            predicted[some] - tagged, hits[some] - hit, positives[some] - true, fewer, beta
        )
        for lane, (name, values) in enumerate(without.items()):
            found[some, case, lane] = otherwise[name][some] - values
    found[:, 0] -= found[:, 2]
    return class_of, found.reshape(-1, 3 * LANES)


def _classes(*counts: np.ndarray) -> tuple[np.ndarray, ...]:
    """The class of each label, labels of the same counts being of one; and the classes' counts."""
    class_of = np.zeros(len(counts[0]), np.int64)
    for column in counts:
        pairs = class_of * (int(column.max(initial=0)) + 1) + column
        _, first, class_of = np.unique(pairs, return_index=True, return_inverse=True)
    return class_of.astype(np.int32), *(column[first] for column in counts)


def _bins_of_cell(tallies: Tallies, place: int) -> np.ndarray:
    """The bin of each cell for each calibration error, numbered through: (cells, errors)."""
    if tallies.cells is None:
        return np.empty((0, 0), np.int32)
    of_cell = [bins(tallies.cells[place]).of_cell for bins in CALIBRATION_ERRORS.values()]
    numbered = [np.where(bin >= 0, BINS * i + bin, -1) for i, bin in enumerate(of_cell)]
    return np.stack(numbered, axis=1).astype(np.int32)
