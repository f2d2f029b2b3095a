"""A page that shows how well a tagger does, with examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from megalabel.data import Tag

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --paper: #fbfaf7; --line: #dcd8cf; --card: #fff;
  --soft: #69707d; --good: #18794e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7e6e2; --paper: #16181d; --line: #343843;
  --card: #1e2128; --soft: #9aa1ad; --good: #5bd19a; } }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 4rem; color: var(--ink);
  background: var(--paper); font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p, td.soft { color: var(--soft); } .scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; } th { color: var(--soft); font-weight: 500; }
article { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: .9rem 1.1rem; margin: .9rem 0; break-inside: avoid; }
article p { margin: 0 0 .6rem; color: var(--ink); }
ul { list-style: none; margin: 0; padding: 0; }
li { display: grid; grid-template-columns: minmax(0, 1fr) 6rem 3.2rem; gap: .6rem;
  align-items: center; padding: .12rem 0; }
li.right { color: var(--good); font-weight: 600; }
li.right span:first-child::after { content: " ✓"; }
meter { width: 100%; height: .7rem; } .missed { color: var(--soft); font-size: .9rem; }
li span:last-child { text-align: right; font-variant-numeric: tabular-nums; }
@media print { body { background: none; } }
"""


@dataclass(frozen=True)
class Example:
    """A text, what it was tagged with, and what it should have been."""

    text: str
    tags: Sequence[Tag]
    truth: Sequence[str]


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
        Metrics in percent for each of several systems.
    facts : mapping
        What there is to know about the model and the corpus.
    examples : sequence of Example

    Examples
    --------
    >>> example = Example("red dress", [Tag("dress", 0.9)], ["dress"])
    >>> html = page("Demo", "A demo.", {"knn": {"P@1": 80.0}}, {"texts": 3}, [example])
    >>> html.startswith("<!doctype html>")
    True
    """
    metrics = list(dict.fromkeys(name for values in scores.values() for name in values))
    head = "".join(f"<th>{escape(name)}</th>" for name in ["", *metrics])
    rows = "".join(
        f"<tr><td>{escape(system)}</td>"
        + "".join(f"<td>{values[m]:.1f}</td>" if m in values else "<td>–</td>" for m in metrics)
        + "</tr>"
        for system, values in scores.items()
    )
    about = "".join(
        f"<tr><td class=soft>{escape(str(k))}</td><td>{escape(str(v))}</td></tr>"
        for k, v in facts.items()
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head>
<body><h1>{escape(title)}</h1><p>{escape(summary)}</p>
<h2>How good is it? (%)</h2>
<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>
<h2>What it says</h2>
{"".join(map(_article, examples))}
<h2>What it is</h2><table>{about}</table></body></html>
"""


def _article(example: Example) -> str:
    truth = set(example.truth)
    items = "".join(
        f"<li{' class=right' if tag.label in truth else ''}><span>{escape(tag.label)}</span>"
        f'<meter min="0" max="1" value="{tag.probability:.4f}"></meter>'
        f"<span>{tag.probability:.0%}</span></li>"
        for tag in example.tags
    )
    missed = [label for label in example.truth if label not in {tag.label for tag in example.tags}]
    note = f'<div class="missed">not found: {escape(", ".join(missed))}</div>' if missed else ""
    return f"<article><p>{escape(example.text)}</p><ul>{items}</ul>{note}</article>"
