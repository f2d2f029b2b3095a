"""What the commands show: tables and notes for people, JSON for programs."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from megalabel.data.problems import Problems
from megalabel.errors import DataError
from megalabel.metrics import Evaluation
from megalabel.units import duration

console = Console(highlight=False)
notes = Console(stderr=True, highlight=False)


def complain(error: object, code: int) -> int:
    """Show an error on stderr; gives the exit code back."""
    notes.print(f"[bold red]error:[/] {escape(_said(error))}", soft_wrap=True)
    return code


def note(text: str) -> None:
    """Say what is going on, on stderr, when a person is watching."""
    if sys.stderr.isatty():
        notes.print(f"[dim]{escape(text)}[/]", soft_wrap=True)


def warn(text: str) -> None:
    """Say on stderr what the user must know, watching or not."""
    notes.print(f"[yellow]note:[/] {escape(text)}", soft_wrap=True)


class Noting(logging.Handler):
    """Says on stderr what the library warns of, in its own words."""

    def emit(self, record: logging.LogRecord) -> None:
        """Note what a record says."""
        warn(record.getMessage())


@contextmanager
def telling(name: str) -> Iterator[None]:
    """Within, what a logger and those below it say is noted, when a person is watching."""
    handler, logger = logging.Handler(logging.INFO), logging.getLogger(name)
    handler.emit = lambda record: note(record.getMessage())  # type: ignore[method-assign]
    level, told = logger.level, logger.isEnabledFor(logging.INFO)
    if not told:  # else it is said already, in the log
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = True


def show_json(value: Any) -> None:
    """One JSON value on one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A small table; numbers to the right."""
    table = _titled(title)
    shown = [[_cell(value) for value in row] for row in rows]
    for i, column in enumerate(columns):
        numeric = all(_is_number(row[i]) for row in shown) and bool(shown)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in shown:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)


def show_facts(title: str, facts: Mapping[str, object]) -> None:
    """Names and values, one a line."""
    table = _titled(title, show_header=False)
    table.add_column(style="cyan")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(escape(name), escape(_cell(value)))
    console.print(table)


def show_held_out(metrics: Mapping[str, Any], mixed: Mapping[str, Any] | None = None) -> None:
    """What a model measured of itself in training, or in being mixed."""
    if metrics:
        texts = "texts of training, ranked as if they had not been seen"
        if mixed:
            learned = f"the {mixed['texts']:,} texts that the mix was learned on"
            texts = f"{learned}, each by what others taught"
        console.print(f"[bold]Measured on {texts}[/]", soft_wrap=True)
        console.print(Evaluation.from_dict(metrics))


def show_race(race: Mapping[str, Any] | None) -> None:
    """What was tried before a system was chosen."""
    if not race:
        return
    tried = [trial for trial in race["trials"] if not trial.get("refused")]
    rows = [
        [
            trial["name"],
            trial["texts"],
            *(f"{100 * trial[name]:.2f}" if name in trial else "" for name in ("nDCG@10", "P@1")),
            f"{trial['seconds']:.1f}" if "seconds" in trial else "",
            trial.get("problem", ""),
        ]
        for trial in tried
    ]
    if race["winner"] not in {trial["name"] for trial in tried}:
        rows.append([race["winner"], race["texts"], f"{100 * race['nDCG@10']:.2f}", "", "", ""])
    title = (
        f"Race: {race['winner']} won, measured on {race['held_out']:,} texts held out; "
        f"{duration(race['seconds'])} of {duration(race['budget'])}, trained on "
        f"{race['texts']:,} texts"
    )
    show_table(title, ["trial", "texts", "nDCG@10 %", "P@1 %", "seconds", ""], rows)
    if refused := len(race["trials"]) - len(tried):
        console.print(f"[dim]{refused} more would have taken more time or memory than there was[/]")


def show_mix(described: Mapping[str, Any] | None, members: Sequence[str] = ()) -> None:
    """What the members of a mix and its forms measured; members have other names if these are
    given."""
    if not described:
        return
    measured = described["held_out"]
    names = [*(members or described["members"]), *list(measured)[len(described["members"]) :]]
    rows = [
        [name, *(f"{100 * value:.2f}" for value in values.values())]
        for name, values in zip(names, measured.values(), strict=True)
    ]
    title = (
        f"Mixed by {described['form']}, learned on {described['texts']:,} texts; measured on "
        "these, each by what others taught, in %"
    )
    show_table(title, ["", *next(iter(measured.values()))], rows)


def show_reliability(tables: Mapping[str, Any]) -> None:
    """How probabilities compare with what came true, before and after calibration."""
    if not tables:
        return
    before, after = tables["before"], tables["after"]
    sides = {"before": before, "after": after} if before else {"after": after}
    errors = ", ".join(f"{name} {100 * side['ECE']:.2f}" for name, side in sides.items())
    rows = [
        [f"{100 * low:.0f} to {100 * high:.0f}"]
        + [_reliable(side, i)[j] for side in sides.values() for j in range(3)]
        for i, (low, high) in enumerate(zip(after["low"], after["high"], strict=True))
        if any(side["count"][i] for side in sides.values())
    ]
    columns = [what for name in sides for what in (f"answers {name}", "mean %", "right %")]
    k, texts = tables["k"], tables["texts"]
    show_table(
        f"Are the probabilities of the top {k} right? On {texts:,} texts, "
        f"{' and '.join(sides)} calibration; ECE@{k} in %: {errors}",
        ["probability %", *columns],
        rows,
    )


def _reliable(side: Mapping[str, Any], i: int) -> list[str]:
    said, true = (side[column][i] for column in ("confidence", "hit_rate"))
    shown = [f"{100 * value:.1f}" if value is not None else "" for value in (said, true)]
    return [f"{side['count'][i]:,}", *shown]


def show_bars(title: str, bars: Mapping[str, int]) -> None:
    """A small histogram."""
    most = max(bars.values(), default=0) or 1
    table = _titled(title, show_header=False)
    table.add_column(justify="right", style="cyan")
    table.add_column()
    table.add_column(justify="right")
    for name, count in bars.items():
        table.add_row(name, "█" * max(round(40 * count / most), 1 if count else 0), f"{count:,}")
    console.print(table)


def tell_problems(problems: Problems, shown: int = 10) -> None:
    """Say what was left out of a corpus, and what was likely meant otherwise."""
    for doubt in problems.notes:
        warn(_said(doubt))
    if problems.count:
        lines = "bad line was" if problems.count == 1 else "bad lines were"
        warn(f"{problems.count:,} {lines} skipped:")
        for problem in problems.kept[:shown]:
            notes.print(f"  {escape(_said(problem))}", soft_wrap=True)
        if problems.count > shown:
            notes.print(f"  … and {problems.count - shown:,} more")


def _said(error: object) -> str:
    """The message of an error, with options as they are typed."""
    return error.on_command_line() if isinstance(error, DataError) else str(error)


def _titled(title: str, show_header: bool = True) -> Table:
    if title:
        console.print(f"[bold]{escape(title)}[/]", soft_wrap=True)
    return Table(box=None, show_header=show_header)


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _is_number(cell: str) -> bool:
    return cell == "–" or cell.replace(",", "").replace(".", "", 1).removeprefix("-").isdigit()
