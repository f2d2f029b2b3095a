"""Propensities of the labels of a corpus: by a published model, or from a complete sample."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.data import Corpus
from megalabel.errors import DataError, ParameterError
from megalabel.labels.propensity import (
    PROPENSITIES,
    Jpv,
    PropensityModel,
    Richards,
    direct_propensities,
    label_propensities,
)

FITTED: dict[str, type[PropensityModel]] = {"jpv-fitted": Jpv, "richards": Richards}
MODELS = (*PROPENSITIES, *FITTED, "direct")
"""What `measured_propensities` takes; those that are not of `PROPENSITIES` need a sample."""


class MeasuredPropensities(NamedTuple):
    """Propensities of the labels of a corpus, and where they come from."""

    values: np.ndarray
    """One for each label."""
    curves: dict[str, PropensityModel | np.ndarray]
    """The model by its name and, with a complete sample, what was measured, as "direct"."""
    sample: int
    """Texts of the complete sample that were looked at."""
    same_texts: bool
    """True if these are texts of the corpus too: annotated twice."""


def check_model(model: str, sampled: bool) -> None:
    """Raise a ParameterError unless there is a model of that name, and a sample just if it needs
    one."""
    if model not in MODELS:
        raise ParameterError(f"model must be one of {', '.join(MODELS)}, not {model!r}")
    if sampled != (model not in PROPENSITIES):
        needs = "does not look at" if sampled else "needs"
        raise ParameterError(f"{model} {needs} a complete sample (complete=…, --complete)")


def measured_propensities(
    corpus: Corpus, model: str = "jpv", complete: Corpus | None = None
) -> MeasuredPropensities:
    """How likely the labels of a corpus are to be annotated where they apply.

    Parameters
    ----------
    corpus : Corpus
        With the ordinary annotation.
    model : str
        One of `PROPENSITIES`; "richards" or "jpv-fitted", whose constants are fitted to a sample;
        or "direct": what is measured on the sample, for each label by itself.
    complete : Corpus, optional
        Texts with all labels that apply. Those whose identifiers are in the corpus are held
        against their ordinary annotation; if there are none, all are taken for other texts of the
        same kind.

    Examples
    --------
    >>> from megalabel.data import Corpus
    >>> corpus = Corpus(["a", "b", "c"], targets=[["x"], ["y"], ["x"]], ids=["1", "2", "3"])
    >>> sample = Corpus(["a", "b"], targets=[["x", "y"], ["y"]], ids=["1", "2"])
    >>> measured = measured_propensities(corpus, "direct", sample)
    >>> measured.sample, measured.same_texts
    (2, True)
    """
    check_model(model, complete is not None)
    if not len(corpus.labels):
        raise DataError("the texts have no labels", file=corpus.source.get("path"))
    counts, n = corpus.label_counts, len(corpus)
    if complete is None:
        curve = PROPENSITIES[model]
        return MeasuredPropensities(
            label_propensities(curve, counts, n), {model: curve}, 0, same_texts=False
        )
    observed, whole, same = _annotations(corpus, complete.aligned(corpus.labels))
    curves: dict[str, PropensityModel | np.ndarray] = {
        "direct": direct_propensities(observed, whole, same_rows=same)
    }
    if model in FITTED:
        bare = direct_propensities(observed, whole, same_rows=same, smoothing=0)
        weights = np.asarray((whole > 0).sum(axis=0)).ravel()
        curves[model] = FITTED[model].fit_to(counts, n, bare, weights)
    values = label_propensities(curves[model], counts, n)
    return MeasuredPropensities(values, curves, whole.shape[0], same)


def _annotations(corpus: Corpus, sample: Corpus) -> tuple[csr_matrix, csr_matrix, bool]:
    """Ordinary and complete labels, and whether they are of the same texts: if some of the sample
    have ids of the corpus."""
    whole = sample.targets[:, : len(corpus.labels)]
    if corpus.ids is None or sample.ids is None:
        return corpus.targets, whole, False
    place = {identity: row for row, identity in enumerate(corpus.ids.to_pylist())}
    rows = np.array([place.get(identity, -1) for identity in sample.ids.to_pylist()])
    if not (rows >= 0).any():
        return corpus.targets, whole, False
    return corpus.targets[rows[rows >= 0]], whole[rows >= 0], True
