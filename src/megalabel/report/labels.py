"""The table of labels, to search, to sort and to turn the pages of."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from megalabel.data import Ranking
from megalabel.html import cut
from megalabel.metrics import Evaluation
from megalabel.report.page import paragraph, table

PAGE = 20  # labels shown at a time
BYTES = 2 << 20  # of all labels on a page
LONGEST = 120  # characters of a name


def label_table(evaluation: Evaluation, ranking: Ranking, calibrated: bool) -> str:
    """How every label fares at the largest cutoff: those with the most test texts come first, and
    only these are there where all would make the page too large.

    `ranking` is what was evaluated; its scores are probabilities if it is calibrated.
    """
    k = evaluation.cutoffs[-1]
    columns = _columns(evaluation, ranking, calibrated)
    order = np.lexsort((-columns["training texts"], -columns["test texts"]))
    rows, used = [], 0
    for label in order:
        shown = [_cell(values[label]) for values in columns.values()]
        used += len(json.dumps(shown)) + 1
        if used > BYTES:
            break
        rows.append(shown)
    sentences = [
        f"Suggested: for how many test texts a label is among the first {k}; hits: how often that "
        "is right; misses: how many test texts carry the label without its being suggested."
    ]
    if calibrated:
        sentences.append(
            "Mean probability is that of the suggestions: it should be near hits out of suggested."
        )
    if len(rows) < len(order):
        sentences.append(
            f"Here are the {len(rows):,} labels with the most test texts, of {len(order):,}; "
            "megalabel evaluate --labels labels.csv writes all."
        )
    data = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    first = [[*map(_shown, row)] for row in rows[:PAGE]]
    return "\n".join(
        [
            paragraph(" ".join(sentences)),
            f'<div class="labels{" named" if "identifier" in columns else ""}">',
            '<p class="controls" hidden><input type="search" placeholder="Search for labels" '
            'aria-label="Search for labels"/> <span aria-live="polite"></span></p>',
            table("All labels", list(columns), first),
            '<p class="controls" hidden><button type="button" data-turn="-1">Previous</button> '
            '<button type="button" data-turn="1">Next</button> <span></span></p>',
            f'<script type="application/json">{data}</script></div>',
        ]
    )


def _columns(evaluation: Evaluation, ranking: Ranking, calibrated: bool) -> dict[str, np.ndarray]:
    """What is shown of all labels, by the heading of the column."""
    counts = evaluation.per_label()
    found = {"label": counts["name"].to_numpy()}
    names = {
        "train": "training texts",
        "positives": "test texts",
        "predicted": "suggested",
        "tp": "hits",
        "fn": "misses",
    }
    found |= {heading: counts[name].to_numpy() for name, heading in names.items()}
    if calibrated:
        present = ranking.present
        total = np.bincount(
            ranking.ids[present], weights=ranking.scores[present], minlength=counts.num_rows
        )
        suggested = found["suggested"]
        with np.errstate(invalid="ignore"):
            found["mean probability, %"] = np.round(100 * total / suggested, 1)
    if not counts["name"].equals(counts["label"]):
        found["identifier"] = counts["label"].to_numpy()
    return found


def _cell(value: Any) -> Any:
    """A value ready for JSON; None where there is none."""
    if isinstance(value, str):
        return cut(value, LONGEST)
    number = value.item()
    return None if number != number else number


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.1f}"
    return value if isinstance(value, str) else f"{value:,}"


SCRIPT = """for (const box of document.querySelectorAll(".labels")) {
  const rows = JSON.parse(box.querySelector("script").textContent);
  const [search, body] = ["input", "tbody"].map((name) => box.querySelector(name));
  const [counted, place] = box.querySelectorAll(".controls span");
  const turns = [...box.querySelectorAll("button[data-turn]")];
  const size = body.rows.length;
  let found = rows, first = 0, by = -1, rising = false;
  const headings = [...box.querySelectorAll("thead th")];
  const percent = headings.map((heading) => heading.textContent.endsWith("%"));
  const shown = (value, column) => value === null ? "–" : typeof value === "string" ? value :
    percent[column] ? value.toFixed(1) : value.toLocaleString("en");
  const show = () => {
    body.replaceChildren(...found.slice(first, first + size).map((row) => {
      const line = document.createElement("tr");
      row.forEach((value, column) => {
        const cell = document.createElement(column ? "td" : "th");
        if (!column) cell.scope = "row";
        cell.textContent = shown(value, column);
        line.append(cell);
      });
      return line;
    }));
    counted.textContent = found.length.toLocaleString("en") + " labels";
    const last = Math.min(first + size, found.length);
    place.textContent = found.length ? (first + 1) + " to " + last : "";
    turns[0].disabled = first === 0;
    turns[1].disabled = last >= found.length;
  };
  const look = () => {
    const words = search.value.toLowerCase();
    found = rows.filter((row) => row.some((value) =>
      typeof value === "string" && value.toLowerCase().includes(words)));
    if (by >= 0) found.sort((a, b) => {
      const [one, two] = rising ? [a[by], b[by]] : [b[by], a[by]];
      if (a[by] === null || b[by] === null) return (a[by] === null) - (b[by] === null);
      return typeof one === "string" ? one.localeCompare(two) : one - two;
    });
    first = 0;
    show();
  };
  search.addEventListener("input", look);
  for (const turn of turns) turn.addEventListener("click", () => {
    first += size * Number(turn.dataset.turn);
    show();
  });
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      rising = by === column ? !rising : column === 0;
      by = column;
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
      look();
    });
  });
  for (const controls of box.querySelectorAll(".controls")) controls.hidden = false;
  show();
}"""
"""Searches, sorts and turns pages; without it the first labels are shown."""
