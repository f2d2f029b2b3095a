"""States of a training: kept on disk without pickle, and averaged over steps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from megalabel.outputs import replacing_file


def save_snapshot(file: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write tensors and plain data; a file there before is replaced in one step."""
    # copies: tied weights share memory, which the format does not know
    plain = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
    with replacing_file(file) as fresh:
        save_file(plain, fresh, {"about": json.dumps(about)})


def load_snapshot(
    file: Path, device: torch.device
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """What was written; None where there is nothing, or nothing whole."""
    if not file.exists():
        return None
    try:
        with safe_open(file, "pt", device=str(device)) as opened:
            about = json.loads(opened.metadata()["about"])
            return {name: opened.get_tensor(name) for name in opened.keys()}, about  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None  # damaged: the training starts anew


class Averages:
    """An average of a model's parameters over steps: exponential ("ema") or equal ("swa").

    Heads that update themselves keep their own weights: only parameters are averaged.
    """

    def __init__(self, model: nn.Module, kind: str | None, decay: float) -> None:
        self.kind, self.decay, self.count = kind, decay, 0
        self._live = dict(model.named_parameters()) if kind is not None else {}
        self._mean = {name: p.detach().clone() for name, p in self._live.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take the parameters as they are now into the average."""
        # early on the average is of few steps: it must not hang on the first
        weight = 1 / (self.count + 1)
        if self.kind == "ema":
            weight = max(weight, 1 - self.decay)
        self.count += 1
        for name, parameter in self._live.items():
            self._mean[name].lerp_(parameter, weight)

    @torch.no_grad()
    def use(self) -> None:
        """Make the average the model's parameters."""
        if self.count:
            for name, parameter in self._live.items():
                parameter.copy_(self._mean[name])

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within, the model has the average as its parameters."""
        kept = {name: p.detach().clone() for name, p in self._live.items()}
        self.use()
        try:
            yield
        finally:
            with torch.no_grad():
                for name, parameter in self._live.items():
                    parameter.copy_(kept[name])

    def state(self) -> dict[str, Tensor]:
        """What `load` takes."""
        if self.kind is None:
            return {}
        return {**self._mean, "count": torch.tensor(self.count)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state."""
        if self.kind is not None:
            self.count = int(state["count"])
            for name, mean in self._mean.items():
                mean.copy_(state[name])
