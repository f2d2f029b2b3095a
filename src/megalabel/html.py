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


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> Markup:
    """A table; the first cells head their rows. Without a header it has rows alone."""
    cells = "".join(f'<th scope="col">{text_of(name)}</th>' for name in header)
    head = f"<thead><tr>{cells}</tr></thead>" if cells else ""
    return Markup(f"<table>{head}<tbody>{''.join(map(row, rows))}</tbody></table>")


def row(cells: Sequence[object]) -> Markup:
    """A row of a table; its first cell is its heading."""
    first, *others = map(text_of, cells)
    values = "".join(f"<td>{cell}</td>" for cell in others)
    return Markup(f'<tr><th scope="row">{first}</th>{values}</tr>')


def sheet(
    caption: str,
    header: Sequence[object],
    rows: Iterable[Sequence[object]],
    notes: Sequence[str] = (),
) -> str:
    """What a notebook shows of an object: a line of words, a table in its own box, notes below."""
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return (
        f'<p><strong>{escape(caption)}</strong></p><div style="overflow-x: auto">'
        f"{table(header, rows)}</div>{below}"
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
