"""without_torch: a trained neural tagger as one that is loaded and answers without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from megalabel import store
from megalabel.base import Component, unfitted
from megalabel.errors import ParameterError
from megalabel.tagger import Tagger

_COMPARED = 10  # labels of a text


def without_torch(tagger: Tagger | str | Path, *, int8: bool = False, texts: Any = None) -> Tagger:
    """A tagger with the same answers, to 1e-3, that neither needs torch nor loads it.

    Its encoder is run by onnxruntime (`pip install 'megalabel[onnx]'`); everything else is the
    same, NumPy and native code. It is saved and loaded as any tagger is, but not trained again.

    Parameters
    ----------
    tagger : Tagger, or the folder of a saved one
        Of any neural system, or one whose features are `Embedding`s.
    int8 : bool
        Keep the encoder's weights in 8 bits: a quarter of the size and quicker, but not quite the
        same.
    texts : corpus or texts, optional
        What to measure the difference on.

    Returns
    -------
    tagger : Tagger
        With texts, its `provenance_["without_torch"]` says what was measured: `difference`, the
        largest one of a label's probability among the ten best of a text, and `agreement`, the
        share of texts with the same best label.

    Examples
    --------
    >>> from megalabel.exporting import without_torch
    >>> without_torch("model").save("served")  # doctest: +SKIP
    """
    fitted = Tagger.load(tagger) if isinstance(tagger, str | Path) else tagger.plain()
    fitted.check_fitted()
    if not _needs_torch(fitted):
        raise ParameterError(f"{fitted.system or type(fitted.classifier_).__name__} needs no torch")
    with store.blaming(fitted):
        features = fitted.features_.onnx_twin(int8)
        classifier = fitted.classifier_.onnx_twin(int8)
    made = unfitted(fitted).set_params(classifier=unfitted(classifier), features=unfitted(features))
    about: dict[str, Any] = {"int8": int8}
    learned = fitted.learned() | {"features_": features, "classifier_": classifier}
    made.restore(learned | {"provenance_": fitted.provenance_ | {"without_torch": about}})
    if texts is not None:
        about |= _compared(fitted, made, texts)
    return made


def _needs_torch(part: Any) -> bool:
    """Whether it is of the neural room, or has a part that is: among what trains, too."""
    if isinstance(part, Component):
        if type(part).__module__.startswith("megalabel.neural."):
            return True
        return _needs_torch([*part.get_params(deep=False).values(), *part.learned().values()])
    return isinstance(part, list | tuple) and any(map(_needs_torch, part))


def _compared(before: Tagger, after: Tagger, texts: Any) -> dict[str, Any]:
    """How far the answers of two taggers are apart."""
    first, second = (tagger.rank(texts, _COMPARED) for tagger in (before, after))
    ours, theirs = first.to_csr(), second.to_csr()
    shared = (ours != 0).multiply(theirs != 0)
    apart = abs((ours - theirs).multiply(shared))
    return {
        "texts": len(first),
        "difference": float(apart.max()) if apart.nnz else 0.0,
        "agreement": float(np.mean(first.ids[:, 0] == second.ids[:, 0])) if len(first) else 1.0,
    }
