"""Trainer: one plain loop, for every model and every source of batches."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from megalabel.base import Check, Component, boolean, instance, integer, number, one_of
from megalabel.checkpoints import Checkpoint
from megalabel.errors import DataError, MegalabelError, NotEnoughMemoryError, ParameterError
from megalabel.neural import processes
from megalabel.neural.batches import Source
from megalabel.neural.encoders import EncoderModule
from megalabel.neural.logs import Journal
from megalabel.neural.memory import is_out_of_memory
from megalabel.neural.models import Model, Stepped, rates_of
from megalabel.neural.optimisers import optimisers
from megalabel.neural.recorded import Recorded
from megalabel.neural.snapshots import Averages, load_snapshot, save_snapshot
from megalabel.neural.stopwatch import Stopwatch
from megalabel.progress import progress

log = logging.getLogger(__name__)

_CHECKED = 64  # steps after which the loss is looked at
_BETWEEN = 1  # tells what is drawn between epochs from what steps draw
_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def pick_device(name: str = "auto") -> torch.device:
    """A device by name, if it is there; "auto": a GPU where there is one.

    Of several processes that torchrun has started, each takes the GPU of its LOCAL_RANK.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    try:
        device = torch.device(("cuda" if gpus else "cpu") if name == "auto" else name)
    except RuntimeError:
        raise ParameterError(
            f'device must be "auto", "cpu", "cuda" or one of several GPUs ("cuda:1"), not {name!r}'
        ) from None
    if device.type != "cuda":
        return device
    if device.index is None and distributed.is_initialized() and "LOCAL_RANK" in os.environ:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    if (device.index or 0) >= gpus:
        raise ParameterError(
            f"device={name!r} asks for a GPU that torch does not find, as it finds {gpus}: install "
            'a driver and a torch with CUDA, or take device="cpu"'
        )
    return device


