"""Encoders to ONNX, for answers on a CPU without torch."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from megalabel import __version__, store
from megalabel.errors import MegalabelError, ParameterError
from megalabel.features.onnx import ABOUT, MODEL, OnnxEmbedding, optional
from megalabel.neural.classifier import encoded
from megalabel.neural.encoders.base import Encoder, EncoderModule
from megalabel.neural.tokens import TokenBatch, Tokenizer, Tokens
from megalabel.neural.trainer import Trainer
from megalabel.outputs import filling_folder

if TYPE_CHECKING:
    from megalabel.tagger import Tagger

_CLOSE = 1e-3  # how far an exported vector may be from the encoder's, relative to its length
_ROWS = 64  # made-up rows to compare them on, where no texts are given


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
            "the whole tagger (neural.without_torch, megalabel export --whole)"
        )
    encoder.check_names(tokenizer.transform([]).names)
    name = type(encoder).__name__
    with filling_folder(folder) as fresh:
        return written(encoder.module(), tokenizer, fresh, name, int8, texts)


def written(
    module: Any, tokenizer: Tokenizer, where: Path, name: str, int8: bool, texts: Any
) -> dict[str, Any]:
    """Write a module that makes vectors, of a `width`, of a batch of tokens; as `export_onnx`."""
    tokenizer.write(where)
    write_graph(module, where / MODEL, int8)
    about: dict[str, Any] = {
        "megalabel": __version__,
        "encoder": name,
        "width": module.width,
        "pad": tokenizer.special_["pad"],
        "max_length": tokenizer.max_length,
        "int8": int8,
    }
    (where / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    tokens = made_up(tokenizer) if texts is None else tokenizer.transform(texts)
    about |= _compared(module, OnnxEmbedding(str(where)).fit(), tokens)
    if not int8:
        check_close(about["difference"], name)
    (where / ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
    return about


def encoder_of(tagger: Tagger | str | Path) -> tuple[Encoder, Tokenizer]:
    """The trained encoder of a tagger, and the tokenizer that it was trained with."""
    fitted = store.load(tagger) if isinstance(tagger, str | Path) else tagger
    fitted.check_fitted()
    encoder = getattr(fitted.classifier_, "encoder_", None)
    if not isinstance(encoder, Encoder):
        raise ParameterError(f"{type(fitted.classifier_).__name__} has no encoder")
    parts = [fitted.features_, *fitted.features_.learned().values()]
    tokenizers = [part for part in parts if isinstance(part, Tokenizer)]
    if not tokenizers:
        raise ParameterError(
            f"{type(fitted.features_).__name__} has no tokenizer to export with the encoder: "
            "export the whole tagger (neural.without_torch, megalabel export --whole)"
        )
    return encoder, tokenizers[0]


class _ByName(nn.Module):
    """An encoder whose inputs are two arrays, named as is usual."""

    def __init__(self, module: EncoderModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        made: Tensor = self.module(TokenBatch(input_ids, attention_mask.bool()))
        return made


def check_close(difference: float, name: str) -> None:
    """Raise an error where what was exported is not the same."""
    if difference > _CLOSE:
        raise MegalabelError(
            f"the exported encoder is off by {difference:.2g}, more than {_CLOSE}: {name} cannot "
            "be exported by this version of torch"
        )


def write_graph(module: Any, file: Path, int8: bool) -> None:
    """Write a module of batches of tokens as ONNX."""
    optional("onnxscript")
    optional("onnxruntime")
    ids = torch.ones(2, 7, dtype=torch.long)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    # what an export takes recurrent layers apart with stays in these caches, and the next one would
    # take texts for as long as those of the example
    for layer in (torch.ops.aten.lstm.input, torch.ops.aten.gru.input):
        getattr(layer, "_dispatch_cache", {}).clear()
    any_size = dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC)
    with _quietly():
        torch.onnx.export(
            _ByName(module).eval(),
            (ids, mask),
            str(file),
            input_names=["input_ids", "attention_mask"],
            output_names=["vectors"],
            dynamic_shapes=(any_size, any_size),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    if int8:
        _quantise(file)


def _quantise(file: Path) -> None:
    quantization = optional("onnxruntime.quantization")
    small = file.with_suffix(".int8")
    with _quietly():
        quantization.quantize_dynamic(file, small, weight_type=quantization.QuantType.QInt8)
    small.replace(file)


def _compared(module: EncoderModule, exported: OnnxEmbedding, tokens: Tokens) -> dict[str, float]:
    """How far vectors are apart."""
    wanted = encoded(module, tokens, Trainer(device="cpu", precision="float32"))
    parts = np.split(tokens.ids, tokens.indptr[1:-1]) if len(tokens) else []
    found = exported.of_tokens([part.tolist() for part in parts])
    lengths = np.maximum(np.linalg.norm(wanted, axis=1), 1e-12)
    others = np.maximum(np.linalg.norm(found, axis=1), 1e-12)
    cosines = np.einsum("ij,ij->i", wanted, found) / (lengths * others)
    differences = np.abs(wanted - found).max(1, initial=0.0) / lengths
    return {
        "difference": float(differences.max(initial=0.0)),
        "cosine": float(cosines.mean()) if len(cosines) else 1.0,
    }


def made_up(tokenizer: Tokenizer) -> Tokens:
    """Rows of random tokens, of all lengths up to the longest."""
    random = np.random.default_rng(0)
    lengths = np.linspace(1, tokenizer.max_length, _ROWS).astype(np.int64)
    indptr = np.append(0, np.cumsum(lengths))
    ids = random.integers(tokenizer.n_features, size=indptr[-1]).astype(np.int32)
    return Tokens(ids, indptr, tokenizer.n_features, tokenizer.special_["pad"])


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporters' remarks on themselves."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
