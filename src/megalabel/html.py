"""Small pieces of HTML: what notebooks show, and what pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

LONGEST = 600  # characters of a text that are shown


class Markup(str):
    """HTML to be put in as it is: every other string is escaped."""


def text_of(value: object) -> str:
    """A value as HTML: escaped, unless it is Markup.

    Examples
    --------
    >>> text_of("a < b"), text_of(Markup("<b>a</b>"))
    ('a &lt; b', '<b>a</b>')
    """
    return value if isinstance(value, Markup) else escape(str(value))


def table(
    header: Sequence[object], rows: Iterable[Sequence[object]], *, first: str = "", others: str = ""
) -> Markup:
    """A table; the first cells head their rows. Without a header it has rows alone.

    `first` and `others` are attributes of the first cells of rows, and of the others.
    """

    def line(kind: str, cells: Sequence[object]) -> str:
        heading, *values = map(text_of, cells)
        scope = "col" if kind == "th" else "row"
        attribute = ' scope="col"' if kind == "th" else ""
        shown = "".join(f"<{kind}{attribute}{others}>{value}</{kind}>" for value in values)
        return f'<tr><th scope="{scope}"{first}>{heading}</th>{shown}</tr>'

    head = f"<thead>{line('th', header)}</thead>" if header else ""
    return Markup(f"<table>{head}<tbody>{''.join(line('td', row) for row in rows)}</tbody></table>")


LEFT = ' style="text-align: left"'  # notebooks would have it on the right


def sheet(
    caption: str,
    header: Sequence[object],
    rows: Iterable[Sequence[object]],
    notes: Sequence[str] = (),
    *,
    numbers: bool = False,
) -> str:
    """What a notebook shows of an object: a line of words, a table in its own box, notes below.

    `numbers`: all cells but the first of a row are numbers, and not texts.
    """
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    cells = table(header, rows, first=LEFT, others="" if numbers else LEFT)
    return (
        f'<p><strong>{escape(caption)}</strong></p><div style="overflow-x: auto">{cells}</div>'
        f"{below}"
    )


def facts(caption: str, values: Mapping[str, object]) -> str:
    """What a notebook shows of an object that is described by names and values."""
    return sheet(caption, (), values.items())


def cut(text: str, longest: int = LONGEST) -> str:
    """The beginning of a text that is too long, and how long it is.

    Examples
    --------
    >>> cut("a long text", 6)
    'a long… (11 characters)'
    """
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"
