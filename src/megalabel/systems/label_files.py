"""What files know of labels, given to a tagger before it is fitted."""

from __future__ import annotations

from pathlib import Path

from megalabel import store
from megalabel.data import LabelSet
from megalabel.errors import ParameterError
from megalabel.labels import LabelTree, read_costs, read_propensities
from megalabel.linear import TreeClassifier
from megalabel.tagger import Tagger


def use_label_files(
    tagger: Tagger,
    labels: LabelSet,
    learned: LabelSet | None = None,
    *,
    costs: str | Path | None = None,
    propensities: str | Path | None = None,
    trees: str | Path | None = None,
) -> None:
    """Set the parameters of a tagger's classifier that files tell.

    Parameters
    ----------
    tagger : Tagger
    labels : LabelSet
        The labels that the files of costs and propensities are about: those of the whole corpus.
    learned : LabelSet, optional
        Those of them that are to be learned, if it is a part (`Corpus.label_shard`).
    costs, propensities : path, optional
        Files as `labels.read_costs` and `labels.read_propensities` read them.
    trees : path, optional
        A model folder whose label trees are taken in place of new ones, or a saved `LabelTree`.
    """
    told = (costs, propensities, trees)
    if "classifier" not in tagger.parameter_names() and any(file is not None for file in told):
        raise ParameterError(
            f"{tagger.system} chooses a classifier by itself, so files about labels have no place "
            "in it: name a system"
        )
    rows = slice(None) if learned is None else labels.indices(learned.ids)
    if propensities is not None:
        values = read_propensities(propensities, labels)[rows]
        tagger.set_params(classifier__propensities=values)
    if costs is not None:
        positive, negative = (column[rows] for column in read_costs(costs, labels))
        tagger.set_params(classifier__positive_costs=positive, classifier__negative_costs=negative)
    if trees is not None:
        tagger.set_params(classifier__tree=_trees_of(trees, labels if learned is None else learned))


def _trees_of(model: str | Path, labels: LabelSet) -> list[LabelTree]:
    """The label trees of a model, for these labels; or a tree that was saved by itself."""
    if store.about(model)["class"] == "LabelTree":
        return [store.load(model)]
    classifier = store.load(model, part="classifier")
    if not isinstance(classifier, TreeClassifier):
        raise ParameterError(f"{model} has no label trees: it is a {type(classifier).__name__}")
    return classifier.trees_for(labels)
