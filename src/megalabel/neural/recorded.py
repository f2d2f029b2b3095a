"""Recorded passes of an encoder: all of its kernels asked for in one call (CUDA graphs)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from megalabel.errors import MegalabelError
from megalabel.neural.encoders import EncoderModule
from megalabel.neural.tokens import TokenBatch

_UNIT = 8  # lengths are multiples of this, longer ones of an eighth of the power of two above
_WARM = 2  # passes before one is recorded: what is loaded or chosen at first is not recorded


class Recorded:
    """What an encoder makes of a batch, recorded on a GPU for batches of each length.

    A GPU is done with a small encoder sooner than the host has asked for its hundreds of kernels
    one by one. What is recorded is asked for in one call. Within, the method replays: a batch is
    padded to the next length, and gradients are added to those of the parameters, which `begin`
    sets to zero. Batches of another size, and passes that are not to be learned from, run as ever.
    All that is recorded works in the same memory: from the forward pass of a batch on until its
    backward pass, other batches run as ever too.

    Parameters
    ----------
    encoder : EncoderModule
        On the GPU, of tokens.
    owner : nn.Module
        Whose method it is: the encoder, or a model that pools its layers.
    method : str
        From a TokenBatch to vectors, a tensor or a list of them, by parameters of the encoder.
    rows : int
        Texts a batch.
    lengths : array of int
        Those of all texts.
    arithmetic : callable
        The context in which passes run: `Trainer.arithmetic`.
    """

    def __init__(
        self,
        encoder: EncoderModule,
        owner: nn.Module,
        method: str,
        rows: int,
        lengths: np.ndarray,
        arithmetic: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._owner, self._method, self._rows = owner, method, rows
        self._plain: Callable[[TokenBatch], Any] = getattr(owner, method)
        self._several = False
        self._learned = [p for p in encoder.parameters() if p.requires_grad]
        self._sums: list[Tensor] = []
        self._longest = max(padded_lengths(lengths))
        self._turns = _Turns()
        self._passes: dict[int, _Pass] = {}
        self._record_all(padded_lengths(lengths), arithmetic)

    def _record_all(
        self, lengths: set[int], arithmetic: Callable[[], AbstractContextManager[None]]
    ) -> None:
        device = self._learned[0].device
        stream, pool = _stream(device), torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream(device))
        # weights are cast within each pass: a cast that is kept would be that of weights long gone
        cast = torch.autocast(
            "cuda", torch.bfloat16, enabled=_halved(arithmetic), cache_enabled=False
        )
        generator = torch.cuda.default_generators[device.index]
        before = generator.clone_state()
        with torch.random.fork_rng([device]), torch.cuda.stream(stream), arithmetic(), cast:
            try:
                # the longest first: the others find room in its memory
                for length in sorted(lengths, reverse=True):
                    self._passes[length] = self._record((self._rows, length), stream, pool)
            except RuntimeError:
                generator.graphsafe_set_state(before)  # else it would go on recording its draws
                raise
        torch.cuda.current_stream(device).wait_stream(stream)

    def __enter__(self) -> Self:
        setattr(self._owner, self._method, self._run)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        delattr(self._owner, self._method)
        for parameter in self._learned:
            parameter.grad = None
        torch.cuda.synchronize(self._learned[0].device)
        self._passes.clear()
        torch.cuda.empty_cache()  # what passes have worked in is of no use to anything else

    @property
    def lengths(self) -> int:
        """For how many lengths passes were recorded."""
        return len(self._passes)

    def begin(self) -> None:
        """A step begins: gradients are zero."""
        self._turns.begin()
        torch._foreach_zero_(self._sums)
        for parameter, gradient in zip(self._learned, self._sums, strict=True):
            parameter.grad = gradient

    def _run(self, inputs: TokenBatch) -> Any:
        rows, length = inputs.ids.shape
        padded = min(padded_length(length), self._longest)
        recorded = self._passes.get(padded) if rows == self._rows else None
        learns = torch.is_grad_enabled() and self._owner.training
        if recorded is None or not learns or not self._turns.free:
            return self._plain(inputs)
        outputs = _Replay.apply(self._learned[0], recorded, self._turns, inputs)  # type: ignore[no-untyped-call]
        return list(outputs) if self._several else outputs[0]

    def _record(self, shape: tuple[int, int], stream: torch.cuda.Stream, pool: Any) -> _Pass:
        device = self._learned[0].device
        inputs = TokenBatch(
            torch.zeros(shape, dtype=torch.int64, device=device),
            torch.ones(shape, dtype=torch.bool, device=device),
        )
        inputs.mask[:, 1:] = False  # as in a batch of texts that are not equally long

        def forward() -> list[Tensor]:
            made = self._plain(inputs)
            self._several = not isinstance(made, Tensor)
            return list(made) if self._several else [made]

        def backward(outputs: Sequence[Tensor], given: Sequence[Tensor]) -> Sequence[Any]:
            return torch.autograd.grad(outputs, self._learned, given, allow_unused=True)

        for _ in range(_WARM):
            outputs = forward()
            found = backward(outputs, [torch.zeros_like(x) for x in outputs])
        if not self._sums:
            used = [p for p, g in zip(self._learned, found, strict=True) if g is not None]
            self._learned, self._sums = used, [torch.zeros_like(p) for p in used]
        del outputs, found
        graphs = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        options: dict[str, Any] = {
            "pool": pool,
            "stream": stream,
            "capture_error_mode": "thread_local",
        }
        with torch.cuda.graph(graphs[0], **options):
            outputs = forward()
        given = [torch.zeros_like(x) for x in outputs]
        with torch.cuda.graph(graphs[1], **options):
            torch._foreach_add_(self._sums, backward(outputs, given))
        return _Pass(inputs, [x.detach() for x in outputs], given, *graphs)


class _Pass:
    """What is recorded for one length: both passes, and where they read and write."""

    def __init__(
        self,
        inputs: TokenBatch,
        outputs: list[Tensor],
        gradients: list[Tensor],
        forward: torch.cuda.CUDAGraph,
        backward: torch.cuda.CUDAGraph,
    ) -> None:
        self._inputs, self._outputs, self._gradients = inputs, outputs, gradients
        self._forward, self._backward = forward, backward

    def forward(self, inputs: TokenBatch) -> tuple[Tensor, ...]:
        length = inputs.ids.shape[1]
        for place, given in ((self._inputs.ids, inputs.ids), (self._inputs.mask, inputs.mask)):
            place.zero_()
            place[:, :length].copy_(given)
        self._forward.replay()
        return tuple(x.detach() for x in self._outputs)

    def backward(self, gradients: Sequence[Tensor | None]) -> None:
        for place, given in zip(self._gradients, gradients, strict=True):
            if given is None:
                place.zero_()
            else:
                place.copy_(given)
        self._backward.replay()


class _Turns:
    """Whose turn it is with the memory that all recorded passes work in."""

    def __init__(self) -> None:
        self._last = 0
        self.free = True
        """Whether a batch may be replayed: none waits for its backward pass."""

    def begin(self) -> None:
        """A step begins; what has not been learned from by now never is."""
        self.free = True

    def take(self) -> int:
        """The number of a turn that begins."""
        self.free = False
        self._last += 1
        return self._last

    def end(self, turn: int) -> None:
        """A backward pass begins; an error where its memory has been used for another batch."""
        if turn != self._last:
            raise MegalabelError(
                "a batch is learned from after the encoder has read others in a later step, in "
                "memory that recorded passes share: train with record=False"
            )
        self.free = True


class _Replay(torch.autograd.Function):
    """A pass as a node of autograd; it adds the parameters' gradients up itself."""

    @staticmethod
    def forward(
        ctx: Any, learned: Tensor, recorded: _Pass, turns: _Turns, inputs: TokenBatch
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.recorded, ctx.turns, ctx.turn = recorded, turns, turns.take()
        return recorded.forward(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        ctx.turns.end(ctx.turn)
        ctx.recorded.backward(gradients)
        return None, None, None, None


def padded_length(length: int) -> int:
    """The length that a batch is padded to: few different ones, and little more than its own.

    Examples
    --------
    >>> [padded_length(n) for n in (1, 8, 9, 64, 65, 130)]
    [8, 8, 16, 64, 80, 160]
    """
    unit = max(_UNIT, (1 << max(0, length - 1).bit_length()) // 8)
    return max(unit, -(-length // unit) * unit)


def padded_lengths(lengths: np.ndarray) -> set[int]:
    """Those that batches of texts of such lengths are padded to.

    Examples
    --------
    >>> sorted(padded_lengths(np.array([3, 9, 12, 30])))
    [8, 16, 30]
    """
    longest = max(1, int(lengths.max()))  # an encoder may know no longer ones
    return {min(padded_length(int(n)), longest) for n in np.unique(lengths)}


@cache  # one for all trainings: a stream's working memory is never given back
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _halved(arithmetic: Callable[[], AbstractContextManager[None]]) -> bool:
    with arithmetic():
        return bool(torch.is_autocast_enabled("cuda"))
