"""What an error on a label costs: by name of a weighting, or from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from megalabel.data import LabelSet
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.labels.propensity import jpv

WEIGHTINGS = (None, "balanced", "propensity", "propensity-negatives", "propensity-balanced")
LOWEST, HIGHEST = 1e-6, 1e6  # what a cost may be
_BETA = 0.9  # of Cui et al. 2019


def label_costs(weighting: str | None, counts: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """What an error on a text with, and on a text without, each label costs.

    With p the propensity of a label (`jpv`) and m its number of texts:

    | weighting                | with the label              | without |
    |--------------------------|-----------------------------|---------|
    | None                     | 1                           | 1       |
    | `"balanced"`             | 0.1 / (1 - 0.9^m)           | 1       |
    | `"propensity"`           | 2/p - 1                     | 1       |
    | `"propensity-negatives"` | 1                           | p/(2-p) |
    | `"propensity-balanced"`  | (2/p - 1) 0.1 / (1 - 0.9^m) | 1       |

    Class balance is that of Cui et al. (2019); the propensity weights are those of Jain et al.
    (2016), against missing labels. A label without texts costs 1.

    Parameters
    ----------
    weighting : str or None
    counts : int array (labels,)
        The number of training texts with each label.
    n : int
        The number of training texts.

    Examples
    --------
    >>> [costs.round(2).tolist() for costs in label_costs("propensity", np.array([1, 25]), n=50)]
    [[6.82, 2.59], [1.0, 1.0]]
    """
    if weighting not in WEIGHTINGS:
        raise ParameterError(f"weighting must be one of {WEIGHTINGS}, not {weighting!r}")
    positive, negative = np.ones(len(counts)), np.ones(len(counts))
    name = weighting or ""
    if name.startswith("propensity"):
        positive = 2 / jpv(counts, n) - 1
    if name == "propensity-negatives":
        positive, negative = negative, 1 / positive
    if name.endswith("balanced"):
        positive = positive * (1 - _BETA) / (1 - _BETA ** np.maximum(counts, 1))
    seen = counts > 0
    return np.where(seen, positive, 1.0), np.where(seen, negative, 1.0)


def read_costs(file: str | Path, labels: LabelSet) -> tuple[np.ndarray, np.ndarray]:
    """Costs of labels from a file: arrays of those of positives and those of negatives.

    - `.npy`: an array (labels,) or (labels, 2), in the order of the labels;
    - text without tabs, `positive negative`: a line for each label in the order of the labels;
    - text with tabs, `label<TAB>positive<TAB>negative`: labels by id or name, in any order; those
      that are not named cost 1.

    The second number may be left out and is 1 then.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
    ...     _ = file.write("dog\\t2.5\\n")
    ...     file.flush()
    ...     [costs.tolist() for costs in read_costs(file.name, LabelSet(["cat", "dog"]))]
    [[1.0, 2.5], [1.0, 1.0]]
    """
    path = Path(file)
    if not path.is_file():
        raise DataError("no such file", file=path)
    table = _array(path) if path.suffix == ".npy" else _lines(path, labels)
    if len(table) != len(labels):
        raise ShapeError(f"{path} has costs of {len(table)} labels, but there are {len(labels)}")
    wrong = np.argwhere(~((table >= LOWEST) & (table <= HIGHEST)))
    if len(wrong):
        label, column = wrong[0]
        value, name = table[label, column], labels.name(label)
        message = f"expected costs from {LOWEST:g} to {HIGHEST:g}, found {value} for {name!r}"
        raise DataError(message, file=path)
    return table[:, 0], table[:, 1]


def _array(path: Path) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"expected an array, found: {error}", file=path) from None
    if array.dtype.kind not in "iuf" or array.ndim not in (1, 2):
        raise DataError(f"expected numbers (labels,) or (labels, 2), found {array!r}", file=path)
    table = np.asarray(array.reshape(len(array), -1), np.float64)
    if table.shape[1] == 1:
        table = np.hstack([table, np.ones_like(table)])
    if table.shape[1] != 2:
        raise ShapeError(f"{path} is {array.shape}: expected (labels,) or (labels, 2)")
    return table


def _lines(path: Path, labels: LabelSet) -> np.ndarray:
    """Costs by label where the first line has a tab, else by order."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"expected UTF-8: {error.reason}", file=path) from None
    named = bool(lines) and "\t" in lines[0]
    wanted = "label, tab, one or two costs" if named else "one or two costs"
    places = _places(path, lines, labels) if named else np.arange(len(lines))
    table = np.ones((len(labels) if named else len(lines), 2))
    for number, (place, line) in enumerate(zip(places, lines, strict=True), 1):
        numbers = line.partition("\t")[2] if named else line
        try:
            costs = [float(part) for part in numbers.split()]
        except ValueError:
            costs = []
        if len(costs) not in (1, 2):
            raise DataError(f"expected {wanted}, found {line!r}", file=path, line=number)
        table[place, : len(costs)] = costs
    return table


def _places(path: Path, lines: list[str], labels: LabelSet) -> np.ndarray:
    """The number of the label that each line names; each known, and named once."""
    names = [line.partition("\t")[0] for line in lines]
    places = labels.indices(names)
    first: dict[int, int] = {}
    for number, place in enumerate(places.tolist(), 1):
        if place < 0:
            message = f"expected a known label, found {names[number - 1]!r}"
            raise DataError(message, file=path, line=number)
        if first.setdefault(place, number) < number:
            message = f"{names[number - 1]!r} has its costs in line {first[place]} already"
            raise DataError(message, file=path, line=number)
    return places
