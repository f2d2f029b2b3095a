"""What is counted of a ranking, and all that its metrics need: small, exact, and serialisable."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from megalabel._native import SAMPLE_GROUPS
from megalabel.data import LabelSet
from megalabel.errors import DataError
from megalabel.metrics.bootstrap import sampled_sums
from megalabel.metrics.instance import ROW_SUMS, SUMS_BEFORE, row_metrics
from megalabel.metrics.macro import macro_metrics, macro_names
from megalabel.metrics.reliability import (
    BINS,
    CALIBRATION_ERRORS,
    CELLS,
    DEBIASED,
    FREQUENCIES,
    rank_segments,
)


@dataclass
class Tallies:
    """Sums and counts over all rows of a test set; `width` is the number of labels of the truth.

    Attributes
    ----------
    cutoffs : int64 array
        The rising cutoffs.
    beta : float
        That of macro-F-beta.
    labels : LabelSet
        The labels of the truth: those of the ranking, then those unknown to it.
    sums : float64 array (groups, sums)
        Sums of the rows' own values by group of rows, of which samples are drawn.
    predicted, hits : int64 array (cutoffs, width)
        How many of the top-k lists hold a label, and are right about it.
    positives : int64 array (width,)
        How many rows carry a label.
    checksum : int
        Of the rows' numbers of labels, to tell one test set from another.
    weighted : bool
        Whether propensities are known.
    cells : int64 array (cutoffs, cells, 3), optional
        The reliability of the probabilities; see `megalabel.metrics.reliability.cells_at`.
    train_counts : int64 array (width,), optional
        How many training rows carry a label.
    grouped : int64 array (rank segments, frequencies, 3), optional
        The same by rank and by training frequency; see
        `megalabel.metrics.reliability.grouped_at`.
    effects : float64 array (groups, metrics, cutoffs), optional
        What the rows do to the metrics that are not made of sums over rows, by group; see
        `megalabel.metrics.effects.text_effects`.
    noise : float64 array (cutoffs, errors, bins), optional
        How noisy the bins of the calibration errors are; see there too.
    """

    cutoffs: np.ndarray
    beta: float
    labels: LabelSet
    sums: np.ndarray
    predicted: np.ndarray
    hits: np.ndarray
    positives: np.ndarray
    checksum: int = 0
    weighted: bool = False
    cells: np.ndarray | None = None
    train_counts: np.ndarray | None = None
    grouped: np.ndarray | None = None
    effects: np.ndarray | None = None
    noise: np.ndarray | None = None

    @classmethod
    def empty(cls, cutoffs: np.ndarray, beta: float, labels: LabelSet) -> Self:
        """Nothing counted yet."""
        columns = SUMS_BEFORE + len(ROW_SUMS) * len(cutoffs)
        shape = (len(cutoffs), len(labels))
        return cls(
            cutoffs=cutoffs,
            beta=beta,
            labels=labels,
            sums=np.zeros((SAMPLE_GROUPS, columns)),
            predicted=np.zeros(shape, np.int64),
            hits=np.zeros(shape, np.int64),
            positives=np.zeros(shape[1], np.int64),
        )

    @property
    def rows(self) -> int:
        """How many rows were counted."""
        return int(self.sums[:, 0].sum())

    @property
    def indirect(self) -> dict[str, int]:
        """The metrics that are not made of sums over rows, and their places among the effects.

        What is subtracted from a calibration error is not moved: it shares the error's effects.
        """
        errors = () if self.cells is None else tuple(CALIBRATION_ERRORS)
        places = {name: place for place, name in enumerate(macro_names(self.beta) + errors)}
        return places | {f"{name}{DEBIASED}": places[name] for name in errors}

    @property
    def effects_shape(self) -> tuple[int, int]:
        """How many metrics and cutoffs there are effects on."""
        return len(set(self.indirect.values())), len(self.cutoffs)

    def row_sums(self, name: str) -> np.ndarray:
        """One of `ROW_SUMS` by group: (groups, cutoffs)."""
        start = SUMS_BEFORE + ROW_SUMS.index(name) * len(self.cutoffs)
        return self.sums[:, start : start + len(self.cutoffs)]

    def sampled(self, samples: int, seed: int) -> Iterator[dict[str, np.ndarray]]:
        """Metrics of test sets drawn with replacement, some sets at a time: (sets, cutoffs).

        Those that are not made of sums over rows are given as what they change by.
        """
        used = self.sums[:, 0] > 0  # all of one row each, while there are few
        groups, width = self.sums[used], self.sums.shape[1]
        if self.effects is not None:
            groups = np.hstack([groups, self.effects[used].reshape(len(groups), -1)])
        for sums in sampled_sums(groups, samples, seed):
            found = self.of_rows(sums[:, :width])
            if self.effects is not None:
                effects = sums[:, width:].reshape(-1, *self.effects.shape[1:])
                found |= {name: effects[:, place] for name, place in self.indirect.items()}
            yield found

    def of_rows(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """The metrics that are made of sums over rows, from these or from a sample's."""
        return row_metrics(
            sums,
            self.cutoffs.tolist(),
            weighted=self.weighted,
            probabilities=self.cells is not None,
        )

    def values(self) -> dict[str, float]:
        """All metrics by name and cutoff."""
        found = self.of_rows(self.sums.sum(axis=0))
        found |= macro_metrics(self.predicted, self.hits, self.positives, self.rows, self.beta)
        if self.cells is not None:
            for number, (name, bins) in enumerate(CALIBRATION_ERRORS.items()):
                at = [bins(cells) for cells in self.cells]
                found[name] = np.array([b.expected_calibration_error() for b in at])
                if self.noise is not None:
                    noise = self.noise[:, number]
                    debiased = [b.debiased_error(v) for b, v in zip(at, noise, strict=True)]
                    found[f"{name}{DEBIASED}"] = np.array(debiased)
            found |= {name: found.pop(name) for name in ("Brier", "log-loss")}  # beside these
        return {
            f"{name}@{k}": float(value)
            for name, at in found.items()
            for k, value in zip(self.cutoffs, at, strict=True)
        }

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: arrays as base64 of their compressed bytes."""
        state: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                data = zlib.compress(np.ascontiguousarray(value).tobytes(), 1)
                shape, kind = list(value.shape), value.dtype.str
                value = {"shape": shape, "type": kind, "data": base64.b64encode(data).decode()}
            elif isinstance(value, LabelSet):
                value = {"ids": value.ids.to_pylist(), "names": value.names.to_pylist()}
            state[field.name] = value
        return state

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Back from `to_dict`."""
        values = dict(state)
        values["labels"] = LabelSet(**values["labels"])
        for name, value in values.items():
            if isinstance(value, dict) and "data" in value:
                values[name] = _array(value, name)
        found = cls(**values)
        found._check()
        return found

    def _check(self) -> None:
        like = self.empty(self.cutoffs, self.beta, self.labels)
        like.train_counts = like.positives
        like.cells = np.zeros((len(self.cutoffs), CELLS, 3), np.int64)
        like.grouped = np.zeros((len(rank_segments(self.cutoffs)), len(FREQUENCIES), 3), np.int64)
        like.effects = np.zeros((len(like.sums), *self.effects_shape))
        errors = len(CALIBRATION_ERRORS) if self.cells is not None else 0
        like.noise = np.zeros((len(self.cutoffs), errors, BINS))
        for field in fields(self):
            expected, found = getattr(like, field.name), getattr(self, field.name)
            if found is None or not isinstance(expected, np.ndarray):
                continue
            if found.shape != expected.shape or found.dtype != expected.dtype:
                raise DataError(
                    f"an evaluation's {field.name} are {found.dtype} {found.shape}, "
                    f"not {expected.dtype} {expected.shape}"
                )


def _array(value: Mapping[str, Any], name: str) -> np.ndarray:
    if value["type"] not in ("<i8", "<f8"):
        raise DataError(f"an evaluation's {name} are of type {value['type']!r}")
    size = 8 * int(np.prod(value["shape"]))
    try:
        unpacked = zlib.decompressobj().decompress(base64.b64decode(value["data"]), size + 1)
    except (ValueError, zlib.error) as error:
        raise DataError(f"an evaluation's {name} cannot be unpacked: {error}") from None
    if len(unpacked) != size:
        raise DataError(f"an evaluation's {name} do not fill {value['shape']}")
    return np.frombuffer(unpacked, value["type"]).reshape(value["shape"])
