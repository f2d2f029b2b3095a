"""Rows of texts to vectors, by an encoder that is not being trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from megalabel.neural.batches import lengths_of, rows_on
from megalabel.neural.trainer import Trainer
from megalabel.progress import progress

_AT_ONCE = 64  # texts encoded together at least
_TOKENS = 65_536  # on a GPU as many as have so many tokens


@torch.inference_mode()
def encoded(module: Any, X: Any, trainer: Trainer, *, what: Any = None) -> np.ndarray:
    """The vectors of all rows, float32; `what(inputs)` in place of the module's own forward.

    Rows of like length are taken together, and each batch has the same number of rows, so that a
    row's vector hardly depends on which others are asked for.
    """
    device = next(module.parameters()).device
    lengths = lengths_of(X)
    size = encoded_at_once(lengths, device)
    order = np.argsort(-lengths, kind="stable")  # the shorter ones fit into memory of the longest
    forward = module if what is None else what
    parts: list[Tensor] = []
    was_training = module.training
    module.eval()
    with progress("encoding texts", len(order)) as bar, trainer.arithmetic(device):
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            parts.append(forward(rows_on(X, rows, device)).float().cpu())
            bar.advance(len(rows))
    module.train(was_training)
    if not parts:
        return np.zeros((0, module.width), np.float32)
    made = np.empty((len(order), parts[0].shape[1]), np.float32)
    made[order] = torch.cat(parts).numpy()
    return made


def computes_in_bf16(device: torch.device) -> bool:
    """Whether a device has instructions for bf16: there it is several times as fast as float32."""
    if device.type != "cpu":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(known.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def encoded_at_once(lengths: np.ndarray, device: torch.device) -> int:
    """How many rows are encoded in one batch, of such lengths."""
    if device.type != "cuda":
        return _AT_ONCE
    return max(_AT_ONCE, _TOKENS // max(1, int(lengths.max(initial=1))))
