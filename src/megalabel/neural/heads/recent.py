"""The rows that a head has learned from last."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor, nn

from megalabel.neural.targets import Targets

ROWS = 2048
"""So many are kept at most."""


class RecentRows(nn.Module):
    """Features and targets of the last rows, as part of a module's state.

    One batch has a text of few labels, and says nothing of all others.

    Parameters
    ----------
    most
        So many rows are kept.

    Examples
    --------
    >>> import torch
    >>> from megalabel.neural.heads.recent import RecentRows
    >>> from megalabel.neural.targets import Targets
    >>> recent = RecentRows(most=3)
    >>> for _ in range(2):
    ...     recent.add(torch.eye(2), Targets(torch.arange(3), torch.arange(2), torch.ones(2), 2))
    >>> features, targets = recent.rows()
    >>> features.tolist(), targets.indices.tolist()
    ([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], [1, 0, 1])
    """

    def __init__(self, most: int = ROWS) -> None:
        super().__init__()
        self.most = most
        self._batches: deque[tuple[Tensor, Targets]] = deque()

    def add(self, features: Tensor, targets: Targets) -> None:
        """Take the rows of a batch; the oldest are forgotten."""
        self._batches.append((features.clone(), targets))  # a recorded pass writes over its own
        while sum(len(batch) for batch, _ in self._batches) - len(self._batches[0][0]) >= self.most:
            self._batches.popleft()

    def rows(self) -> tuple[Tensor, Targets] | None:
        """All of them; None: there are none."""
        if not self._batches:
            return None
        features = torch.cat([batch for batch, _ in self._batches])[-self.most :]
        targets = Targets.concatenate([batch for _, batch in self._batches])
        starts = targets.indptr[len(targets) - len(features) :]
        values = (targets.indices[starts[0] :], targets.values[starts[0] :])
        return features, Targets(starts - starts[0], *values, targets.labels)

    def clear(self) -> None:
        """Forget them."""
        self._batches.clear()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        kept = self.rows()
        if kept is None:
            return
        features, targets = kept
        state = {"features": features, "starts": targets.indptr, "labels": targets.indices}
        state |= {"values": targets.values, "count": torch.tensor(targets.labels)}
        destination.update({f"{prefix}{name}": tensor for name, tensor in state.items()})

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *_: Any) -> None:
        self.clear()
        if f"{prefix}features" in state_dict:
            features, starts, labels, values, count = (
                state_dict[f"{prefix}{name}"]
                for name in ("features", "starts", "labels", "values", "count")
            )
            targets = Targets(starts, labels, values, int(count))
            self._batches.append((features.clone(), targets))