class Trainer(Component):
    """How a model is trained: any `models.Model`, by the batches of any `batches.Source`.

    A model says what of it learns at `learning_rate`, as encoders do, and what at
    `head_learning_rate`. A module that updates itself is told its rate before each step.

    Parameters
    ----------
    epochs : float, optional
        How often the rows are gone through. None: by their number, from 50 times for up to
        20,000 rows to 5 times for 200,000 and more.
    steps : int, optional
        In place of epochs: so many updates.
    batch : int, optional
        Rows an update; with `accumulate`, of each of its parts. None: by their number, from 16
        for up to 4,000 rows to 256 for 32,000 and more.
    accumulate : int
        Batches whose gradients are added up before the encoder is updated.
    learning_rate, head_learning_rate : float
    weight_decay : float
        Of AdamW; biases and normalisations have none.
    epsilon : float
        Of Adam: gradients are to be larger. Those of a mean over very many labels are small.
    warmup : float
        The share of steps in which rates rise from 0.
    schedule : "cosine", "linear" or "constant"
        How rates fall afterwards.
    clip : float, optional
        The longest gradient of the encoder.
    precision : "auto", "bf16" or "float32"
        "auto": bf16 where there is a GPU.
    gradient_checkpointing : bool
        Compute layers a second time rather than keep them: less memory, a third more time.
    compile : bool
        Compile the encoder (torch.compile): worth it for long trainings on a GPU.
    record : bool
        Record the passes of a transformer on a GPU (CUDA graphs), where it is neither compiled nor
        computed a second time nor shared with other processes: small ones are several times as
        fast.
    average : "ema", "swa" or None
        Answer with an average of the weights: exponential, or equal of the later epochs.
    average_decay : float
        Of the exponential average.
    patience : int, optional
        Stop after so many evaluations without a better value. With an evaluation, the best state
        is what stays.
    checkpoint_seconds : float
        How often a checkpoint is kept, within `checkpoints.kept_in`.
    log : str, optional
        A folder for `metrics.jsonl`, and for TensorBoard where that is installed.
    device : str
        "auto", "cpu", "cuda", "cuda:1", …
    seed : int
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "epochs": number(0) | one_of(None),
        "steps": integer(1) | one_of(None),
        "batch": integer(1) | one_of(None),
        "accumulate": integer(1),
        "learning_rate": number(0),
        "head_learning_rate": number(0),
        "weight_decay": number(0),
        "epsilon": number(0),
        "warmup": number(0, 1),
        "schedule": one_of("cosine", "linear", "constant"),
        "clip": number(0) | one_of(None),
        "precision": one_of("auto", "bf16", "float32"),
        "gradient_checkpointing": boolean(),
        "compile": boolean(),
        "record": boolean(),
        "average": one_of("ema", "swa", None),
        "average_decay": number(0, 1),
        "patience": integer(1) | one_of(None),
        "checkpoint_seconds": number(0),
        "log": instance(str) | one_of(None),
        "device": instance(str),
        "seed": integer(0),
    }
    INCIDENTAL: ClassVar[frozenset[str]] = frozenset({"checkpoint_seconds", "log"})

    def __init__(
        self,
        *,
        epochs: float | None = None,
        steps: int | None = None,
        batch: int | None = None,
        accumulate: int = 1,
        learning_rate: float = 1e-4,
        head_learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        epsilon: float = 1e-8,
        warmup: float = 0.1,
        schedule: str = "cosine",
        clip: float | None = 1.0,
        precision: str = "auto",
        gradient_checkpointing: bool = False,
        compile: bool = False,
        record: bool = True,
        average: str | None = None,
        average_decay: float = 0.999,
        patience: int | None = None,
        checkpoint_seconds: float = 60,
        log: str | None = None,
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        self.epochs = epochs
        self.steps = steps
        self.batch = batch
        self.accumulate = accumulate
        self.learning_rate = learning_rate
        self.head_learning_rate = head_learning_rate
        self.weight_decay = weight_decay
        self.epsilon = epsilon
        self.warmup = warmup
        self.schedule = schedule
        self.clip = clip
        self.precision = precision
        self.gradient_checkpointing = gradient_checkpointing
        self.compile = compile
        self.record = record
        self.average = average
        self.average_decay = average_decay
        self.patience = patience
        self.checkpoint_seconds = checkpoint_seconds
        self.log = log
        self.device = device
        self.seed = seed

    def check_machine(self) -> None:
        """Raise an error where the device is not there."""
        pick_device(self.device)

    @property
    def torch_device(self) -> torch.device:
        """The device to train on."""
        return pick_device(self.device)

    @property
    def answering_device(self) -> torch.device:
        """The device to answer on: that of training, or else what there is on this machine."""
        try:
            return self.torch_device
        except ParameterError:
            return pick_device()

    @contextmanager
    def arithmetic(self, device: torch.device | None = None) -> Iterator[None]:
        """Forward passes within run in the chosen precision; None: on the device to train on."""
        device = self.torch_device if device is None else device
        half = self.precision == "bf16" or (self.precision == "auto" and device.type == "cuda")
        with torch.autocast(device.type, torch.bfloat16, enabled=half), _attention(device):
            yield

    def total_steps(self, rows: int) -> int:
        """How many updates a training on so many rows takes."""
        if self.steps is not None:
            return self.steps
        each = -(-rows // self.batch_of(rows))
        epochs = self.epochs
        if epochs is None:
            epochs = min(50.0, max(5.0, 1_000_000 / rows))
        return max(1, math.ceil(epochs * each / self.accumulate))

    def batch_of(self, rows: int) -> int:
        """How many rows a batch of so many has."""
        if self.batch is not None:
            return self.batch
        return int(min(256, max(16, 2 ** round(math.log2(max(1, rows) / 125)))))

    def rate(self, step: int, total: int) -> float:
        """What the learning rates are multiplied by at a step."""
        rising = self.warmup * total
        if step < rising:
            return (step + 1) / (rising + 1)
        if self.schedule == "constant":
            return 1.0
        done = (step - rising) / max(1.0, total - rising)
        return 0.5 * (1 + math.cos(math.pi * done)) if self.schedule == "cosine" else 1 - done

    def fit(
        self,
        model: Model,
        source: Source,
        *,
        evaluate: Callable[[], float] | None = None,
        checkpoint: Checkpoint | None = None,
        name: str = "training",
    ) -> list[dict[str, float]]:
        """Train a model in place.

        Parameters
        ----------
        model : Model
            Its forward gives the mean loss of a batch.
        source : Source
            Where batches come from: a `TextSource` of rows and their labels, for instance.
        evaluate : callable, optional
            How good the model is now: higher is better. It is asked after every epoch, and the
            best state is what stays.
        checkpoint : checkpoints.Checkpoint, optional
            The fit that this training is part of: it is resumed where it was interrupted.
        name : str
            Of this training within that fit.

        Returns
        -------
        history : list of dict
            Step, loss and what `evaluate` gave, epoch by epoch.
        """
        self.check_parameters()
        if not len(source):
            raise DataError("there is no row to train on")
        device = self.torch_device
        on_gpu = device.type == "cuda"
        forked = torch.random.fork_rng([device] if on_gpu else [])
        # kernels and messages of other processes go by the current GPU; and layers that are
        # computed a second time in the backward pass attend by the same kernel
        current = torch.cuda.device(device) if on_gpu else nullcontext()
        with forked, current, _attention(device), memory_advice(self, len(source)):
            return _Run(self, model, source, evaluate, checkpoint, name).train()


class _Run:
    """One training: what changes from step to step."""

    def __init__(
        self,
        trainer: Trainer,
        model: Model,
        source: Source,
        evaluate: Callable[[], float] | None,
        checkpoint: Checkpoint | None,
        name: str,
    ) -> None:
        self.trainer, self.evaluate, self.name = trainer, evaluate, name
        self.device = trainer.torch_device
        self.model: Model = model.to(self.device)
        self.source, self.size = source, trainer.batch_of(len(source))
        self.total = trainer.total_steps(len(source))
        rates = rates_of(model, trainer)
        self.stepped = {m: rate for m, rate in rates.items() if isinstance(m, Stepped)}
        self.optimisers = optimisers(model, rates, trainer)
        # parameters that each process has for itself are neither averaged nor part of a length
        shared_out = [module for module in self.stepped if module.shared_out]
        self.whole_batch = bool(shared_out)
        own = {id(p) for module in shared_out for p in module.parameters()}
        self.common = [p for p in model.parameters() if id(p) not in own]
        adams = (o for o in self.optimisers if isinstance(o, torch.optim.AdamW))
        dense = (p for adam in adams for group in adam.param_groups for p in group["params"])
        self.clipped = [p for p in dense if id(p) not in own]
        self.averages = Averages(model, trainer.average, trainer.average_decay)
        # each process keeps its own state: it may hold labels that the others do not
        rank = f"-{distributed.get_rank()}" if distributed.is_initialized() else ""
        self.file = None if checkpoint is None else checkpoint.file(f"{name}{rank}.safetensors")
        self.step = 0
        # losses of the epoch so far, and of how many steps: part of a checkpoint, for the curve
        self.summed, self.counted = torch.zeros((), device=self.device), 0
        self.best: tuple[float, dict[str, Tensor]] | None = None
        self.stale = 0
        self.history: list[dict[str, float]] = []
        self.recorded: list[Recorded] = []
        for module in model.modules():
            if not isinstance(module, EncoderModule):
                continue
            if trainer.gradient_checkpointing:
                module.checkpoint_gradients()
            if trainer.compile:
                module.compile(dynamic=True)

    def train(self) -> list[dict[str, float]]:
        self._resume()
        trainer = self.trainer
        batches = -(-len(self.source) // self.size)
        each = max(1, math.ceil(batches / trainer.accumulate))  # steps an epoch
        begun = self.step * trainer.accumulate
        rows = self.source.rows_from(begun, self.size, trainer.seed, self._between_epochs)
        kept = time.monotonic()
        self.model.train()
        lap = Stopwatch.start(trainer.steps is not None, self.device)
        if lap is not None:
            lap.begin()
        self.recorded = self._record()
        if lap is not None and self.recorded:
            lap.recorded(sum(recorded.lengths for recorded in self.recorded))
        with (
            ExitStack() as recording,
            Journal(trainer.log if processes.is_first() else None, self.name) as journal,
            progress(self.name, self.total) as bar,
        ):
            for recorded in self.recorded:
                recording.enter_context(recorded)
            bar.advance(self.step)
            while self.step < self.total and not self._gave_up():
                drawn = list(islice(rows, trainer.accumulate))  # perhaps after a look at the model
                if lap is not None:
                    lap.begin()
                loss = self._update(drawn)
                self.summed, self.counted = self.summed + loss, self.counted + 1
                self.step += 1
                bar.advance()
                ended = self.step % each == 0 or self.step == self.total
                if lap is not None:
                    lap.end(ended)
                if ended or self.step % _CHECKED == 0:
                    total = float(processes.mean(self.summed))
                    self._check(total)
                if ended:
                    record = self._after_epoch(total / self.counted)
                    self.summed, self.counted = torch.zeros_like(self.summed), 0
                    self.history.append(record)
                    journal.write(record)
                if self.file is not None and self._due(time.monotonic() - kept, ended):
                    self._keep()
                    kept = time.monotonic()
        if self.best is not None:
            self.model.load_state_dict(self.best[1])
        else:
            self.averages.use()
        self.model.eval()
        return self.history

    def _update(self, batches: Sequence[np.ndarray]) -> Tensor:
        """One step: the gradients of `accumulate` batches, and the optimisers' move."""
        trainer = self.trainer
        factor = trainer.rate(self.step, self.total)
        for module, rate in self.stepped.items():
            module.before_update(rate * factor)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["base"] * factor
        # random draws depend on the step alone, so a resumed training goes on as it would have
        torch.manual_seed(hash((trainer.seed, self.step)) & 0x7FFFFFFF)
        for recorded in self.recorded:
            recorded.begin()
        summed = torch.zeros((), device=self.device)
        for rows in batches:
            batch, share = self._own_share(rows)
            with trainer.arithmetic():
                loss = self.model(batch)
            if loss.requires_grad:  # not where a module that updates itself is all that learns
                (loss * (share / trainer.accumulate)).backward()
            summed += loss.detach() * (share / trainer.accumulate)
        processes.average_gradients(self.common)
        if trainer.clip is not None:
            nn.utils.clip_grad_norm_(self.clipped, trainer.clip)
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        for module in self.stepped:
            module.after_update(self.step + 1, self.total)
        if trainer.average == "ema":
            self.averages.update()
        return summed

    @torch.no_grad()
    def _between_epochs(self, epoch: int) -> None:
        # by the epoch alone, as steps draw by the step: a resumed training mines alike
        torch.manual_seed(hash((self.trainer.seed, _BETWEEN, epoch)) & 0x7FFFFFFF)
        self.model.eval()
        self.source.between_epochs(epoch, self.model)
        self.model.train()

    def _own_share(self, rows: np.ndarray) -> tuple[Any, float]:
        """What this process takes of a batch, and how much its mean counts.

        A module shared out over processes has seen the rows of all of them.
        """
        source, device = self.source, self.device
        if not distributed.is_initialized():
            return source.batch(rows, device), 1.0
        own = rows[distributed.get_rank() :: distributed.get_world_size()]
        if len(own):
            share = len(own) * distributed.get_world_size() / len(rows)
            return source.batch(own, device), 1.0 if self.whole_batch else share
        # a batch of fewer rows than processes: something to pass on, for nothing
        if self.whole_batch:
            return source.batch(rows[:1], device, labelled=0), 1.0
        return source.batch(rows[:1], device), 0.0

    def _record(self) -> list[Recorded]:
        """The model's passes recorded, where they can be."""
        trainer, lengths = self.trainer, self.source.lengths
        if (
            not trainer.record
            or trainer.compile
            or trainer.gradient_checkpointing
            or distributed.is_initialized()
            or self.step == self.total
            or self.device.type != "cuda"
            or lengths is None
        ):
            return []
        rows = min(self.size, len(self.source))
        made = []
        for encoder, owner, method in self.model.passes():
            if not encoder.recordable or not any(p.requires_grad for p in encoder.parameters()):
                continue
            try:
                made.append(Recorded(encoder, owner, method, rows, lengths, trainer.arithmetic))
            except torch.cuda.OutOfMemoryError:
                raise
            except (
                RuntimeError
            ) as error:  # code of other people's models may ask the GPU for numbers
                log.warning("an encoder's passes are not recorded, as that failed: %s", error)
        return made

    def _check(self, loss: float) -> None:
        """Raise an error where the loss has left the numbers. Not asked with every step: the host
        would wait for the device each time."""
        if not math.isfinite(loss):
            trainer = self.trainer
            raise MegalabelError(
                f"the loss is {loss} at step {self.step}: lower learning_rate "
                f"({trainer.learning_rate}) or head_learning_rate ({trainer.head_learning_rate})"
            )

    def _after_epoch(self, loss: float) -> dict[str, float]:
        record = {"step": self.step, "loss": loss}
        if self.trainer.average == "swa" and self.step > self.total / 2:
            self.averages.update()
        if self.evaluate is not None:
            with self.averages.in_use():
                self.model.eval()
                value = processes.of_the_first(self.evaluate(), self.device)
                record["value"] = value
                if self.best is None or value > self.best[0]:
                    state = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
                    self.best, self.stale = (value, state), 0
                else:
                    self.stale += 1
            self.model.train()
        log.info("%s: %s", self.name, ", ".join(f"{k} {v:.5g}" for k, v in record.items()))
        return record

    def _gave_up(self) -> bool:
        patience = self.trainer.patience
        return patience is not None and self.stale >= patience

    def _due(self, seconds: float, ended: bool) -> bool:
        """Whether to keep a checkpoint now; processes do it together, after epochs."""
        if distributed.is_initialized():
            return ended
        return seconds >= self.trainer.checkpoint_seconds or self.step == self.total

    def _keep(self) -> None:
        assert self.file is not None
        about = {name: getattr(self, name) for name in ("step", "stale", "history", "counted")}
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        tensors["summed"] = self.summed
        tensors |= {f"average.{k}": v for k, v in self.averages.state().items()}
        tensors |= {f"source.{k}": v for k, v in self.source.state().items()}
        for i, optimiser in enumerate(self.optimisers):
            for number_, values in optimiser.state_dict()["state"].items():
                for key, value in values.items():
                    tensors[f"optimiser.{i}.{number_}.{key}"] = torch.as_tensor(value)
        if self.best is not None:
            about["best"] = self.best[0]
            tensors |= {f"best.{k}": v for k, v in self.best[1].items()}
        save_snapshot(self.file, tensors, about)

    def _resume(self) -> None:
        found = None if self.file is None else load_snapshot(self.file, self.device)
        step = -1 if found is None else found[1]["step"]
        if not processes.same_everywhere(step) or found is None:
            return
        tensors, about = found

        def part(prefix: str) -> dict[str, Tensor]:
            start = len(prefix) + 1
            return {k[start:]: v for k, v in tensors.items() if k.startswith(f"{prefix}.")}

        self.model.load_state_dict(part("model"))
        self.averages.load(part("average"))
        self.source.load(part("source"))
        for i, optimiser in enumerate(self.optimisers):
            state: dict[int, dict[str, Tensor | int]] = {}
            for key, value in part(f"optimiser.{i}").items():
                number_, _, what = key.partition(".")
                # counts go back to plain numbers: powers of tensors round otherwise
                state.setdefault(int(number_), {})[what] = _plain(value)
            optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
        self.step, self.stale, self.history = about["step"], about["stale"], about["history"]
        self.summed, self.counted = tensors["summed"], about["counted"]
        if "best" in about:
            self.best = about["best"], part("best")
        log.info("%s goes on from step %d of %d", self.name, self.step, self.total)


