"""PretrainedEncoder: any Hugging Face encoder, by name or folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from megalabel.base import boolean, instance, integer, one_of, sequence_of
from megalabel.errors import DataError, ParameterError, StoreError
from megalabel.neural.encoders.base import Encoder, EncoderModule, pooled
from megalabel.neural.encoders.known_models import check_sizes, configured, described
from megalabel.neural.hub import from_hub
from megalabel.neural.tokens import TokenBatch, Tokenizer

log = logging.getLogger(__name__)

POOLINGS = ("first", "last", "mean", "max")


class PretrainedEncoder(Encoder):
    """A transformer of the Hugging Face hub, or of a folder.

    Weights are read from safetensors only, and code that comes with a model is not run unless
    `trust_remote_code` says so. What was learned is kept with the model: to answer, the source is
    not needed any more.

    Parameters
    ----------
    source : str
        The name or the folder of a model; folders of sentence-transformers are read too.
    pooling : "auto", "first", "last", "mean" or "max"
        How the states of a text's tokens become its vector. "auto": as a model of
        sentence-transformers says, else the mean.
    layers : list of int
        The layers whose vectors are put side by side: -1 is the last, 0 the embeddings.
    trust_remote_code : bool
        Whether to run Python code that comes with the model.
    """

    PARAMETERS = {  # noqa: RUF012
        "source": instance(str),
        "pooling": one_of("auto", *POOLINGS),
        "layers": sequence_of(integer()),
        "trust_remote_code": boolean(),
    }

    def __init__(
        self,
        source: str,
        *,
        pooling: str = "auto",
        layers: Sequence[int] = (-1,),
        trust_remote_code: bool = False,
    ) -> None:
        self.source = source
        self.pooling = pooling
        self.layers = layers
        self.trust_remote_code = trust_remote_code

    @classmethod
    def from_folder(cls, parameters: Mapping[str, Any]) -> Self:
        """A new one, unless it would run code that came with a model."""
        made = super().from_folder(parameters)
        if made.trust_remote_code:
            raise StoreError(
                f"the encoder {made.source!r} was trained with trust_remote_code: it is Python "
                "code that is not megalabel's own, and a model folder never runs code. Train it "
                "again, and export it to ONNX before the process ends (exporting.without_torch)"
            )
        return made

    def new(self, X: Any) -> EncoderModule:
        """The model with its pre-trained weights."""
        from transformers import AutoModel

        options = {"trust_remote_code": self.trust_remote_code, "use_safetensors": True}
        self._check_tokens(getattr(X, "names", None))
        model = from_hub(AutoModel, self.source, **options, dtype=torch.float32)
        if self.trust_remote_code:
            log.warning(
                "%s is trained with trust_remote_code: it can be exported to ONNX, but a model "
                "folder with it will not be opened",
                self.source,
            )
        else:
            described(model.config)  # says at once what could not be opened again
        how = self.pooling if self.pooling != "auto" else _pooling_of(self.source)
        return _Transformer(model, how, self.layers)

    def _check_tokens(self, names: Sequence[str] | None) -> None:
        """Raise an error where tokens are not those of the source's tokenizer, if it has one."""
        try:
            own = Tokenizer(self.source).fit([]).transform([]).names
        except DataError:
            return
        if not names or not own:
            return
        agree = sum(a == b for a, b in zip(names, own, strict=False))
        if agree < min(len(names), len(own)):
            raise ParameterError(
                f"{self.source} was trained with another tokenizer: {agree:,} of {len(names):,} "
                f"tokens have the number that it knows them by. Take Tokenizer({self.source!r})"
            )

    def describe(self, module: EncoderModule) -> dict[str, Any]:
        """The model's configuration, as plain data."""
        assert isinstance(module, _Transformer)
        config = {} if self.trust_remote_code else described(module.model.config)
        return {"config": config, "pooling": module.pooling}

    def rebuild(self, about: Mapping[str, Any]) -> EncoderModule:
        """The model of a configuration, without its weights."""
        from transformers import AutoConfig, AutoModel

        if not isinstance(about.get("config"), dict) or about.get("pooling") not in POOLINGS:
            raise ValueError("about_ of PretrainedEncoder must hold config and pooling")
        options = {"trust_remote_code": self.trust_remote_code}
        if self.trust_remote_code:
            config = from_hub(AutoConfig, self.source, **options)
        else:
            config = configured(about["config"])
        model = AutoModel.from_config(config, **options)  # type: ignore[no-untyped-call]
        return _Transformer(model, about["pooling"], self.layers)

    def check_learned(self) -> None:
        """The weights must fit, after a look at what building the model would take."""
        config = self.about_.get("config")
        check_sizes(config if isinstance(config, dict) else {}, self.weights_)
        super().check_learned()


class _Transformer(EncoderModule):
    recordable = True

    def __init__(self, model: Any, pooling: str, layers: Sequence[int]) -> None:
        super().__init__()
        self.model, self.pooling = model, pooling
        self.depth = int(model.config.num_hidden_layers)
        self.layers = [layer % (self.depth + 1) for layer in layers]
        if not self.layers or any(not -self.depth - 1 <= x <= self.depth for x in layers):
            raise ParameterError(
                f"layers must be some of -{self.depth + 1} to {self.depth}, not {list(layers)}"
            )
        self.state_width = int(model.config.hidden_size)
        self.width = self.state_width * len(self.layers)
        if getattr(model, "pooler", None) is not None:
            model.pooler = None  # never read: the pooling is ours

    @property
    def table(self) -> nn.Embedding:
        table = self.model.get_input_embeddings()
        assert isinstance(table, nn.Embedding)
        return table

    def forward(self, inputs: TokenBatch) -> Tensor:
        if self.layers == [self.depth]:
            states = [self._run(inputs).last_hidden_state]
        else:
            every = self.hidden(inputs)
            states = [every[layer] for layer in self.layers]
        return torch.cat([pooled(s, inputs.mask, self.pooling) for s in states], 1)

    def hidden(self, inputs: TokenBatch) -> list[Tensor]:
        return list(self._run(inputs, output_hidden_states=True).hidden_states)

    def checkpoint_gradients(self) -> None:
        self.model.gradient_checkpointing_enable({"use_reentrant": False})

    def _run(self, inputs: TokenBatch, **options: Any) -> Any:
        return self.model(input_ids=inputs.ids, attention_mask=inputs.mask.long(), **options)


def _pooling_of(source: str) -> str:
    """What a model of sentence-transformers says; the mean where none says anything."""
    from transformers.utils.hub import cached_file

    try:
        found = cached_file(source, "1_Pooling/config.json")
        said = json.loads(Path(str(found)).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "mean"
    names = {"cls_token": "first", "lasttoken": "last", "max_tokens": "max", "mean_tokens": "mean"}
    modes = [mode for mode, chosen in said.items() if mode.startswith("pooling_mode") and chosen]
    known = [how for name, how in names.items() if f"pooling_mode_{name}" in modes]
    if modes and (len(modes) > 1 or not known):
        log.warning("%s pools by %s; here it is the mean", source, ", ".join(modes))
        return "mean"
    return known[0] if known else "mean"
