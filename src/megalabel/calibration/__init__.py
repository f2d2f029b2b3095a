"""Scores to probabilities."""

from __future__ import annotations

from megalabel.calibration.grouped import ByFrequency, ByRank
from megalabel.calibration.isotonic import Isotonic
from megalabel.calibration.joint import Joint
from megalabel.calibration.pooled import PooledCalibrator
from megalabel.calibration.sigmoid import Beta, Platt, Temperature
from megalabel.errors import ParameterError
from megalabel.parts import Calibrator

__all__ = [
    "METHODS",
    "Beta",
    "ByFrequency",
    "ByRank",
    "Isotonic",
    "Joint",
    "Platt",
    "Temperature",
    "create",
]

METHODS: dict[str, type[Joint | PooledCalibrator]] = {
    "joint": Joint,
    "isotonic": Isotonic,
    "platt": Platt,
    "temperature": Temperature,
    "beta": Beta,
}


def create(method: str, *, by: str | None = None, k: int | None = None) -> Calibrator:
    """A calibrator by name.

    Parameters
    ----------
    method : str
        One of `METHODS`.
    by : "frequency" or "rank", optional
        A map for each group of labels rather than one for all; "joint" looks at both by itself.
    k : int, optional
        How many labels of each text are learned from; 100 by default for "joint", 5 for others.

    Examples
    --------
    >>> create("beta", by="frequency")
    ByFrequency(calibrator=Beta())
    """
    if method not in METHODS:
        raise ParameterError(f"calibration must be one of {', '.join(METHODS)}, not {method!r}")
    calibrator = METHODS[method]() if k is None else METHODS[method](k=k)
    if by is None:
        return calibrator
    if by not in ("frequency", "rank"):
        raise ParameterError(f"calibration is by frequency or rank, not by {by!r}")
    if isinstance(calibrator, Joint):
        raise ParameterError("joint calibration is by frequency and rank already: leave `by` out")
    return ByFrequency(calibrator) if by == "frequency" else ByRank(calibrator)
