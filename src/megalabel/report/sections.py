"""The sections of a report, each from what was measured to HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.html import Markup
from megalabel.labels import LabelTree
from megalabel.metrics import Evaluation, reliability
from megalabel.metrics.plain import plain_value, questions
from megalabel.metrics.reliability import By
from megalabel.metrics.shown import group_name, shown_name, shown_value
from megalabel.report.charts import Axis, bar_chart, curve_chart, reliability_diagram
from megalabel.report.mistakes import Mistakes
from megalabel.report.page import article, folded, paragraph, table
from megalabel.report.tree import tree_html

BINS = 5


class Point(Protocol):
    """A point of a Pareto curve."""

    @property
    def weight(self) -> float: ...
    @property
    def precision(self) -> float | None: ...
    @property
    def metric(self) -> float | None: ...


def headline(evaluation: Evaluation, seed: int) -> str:
    """What needs no paper to be understood, with intervals; all metrics are folded."""
    intervals = evaluation.intervals(seed=seed)
    rows = []
    for name, question in questions(evaluation).items():
        ends = "–".join(plain_value(end) for end in intervals[name])
        value = Markup(f"{plain_value(evaluation[name])}<small>{ends}</small>")
        rows.append([question, value, evaluation.counted(name)])
    metrics = list(dict.fromkeys(name.partition("@")[0] for name in evaluation))
    everything = _metrics("All metrics in percent", evaluation, intervals, metrics)
    warnings = [paragraph(warning, "warning") for warning in evaluation.warnings]
    return "\n".join(
        [
            f'<div class="words">{table("Quality", ["", "in %", "that is"], rows)}</div>',
            paragraph(
                "Below a value is its 95 % interval, from test sets drawn anew out of these "
                "texts; those of macro metrics, coverage and binned calibration errors err on the "
                "wide side."
            ),
            folded(
                f"All metrics by the names that papers use ({len(metrics)}), in percent",
                everything
                + paragraph("Noise alone makes ECE larger than 0: ECE-debiased is without it.")
                + "".join(warnings),
            ),
        ]
    )


def _metrics(
    caption: str,
    evaluation: Evaluation,
    intervals: dict[str, tuple[float, float]],
    metrics: Sequence[str],
) -> str:
    cutoffs = evaluation.cutoffs
    rows = []
    for metric in metrics:
        row: list[object] = [shown_name(metric)]
        for name in (f"{metric}@{k}" for k in cutoffs):
            row.append(_value(name, evaluation[name], intervals) if name in evaluation else "")
        if metric in evaluation:  # it has no cutoff
            row[-1] = _value(metric, evaluation[metric], intervals)
        rows.append(row)
    return table(caption, ["", *(f"@{k}" for k in cutoffs)], rows)


def _value(name: str, value: float, intervals: dict[str, tuple[float, float]]) -> Markup:
    shown = f"{shown_value(name, value):.2f}"
    if name in intervals:
        low, high = (shown_value(name, end) for end in intervals[name])
        shown += f"<small>{low:.1f}–{high:.1f}</small>"
    return Markup(shown)


Bins: TypeAlias = Mapping[int, Sequence[Mapping[str, Any]]]
"""By cutoff, the rows of `Evaluation.bins` that hold labels."""


def frequency_bins(evaluation: Evaluation) -> Bins:
    """What the sections on frequent and rare labels are made of."""
    return {
        k: [row for row in evaluation.bins(k, BINS).to_pylist() if row["labels"]]
        for k in evaluation.cutoffs
    }


def _bin_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [group_name(row["low"], row["high"]) for row in rows]


def _bin_chart(bins: Bins, column: str, name: str, description: str) -> str:
    bars = {f"@{k}": [100 * row[column] for row in rows] for k, rows in bins.items()}
    groups = _bin_names(bins[max(bins)])
    order = f"{description}, by how many training texts labels have, from many to few."
    return f"<figure>{bar_chart(order, name, bars, groups, 'training texts of the label')}</figure>"


def frequency(bins: Bins) -> str:
    """What frequent and rare labels add to P@k, and how well each of them do."""
    chart = _bin_chart(bins, "contribution", "adds to P@k, %", "What labels add to P@k")
    recall = _bin_chart(bins, "R", "recall, %", "Recall")
    k = max(bins)
    rows = [
        [
            f"{name} texts",
            *(f"{row[column]:,}" for column in ("labels", "train", "positives", "hits")),
            f"{row['train'] / max(row['labels'], 1):,.1f}",
            *(f"{100 * row[column]:.2f}" for column in ("contribution", "P", "R", "macro-F1")),
        ]
        for name, row in zip(_bin_names(bins[k]), bins[k], strict=True)
    ]
    header = [
        "training texts",
        "labels",
        "in training",
        "in test",
        f"hits @{k}",
        "in training, mean",
    ]
    header += [f"adds to P@{k}, %", f"P@{k}, %", f"R@{k}, %", f"macro-F1@{k}, %"]
    return "\n".join(
        [
            paragraph(
                "Labels by how many training texts each has, from many to few, in groups that "
                "carry about equally much of the training: a few frequent labels in the first, "
                "most of the label set in the last. The bars of a cutoff add up to its P@k."
            ),
            f'<div class="side">{chart}{recall}</div>',
            table("Frequency bins, in percent", header, rows),
        ]
    )


def coverage(evaluation: Evaluation, bins: Bins) -> str:
    """How much of the label set is ever answered with, and ever found."""
    name = "labels found at least once, %"
    chart = _bin_chart(bins, "coverage", name, "The share of labels found at least once")
    rows = []
    for k in evaluation.cutoffs:
        labels = evaluation.per_label(k)
        tested, answered, found = (
            np.asarray(labels[name]) > 0 for name in ("positives", "predicted", "tp")
        )
        never = np.count_nonzero(tested & ~answered)
        counts = (np.count_nonzero(values) for values in (tested, answered, found))
        rows.append([f"top {k}", *(f"{n:,}" for n in counts), f"{never:,}"])
    header = ["", "in test", "ever answered", "ever right", "in test, never answered"]
    return "\n".join(
        [
            paragraph("How many different labels the answers reach, in the groups from above."),
            f'<div class="side">{chart}<div>{table("Labels reached", header, rows)}</div></div>',
        ]
    )


def calibration(evaluation: Evaluation, raw: Ranking, corpus: Corpus, calibrated: bool) -> str:
    """Reliability diagrams: of the classifier's scores, and of the probabilities made of them.

    `raw` ranks the texts of `corpus` by the former; these may be fewer than were evaluated.
    """
    k = evaluation.cutoffs[-1]
    before, axis, even = _scaled(raw.top(k))
    sentences = [
        f"Of the answers among the top {k}, how many are right, by how sure the tagger is; with "
        "95 % intervals. Larger dots hold more answers."
    ]
    if even or calibrated:
        sentences.append("On the dashed line, probabilities mean what they say.")
    if not even:
        sentences.append("The scores of this classifier are not probabilities.")
    if not calibrated:
        sentences.append("This model is not calibrated.")
    if len(raw) < evaluation.rows:
        sentences.append(f"The scores are those of {len(raw):,} texts.")
    rows = reliability(before, corpus, k).to_pylist()
    caption = "Before: the classifier's scores" if calibrated else "The classifier's scores"
    figures = [_diagram(caption, rows, axis, even)]
    parts = [paragraph(" ".join(sentences))]
    if calibrated:
        rows = evaluation.reliability(k).to_pylist()
        figures.append(_diagram("After: probabilities", rows, Axis("probability, %", 0, 100), True))
    parts.append(f'<div class="side">{"".join(figures)}</div>')
    if calibrated:
        parts.append(_numbers(rows))
        parts.append(_by_group(evaluation, k))
    return "\n".join(parts)


def _by_group(evaluation: Evaluation, k: int) -> str:
    """Charts of what was said and what was right by rank and by frequency, and their numbers."""
    groups: dict[By, str] = {"rank": "rank of the answer", "frequency": "training texts of label"}
    figures, numbers = [], []
    for by, name in groups.items():
        rows = evaluation.reliability(k, by=by).to_pylist()
        names = [group_name(row["low"], row["high"]) for row in rows]
        bars = {
            series: [100 * (row[column] or 0) for row in rows]
            for series, column in (("said", "confidence"), ("right", "hit_rate"))
        }
        description = f"Mean probability and share of right answers by {name}."
        chart = bar_chart(description, "of the answers, %", bars, names, name)
        figures.append(f"<figure><figcaption>By {by}</figcaption>{chart}</figure>")
        shown = [
            [label, f"{row['count']:,}"]
            + [f"{100 * row[c]:.1f}" for c in ("confidence", "hit_rate")]
            + [f"{100 * row['hit_rate_low']:.1f}–{100 * row['hit_rate_high']:.1f}"]
            + [f"{100 * row['gap']:+.1f}"]
            for label, row in zip(names, rows, strict=True)
            if row["count"]
        ]
        header = [name, "answers", "mean, %", "right, %", "95 % interval", "gap, %"]
        numbers.append(table(f"Reliability by {by}", header, shown))
    return "\n".join(
        [
            paragraph(
                "The mean of the probabilities that were said, and the share of these answers "
                "that are right. A gap above 0 means that they are surer than right."
            ),
            f'<div class="side">{"".join(figures)}</div>',
            folded("The numbers, by rank and by frequency", "".join(numbers)),
        ]
    )


def _numbers(rows: Sequence[Mapping[str, Any]]) -> str:
    shown = [
        [f"{100 * row['low']:.0f} to {100 * row['high']:.0f}", f"{row['count']:,}"]
        + [f"{100 * row[name]:.1f}" for name in ("confidence", "hit_rate")]
        for row in rows
        if row["count"]
    ]
    header = ["probability, %", "answers", "mean, %", "right, %"]
    return folded("The numbers, after", table("Reliability", header, shown))


def _diagram(caption: str, rows: Sequence[Mapping[str, Any]], axis: Axis, even: bool) -> str:
    svg = reliability_diagram(f"Reliability diagram. {caption}.", rows, axis, even=even)
    return f"<figure><figcaption>{caption}</figcaption>{svg}</figure>"


def _scaled(ranking: Ranking) -> tuple[Ranking, Axis, bool]:
    """A ranking with scores from 0 to 1, what these stand for, and whether they already were."""
    scores = ranking.scores[ranking.present]
    low, high = (float(f(scores)) for f in (np.min, np.max)) if len(scores) else (0.0, 1.0)
    if low >= 0 and high <= 1:
        return ranking, Axis("score, %", 0, 100), True
    span = high - low or 1.0
    between = np.where(ranking.present, (ranking.scores - low) / span, 0)
    scaled = Ranking(ranking.ids, np.clip(between, 0, 1), ranking.labels)
    return scaled, Axis("score", low, low + span), False


def pareto(points: Sequence[Point], metric: str, k: int, texts: int, candidates: int) -> str:
    """What a tail metric costs in P@k: points measured on true labels, by their weight."""
    measured = [(100 * (p.precision or 0), 100 * (p.metric or 0), f"{p.weight:g}") for p in points]
    chart = curve_chart(
        f"P@{k} against {metric}, for weights of {metric} from 0 to 1.",
        measured,
        f"P@{k}, %",
        f"{metric}, %",
    )
    rows = [[name, f"{x:.2f}", f"{y:.2f}"] for x, y, name in measured]
    return "\n".join(
        [
            paragraph(
                f"Labels may be chosen for P@{k}, for {metric}, or for something between: each "
                f"point is the best choice for a weight of {metric} by the probabilities, "
                f"measured on the true labels. From {texts:,} texts and the {candidates} "
                "likeliest labels of each."
            ),
            f'<div class="side"><figure>{chart}</figure>'
            f"<div>{table('The curve', ['weight', f'P@{k}, %', f'{metric}, %'], rows)}</div></div>",
        ]
    )


def mistaken(found: Mistakes, k: int, probabilities: bool) -> str:
    """The most confident mistakes and the worst texts."""
    parts = []
    for heading, sentence, shown in (
        (
            "The most confident",
            "A wrong label with a high score; each wrong label is shown twice at most. Some of "
            "these may be right, and missing in the corpus.",
            found.confident,
        ),
        ("The worst", f"Most of the true labels are missing in the top {k}.", found.worst),
    ):
        parts.append(f"<h3>{heading}</h3>")
        parts.append(paragraph(sentence if shown else "None."))
        parts += [article(example, probabilities) for example in shown]
    return "\n".join(parts)


def tree(trees: Sequence[LabelTree], labels: LabelSet, evaluation: Evaluation) -> str:
    """The label tree to fold and unfold."""
    k = evaluation.cutoffs[-1]
    # labels of the corpus that the model does not know come after its own
    counts = evaluation.per_label(k).slice(0, len(labels))
    columns = [np.asarray(counts[name]) for name in ("train", "positives", "tp")]
    sizes = ", ".join(f"{n:,}" for n in trees[0].level_sizes)
    which = f" The model has {len(trees)} trees; this is the first." if len(trees) > 1 else ""
    return "\n".join(
        [
            paragraph(
                f"From the root, its levels have {sizes} nodes.{which} A node is named by its most "
                "frequent labels; large trees are not unfolded to the end."
            ),
            '<p><button type="button" data-open="1">Unfold all</button> '
            '<button type="button" data-open="">Fold all</button></p>',
            tree_html(trees[0], labels, columns, k),
        ]
    )


SCRIPT = """for (const button of document.querySelectorAll("button[data-open]"))
  button.addEventListener("click", () => {
    for (const details of button.closest("section").querySelectorAll("details"))
      details.open = Boolean(button.dataset.open);
  });"""
"""Folds and unfolds the tree; everything else needs no script."""
