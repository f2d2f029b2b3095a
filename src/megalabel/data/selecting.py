"""Which labels to answer with: those of a subtree, a type or a collection, or some by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from megalabel.data.concepts import Group
from megalabel.data.strings import strings
from megalabel.data.vocabulary import folded, last_parts
from megalabel.errors import ParameterError, ShapeError

if TYPE_CHECKING:
    from megalabel.data.labelset import LabelSet

KINDS = ("subtree", "type", "collection", "label")


def selected(labels: LabelSet, kind: str, values: str | Iterable[str]) -> np.ndarray:
    """A mask of the labels that any of some values of a kind stand for: concepts for "subtree",
    names or identifiers for the others."""
    mask = np.zeros(len(labels), bool)
    for value in [values] if isinstance(values, str) else values:
        if kind == "label":
            mask[labels.index(value)] = True
            continue
        vocabulary = labels.known_vocabulary()
        if kind == "subtree":
            concepts = vocabulary.subtree(value)
        else:
            groups = vocabulary.types if kind == "type" else vocabulary.collections
            starts, numbers = vocabulary.typed() if kind == "type" else vocabulary.collected()
            within = np.flatnonzero(numbers == _group(groups, kind, value))
            concepts = np.unique(np.searchsorted(starts, within, side="right") - 1)
        chosen = np.zeros(len(vocabulary) + 1, bool)
        chosen[concepts] = True  # the last place is that of labels without a concept
        mask |= chosen[labels.concepts]
    return mask


def among(labels: LabelSet, only: Sequence[str] = (), without: Sequence[str] = ()) -> np.ndarray:
    """A mask of labels, by words such as `subtree=animal` or `type=Place`; what has no kind is a
    label by its id or name.

    Labels must be among those of each kind that `only` names, and among none that `without` names.

    Examples
    --------
    >>> from megalabel.data import LabelSet
    >>> among(LabelSet(["cat", "dog", "fox"]), only=["cat", "label=dog"], without=["dog"])
    array([ True, False, False])
    """
    mask = np.ones(len(labels), bool)
    kinds: dict[str, list[str]] = {}
    for word in only:
        kind, value = _parsed(word)
        kinds.setdefault(kind, []).append(value)
    for kind, values in kinds.items():
        mask &= selected(labels, kind, values)
    for word in without:
        mask &= ~selected(labels, *_parsed(word))
    return mask


def mask_of(labels: LabelSet, allowed: Any) -> np.ndarray:
    """A mask of labels, given as such, or as labels by number or by id or name.

    Examples
    --------
    >>> from megalabel.data import LabelSet
    >>> mask_of(LabelSet(["cat", "dog", "fox"]), ["fox"]), mask_of(LabelSet(["cat", "dog"]), [0])
    (array([False, False,  True]), array([ True, False]))
    """
    if isinstance(allowed, str):
        raise ParameterError(f"expected several labels in a list, found {allowed!r}")
    found = np.asarray(allowed)
    if found.dtype == bool:
        if found.shape != (len(labels),):
            raise ShapeError(f"allowed is {found.shape} but there are {len(labels)} labels")
        mask = found
    else:
        mask = np.zeros(len(labels), bool)
        for label in found.tolist() if found.ndim == 1 else [found.tolist()]:
            if isinstance(label, str):
                mask[labels.index(label)] = True
            elif isinstance(label, int) and 0 <= label < len(labels):
                mask[label] = True
            else:
                raise ParameterError(
                    f"allowed holds {label!r}: expected a mask of the {len(labels)} labels, or "
                    "labels by number, id or name"
                )
    if len(labels) and not mask.any():
        raise ParameterError(
            "no label is allowed, so there is nothing to answer with: what is asked for (allowed, "
            "--only, --without) leaves none of the labels that the model knows"
        )
    return mask


def _parsed(word: str) -> tuple[str, str]:
    """`type=Place` as kind and value."""
    kind, found, value = word.partition("=")
    return (kind, value) if found and kind in KINDS else ("label", word)


def _group(groups: Sequence[Group], kind: str, value: str) -> int:
    """The number of a type or a collection given by identifier, the last part of it, or name."""
    ids = strings([group.id for group in groups])
    names = [folded(strings(list(group.names))).to_pylist() for group in groups]
    lower = folded(pa.array([value], pa.large_string()))[0].as_py()
    for found in (
        [i for i, group in enumerate(groups) if group.id == value],
        [i for i, part in enumerate(last_parts(ids).to_pylist()) if part == value],
        [i for i, own in enumerate(names) if lower in own],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(groups[i].id for i in found[:5])
            raise ParameterError(f"{value!r} may be any of the {kind}s {shown}: give an identifier")
    if not groups:
        raise ParameterError(f"the vocabulary has no {kind}s, so no {kind} {value!r}")
    known = [*last_parts(ids).to_pylist(), *(name for own in names for name in own)]
    near = difflib.get_close_matches(value, known, n=3)
    hint = f"; did you mean {', '.join(map(repr, near))}?" if near else ""
    if not near:
        some = ", ".join(group.names[0] if group.names else group.id for group in groups[:5])
        hint = f"; there are {some}"
    raise ParameterError(f"the vocabulary has no {kind} {value!r}{hint}")
