"""What an error on a label costs: by name of a weighting, or from a file. And other numbers of
labels from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from megalabel.data import LabelSet
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.labels.propensity import Propensities, label_propensities
from megalabel.outputs import replacing_file

WEIGHTINGS = (
    None,
    "balanced",
    "propensity",
    "propensity-negatives",
    "propensity-balanced",
    "propensity-rebalanced",
)
LOWEST, HIGHEST = 1e-6, 1e6  # what a cost may be
_BETA = 0.9  # of Cui et al. 2019


def label_costs(
    weighting: str | None, counts: np.ndarray, n: int, propensities: Propensities = None
) -> tuple[np.ndarray, np.ndarray]:
    """What an error on a text with, and on a text without, each label costs.

    With p the propensity of a label, m its number of texts, and c(m) = 0.1 / (1 - 0.9^m):

    | weighting                 | with the label        | without |
    |---------------------------|-----------------------|---------|
    | None                      | 1                     | 1       |
    | `"balanced"`              | c(m)                  | 1       |
    | `"propensity"`            | 2/p - 1               | 1       |
    | `"propensity-negatives"`  | 1                     | p/(2-p) |
    | `"propensity-balanced"`   | (2/p - 1) c(m)        | 1       |
    | `"propensity-rebalanced"` | c(m/p)/p + 1/p - 1    | 1       |

    Class balance is that of Cui et al. (2019). The propensity weights make a convex loss an upper
    bound of the unbiased zero-one loss under missing labels (Qaraei et al. 2021); "balanced"
    classes are weighed before that, "rebalanced" ones after, by how many texts there would be
    without any missing. A label without texts costs 1.

    Parameters
    ----------
    weighting : str or None
    counts : int array (labels,)
        The number of training texts with each label.
    n : int
        The number of training texts.
    propensities : str, PropensityModel or array (labels,), optional
        See `label_propensities`; by default the model of Jain, Prabhu and Varma (2016).

    Examples
    --------
    >>> [costs.round(2).tolist() for costs in label_costs("propensity", np.array([1, 25]), n=50)]
    [[6.82, 2.59], [1.0, 1.0]]
    """
    if weighting not in WEIGHTINGS:
        raise ParameterError(f"weighting must be one of {WEIGHTINGS}, not {weighting!r}")
    name = weighting or ""
    unbiased = name.startswith("propensity")
    if propensities is not None and not unbiased:
        raise ParameterError(
            f"propensities are for weighting='propensity' and its kin, not {weighting!r}"
        )
    positive, negative = np.ones(len(counts)), np.ones(len(counts))
    p = label_propensities(propensities, counts, n) if unbiased else positive
    positive = 2 / p - 1
    if name == "propensity-negatives":
        positive, negative = negative, 1 / positive
    elif name == "propensity-rebalanced":
        positive = _balance(counts / p) / p + 1 / p - 1
    elif name.endswith("balanced"):
        positive = positive * _balance(counts)
    seen = counts > 0
    return np.where(seen, positive, 1.0), np.where(seen, negative, 1.0)


def _balance(counts: np.ndarray) -> np.ndarray:
    """The weight of a class by the effective number of its texts."""
    return np.asarray((1 - _BETA) / (1 - _BETA ** np.maximum(counts, 1)))


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
    table = _read(Path(file), labels, "costs", limits=(LOWEST, HIGHEST), others=(1.0, 1.0))
    return table[:, 0], table[:, 1]


def read_propensities(file: str | Path, labels: LabelSet) -> np.ndarray:
    """Propensities of labels from a file, in the forms of `read_costs` with one number a label.

    In a file with tabs every label must be named.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
    ...     _ = file.write("dog\\t0.5\\ncat\\t1\\n")
    ...     file.flush()
    ...     read_propensities(file.name, LabelSet(["cat", "dog"])).tolist()
    [1.0, 0.5]
    """
    table = _read(Path(file), labels, "propensities", limits=(LOWEST, 1.0), others=(np.nan,))
    return table[:, 0]


def read_caps(file: str | Path, labels: LabelSet) -> np.ndarray:
    """How many texts labels may be given to, in the forms of `read_costs` with one number a label.

    In a file with tabs, labels that are not named have no cap.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
    ...     _ = file.write("dog\\t20\\n")
    ...     file.flush()
    ...     read_caps(file.name, LabelSet(["cat", "dog"])).tolist()
    [inf, 20.0]
    """
    return _read(Path(file), labels, "caps", limits=(0, np.inf), others=(np.inf,))[:, 0]


def read_weights(file: str | Path, labels: LabelSet) -> tuple[np.ndarray, np.ndarray]:
    """Weights and offsets of labels for decisions, in the forms of `read_costs`.

    The offset may be left out and is 0 then; labels that are not named in a file with tabs have
    weight 1.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
    ...     _ = file.write("dog\\t2.5\\n")
    ...     file.flush()
    ...     [column.tolist() for column in read_weights(file.name, LabelSet(["cat", "dog"]))]
    [[1.0, 2.5], [0.0, 0.0]]
    """
    most = float(np.finfo(np.float32).max)
    table = _read(Path(file), labels, "weights", limits=(-most, most), others=(1.0, 0.0))
    return table[:, 0], table[:, 1]


def write_propensities(file: str | Path, propensities: np.ndarray, labels: LabelSet) -> None:
    """Write what `read_propensities` reads: `.npy`, or lines of label id, tab, propensity."""
    path = Path(file)
    with replacing_file(path) as fresh, open(fresh, "wb") as opened:
        if path.suffix == ".npy":
            np.save(opened, propensities)
            return
        for label, propensity in zip(labels.ids.to_pylist(), propensities, strict=True):
            opened.write(f"{label}\t{propensity:.6g}\n".encode())


def _read(
    path: Path,
    labels: LabelSet,
    what: str,
    limits: tuple[float, float],
    others: tuple[float, ...],
) -> np.ndarray:
    """Numbers of each label; `others` are those that are not given, NaN to ask for all labels."""
    if not path.is_file():
        raise DataError("no such file", file=path)
    table = _array(path, others) if path.suffix == ".npy" else _lines(path, labels, what, others)
    if len(table) != len(labels):
        raise ShapeError(f"{path} has {what} of {len(table)} labels, but there are {len(labels)}")
    wrong = np.argwhere(~((table >= limits[0]) & (table <= limits[1])))
    if len(wrong):
        label, column = wrong[0]
        value, name = table[label, column], labels.name(label)
        message = f"expected {what} from {limits[0]:g} to {limits[1]:g}, found {value} for {name!r}"
        raise DataError(message, file=path)
    return table


def _array(path: Path, others: tuple[float, ...]) -> np.ndarray:
    columns = len(others)
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"expected an array, found: {error}", file=path) from None
    wanted = " or ".join(["(labels,)", *(f"(labels, {i})" for i in range(2, columns + 1))])
    if array.dtype.kind not in "iuf" or array.ndim not in (1, 2):
        raise DataError(f"expected numbers {wanted}, found {array!r}", file=path)
    given = array.reshape(len(array), -1)
    if not 1 <= given.shape[1] <= columns:
        raise ShapeError(f"{path} is {array.shape}: expected {wanted}")
    table = np.tile(others, (len(array), 1))
    table[:, : given.shape[1]] = given
    return table


def _lines(path: Path, labels: LabelSet, what: str, others: tuple[float, ...]) -> np.ndarray:
    """Numbers by label where the first line has a tab, else by order."""
    columns = len(others)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"expected UTF-8: {error.reason}", file=path) from None
    named = bool(lines) and "\t" in lines[0]
    wanted = f"one or two {what}" if columns == 2 else "one number"
    wanted = f"label, tab, {wanted}" if named else wanted
    places = _places(path, lines, labels, what) if named else np.arange(len(lines))
    unnamed = np.setdiff1d(np.arange(len(labels)), places)
    if named and np.isnan(others[0]) and len(unnamed):
        name = labels.name(unnamed[0])
        message = f"has no {what} of {len(unnamed)} of {len(labels)} labels, such as {name!r}"
        raise DataError(message, file=path)
    table = np.tile(others, (len(labels) if named else len(lines), 1))
    for number, (place, line) in enumerate(zip(places, lines, strict=True), 1):
        numbers = line.partition("\t")[2] if named else line
        try:
            found = [float(part) for part in numbers.split()]
        except ValueError:
            found = []
        if not 1 <= len(found) <= columns:
            raise DataError(f"expected {wanted}, found {line!r}", file=path, line=number)
        table[place, : len(found)] = found
    return table


def _places(path: Path, lines: list[str], labels: LabelSet, what: str) -> np.ndarray:
    """The number of the label that each line names; each known, and named once."""
    names = [line.partition("\t")[0] for line in lines]
    places = labels.indices(names)
    first: dict[int, int] = {}
    for number, place in enumerate(places.tolist(), 1):
        if place < 0:
            message = f"expected a known label, found {names[number - 1]!r}"
            raise DataError(message, file=path, line=number)
        if first.setdefault(place, number) < number:
            message = f"{names[number - 1]!r} has its {what} in line {first[place]} already"
            raise DataError(message, file=path, line=number)
    return places
