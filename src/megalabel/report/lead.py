"""The first paragraph of a report: what was measured, for those who read nothing else."""

from __future__ import annotations

import numpy as np

from megalabel import systems
from megalabel.data import Corpus
from megalabel.errors import ParameterError
from megalabel.metrics import Evaluation
from megalabel.metrics.shown import group_name
from megalabel.report.sections import Bins
from megalabel.tagger import Tagger

CLOSE, ROUGH = 0.02, 0.05  # how far probabilities are off that can be trusted, and nearly so


def lead(tagger: Tagger, corpus: Corpus, evaluation: Evaluation, bins: Bins) -> list[str]:
    """Paragraphs that say what the model is, how often it is right and how far to trust it."""
    return [_model(tagger), _suggestions(corpus, evaluation, bins), _probabilities(evaluation)]


def _model(tagger: Tagger) -> str:
    said = (
        f"This model reads a text and suggests labels for it, out of {len(tagger.labels):,}. It "
        f"learned them from {tagger.n_texts_:,} texts"
    )
    try:
        system = systems.get(tagger.system or "")
    except ParameterError:
        return f"{said}."  # by a recipe of the user's own
    return f"{said}, by the method {system.name}: {system.summary}."


def _suggestions(corpus: Corpus, evaluation: Evaluation, bins: Bins) -> str:
    k = evaluation.cutoffs[-1]
    said = [f"It was tried on {evaluation.rows:,} texts whose right labels are known."]
    if "P@1" in evaluation:
        said.append(f"Its first suggestion is right for {100 * evaluation['P@1']:.0f} % of them.")
    if k > 1:
        carried = np.asarray((corpus.targets > 0).sum(axis=1)).ravel()
        possible = float(np.minimum(carried, k).mean())
        sentence = f"Of {k} suggestions, {k * evaluation[f'P@{k}']:.1f} are right on average"
        if possible < k - 0.05:
            sentence += f" ({possible:.1f} could be, as some texts have fewer right labels)"
        said.append(f"{sentence}.")
    found = f"It finds {100 * evaluation[f'R@{k}']:.0f} % of the right labels of a text"
    tested = [row for row in bins[k] if row["positives"]]
    if len(tested) > 1:
        often, seldom = (
            f"{100 * row['R']:.0f} % of those with {{}} ({group_name(row['low'], row['high'])})"
            for row in (tested[0], tested[-1])
        )
        found += f": {often.format('many training texts')}, {seldom.format('few')}"
    return " ".join([*said, f"{found}."])


def _probabilities(evaluation: Evaluation) -> str:
    k = evaluation.cutoffs[-1]
    name = f"ECE-debiased@{k}"
    if name not in evaluation:
        return (
            "Its scores are no probabilities: they say which label is before which, not how often "
            "a suggestion is right."
        )
    rows = [row for row in evaluation.reliability(k).to_pylist() if row["count"]]
    total = sum(row["count"] for row in rows)
    said, right = (
        sum(row["count"] * row[column] for row in rows) / max(total, 1)
        for column in ("confidence", "hit_rate")
    )
    error = max(evaluation[name], 0.0)
    verdict = "are not to be relied on"
    if error <= ROUGH:
        verdict = "are nearly right" if error > CLOSE else "can be taken at their word"
    return (
        f"The probabilities that it states {verdict}: over all suggestions it states "
        f"{100 * said:.1f} % on average, and {100 * right:.1f} % are right. By how sure it is, "
        f"what it states and what comes true are {100 * error:.1f} points apart."
    )
