"""EncoderStates: the states that a trained encoder has of tokens, for `rankers.AttentionTree`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from megalabel.base import instance, made_once, one_of, part, with_learned
from megalabel.neural.encoders import Encoder, EncoderModule
from megalabel.neural.onnx_graphs import states_graph
from megalabel.neural.tokens import TokenBatch
from megalabel.neural.trainer import Trainer
from megalabel.rankers import OnnxStates
from megalabel.rankers.attention import States


class EncoderStates(States):
    """The last states of an encoder, by torch.

    Parameters
    ----------
    device : str
        "auto", "cpu", "cuda", …
    precision : "auto", "bf16" or "float32"
        "auto": bf16 where there is a GPU.

    Attributes
    ----------
    encoder_ : Encoder
    """

    PARAMETERS = {  # noqa: RUF012
        "device": instance(str),
        "precision": one_of("auto", "bf16", "float32"),
    }

    LEARNED = {"encoder_": part(Encoder)}  # noqa: RUF012

    encoder_: Encoder

    _module: _States | None = None

    def __init__(self, *, device: str = "auto", precision: str = "auto") -> None:
        self.device = device
        self.precision = precision

    @property
    def width(self) -> int:
        """The width of a state."""
        with torch.device("meta"):
            return self.encoder_.rebuild(self.encoder_.about_).state_width

    @torch.inference_mode()
    def of(self, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The states (rows, length, width), float32."""
        trainer = Trainer(device=self.device, precision=self.precision)
        device = trainer.answering_device
        module = made_once(
            self, "_module", lambda: _States(self.encoder_.module()).to(device).eval()
        )
        inputs = TokenBatch(*(torch.from_numpy(array).to(device) for array in (tokens, mask)))
        with trainer.arithmetic(device):
            made: np.ndarray = module(inputs).float().cpu().numpy()
        return made

    def onnx_twin(self, int8: bool) -> OnnxStates:
        """The same by onnxruntime."""
        graph = states_graph(_States(self.encoder_.module()), type(self.encoder_).__name__, int8)
        return with_learned(OnnxStates(), graph_=graph)

    def check_learned(self) -> None:
        """Drop the module that was made of another encoder."""
        self._module = None


class _States(nn.Module):
    """The last states of an encoder."""

    def __init__(self, encoder: EncoderModule) -> None:
        super().__init__()
        self.encoder = encoder
        self.tokens = encoder.table.num_embeddings

    def forward(self, inputs: TokenBatch) -> Tensor:
        return self.encoder.hidden(inputs)[-1]
