"""Functions of a GPU recorded and launched as a whole: of small kernels, most time is launching."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

import torch
from torch import Tensor

Results = tuple[Tensor, ...]
KEPT = 8  # recordings, each of a shape


class Replay:
    """A function of one tensor, recorded when it is called a second time with the same shape.

    The function must launch the same work for each tensor of a shape, and its results must be
    tensors of the device. What else it reads must stay where it is.

    Examples
    --------
    >>> import torch
    >>> from megalabel.neural.kernels.replay import Replay
    >>> double = Replay(lambda x: (x + x,))
    >>> double(torch.ones(2))
    (tensor([2., 2.]),)
    """

    def __init__(self, function: Callable[[Tensor], Results]) -> None:
        self.function = function
        self._seen: OrderedDict[object, _Recording | None] = OrderedDict()
        self._lock = Lock()

    def __call__(self, x: Tensor) -> Results:
        if not x.is_cuda or torch.cuda.is_current_stream_capturing():
            return self.function(x)
        stream = torch.cuda.current_stream(x.device)
        key = (x.shape, x.dtype, x.device, stream.cuda_stream)  # others must not write between
        with self._lock:
            if key not in self._seen:
                self._seen[key] = None
                while len(self._seen) > KEPT:
                    self._seen.popitem(last=False)
                return self.function(x)
            recording = self._seen[key] or _Recording(self.function, x)
            self._seen[key] = recording
            self._seen.move_to_end(key)
            return recording(x)


class _Recording:
    """Of one shape: the graph, where it reads and where it writes."""

    def __init__(self, function: Callable[[Tensor], Results], x: Tensor) -> None:
        self.x = x.clone()
        function(self.x)  # compiles, and fills caches, which must not be recorded
        torch.cuda.synchronize(x.device)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(x.device), torch.cuda.graph(self.graph):
            self.found = function(self.x)

    def __call__(self, x: Tensor) -> Results:
        self.x.copy_(x)
        self.graph.replay()
        return tuple(found.clone() for found in self.found)