def _plain(value: Tensor) -> Tensor | int:
    return value if value.ndim or value.is_floating_point() else int(value)


def _attention(device: torch.device) -> AbstractContextManager[None]:
    """Within, a GPU attends without cuDNN, which prepares itself anew, for up to a second, for each
    length of texts that it meets."""
    return sdpa_kernel(_ATTENTION) if device.type == "cuda" else nullcontext()


@contextmanager
def memory_advice(trainer: Trainer, rows: int) -> Iterator[None]:
    """An out-of-memory error, of a GPU or of the machine, as advice."""
    try:
        yield
    except NotEnoughMemoryError:
        raise
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        whose = "the machine's memory does"
        if isinstance(error, torch.cuda.OutOfMemoryError):
            total = torch.cuda.get_device_properties(trainer.torch_device).total_memory / 2**30
            whose = f"the GPU's {total:.0f} GiB do"
        batch = trainer.batch_of(rows)
        ways = [
            f"batch={max(1, batch // 2)} with accumulate={2 * trainer.accumulate} learns the same"
        ]
        if not trainer.gradient_checkpointing:
            ways.append("gradient_checkpointing=True keeps far less of the encoder")
        if trainer.record and trainer.torch_device.type == "cuda":
            ways.append("record=False keeps no memory for each length of texts")
        ways.append("a smaller max_length or encoder needs less")
        raise NotEnoughMemoryError(
            f"{whose} not suffice for batches of {batch}: " + "; ".join(ways)
        ) from error
