"""Encoders to ONNX, for vectors on a CPU without torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from megalabel.errors import ParameterError
from megalabel.neural.embedding import encoder_of
from megalabel.neural.encoders.base import Encoder
from megalabel.neural.onnx_graphs import written
from megalabel.neural.tokens import Tokenizer
from megalabel.outputs import filling_folder

if TYPE_CHECKING:
    from megalabel.tagger import Tagger


def export_onnx(
    encoder: Encoder | Tagger | str | Path,
    folder: str | Path,
    *,
    tokenizer: Tokenizer | None = None,
    int8: bool = False,
    texts: Any = None,
) -> dict[str, Any]:
    """Write an encoder as ONNX with its tokenizer, and measure that it gives the same vectors.

    `features.OnnxEmbedding(folder)` reads it; so does any other user of ONNX and `tokenizer.json`.

    Parameters
    ----------
    encoder : Encoder, Tagger, or the folder of a saved tagger
        What was trained. Of a tagger, its encoder and its tokenizer.
    folder : path
        Where `model.onnx`, `tokenizer.json` and `config.json` are written.
    tokenizer : Tokenizer, optional
        The one that an encoder given by itself was trained with.
    int8 : bool
        Keep weights in 8 bits: a quarter of the size and quicker, but not quite the same; how
        much is lost is measured.
    texts : corpus or texts, optional
        What to measure on; None: rows of random tokens.

    Returns
    -------
    about : dict
        What `config.json` says. `difference` is the largest difference between a vector written
        and the encoder's, relative to its length; `cosine` is the mean of their cosines.
    """
    if not isinstance(encoder, Encoder):
        encoder, tokenizer = encoder_of(encoder)
    if tokenizer is None:
        raise ParameterError("an encoder by itself is exported with its tokenizer: give both")
    if encoder.reads != "tokens":
        raise ParameterError(
            f"{type(encoder).__name__} reads {encoder.reads}, for which there is no ONNX: export "
            "the whole tagger (exporting.without_torch, megalabel export --whole)"
        )
    encoder.check_names(tokenizer.transform([]).names)
    name = type(encoder).__name__
    with filling_folder(folder) as fresh:
        return written(encoder.module(), tokenizer, fresh, name, int8, texts)
