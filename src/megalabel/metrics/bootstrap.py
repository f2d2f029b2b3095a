"""How much a metric would change with another sample of texts: the bootstrap.

Samples are drawn of groups of texts. With up to as many texts as groups each text is a group of
its own, and this is the ordinary bootstrap; with more, texts were put into groups at random.
"""

from __future__ import annotations

from collections.abc import Iterator

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


def p_values(difference: np.ndarray, sampled: np.ndarray) -> np.ndarray:
    """Two-sided: how often samples, moved to have no difference, show one as large by chance."""
    # sums in another order differ in their last bits, and no difference is no evidence
    as_large = np.abs(sampled - difference) >= np.abs(difference) - 1e-12
    return np.asarray((1 + as_large.sum(axis=0)) / (1 + len(sampled)))
