"""Sparse heads for `head.py`: what is measured of them, and what no version can be faster than.

A floor has two sides: the bytes that must go through device memory at least once over its
bandwidth, and the operations over the rate of the matrix units; the larger one counts. For sparse
heads there is a third, which no data sheet gives a rate for: what must go between the second-level
cache and the multiprocessors, as every group gathers its features and adds to their gradient.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from megalabel.neural.heads.sparse import SparseModule
from megalabel.neural.kernels.tuning import GroupTuning
from megalabel.neural.losses import BCE

if TYPE_CHECKING:
    from head import Bench, Row

BANDWIDTH, RATE = 4.8e12, 989e12  # NVIDIA H200: bytes and dense bfloat16 operations a second
ROWS, WIDTH, LABELS, FAN_IN, NARROW = 512, 768, 670_080, 128, 128
MANY, TOP = 2_812_281, 100
BATCHES = (1, 4, 16, 64)
PUBLIC = 12.0  # ms, forward and backward of the public group-shared kernels, groups of 32
GIB = 1 << 30
SUMS = {"float16": 2, "float32": 4, "fixed": 8}
"""Ways to add the features' gradient up, and the bytes of a number."""


@dataclass(frozen=True)
class Floor:
    """What something must move and do, and the least time that it takes on an H200."""

    what: str
    labels: int
    bytes: float
    operations: float
    cached: float = 0.0
    """Bytes between the second-level cache and the multiprocessors, of gathering and adding."""

    @property
    def milliseconds(self) -> tuple[float, float]:
        """By bytes and by operations."""
        return 1e3 * self.bytes / BANDWIDTH, 1e3 * self.operations / RATE


def product(width: int, labels: int, rows: int = ROWS) -> tuple[float, float]:
    """Bytes and operations of one bare product of a dense layer."""
    return 2.0 * (rows * width + width * labels + rows * labels), 2.0 * rows * width * labels


def stored(labels: int, size: int, fan_in: int = FAN_IN) -> tuple[float, float]:
    """Bytes of a sparse head: its weights (bfloat16); indices (int32), labels and biases."""
    return 2.0 * fan_in * labels, 4.0 * fan_in * labels / size + 8.0 * labels


def floors() -> list[Floor]:
    """Of all that is measured on a GPU."""
    lines = []
    for width, name in ((WIDTH, "dense layer"), (NARROW, f"bottleneck of {NARROW} inputs")):
        moved, done = product(width, LABELS)
        lines.append(Floor(f"{name}: one of three bare products", LABELS, moved, done))
        lines.append(Floor(f"{name}: the three bare products", LABELS, 3 * moved, 3 * done))
    moved, done = 4.0 * WIDTH * LABELS, 6.0 * ROWS * WIDTH * LABELS
    lines.append(Floor("dense head, whole step", LABELS, moved, done))
    for size in (32, 64):
        weights, rest = stored(LABELS, size)
        gathered = 2.0 * ROWS * FAN_IN * LABELS / size
        done = 2.0 * ROWS * FAN_IN * LABELS
        name = f"groups of {size}"
        lines.append(Floor(f"{name}: scores and top-{TOP}", LABELS, weights + rest, done, gathered))
        for sums, each in SUMS.items():
            lines.append(
                Floor(
                    f"{name}: whole step, {sums} sums",
                    LABELS,
                    2 * weights + rest + 4.0 * LABELS,
                    3 * done,
                    gathered * (1 + each / 2),
                )
            )
    weights, rest = stored(MANY, 32)
    for rows in BATCHES:
        padded = max(16, rows)
        done = 2.0 * padded * FAN_IN * MANY
        gathered = 2.0 * padded * FAN_IN * MANY / 32
        name = f"groups of 32: forward and top-{TOP}, batch {rows}"
        lines.append(Floor(name, MANY, weights + rest, done, gathered))
    return lines


