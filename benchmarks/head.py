"""One training step of a dense or sparse head over all labels, beside bare products and peers.

    python benchmarks/head.py --device cuda [--rows 512] [--width 768] [--tune] [--out FILE]
    python benchmarks/head.py --device cuda --only sparse    # or dense
    python benchmarks/head.py --device cpu          # tiny shapes, to see that it runs; and floors

Checks a step against float64, measures it in turn with the three bare matrix products (a GPU that
has worked for a while is slower, so both must be equally warm), then its options, larger numbers of
labels, and what else one would use: a plain torch head with binary cross entropy and SGD,
torch.compile of it, a chunked linear cross entropy, and Liger's where it is installed; with --tune
also tiles and chunk sizes. Then sparse heads (`sparse_layers.py`): whole steps and the best hundred
labels, beside a dense layer of as many operations. Without a GPU nothing of that is measured, and a
second table gives the least times that the shapes could take on an H200. Times are medians of
device events (host clock on a CPU); peaks are what torch allocated, weights included. Prints one
markdown table.
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from megalabel.neural.heads import DenseModule
from megalabel.neural.losses import BCE
from megalabel.neural.targets import Targets
from sparse_layers import LABELS, MANY, ROWS, WIDTH, SparseBench, floor_table

CHUNKS = [16_896, 33_792, 67_584, 135_168]  # with 512 rows, whole waves of tiles on 132 processors


@dataclass
class Row:
    """One line of the table."""

    what: str
    labels: int
    milliseconds: float | None = None
    peak: float | None = None
    note: str = ""
    width: float | None = None
    """Weights of a label; None: as many as features."""


class Bench:
    """Shapes, the device, and the lines measured so far."""

    def __init__(self, device: str, rows: int, width: int, repeats: int) -> None:
        self.device = torch.device(device)
        self.rows, self.width, self.repeats = rows, width, repeats
        self.table: list[Row] = []
        self.source = torch.Generator(self.device).manual_seed(0)

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    def features(self) -> Tensor:
        shape = (self.rows, self.width)
        drawn = torch.randn(shape, generator=self.source, device=self.device)
        return functional.normalize(drawn) * 4

    def targets(self, labels: int, each: int = 5) -> Targets:
        shape = (self.rows * each,)
        indices = torch.randint(labels, shape, generator=self.source, device=self.device)
        indptr = torch.arange(0, self.rows * each + 1, each, device=self.device)
        return Targets(indptr, indices, torch.ones(shape, device=self.device), labels)

    def time(self, run: Callable[[], object], warm: int = 3) -> tuple[float, float]:
        """The median milliseconds of a call, and the peak of memory in GB."""
        for _ in range(warm):
            run()
        if not self.cuda:
            taken = []
            for _ in range(self.repeats):
                start = time.perf_counter()
                run()
                taken.append(1e3 * (time.perf_counter() - start))
            return statistics.median(taken), float("nan")
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(self.repeats + 1)]
        marks[0].record()
        for mark in marks[1:]:
            run()
            mark.record()
        torch.cuda.synchronize()
        taken = [a.elapsed_time(b) for a, b in pairwise(marks)]
        return statistics.median(taken), torch.cuda.max_memory_allocated() / 1e9

    def measure(self, what: str, labels: int, prepare: Callable[[], Callable[[], object]]) -> Row:
        """A line of the table; what cannot run says why."""
        line = Row(what, labels)
        self.table.append(line)
        run = None
        try:
            run = prepare()
            line.milliseconds, line.peak = self.time(run)
        except Exception as error:  # one variant must not take the others with it
            line.note = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
        del run
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()
        milliseconds = "-" if line.milliseconds is None else f"{line.milliseconds:.3f} ms"
        print(f"  {what}, {labels:,} labels: {milliseconds} {line.note}", flush=True)
        return line

    # ------------------------------------------------------------ what is measured
    def head(self, labels: int, tuning: object = None, **options: object) -> DenseModule:
        head = DenseModule(
            self.width,
            labels,
            options.pop("loss", BCE()),  # type: ignore[arg-type]
            dtype=torch.bfloat16,
            tuning=tuning,  # type: ignore[arg-type]
            device=self.device,
            **{"value_every": 1 << 30, **options},  # type: ignore[arg-type]
        )
        head.learning_rate = 0.01
        return head

    def step(self, labels: int, tuning: object = None, **options: object) -> Callable[[], object]:
        head, x = self.head(labels, tuning, **options), self.features()
        targets = self.targets(labels)
        return lambda: head.learn(x, targets)

    def products(self, labels: int, width: int | None = None) -> dict[str, Callable[[], object]]:
        """The three bare products in bfloat16: the floor."""
        width = width or self.width
        x = self.features()[:, :width].bfloat16().contiguous()
        weights = torch.randn((labels, width), generator=self.source, device=self.device)
        weights = weights.bfloat16()
        scores, by_weights = x @ weights.T, torch.empty_like(weights)
        return {
            "bare product: scores": lambda: torch.mm(x, weights.T, out=scores),
            "bare product: features' gradient": lambda: scores @ weights,
            "bare product: weights' gradient": lambda: torch.mm(scores.T, x, out=by_weights),
        }

    def against_floor(self, labels: int, rounds: int = 5) -> None:
        """The bare products and a step in turn, round by round: the GPU slows down as it warms."""
        parts = self.products(labels)
        parts["megalabel"] = self.step(labels)
        taken = [{name: self.time(run)[0] for name, run in parts.items()} for _ in range(rounds)]
        for line in taken:
            print("  round:", {name: round(value, 3) for name, value in line.items()}, flush=True)
        sums = [sum(line.values()) - line["megalabel"] for line in taken]
        for name in list(parts)[:-1]:
            self.table.append(Row(name, labels, statistics.median(line[name] for line in taken)))
        spread = f"{min(sums):.2f} to {max(sums):.2f}"
        self.table.append(Row("the three", labels, statistics.median(sums), note=spread))
        steps = [line["megalabel"] for line in taken]
        ratios = [step / floor for step, floor in zip(steps, sums, strict=True)]
        note = (
            f"{min(steps):.2f} to {max(steps):.2f}; {statistics.median(ratios):.2f} times the "
            f"products ({min(ratios):.2f} to {max(ratios):.2f})"
        )
        self.table.append(Row("megalabel", labels, statistics.median(steps), note=note))

    def kernels(self, labels: int, chunk: int) -> None:
        """Each kernel by itself over one chunk, in TFLOP/s: which tile is best."""
        from megalabel.neural.kernels.forms import LOGISTIC
        from megalabel.neural.kernels.scores import score_gradients
        from megalabel.neural.kernels.tuning import Tile
        from megalabel.neural.kernels.update import update_weights

        x = self.features().bfloat16()
        weights = self.head(chunk).weights
        gradient = torch.empty((self.rows, chunk), dtype=torch.bfloat16, device=self.device)
        settings = torch.tensor([0.01, 1 / self.rows, 0.0, 0.0], device=self.device)
        counter = torch.zeros((), dtype=torch.int64, device=self.device)
        flop = 2 * self.rows * self.width * chunk
        tiles = [
            Tile(128, 128, 64, 4, 3),
            Tile(128, 128, 64, 4, 3, resident=2),
            Tile(128, 256, 64, 8, 3, resident=1),
            Tile(128, 256, 64, 8, 4, resident=1),
            Tile(256, 128, 64, 8, 3, resident=1),
            Tile(64, 256, 64, 4, 3),
        ]
        for tile in tiles:
            runs: dict[str, Callable[[], object]] = {
                "scores": lambda tile=tile: score_gradients(
                    x, weights, gradient, form=LOGISTIC.value, tile=tile, descriptors=True
                ),
                "update": lambda tile=tile: update_weights(
                    gradient,
                    x,
                    weights,
                    settings=settings,
                    counter=counter,
                    seed=0,
                    first=0,
                    tile=tile,
                    descriptors=True,
                ),
            }
            for name, run in runs.items():
                shape = f"{tile.m}x{tile.n}x{tile.k}, {tile.warps} warps, {tile.stages} stages"
                shape += f", {tile.resident} resident" if tile.resident else ""
                line = self.measure(f"kernel {name} {shape}", chunk, lambda run=run: run)
                if line.milliseconds:
                    line.note = f"{flop / line.milliseconds / 1e9:.0f} TFLOP/s"

    def peers(self, labels: int, compiled: bool = True) -> None:
        """What else one would use."""

        def plain(compile_it: bool) -> Callable[[], object]:
            layer = torch.nn.Linear(self.width, labels, bias=False, device=self.device)
            layer = layer.bfloat16()
            optimiser = torch.optim.SGD(layer.parameters(), lr=0.01)
            x = self.features().bfloat16().requires_grad_()
            wanted = self.targets(labels).dense(0, labels).bfloat16()

            def loss() -> Tensor:
                return functional.binary_cross_entropy_with_logits(
                    layer(x), wanted, reduction="sum"
                )

            value = torch.compile(loss) if compile_it else loss

            def run() -> None:
                x.grad = None
                optimiser.zero_grad(set_to_none=True)
                value().backward()
                optimiser.step()

            return run

        def chunked() -> Callable[[], object]:
            x = self.features().bfloat16()
            weights = torch.nn.Linear(self.width, labels, bias=False, device=self.device)
            matrix = weights.weight.detach().bfloat16()
            label = torch.randint(labels, (self.rows,), device=self.device)
            return lambda: linear_cross_entropy(x, matrix, label, 0.01)

        def liger() -> Callable[[], object]:
            from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

            layer = torch.nn.Linear(self.width, labels, bias=False, device=self.device).bfloat16()
            optimiser = torch.optim.SGD(layer.parameters(), lr=0.01)
            loss = LigerFusedLinearCrossEntropyLoss()
            x = self.features().bfloat16().requires_grad_()
            label = torch.randint(labels, (self.rows,), device=self.device)

            def run() -> None:
                x.grad = None
                optimiser.zero_grad(set_to_none=True)
                loss(layer.weight, x, label).backward()
                optimiser.step()

            return run

        self.measure("peer: torch BCE head and SGD", labels, lambda: plain(False))
        if compiled:
            self.measure("peer: the same, torch.compile", labels, lambda: plain(True))
        self.measure("peer: chunked linear cross entropy, plain torch", labels, chunked)
        self.measure("peer: Liger's fused linear cross entropy and SGD", labels, liger)

    def check(self) -> str:
        """A step of small, odd shapes against float64; raises where it is off."""
        rows, width, labels = 70, 72, 1003
        x = torch.randn((rows, width), generator=self.source, device=self.device).bfloat16()
        indices = torch.randint(labels, (3 * rows,), generator=self.source, device=self.device)
        indptr = torch.arange(0, 3 * rows + 1, 3, device=self.device)
        targets = Targets(indptr, indices, torch.ones(3 * rows, device=self.device), labels)
        head = DenseModule(
            width, labels, BCE(), dtype=torch.bfloat16, chunk=256, device=self.device, seed=5
        )
        head.learning_rate = 0.5
        before = head.weights.double()
        scores = x.double() @ before.T
        wanted = targets.dense(0, labels).double()
        by_score = torch.sigmoid(scores) - wanted
        value, gradient = head.learn(x.float(), targets)
        exact = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="sum") / rows
        errors = {
            "value": float(abs(value - exact) / exact),
            "features": _distance(gradient, by_score @ before / rows),
            "weights": _distance(
                head.weights.double() - before, -0.5 / rows * by_score.T @ x.double()
            ),
        }
        if not (errors["value"] < 1e-3 and errors["features"] < 1e-2 and errors["weights"] < 0.2):
            raise SystemExit(f"the step is not right: {errors}")
        kind = "plain torch" if head._fused_step(self.device) is None else "kernels"
        return f"{kind}; relative errors " + ", ".join(f"{k} {v:.1e}" for k, v in errors.items())


def _distance(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def linear_cross_entropy(x: Tensor, weights: Tensor, label: Tensor, rate: float) -> Tensor:
    """Softmax cross entropy of one label a row, with its gradients and a step, by chunks of rows.

    The way of the public fused losses: a few rows against all labels at a time, the gradient of all
    weights held in full.
    """
    by_weights = torch.zeros_like(weights)
    by_features = torch.empty_like(x)
    value = x.new_zeros((), dtype=torch.float32)
    for part in torch.arange(len(x), device=x.device).split(128):
        shares = (x[part] @ weights.T).float()
        normaliser = shares.logsumexp(1, keepdim=True)
        value += (normaliser[:, 0] - shares.gather(1, label[part, None])[:, 0]).sum()
        shares = (shares - normaliser).exp_()
        shares[torch.arange(len(part), device=x.device), label[part]] -= 1
        gradient = shares.to(x.dtype)
        by_features[part] = gradient @ weights
        by_weights.addmm_(gradient.T, x[part])
    weights.add_(by_weights, alpha=-rate / len(x))
    return value / len(x)


def tune(bench: Bench, labels: int) -> None:
    """Tiles of each kernel, and labels at a time."""
    from megalabel.neural.kernels.tuning import Tuning

    bench.kernels(labels, CHUNKS[-1])
    for chunk in CHUNKS:
        tuning = replace(Tuning(), chunk=chunk)
        bench.measure(f"chunk {chunk:,}", labels, lambda tuning=tuning: bench.step(labels, tuning))


def run(bench: Bench, labels: int, more: list[int], compiled: bool) -> None:
    """All measurements, the most telling first."""
    print("check:", bench.check(), flush=True)
    bench.against_floor(labels)
    options: dict[str, dict[str, object]] = {
        "default": {},
        "loss in every step": {"value_every": 1},
        "momentum": {"momentum": 0.9},
        "all labels compensated": {"compensate": 1.0},
        "Adam": {"optimiser": "adam"},
    }
    for name, chosen in options.items():
        bench.measure(
            f"megalabel, {name}", labels, lambda chosen=chosen: bench.step(labels, **chosen)
        )
    bench.peers(labels, compiled)
    for count in more:
        bench.measure("megalabel, default", count, lambda count=count: bench.step(count))


def table(bench: Bench) -> str:
    """The lines as markdown."""
    if bench.cuda:
        machine = torch.cuda.get_device_name(bench.device)
    else:
        machine = f"{platform.processor() or platform.machine()} (CPU)"
    lines = [
        f"{machine}, torch {torch.__version__}; batch {bench.rows}, width {bench.width}, bfloat16",
        "",
        "| what | labels | ms | peak GB | weights GB | |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for row in bench.table:
        taken = "-" if row.milliseconds is None else f"{row.milliseconds:.3f}"
        peak = "-" if row.peak is None or row.peak != row.peak else f"{row.peak:.2f}"
        weights = 2 * row.labels * (row.width or bench.width) / 1e9
        lines.append(
            f"| {row.what} | {row.labels:,} | {taken} | {peak} | {weights:.2f} | {row.note} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--out", type=Path, help="write the table to this file too")
    parser.add_argument("--tune", action="store_true", help="tiles and chunk sizes too")
    parser.add_argument("--only", choices=["dense", "sparse"], help="some of it only")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    given = parser.parse_args()
    cuda = given.device.startswith("cuda")
    if cuda:
        bench = Bench(given.device, given.rows or ROWS, given.width or WIDTH, repeats=20)
    else:
        torch.set_num_threads(1)
        bench = Bench(given.device, given.rows or 8, given.width or 16, repeats=3)
    if given.only != "sparse":
        more = [MANY, 8_623_847] if cuda else [2000]
        run(bench, LABELS if cuda else 1000, more, not given.no_compile)
        if given.tune and cuda:
            tune(bench, LABELS)
    if given.only != "dense":
        sparse = SparseBench(bench)
        print("check:", sparse.check(), flush=True)
        sparse.run(LABELS if cuda else 1000, MANY if cuda else 2000)
        if given.tune and cuda:
            sparse.tune(LABELS)
    text = table(bench)
    if not cuda:
        text += "\n\n" + floor_table()
    print("\n" + text)
    if given.out is not None:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
