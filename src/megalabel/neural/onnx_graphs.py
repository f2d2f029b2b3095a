"""Modules written as ONNX graphs, and measured to give the same."""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from megalabel import __version__
from megalabel.errors import MegalabelError
from megalabel.features.onnx import ABOUT, MODEL, OnnxEmbedding, opened_graph, optional
from megalabel.neural.encoding import encoded
from megalabel.neural.tokens import TokenBatch, Tokenizer, Tokens
from megalabel.neural.trainer import Trainer

_CLOSE = 1e-3  # how far an exported vector may be from the encoder's, relative to its length
_SHORT = 8  # tokens, of as many rows, that states are compared on: no encoder reads fewer
_ROWS = 64  # made-up rows to compare them on, where no texts are given


def written(
    module: Any, tokenizer: Tokenizer, where: Path, name: str, int8: bool, texts: Any
) -> dict[str, Any]:
    """Write a module that makes vectors, of a `width`, of a batch of tokens; as `export_onnx`.

    `name` is that of the encoder, for people.
    """
    tokenizer.write(where)
    _write_graph(module, where / MODEL, int8)
    about: dict[str, Any] = {
        "megalabel": __version__,
        "encoder": name,
        "width": module.width,
        "pad": tokenizer.special_["pad"],
        "max_length": tokenizer.max_length,
        "int8": int8,
    }
    (where / ABOUT).write_text(json.dumps(about), encoding="utf-8")
    tokens = _made_up(tokenizer) if texts is None else tokenizer.transform(texts)
    about |= _compared(module, OnnxEmbedding(str(where)).fit(), tokens)
    if not int8:
        _check_close(about["difference"], name)
    (where / ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
    return about


def states_graph(module: Any, name: str, int8: bool) -> np.ndarray:
    """The graph of a module that makes states of a batch of tokens, as bytes."""
    with tempfile.TemporaryDirectory() as folder:
        _write_graph(module, Path(folder) / MODEL, int8)
        graph = np.fromfile(Path(folder) / MODEL, np.uint8)
    if not int8:
        random = torch.Generator().manual_seed(0)
        ids = torch.randint(module.tokens, (_SHORT, _SHORT), generator=random)
        mask = torch.arange(_SHORT) <= torch.arange(_SHORT)[:, None]
        with torch.inference_mode():
            wanted = module.eval()(TokenBatch(ids, mask)).numpy()
        arrays = {"input_ids": ids.numpy(), "attention_mask": mask.long().numpy()}
        found = opened_graph(name, graph).run(None, arrays)[0]
        apart = np.abs(found - wanted)[mask.numpy()].max()
        _check_close(apart / np.linalg.norm(wanted, axis=2).max(), name)
    return graph


class _ByName(nn.Module):
    """An encoder whose inputs are two arrays, named as is usual."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        made: Tensor = self.module(TokenBatch(input_ids, attention_mask.bool()))
        return made


def _check_close(difference: float, name: str) -> None:
    """Raise an error where what was exported is not the same."""
    if difference > _CLOSE:
        raise MegalabelError(
            f"the exported encoder is off by {difference:.2g}, more than {_CLOSE}: {name} cannot "
            "be exported by this version of torch"
        )


def _write_graph(module: Any, file: Path, int8: bool) -> None:
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
        program = torch.onnx.export(
            _ByName(module).eval(),
            (ids, mask),
            input_names=["input_ids", "attention_mask"],
            output_names=["vectors"],
            dynamic_shapes=(any_size, any_size),
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        # else each node names the files of the code that it comes from, on this machine
        optional("onnx_ir.passes.common").ClearMetadataAndDocStringPass()(program.model)
        program.save(str(file), external_data=False)
    if int8:
        _quantise(file)


def _quantise(file: Path) -> None:
    quantization = optional("onnxruntime.quantization")
    small = file.with_suffix(".int8")
    with _quietly():
        quantization.quantize_dynamic(file, small, weight_type=quantization.QuantType.QInt8)
    small.replace(file)


def _compared(module: Any, exported: OnnxEmbedding, tokens: Tokens) -> dict[str, float]:
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


def _made_up(tokenizer: Tokenizer) -> Tokens:
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
