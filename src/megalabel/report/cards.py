"""Cards: what there is to know about a model, and about a corpus."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from megalabel import systems
from megalabel.base import Component
from megalabel.data import Corpus, statistics
from megalabel.errors import ParameterError
from megalabel.html import cut
from megalabel.metrics.shown import group_name
from megalabel.report.charts import bar_chart
from megalabel.report.page import fact_table, folded
from megalabel.tagger import Tagger
from megalabel.units import size

PARTS = ("features", "classifier", "calibration", "decision")


def model_card(tagger: Tagger, folder_bytes: int | None = None) -> str:
    """A tagger's system, sizes, parts with all their parameters, and provenance, as HTML."""
    facts: dict[str, object] = {"system": tagger.system or "put together by hand"}
    try:
        system = systems.get(tagger.system or "")
    except ParameterError:
        pass  # a recipe of the user's own
    else:
        facts |= {"what it is": system.summary, "paper": system.paper}
    parameters = {"tagger": _own_parameters(tagger)}
    for name in PARTS:
        part = getattr(tagger, f"{name}_")
        kind = "none" if part is None else type(part).__name__
        facts[name] = kind
        if part is not None:
            parameters[f"{name}: {kind}"] = _own_parameters(part)
    facts |= {
        "labels": f"{len(tagger.labels):,}",
        "width of the features": f"{tagger.features_.n_features:,}",
        "training texts": f"{tagger.n_texts_:,}",
        "labels per training text": f"{tagger.label_counts_.sum() / max(tagger.n_texts_, 1):.2f}",
        "labels without training texts": f"{np.count_nonzero(tagger.label_counts_ == 0):,}",
    }
    if folder_bytes is not None:
        facts["model folder"] = size(folder_bytes)
    listed = "".join(
        f"<h3>{escape(name)}</h3>{fact_table(values)}"
        for name, values in parameters.items()
        if values
    )
    return "\n".join(
        [
            fact_table(facts),
            folded("All parameters", listed),
            "<h3>Where it comes from</h3>",
            fact_table(_flat(tagger.provenance_)),
        ]
    )


def corpus_card(corpus: Corpus) -> str:
    """Where a corpus is from, and its figures, as HTML.

    Whatever its `source` says is shown, such as a licence.
    """
    figures = statistics(corpus)
    facts = _flat(corpus.source) | figures.in_words()
    groups = [group_name(bin.low, bin.high) for bin in figures.histogram]
    chart = bar_chart(
        "How many labels have 1, 2 to 3, 4 to 7, … test texts.",
        "labels",
        {"labels": [bin.labels for bin in figures.histogram]},
        groups,
        "test texts of the label",
    )
    return fact_table(facts) + (f"<figure>{chart}</figure>" if groups else "")


def _own_parameters(part: Component) -> dict[str, str]:
    """A component's parameters but for those that are parts of their own."""
    values = part.get_params(deep=False)
    return {
        name: _shown(value) for name, value in values.items() if not isinstance(value, Component)
    }


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array {value.shape} of {value.dtype}"
    return cut(str(value) if isinstance(value, str) else repr(value), 200)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Facts within facts as facts with longer names."""
    found: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name} ")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[prefix + str(name)] = f"{value:,}"
        elif value is not None:
            found[prefix + str(name)] = _shown(value)
    return found
