"""What pages are made of: a document, its sections, tables and examples."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from megalabel import html
from megalabel.data import Corpus, Ranking, Tag
from megalabel.data.truth import hits
from megalabel.html import cut
from megalabel.metrics.plain import plain_value

RIGHT = ' class="right"'

STYLE = """
:root { --ink: #1c2330; --paper: #fbfaf7; --line: #dcd8cf; --card: #fff; --soft: #5c6370;
  --good: #18794e; --one: #1f5fa8; --two: #b4570a; --three: #18794e; --four: #7b3fa0; }
@media screen and (prefers-color-scheme: dark) { :root { color-scheme: dark; --ink: #e7e6e2;
  --paper: #16181d; --line: #3a3f4b; --card: #1e2128; --soft: #a3aab6; --good: #5bd19a;
  --one: #7db4f0; --two: #f0a35e; --three: #5bd19a; --four: #c79be6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; color: var(--ink);
  background: var(--paper); font: 16px/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .2rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; } h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { color: var(--soft); margin: .4rem 0; } a { color: var(--one); }
.lead { color: var(--ink); font-size: 1.08rem; max-width: 44rem; margin: .7rem 0; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; }
.scroll { overflow-x: auto; } .warning { color: var(--two); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: baseline; overflow-wrap: normal; }
th { color: var(--soft); font-weight: 500; }
th:first-child, td:first-child { text-align: left; } tbody th { white-space: nowrap; }
td small { display: block; color: var(--soft); white-space: nowrap; }
.facts th { width: 14rem; white-space: normal; }
.facts td { text-align: left; overflow-wrap: anywhere; }
.side { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); }
figure { margin: 0; break-inside: avoid; } figcaption { color: var(--soft); }
svg { display: block; width: 100%; max-width: 34rem; height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); } .even { stroke-dasharray: 4 4; }
.fill1 { fill: var(--one); } .fill2 { fill: var(--two); } .fill3 { fill: var(--three); }
.fill4 { fill: var(--four); } .line { fill: none; stroke-width: 2; }
.line1 { stroke: var(--one); } .line2 { stroke: var(--two); }
article { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: .8rem 1rem; margin: .9rem 0; break-inside: avoid; }
article h3 { font-size: .85rem; font-weight: 500; color: var(--soft); margin: 0 0 .2rem; }
article p { margin: 0 0 .6rem; color: var(--ink); white-space: pre-line; }
.tags { list-style: none; margin: 0; padding: 0; }
.tags li { display: grid; grid-template-columns: minmax(0, 1fr) 6rem 3.2rem; gap: .6rem;
  align-items: center; padding: .12rem 0; }
.tags .right { color: var(--good); font-weight: 600; }
.tags .right span:first-child::after { content: " ✓"; }
.tags .number { grid-column: 3; text-align: right; font-variant-numeric: tabular-nums; }
.bar { display: block; height: .55rem; border-radius: .3rem; width: 100%; }
.bar rect:first-child { fill: var(--line); } .bar rect + rect { fill: var(--one); }
.missed, .soft { color: var(--soft); font-size: .9rem; }
summary { cursor: pointer; } details { margin: .2rem 0; }
summary:focus-visible, a:focus-visible, .scroll:focus-visible { outline: 2px solid var(--one); }
.tree, .tree ul { list-style: none; margin: 0; padding-left: 1.1rem; } .tree { padding-left: 0; }
.tree > li > details, .tree li { margin: .1rem 0; }
.labels thead th { vertical-align: bottom; } .labels thead button { border: 0; padding: 0;
  background: none; text-align: inherit; cursor: pointer; text-decoration: underline dotted; }
.labels th[aria-sort=ascending] button::after { content: " ↑"; }
.labels th[aria-sort=descending] button::after { content: " ↓"; }
.labels tbody th, .words tbody th { white-space: normal; min-width: 9rem; }
.labels td, .words td { white-space: nowrap; } .words tbody th { color: var(--ink); }
.named :is(td, thead th):last-child { text-align: left; }
button:disabled { opacity: .4; } .controls > * { margin-right: .5rem; }
input { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: .4rem; padding: .25rem .6rem; width: min(100%, 20rem); }
button { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: .4rem; padding: .2rem .7rem; }
@media (max-width: 40rem) { .facts th { width: 8.5rem; } .tags li {
  grid-template-columns: minmax(0, 1fr) 4rem 3.2rem; } th, td { padding: .3rem; }
  td small { font-size: .72rem; } .scroll tbody th { white-space: normal; }
  .scroll td { white-space: nowrap; } }
