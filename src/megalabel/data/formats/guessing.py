"""What the columns of a file are likely to hold, to say it where their names do not tell.

Nothing is read by a guess: it goes into the message of an error or a note, as the option to give.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from megalabel.errors import DataError

# Some values of each column, of the first rows of a file.
Sample = Mapping[str, Sequence[Any]]
SAMPLED = 200  # rows

YES = ["1", "1.0", "true"]
NO = ["0", "0.0", "false", ""]
_TEXT_NAMES = re.compile(r"text|title|titel|body|content|inhalt|descri|beschreib|abstract|summary")
_LABEL_NAMES = re.compile(
    r"label|tag|categor|kategor|keyword|schlag|stichw|subject|topic|thema|class|klass|genre|code"
)
_ID_NAMES = re.compile(r"(.*[^a-z])?(id|nr|number|nummer|key|uri|url)s?")
_SEPARATORS = (", ", ",", " / ", "/", "#", "\t")
_LONG = 3  # words of a text, at least, on average
_IN_TEXT = re.compile(r"\w\s\w+\s\w")


def listed(names: Sequence[str]) -> str:
    """The names of columns, for a message; an index without a name is not worth one."""
    named = [name if len(name) <= 60 else f"{name[:57]}…" for name in names if name.strip()]
    return ", ".join(named[:20]) + (", …" if len(named) > 20 else "") if named else "none"


def no_text(sample: Sample, file: str | Path, labels: bool) -> DataError:
    """What to say where no column is known to hold text; and none to hold labels, if so."""
    columns = list(sample)
    text = text_column(sample)
    message = f"expected a column title, content or text; the columns are {listed(columns)}"
    if text is None:
        return DataError(message, file=file)
    message += f"; texts look to be in {text} (long strings)"
    advice = {"text_column": text}
    if labels and (found := label_column(sample, text)):
        message += f", labels in {_shown(found, sample)}"
        advice["label_column"] = found
    return DataError(message, file=file, advice=advice)


def no_header(sample: Sample, file: str | Path, delimiter: str) -> DataError | None:
    """What to say of a table whose first line is a row, as a text stands in it."""
    names = list(sample)
    if not any(len(name) > 20 and _IN_TEXT.search(name) for name in names):
        return None
    rows = {f"column{i}": [name, *sample[name]] for i, name in enumerate(names, 1)}
    text = text_column(rows)
    rest = {name: len({*_strings(values)}) for name, values in rows.items() if name != text}
    labels = label_column(rows, text) or min(rest, key=rest.__getitem__, default=None)
    header = delimiter.join({text: "text", labels: "labels"}.get(name, name) for name in rows)
    return DataError(
        f"the first line looks like a row, not like a header: put the line {header!r} above it",
        file=file,
        line=1,
    )


def no_labels(sample: Sample, file: str | Path, used: Sequence[str]) -> DataError:
    """What to say where no label was read, and columns besides those used may hold them."""
    others = {name: values for name, values in sample.items() if name not in used}
    found = label_column(others, None)
    if found is None:
        return DataError(
            f"no labels were read; the columns are {listed(list(sample))}; expected a column "
            "labels with names, or target_ind with numbers",
            file=file,
        )
    return DataError(
        f"no labels were read; the columns are {listed(list(sample))}; labels look to be in "
        + _shown(found, others),
        file=file,
        advice={"label_column": found},
    )


def empty_texts(sample: Sample, file: str | Path, used: Sequence[str]) -> DataError | None:
    """What to say where all texts are empty, if a column that is not used has some."""
    others = {name: values for name, values in sample.items() if name not in used}
    text = text_column(others)
    if text is None or _words(others[text]) < _LONG:
        return None
    return DataError(
        f"all texts are empty; texts look to be in {text} (long strings)",
        file=file,
        advice={"text_column": text},
    )


def wrong_separator(labels: Sequence[str], file: str | Path) -> DataError | None:
    """What to say where each text has one label, if most of these look like several."""
    for separator in _SEPARATORS:
        if 2 * sum(separator in label for label in labels) > len(labels):
            return DataError(
                f"every row has exactly one label and most hold {separator!r}",
                file=file,
                advice={"label_separator": separator.replace("\t", "\\t")},
            )
    return None


def text_column(sample: Sample) -> str | None:
    """The column that is likely to hold texts: the one of the longest strings, but for a name that
    speaks of labels."""
    lengths = {name: _length(values) for name, values in sample.items()}
    likely = {
        name: length * (2 if _TEXT_NAMES.search(name.lower()) else 1)
        for name, length in lengths.items()
        if length and not _LABEL_NAMES.search(name.lower())
    }
    return max(likely, key=likely.__getitem__) if likely else None


def label_column(sample: Sample, text: str | None) -> str | None:
    """The column that is likely to hold labels, or "*" for columns of 0 and 1."""
    likely: dict[str, float] = {}
    marks = indicators(sample)
    for name, values in sample.items():
        strings = _strings(values)
        if name == text or name in marks or not strings or _ID_NAMES.fullmatch(name.lower()):
            continue
        parts = [part.strip() for value in strings for part in re.split("[;|,]", value)]
        repeated = 1 - len(set(parts)) / len(parts)
        brief = sum(len(part.split()) for part in parts) / len(parts) <= _LONG
        named = _LABEL_NAMES.search(name.lower()) is not None
        several = any(len(v) > 1 for v in values if isinstance(v, list))
        if named or several or (repeated > 0 and brief):
            likely[name] = 2 * named + several + repeated
    if len(marks) > 1 and max(likely.values(), default=0) < 2:
        return "*"
    return max(likely, key=likely.__getitem__) if likely else None


def indicators(sample: Sample) -> list[str]:
    """The columns that hold 0 and 1 alone, and both of them or either."""
    return [
        name
        for name, values in sample.items()
        if (cells := {_cell(value) for value in values}) <= {*YES, *NO} and cells != {""} and cells
    ]


def _shown(found: str, sample: Sample) -> str:
    if found != "*":
        return found
    return f"the columns of 0 and 1 ({listed(indicators(sample))})"


def _strings(values: Sequence[Any]) -> list[str]:
    flat = [v for value in values for v in (value if isinstance(value, list) else [value])]
    return [value for value in flat if isinstance(value, str) and value.strip()]


def _length(values: Sequence[Any]) -> float:
    strings = [v for v in values if isinstance(v, str) and v.strip() and not _is_number(v)]
    return sum(map(len, strings)) / len(strings) if strings else 0.0


def _words(values: Sequence[Any]) -> float:
    strings = _strings(values)
    return sum(len(value.split()) for value in strings) / len(strings) if strings else 0.0


def _is_number(value: str) -> bool:
    return re.fullmatch(r"\s*[-+]?[\d.,:/-]+\s*", value) is not None


def _cell(value: Any) -> str:
    return "" if value is None else str(value).strip().lower()
