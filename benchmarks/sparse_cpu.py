"""Sparse output layers on a CPU: a training step, the best labels of a batch, and memory.

    python benchmarks/sparse_cpu.py [--only steps] [--labels 131072] [--threads 2] [--json FILE]
    python benchmarks/sparse_cpu.py --table FILE

A layer whose labels each look at a few features, in groups that share them (and each with features
of its own), beside a dense one. A step is everything from the features of a batch to their gradient
and the weights moved, by binary cross entropy: of torch's linear layer, with torch's optimisers; of
our dense head, in chunks of labels; and of our sparse layers, for which also a squared hinge
(most of whose gradients are zeros once labels are learned: here the biases are those of rare
labels). The 100 best labels of a batch, and of one row, by torch's CSR product and topk, by our
dense rows, and by our sparse ones in three precisions.

All ways of a comparison take turns, round by round, in one process. Seconds are of CPU, of all
threads together, the least and the median of the rounds: what else the machine does adds to them.
Threads of torch sleep while they wait, so that waiting does not count. Memory is that of weights,
biases, indices and optimiser state; a gradient of all weights, which torch's way also holds, is not
in it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch

import megalabel
from megalabel import LabelSet, _native
from megalabel.labels import LabelTree
from megalabel.neural.heads.dense import DenseModule
from megalabel.neural.losses import BCE
from megalabel.neural.targets import Targets
from megalabel.rankers import DenseTree, SparseLabels

Row = dict[str, Any]
Way = tuple[Callable[[], object], float]  # what is run, and its memory in MB

NONE = np.zeros(0, np.float32)
POSITIVES = 5  # of a row
BIAS = -4.0


class Bench:
    """Shapes, a batch, and what has been measured."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.labels, self.width, self.rows = options.labels, options.width, options.rows
        self.random = np.random.default_rng(0)
        self.X = self.normal(self.rows, self.width)
        self.X /= np.linalg.norm(self.X, axis=1, keepdims=True)
        self.truth = np.sort(self.random.integers(0, self.labels, (self.rows, POSITIVES)), axis=1)
        self.lines: list[Row] = []
        self.about = {
            "machine": f"{platform.machine()}, {platform.system()}, {options.threads} threads",
            "version": megalabel.__version__,
            "torch": torch.__version__,
            "command": " ".join(Path(word).name for word in ["python", *sys.argv]),
            "rounds": options.rounds,
        }

    def normal(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape, np.float32)

    def compare(self, what: str, ways: dict[str, Way]) -> None:
        """All ways in turn; the first is what the others are compared with."""
        print(what, file=sys.stderr, flush=True)
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(self.options.rounds + 1):
            for name, (run, _) in ways.items():
                cpu = time.process_time()
                run()
                if turn:  # the first is to warm up
                    spent[name].append(1e3 * (time.process_time() - cpu))
        least = {name: min(all_) for name, all_ in spent.items()}
        middle = {name: statistics.median(all_) for name, all_ in spent.items()}
        first = next(iter(ways))
        for name, (_, memory) in ways.items():
            line = {
                "what": what,
                "way": name,
                "cpu ms": round(least[name], 2),
                "median cpu ms": round(middle[name], 2),
                "times faster": round(least[first] / least[name], 2),
                "by medians": round(middle[first] / middle[name], 2),
                "MB": round(memory / 1e6, 1),
                "times smaller": round(ways[first][1] / memory, 2),
            }
            self.lines.append(line)
            print(json.dumps(line), file=sys.stderr, flush=True)
        gc.collect()
        if self.options.json is not None:  # each time, so that nothing is lost
            lines = [json.dumps(self.about | line) for line in self.lines]
            self.options.json.write_text("\n".join(lines) + "\n")

    # ------------------------------------------------------------ steps
    def torch_step(self, optimiser: str) -> Way:
        layer = torch.nn.Linear(self.width, self.labels)
        torch.nn.init.constant_(layer.bias, BIAS)
        made: torch.optim.Optimizer
        if optimiser == "sgd":
            made, kept = torch.optim.SGD(layer.parameters(), lr=1e-3), 1
        else:
            made, kept = torch.optim.Adam(layer.parameters(), lr=1e-6, fused=True), 3
        x = torch.from_numpy(self.X).requires_grad_()
        truth = torch.from_numpy(self.truth)
        loss = torch.nn.BCEWithLogitsLoss(reduction="sum")

        def run() -> None:
            wanted = torch.zeros((self.rows, self.labels)).scatter_(1, truth, 1)
            x.grad = None
            made.zero_grad()
            (loss(layer(x), wanted) / self.rows).backward()
            made.step()

        return run, 4.0 * kept * self.labels * (self.width + 1)

    def dense_step(self, optimiser: str) -> Way:
        head = DenseModule(
            self.width, self.labels, BCE(), optimiser=optimiser, bias=True, value_every=1 << 30
        )
        assert head.bias is not None
        head.bias.fill_(BIAS)
        head.learning_rate = 1e-6
        features = torch.from_numpy(self.X)
        starts = torch.arange(0, self.rows * POSITIVES + 1, POSITIVES)
        labels = torch.from_numpy(self.truth).flatten()
        targets = Targets(starts, labels, torch.ones(len(labels)), self.labels)
        memory = sum(t.numel() * t.element_size() for t in head.state_dict().values())
        return lambda: head.learn(features, targets), float(memory)

    def sparse(self, group: int) -> dict[str, np.ndarray]:
        """A layer of the native core."""
        groups = -(-self.labels // group)
        fan_in, width = self.options.fan_in, self.width
        indices = np.empty((groups, fan_in), np.uint16 if width <= 1 << 16 else np.uint32)
        for start in range(0, groups, 4096):
            drawn = self.random.random((min(4096, groups - start), width))
            indices[start : start + 4096] = np.sort(np.argpartition(drawn, fan_in)[:, :fan_in])
        labels = np.arange(groups * group, dtype=np.int32)
        labels[self.labels :] = -1
        return {
            "indices": indices,
            "weights": self.normal(groups, fan_in, group) / np.float32(np.sqrt(fan_in)),
            "bias": np.full(groups * group, BIAS, np.float32),
            "labels": labels,
        }

    def sparse_step(self, optimiser: str, group: int, form: str = "logistic") -> Way:
        layer = self.sparse(group)
        empty = np.zeros((0, 0, 0), np.float32)
        weights = layer["weights"]
        moments = {
            "sgd": (empty, empty, NONE),
            "adam": (np.zeros_like(weights), np.zeros_like(weights), NONE),
            "label_adam": (np.zeros_like(weights), empty, np.zeros_like(layer["bias"])),
        }[optimiser]
        training = _native.FanInTraining(
            first=moments[0],
            second=moments[1],
            squares=moments[2],
            places=np.arange(self.labels, dtype=np.int32),
            **layer,
        )
        count = self.rows * POSITIVES
        truth = _native.FanInTruth(
            starts=np.arange(0, count + 1, POSITIVES),
            labels=self.truth.astype(np.int32).ravel(),
            positives=np.full(count, 1 / self.rows, np.float32),
            negatives=np.zeros(count, np.float32),
            weights=NONE,
            weight=1 / self.rows,
            normalisers=NONE,
            masses=NONE,
        )
        method = _native.FanInOptimiser(
            method=_native.FanInMethod[optimiser],
            rate=1e-6,
            momentum=0,
            decay=0,
            beta1=0.9,
            beta2=0.999,
            epsilon=1e-8,
            seed=0,
            step=0,
            first=0,
        )
        gradient = np.empty_like(self.X)

        def run() -> None:
            _native.fan_in_step(
                layer=training,
                rows=self.X,
                truth=truth,
                form=_native.FanInForm[form],
                number=0,
                optimiser=method,
                gradient=gradient,
                update=True,
                valued=False,
            )

        kept = [layer["indices"], weights, layer["bias"], *moments]
        return run, float(sum(part.nbytes for part in kept))

    def steps(self) -> None:
        group = self.options.group
        for optimiser, name in (("sgd", "SGD"), ("adam", "Adam")):
            ways = {
                "torch, dense": self.torch_step(optimiser),
                "our dense head": self.dense_step(optimiser),
                f"groups of {group}": self.sparse_step(optimiser, group),
                "own features": self.sparse_step(optimiser, 1),
            }
            if optimiser == "adam":
                ways[f"groups of {group}, a second moment a label"] = self.sparse_step(
                    "label_adam", group
                )
            else:
                hinge = "squared_hinge"
                ways[f"groups of {group}, squared hinge"] = self.sparse_step("sgd", group, hinge)
                ways["own features, squared hinge"] = self.sparse_step("sgd", 1, hinge)
            self.compare(f"a step, {name}", ways)

    # ------------------------------------------------------------ the best labels
    def dense_ranker(self) -> Way:
        model = DenseTree()
        weights = self.normal(self.labels, self.width).astype(np.float16)
        bias = np.zeros(self.labels, np.float32)
        model.restore(
            {
                "tree_": LabelTree.from_parents(np.full(self.labels, -1)),
                "weights_": [weights],
                "biases_": [bias],
                "labels_": self.names,
            }
        )
        return lambda: model.rank(self.queries, self.options.k), float(weights.nbytes + bias.nbytes)

    def sparse_ranker(self, group: int, precision: str) -> Way:
        layer = self.sparse(group)
        groups = len(layer["indices"])
        learned: dict[str, Any] = {
            "labels_": self.names,
            "width_": self.width,
            "indices_": layer["indices"],
            "weights_": layer["weights"],
            "bias_": layer["bias"].reshape(groups, group),
            "label_of_place_": layer["labels"],
        }
        if precision == "int8":
            scale = np.abs(layer["weights"]).max(axis=1) / np.float32(127)
            shares = np.rint(layer["weights"] / scale[:, None])
            learned |= {"weights_": shares.astype(np.int8), "scales_": scale}
        else:
            learned["weights_"] = layer["weights"].astype(precision)
        model = SparseLabels()
        model.restore(learned)
        memory = sum(v.nbytes for v in learned.values() if isinstance(v, np.ndarray))
        return lambda: model.rank(self.queries, self.options.k), float(memory)

    def csr(self, group: int) -> Way:
        """torch's product of a CSR matrix with the rows, and its topk."""
        layer = self.sparse(group)
        indices, fan_in = layer["indices"].astype(np.int32), self.options.fan_in
        columns = np.repeat(indices[:, None, :], group, axis=1).reshape(-1)[: self.labels * fan_in]
        values = layer["weights"].swapaxes(1, 2).reshape(-1)[: self.labels * fan_in]
        starts = torch.arange(0, len(columns) + 1, fan_in, dtype=torch.int32)
        matrix = torch.sparse_csr_tensor(
            starts,
            torch.from_numpy(columns),
            torch.from_numpy(np.ascontiguousarray(values)),
            (self.labels, self.width),
        )
        bias = torch.full((self.labels, 1), BIAS)
        x = torch.from_numpy(np.ascontiguousarray(self.queries.T))

        def run() -> None:
            scores = matrix @ x + bias
            scores.T.topk(self.options.k, dim=1)

        return run, float(8 * len(columns) + 8 * self.labels)

    def searches(self) -> None:
        self.names = LabelSet([str(i) for i in range(self.labels)])
        group = self.options.group
        for rows in (self.rows, 1):
            self.queries = self.X[:rows].copy()
            ways = {"torch, CSR and topk": self.csr(group), "our dense rows": self.dense_ranker()}
            for size, name in ((group, f"groups of {group}"), (1, "own features")):
                for precision in ("float32", "float16", "int8"):
                    ways[f"{name}, {precision}"] = self.sparse_ranker(size, precision)
            self.compare(f"the {self.options.k} best of {rows} rows", ways)


def table(rows: list[Row]) -> str:
    """All rows as a table."""
    lines = ["| what | way | CPU ms (median) | times faster | MB | times smaller |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    for row in rows:
        shown = [row["what"], row["way"], f"{row['cpu ms']:.1f} ({row['median cpu ms']:.1f})"]
        shown.append(f"{row['times faster']:.1f} ({row['by medians']:.1f})")
        shown += [f"{row['MB']:.0f}", f"{row['times smaller']:.1f}"]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--labels", type=int, default=131_072)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--fan-in", type=int, default=76)
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=("steps", "searches"))
    parser.add_argument("--json", type=Path, help="where all figures go, a line each")
    parser.add_argument("--table", type=Path, help="print a file that --json has written")
    options = parser.parse_args()
    if options.table is not None:
        print(table([json.loads(line) for line in options.table.read_text().splitlines()]))
        return
    torch.set_num_threads(options.threads)
    megalabel.set_threads(options.threads)
    bench = Bench(options)
    if options.only != "searches":
        bench.steps()
    if options.only != "steps":
        bench.searches()
    print(table(bench.lines))


if __name__ == "__main__":
    main()