@page { margin: 1.5cm; }
@media print { body { background: none; padding: 0; max-width: none; font-size: 11pt; }
  nav, .controls, section > p > button { display: none; }
  h2, h3, section > p { break-after: avoid; } tr { break-inside: avoid; }
  .scroll { overflow: visible; } svg { max-width: 9cm; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


@dataclass(frozen=True)
class Example:
    """A text with its tags: which of them are right, and which true labels are not among them."""

    text: str
    tags: Sequence[Tag]
    right: Sequence[bool]
    missed: Sequence[str]
    heading: str = ""


def examples(ranking: Ranking, corpus: Corpus, headings: Sequence[str] = ()) -> list[Example]:
    """The rows of a corpus as examples, with what a ranking of them says.

    Labels that the ranking does not know are marked so.
    """
    known = len(ranking.labels)
    corpus = corpus.aligned(ranking.labels)
    right = hits(ranking, corpus)
    found = []
    for row, tags in enumerate(ranking.tags()):
        carried = corpus.targets[[row]]
        missed = [
            corpus.labels.name(label) + (" (unknown to the model)" if label >= known else "")
            for label in carried.indices[carried.data > 0]
            if label not in ranking.ids[row]
        ]
        text = "" if corpus.texts is None else corpus.texts[row].as_py()
        marks = right[row][ranking.present[row]].tolist()
        heading = headings[row] if headings else ""
        found.append(Example(text, tags, marks, missed, heading))
    return found


def page(
    title: str,
    summary: str,
    scores: Mapping[str, Mapping[str, float]],
    facts: Mapping[str, object],
    examples: Sequence[Example],
) -> str:
    """One HTML document.

    Parameters
    ----------
    title, summary : str
    scores : mapping
        What was asked, and the answers as fractions for each of several systems.
    facts : mapping
        What there is to know about the model and the corpus.
    examples : sequence of Example

    Examples
    --------
    >>> example = Example("red dress", [Tag("dress", 0.9)], [True], missed=[])
    >>> made = page("Demo", "A demo.", {"P@1": {"knn": 0.8}}, {"texts": 3}, [example])
    >>> made.startswith("<!doctype html>")
    True
    """
    names = list(dict.fromkeys(name for values in scores.values() for name in values))
    rows = [
        [asked, *(plain_value(values[name]) if name in values else "–" for name in names)]
        for asked, values in scores.items()
    ]
    answers = f'<div class="words">{table("Quality", ["in %", *names], rows)}</div>'
    quality = section("quality", "How good is it?", answers)
    said = section("examples", "What it says", *map(article, examples))
    about = section("about", "What it is", fact_table(facts))
    return document(title, [paragraph(summary), quality, said, about])


def document(title: str, sections: Sequence[str], script: str = "") -> str:
    """A page that needs nothing from elsewhere, and runs no script but the given one."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}</style></head>
<body><header><h1>{escape(title)}</h1></header>
<main>
{"".join(sections)}</main>
<script>{script}</script></body></html>
"""


def section(identifier: str, heading: str, *parts: str) -> str:
    """A part of the page under its heading; parts are HTML."""
    return (
        f'<section aria-labelledby="{identifier}"><h2 id="{identifier}">{escape(heading)}</h2>\n'
        + "\n".join(parts)
        + "</section>\n"
    )


def contents(headings: Mapping[str, str]) -> str:
    """Links to the sections of the page, by their identifiers."""
    links = (f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text in headings.items())
    return f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>\n'


def paragraph(text: str, kind: str = "") -> str:
    """A sentence or two, in which no line ends before a percent sign."""
    shown = escape(text).replace(" %", "&nbsp;%")
    return f'<p class="{kind}">{shown}</p>' if kind else f"<p>{shown}</p>"


def folded(summary: str, content: str) -> str:
    """HTML that a click shows."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table that scrolls by itself where it is too wide; the first cells head their rows."""
    unbroken = [name.replace(" %", "\u00a0%") for name in header]
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f"{html.table(unbroken, rows)}</div>"
    )


def fact_table(facts: Mapping[str, object]) -> str:
    """Names and values, one a line."""
    return f'<div class="facts">{html.table((), facts.items())}</div>'


def article(example: Example, probabilities: bool = True) -> str:
    """An example as HTML; without probabilities, scores are shown as they are."""
    items = "".join(
        f"<li{RIGHT if right else ''}><span>{escape(cut(tag.label, 200))}</span>"
        f"{_number(tag.probability, probabilities)}</li>"
        for tag, right in zip(example.tags, example.right, strict=True)
    )
    heading = f"<h3>{escape(example.heading)}</h3>" if example.heading else ""
    text = f'<p dir="auto">{escape(cut(example.text))}</p>' if example.text else ""
    missed = cut(", ".join(example.missed), 1000)
    note = f'<div class="missed">not found: {escape(missed)}</div>' if missed else ""
    return f'<article>{heading}{text}<ul class="tags">{items}</ul>{note}</article>'


def _number(value: float, probabilities: bool) -> str:
    if not probabilities:
        return f'<span class="number">{value:.2f}</span>'
    bar = (
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="100" height="8"/><rect width="{100 * value:.1f}" height="8"/></svg>'
    )
    return f'{bar}<span class="number">{value:.0%}</span>'