def floor_table() -> str:
    """The floors as markdown, for where there is no GPU to measure on."""
    lines = [
        "NVIDIA H200: 4.8 TB/s, 989 TFLOP/s in bfloat16; the least times possible",
        "",
        "| what | labels | bytes | bytes over bandwidth | operations over rate | through the cache "
        "| measured |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for floor in floors():
        moved, done = floor.milliseconds
        cached = f"{floor.cached / 1e9:.2f} GB" if floor.cached else ""
        lines.append(
            f"| {floor.what} | {floor.labels:,} | {floor.bytes / 1e9:.2f} GB | {moved:.3f} ms "
            f"| {done:.3f} ms | {cached} | not measured |"
        )
    return "\n".join(lines)


class Encoder(nn.Module):
    """A small transformer, as of MiniLM: six layers of 384."""

    def __init__(self, words: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers)

    def forward(self, tokens: Tensor) -> Tensor:
        """(rows, width): the mean of the tokens' states."""
        return self.layers(self.words(tokens)).mean(1)


def planned(labels: int, size: int, rows: int = ROWS, tokens: int = 32) -> float:
    """Bytes of training so many labels with the small encoder: all that is there at once.

    Weights of the head, indices, places and biases; the encoder with its gradient and two moments
    in float32; what its layers keep for the way back, in half precision (Korthikanti et al. 2022,
    equation 2); the batch's features and their gradient, both ways round.
    """
    width, layers, heads = 384, 6, 12
    weights, rest = stored(labels, size)
    encoder = 16.0 * (30_522 * width + layers * 12 * width**2)
    kept = layers * rows * tokens * (34.0 * width + 5 * heads * tokens)
    return weights + rest + encoder + kept + rows * width * (2 + 4 + 8 + 8 + 4)


class SparseBench:
    """What `head.py` measures of sparse heads."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def head(self, labels: int, size: int, **options: object) -> SparseModule:
        head = SparseModule(
            self.bench.width,
            labels,
            options.pop("loss", BCE()),  # type: ignore[arg-type]
            fan_in=min(FAN_IN, self.bench.width // 2),
            group=size,
            dtype=torch.bfloat16,
            device=self.bench.device,
            **{"value_every": 1 << 30, **options},  # type: ignore[arg-type]
        )
        head.learning_rate = 0.01
        return head

    def step(
        self, labels: int, size: int, tuning: GroupTuning, **options: object
    ) -> Callable[[], object]:
        if self.bench.cuda:
            options["tuning"] = tuning
        head = self.head(labels, size, **options)
        x, targets = self.bench.features(), self.bench.targets(labels)
        return lambda: head.learn(x, targets)

    def search(self, labels: int, size: int, rows: int, **options: object) -> Callable[[], object]:
        head = self.head(labels, size, **options)
        x = self.bench.features()[:rows]
        return lambda: head.top_k(x, TOP)

    def copying(self) -> float:
        """Bytes a second of a large copy on the device, read and written."""
        size = GIB if self.bench.cuda else 1 << 20
        source = torch.empty(size, dtype=torch.uint8, device=self.bench.device).fill_(1)
        target = torch.empty_like(source)
        milliseconds, _ = self.bench.time(lambda: target.copy_(source))
        return 2e3 * size / milliseconds

    def whole(self, labels: int) -> Callable[[], object]:
        """A training step of a small encoder and a head of groups of 32."""
        bench = self.bench
        width, layers, heads = (384, 6, 12) if bench.cuda else (16, 1, 2)
        encoder = Encoder(30_522 if bench.cuda else 100, width, layers, heads).to(bench.device)
        optimiser = torch.optim.AdamW(encoder.parameters(), lr=1e-5)
        head = SparseModule(
            width,
            labels,
            BCE(),
            fan_in=min(FAN_IN, width // 2),
            group=32,
            dtype=torch.bfloat16,
            device=bench.device,
        )
        tokens = torch.randint(100, (bench.rows, 32 if bench.cuda else 4), device=bench.device)
        targets = bench.targets(labels)

        def run() -> None:
            optimiser.zero_grad(set_to_none=True)
            with torch.autocast(bench.device.type, dtype=torch.bfloat16):
                features = encoder(tokens)
            head(features.float(), targets).backward()
            optimiser.step()

        return run

    def run(self, labels: int, many: int) -> None:
        """All lines."""
        bench = self.bench
        before = len(bench.table)
        narrow = bench.products(labels, NARROW if bench.cuda else 8)
        lines = [
            bench.measure(f"bottleneck of {NARROW}: {name}", labels, lambda run=run: run)
            for name, run in narrow.items()
        ]
        del narrow
        products = _total(lines)
        dense = bench.measure("dense head, whole step", labels, lambda: bench.step(labels))
        for size in (32, 64, 16, 1):
            count = labels if size > 1 else labels // 10  # a set of inputs a label takes long
            for sums in SUMS if size > 16 else ["float32"]:
                tuning = GroupTuning(sums=sums)
                line = bench.measure(
                    f"groups of {size}, whole step, {sums} sums",
                    count,
                    lambda s=size, t=tuning, c=count: self.step(c, s, t),
                )
                line.note += _against(line, products, dense) if size > 1 else ""
            bench.measure(
                f"groups of {size}, forward and top-{TOP}, batch {bench.rows}",
                count,
                lambda s=size, c=count: self.search(c, s, bench.rows),
            )
        for name, options in (
            ("squared hinge", {"loss": _hinge()}),
            ("momentum", {"momentum": 0.9}),
        ):
            bench.measure(
                f"groups of 32, whole step, float32 sums, {name}",
                labels,
                lambda o=options: self.step(labels, 32, GroupTuning(sums="float32"), **o),
            )
        copied = self.copying()
        weights, rest = stored(many, 32, min(FAN_IN, bench.width // 2))
        for rows in BATCHES:
            line = bench.measure(
                f"groups of 32, forward and top-{TOP}, batch {rows}",
                many,
                lambda rows=rows: self.search(many, 32, rows),
            )
            if line.milliseconds and bench.cuda:
                share = (weights + rest) / (1e-3 * line.milliseconds) / copied
                line.note += f"{100 * share:.0f}% of copying's {copied / 1e12:.2f} TB/s"
        whole = 3_000_000 if bench.cuda else many
        line = bench.measure("small encoder and groups of 32", whole, lambda: self.whole(whole))
        line.note += f"planned {planned(whole, 32) / GIB:.2f} GiB at batch {ROWS}"
        for line in bench.table[before:]:
            if "dense" not in line.what:
                line.width = FAN_IN

    def tune(self, labels: int) -> None:
        """Tiles, warps and programs of a step, and programs of a search."""
        for size in (32, 64):
            for area, stages, (resident, registers) in itertools.product(
                (1 << 13, 1 << 12), (1, 2, 3), ((2, 0), (3, 168), (4, 128))
            ):
                tuning = GroupTuning(area, 4, stages, resident, registers)
                self.bench.measure(
                    f"groups of {size}: {area} numbers, {stages} stages, {resident} resident",
                    labels,
                    lambda s=size, t=tuning: self.step(labels, s, t),
                )
        for warps, resident, stages in itertools.product((1, 2, 4), (4, 8, 16), (2, 3, 4)):
            tuning = GroupTuning(search_warps=warps, search_resident=resident, search_stages=stages)
            self.bench.measure(
                f"search, {warps} warps, {resident} resident, {stages} stages, batch 16",
                labels,
                lambda t=tuning: self.search(labels, 32, 16, tuning=t),
            )

    def check(self) -> str:
        """A step and a search of odd shapes against float64; raises where they are off."""
        bench = self.bench
        width, labels = 72, 1003
        head = SparseModule(
            width, labels, BCE(), fan_in=40, group=32, dtype=torch.bfloat16, device=bench.device
        )
        head.learning_rate = 0.5
        x = torch.randn((70, width), generator=bench.source, device=bench.device).bfloat16()
        indices = torch.randint(labels, (210,), generator=bench.source, device=bench.device)
        from megalabel.neural.targets import Targets

        indptr = torch.arange(0, 211, 3, device=bench.device)
        targets = Targets(indptr, indices, torch.ones(210, device=bench.device), labels)
        at = head.indices.long()[:, None, :].expand(-1, 32, -1)
        before = head.weights.double().transpose(1, 2)
        dense = torch.zeros((len(at), 32, width), dtype=torch.float64, device=bench.device)
        dense = dense.scatter(2, at, before).reshape(-1, width)[:labels]
        scores = x.double() @ dense.T
        values = scores.topk(TOP).values
        found = head.top_k(x.float(), TOP)[0].double()
        gradient = (torch.sigmoid(scores) - targets.dense(0, labels).double()) / 70
        _, by_features = head.learn(x.float(), targets)
        errors = {
            "best scores": float((found - values).norm() / values.norm()),
            "features": _distance(by_features, gradient @ dense),
        }
        if not all(error < 1e-2 for error in errors.values()):
            raise SystemExit(f"the sparse head is not right: {errors}")
        return "sparse, relative errors " + ", ".join(f"{k} {v:.1e}" for k, v in errors.items())


def _hinge() -> object:
    from megalabel.neural.losses import SquaredHinge

    return SquaredHinge()


def _distance(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def _total(lines: list[Row]) -> float:
    return sum(line.milliseconds or math.nan for line in lines)


def _against(line: Row, products: float, dense: Row) -> str:
    """A step beside the bottleneck's products, our dense step and the public kernels."""
    if not line.milliseconds or not dense.milliseconds or math.isnan(dense.peak or math.nan):
        return ""
    words = [f"{line.milliseconds / products:.2f} times the bottleneck's products"]
    words.append(f"{dense.milliseconds / line.milliseconds:.1f} times faster than the dense step")
    words.append(f"{PUBLIC / line.milliseconds:.1f} times faster than published for its like")
    if line.peak and dense.peak:
        words.append(f"{100 * line.peak / dense.peak:.0f}% of the dense step's memory")
    return "; ".join(words)
