"""How a tree system grows from ten thousand to a million labels.

    python benchmarks/growth.py [--labels 10000 31623 100000 316228 1000000] [--texts-a-label 2]
        [--system xr-linear] [--set key=value ...] [--json FILE] [--plot FILE]

Each size is a process of its own, one after another, on the built-in synthetic corpus: it writes
the corpus in batches, fits the system on it and saves it, then ranks held-out texts of the same
shop, on one thread, by the saved model. The stages of the fit are timed where they are called;
memory is the peak of the whole process, the corpus included. The guide "n log L" is the CPU time of
the smallest size, grown in proportion to texts times the logarithm of labels.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from scipy.sparse import vstack

import megalabel
from megalabel import metrics, systems
from megalabel.data import Corpus
from megalabel.data.synthetic.corpus import Synthetic, stream
from megalabel.features import Tfidf
from megalabel.labels import LabelTree
from megalabel.linear import chunks, training
from megalabel.linear import tree as trees

SIZES = [10_000, 31_623, 100_000, 316_228, 1_000_000]
HELD_OUT = 20_000
STAGES = ["corpus", "features", "label vectors", "tree", "training", "chunks", "saving"]

Row = dict[str, Any]


class Watch:
    """Seconds spent in some functions, by name; of the training also by stage.

    Those of all threads are counted as well: they tell more where others use the machine.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.cpu: dict[str, float] = {}
        self.stages: list[float] = []
        self.cpu_stages: list[float] = []
        self._trained = 0

    def over(self, owner: Any, attribute: str, stage: str) -> None:
        """Time every call of a function where its callers find it."""
        function = getattr(owner, attribute)

        def timed(*arguments: Any, **keywords: Any) -> Any:
            return self.call(stage, function, *arguments, **keywords)

        setattr(owner, attribute, timed)

    def call(self, stage: str, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Call a function once and time it."""
        started, cpu = time.perf_counter(), time.process_time()
        try:
            return function(*args, **keywords)
        finally:
            self.seconds.setdefault(stage, []).append(time.perf_counter() - started)
            self.cpu[stage] = self.cpu.get(stage, 0) + time.process_time() - cpu
            # made once a level, when those of its stage are trained
            if stage == "chunks" and len(self.seconds["training"]) > self._trained:
                self._trained = len(self.seconds["training"])
                self.stages.append(sum(self.seconds["training"]) - sum(self.stages))
                self.cpu_stages.append(self.cpu["training"] - sum(self.cpu_stages))


def corpora(labels: int, texts: int) -> tuple[Corpus, Synthetic]:
    """The training corpus, put together from batches, and texts held out with their truth."""
    total = texts + HELD_OUT
    strings, targets = [], []
    for part in stream(total, labels, stop=texts):
        strings.append(part.corpus.texts)
        targets.append(part.corpus.targets)
    train = Corpus(
        pa.concat_arrays(strings), targets=vstack(targets, "csr"), labels=part.corpus.labels
    )
    [held_out] = stream(total, labels, start=texts)
    return train, held_out


def measured(labels: int, texts: int, system: str, settings: list[str]) -> Row:
    """All figures of one size."""
    watch = Watch()
    watch.over(Tfidf, "fit_transform", "features")
    watch.over(trees, "label_vectors", "label vectors")
    watch.over(LabelTree, "balanced", "tree")
    watch.over(LabelTree, "kmeans", "tree")
    watch.over(training, "train", "training")
    watch.over(chunks.ChunkedWeights, "build", "chunks")
    parameters = dict(setting.split("=", 1) for setting in settings)
    tagger = systems.create(
        system, **{"calibrate": False} | {k: json.loads(v) for k, v in parameters.items()}
    )
    train, held_out = watch.call("corpus", corpora, labels, texts)
    in_corpus = peak()
    cpu = time.process_time()
    watch.call("fit", tagger.fit, train)
    row: Row = {"labels": labels, "texts": texts, "features": tagger.features_.n_features}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        watch.call("saving", tagger.save, path)
        row["cpu seconds"] = time.process_time() - cpu
        row["peak bytes"], row["peak bytes of the corpus"] = peak(), in_corpus
        row["model bytes"] = sum(file.stat().st_size for file in path.iterdir())
        row["levels"] = [tree.level_sizes for tree in tagger.classifier_.trees_]
        del tagger, train
        megalabel.set_threads(1)
        loaded = megalabel.load(path)
        loaded.rank(held_out.corpus[:1000], 5)
        ranking = watch.call("ranking", loaded.rank, held_out.corpus, 5)
    row["predict seconds per 1000"] = watch.seconds.pop("ranking")[0] / HELD_OUT * 1000
    for name, answer in (("", ranking), ("best ", held_out.best(5, observed=True))):
        found = metrics.evaluate(answer, held_out.corpus.targets, k=(1, 3, 5))
        row |= {f"{name}P@{k}": 100 * found[f"P@{k}"] for k in (1, 3, 5)}
    row["seconds"] = {stage: sum(times) for stage, times in watch.seconds.items()}
    row["seconds by stage"] = watch.stages
    row["cpu seconds by stage"] = watch.cpu
    row["cpu seconds by stage"] = watch.cpu_stages
    return row


def peak() -> int:
    """The most bytes that this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_process(labels: int, options: argparse.Namespace) -> Row:
    """One size, in a process of its own."""
    command = [sys.executable, __file__, "--one", "--labels", str(labels)]
    command += ["--texts-a-label", str(options.texts_a_label), "--system", options.system]
    command += ["--set", *options.set] if options.set else []
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row: Row = json.loads(done.stdout)
    return row


def n_log_l(rows: list[Row], figure: Callable[[Row], float]) -> list[float]:
    """The smallest size's figure, grown as n log L."""
    work = [row["texts"] * math.log(row["labels"]) for row in rows]
    return [figure(rows[0]) * w / work[0] for w in work]


def table(rows: list[Row]) -> str:
    """A line a size, in Markdown."""
    head = ["labels", "texts", *STAGES[1:4], "training by stage", "saving", "fit s (CPU s)"]
    head += ["CPU against n log L", "peak MiB", "model MiB", "predict s per 1,000, 1 thread"]
    head += ["P@1 / 3 / 5", "best P@1"]
    lines = [f"| {' | '.join(head)} |", "|" + "---:|" * len(head)]
    expected = n_log_l(rows, lambda row: row["cpu seconds"])
    for row, cpu in zip(rows, expected, strict=True):
        seconds = row["seconds"]
        cells = [f"{row['labels']:,}", f"{row['texts']:,}"]
        cells += [f"{seconds[stage]:.2f}" for stage in STAGES[1:4]]
        cells.append(" + ".join(f"{t:.1f}" for t in row["seconds by stage"]))
        cells.append(f"{seconds['saving']:.2f}")
        cells.append(f"{seconds['fit']:.1f} ({row['cpu seconds']:.1f})")
        cells.append(f"{row['cpu seconds'] / cpu:.2f}")
        cells += [f"{row[size] / 2**20:,.0f}" for size in ("peak bytes", "model bytes")]
        cells.append(f"{row['predict seconds per 1000']:.3f}")
        cells.append(" / ".join(f"{row[f'P@{k}']:.1f}" for k in (1, 3, 5)))
        cells.append(f"{row['best P@1']:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(rows: list[Row]) -> str:
    """CPU seconds and peak memory against labels, both axes logarithmic, as SVG."""
    labels = [row["labels"] for row in rows]
    panels = [
        ("CPU seconds of fit and save", [row["cpu seconds"] for row in rows], True),
        ("peak memory, GiB", [row["peak bytes"] / 2**30 for row in rows], False),
    ]
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 330" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="760" height="330" fill="white"/>',
    ]
    for number, (title, values, grown) in enumerate(panels):
        guide = n_log_l(rows, lambda row: row["cpu seconds"]) if grown else []
        parts += _panel(380 * number, title, labels, values, guide)
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    left: int, title: str, labels: list[int], values: list[float], guide: list[float]
) -> list[str]:
    every = [*values, *guide]
    low, high = (f(math.log10(v)) for f, v in ((math.floor, min(every)), (math.ceil, max(every))))
    span = max(math.log10(labels[-1] / labels[0]), 1e-9)

    def point(x: float, y: float) -> tuple[float, float]:
        across = left + 60 + 290 * math.log10(x / labels[0]) / span
        return across, 280 - 230 * (math.log10(y) - low) / max(1, high - low)

    def text(x: float, y: float, words: str, anchor: str) -> str:
        return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{words}</text>'

    parts = [text(left + 205, 24, title, "middle"), text(left + 205, 320, "labels", "middle")]
    for power in range(low, high + 1):
        _, y = point(labels[0], 10.0**power)
        parts.append(f'<path d="M{left + 60} {y:.1f}h290" stroke="#ddd"/>')
        parts.append(text(left + 54, y + 4, f"{10.0**power:g}", "end"))
    for count in labels:
        parts.append(text(point(count, values[0])[0], 298, f"{count:,}", "middle"))
    for series, style in (
        (values, 'stroke="#1f5fa8"'),
        (guide, 'stroke="#999" stroke-dasharray="5"'),
    ):
        if series:
            points = (point(x, y) for x, y in zip(labels, series, strict=True))
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(f'<polyline points="{line}" fill="none" stroke-width="2" {style}/>')
    for x, y in (point(x, y) for x, y in zip(labels, values, strict=True)):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#1f5fa8"/>')
    if guide:
        parts.append(text(left + 70, 60, "dashed: n log L from the smallest size", "start"))
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--labels", type=int, nargs="+", default=SIZES)
    parser.add_argument("--texts-a-label", type=int, default=2)
    parser.add_argument("--system", default="xr-linear")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", type=Path, help="where all figures go")
    parser.add_argument("--plot", type=Path, help="where the plot goes, an SVG")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        [labels] = options.labels
        texts = options.texts_a_label * labels
        print(json.dumps(measured(labels, texts, options.system, options.set)))
        return
    rows = []
    for labels in sorted(options.labels):
        rows.append(in_process(labels, options))
        print(f"{labels:,} labels: {rows[-1]['seconds']['fit']:.1f} s", file=sys.stderr, flush=True)
        if options.json is not None:  # each time, so that nothing is lost if a size fails
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
        if options.plot is not None:
            options.plot.write_text(plot(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
