"""How much a metric would change with another sample of texts: the bootstrap.

Samples are drawn of groups of texts. With up to as many texts as groups each text is a group of
its own, and this is the ordinary bootstrap; with more, texts were put into groups at random.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.errors import ParameterError

PIECE = 64  # samples at a time, so that what is drawn stays small


def sampled_sums(groups: np.ndarray, samples: int, seed: int) -> Iterator[np.ndarray]:
    """The sums of samples of as many groups as there are, drawn with replacement.

    The same seed and number of groups draw the same ones: two models measured on the same texts
    are compared on the same samples.
    """
    rng, count = np.random.default_rng(seed), len(groups)
    for start in range(0, samples, PIECE):
        size = min(PIECE, samples - start)
        drawn = rng.integers(0, count, size * count)
        # sparse, so that sums are taken in one order whatever the number of threads
        weights = csr_matrix(
            (np.ones(size * count), drawn, np.arange(0, size * count + 1, count)), (size, count)
        )
        weights.sum_duplicates()
        yield weights @ groups


def check_options(samples: int, confidence: float) -> None:
    """Complain about options that mean nothing."""
    if samples < 1:
        raise ParameterError(f"samples must be at least 1, not {samples!r}")
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence must be between 0 and 1, not {confidence!r}")


def percentiles(values: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """The middle `confidence` of the samples, (samples, ...): where it begins and ends."""
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return low, high


def bounded(value: float, sampled: np.ndarray, rows: int, confidence: float) -> tuple[float, float]:
    """The interval of Wilson for a value in [0, 1] whose samples spread as these do.

    It is that of a share of as many independent draws as would have this spread, p (1 - p) /
    variance, and of `rows` where all rows agree on 0 or 1: percentiles of samples would have no
    width there, as no sample has what the test set lacks. (The effective sample size of Korn and
    Graubard 1998, in Wilson's interval.)

    Examples
    --------
    >>> low, high = bounded(1.0, np.ones(1000), rows=200, confidence=0.95)
    >>> print(f"{low:.3f} to {high:.3f}")
    0.981 to 1.000
    """
    variance, within = float(sampled.var()), value * (1 - value)
    if within > 0 and variance <= 1e-24:  # all rows agree on it, but for the last bits
        return value, value
    draws = within / variance if within > 0 else rows
    low, high = wilson(np.array(value), np.array(draws), normal_quantile(confidence))
    return float(low), float(high)


def wilson(share: np.ndarray, draws: np.ndarray, z: float) -> tuple[np.ndarray, np.ndarray]:
    """The intervals of Wilson for shares of so many draws, z standard errors to either side."""
    pull = z * z / draws
    centre = (share + pull / 2) / (1 + pull)
    half = np.sqrt(pull * np.maximum(share * (1 - share), 0) + pull * pull / 4) / (1 + pull)
    return np.clip(centre - half, 0, share), np.clip(centre + half, share, 1)


def normal_quantile(confidence: float) -> float:
    """How many standard deviations around the mean hold so much of a normal distribution."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def p_values(difference: np.ndarray, sampled: np.ndarray) -> np.ndarray:
    """Two-sided: how often samples, moved to have no difference, show one as large by chance."""
    # sums in another order differ in their last bits, and no difference is no evidence
    as_large = np.abs(sampled - difference) >= np.abs(difference) - 1e-12
    return np.asarray((1 + as_large.sum(axis=0)) / (1 + len(sampled)))
