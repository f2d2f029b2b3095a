"""What `megalabel plan` foresees beside what then happens.

    python benchmarks/plans.py --data FOLDER [--corpora eurlex-4k ...] [--systems xr-linear ...]
        [--json FILE]

FOLDER holds the corpora; "synthetic:LABELS" among the corpora is the built-in one with two texts a
label. Every plan and every fit is a process of its own, one after another. Seconds are those of the
fit, without reading; CPU seconds of the fit, those of all threads, are there to tell how busy the
machine was. Memory is the peak of the whole process, disk the model folder. A figure in brackets is
plan over reality.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import megalabel
from megalabel import systems
from megalabel.data import Corpus
from megalabel.data.synthetic import generate

CORPORA = ["eurlex-4k", "eurlex-titles", "debian-depends", "rust-commits", "synthetic:30000"]
SYSTEMS = ["dismec", "ova-logistic", "xr-linear", "parabel", "bonsai", "plt"]

Figures = dict[str, float]


def read(data: Path, name: str) -> Corpus:
    """The training part of a corpus."""
    kind, _, labels = name.partition(":")
    if kind == "synthetic":
        return generate(2 * int(labels), int(labels)).corpus
    return megalabel.read(data / name, "train")


def planned(corpus: Corpus, system: str) -> Figures:
    """What is foreseen."""
    started = time.perf_counter()
    plan = systems.get(system).plan(systems.create(system), corpus)
    if plan.seconds is None or plan.disk is None:
        raise SystemExit(f"{system} on {corpus} does not fit into memory: {plan}")
    figures = {"seconds": plan.seconds, "memory": plan.memory, "disk": plan.disk}
    return figures | {"planning": time.perf_counter() - started}


def fitted(corpus: Corpus, system: str) -> Figures:
    """What happens."""
    tagger = systems.create(system)
    started, cpu = time.perf_counter(), time.process_time()
    tagger.fit(corpus)
    figures = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    with tempfile.TemporaryDirectory() as folder:
        tagger.save(path := Path(folder) / "model")
        figures["disk"] = sum(file.stat().st_size for file in path.iterdir())
    return figures | {"memory": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def in_process(task: str, data: Path, corpus: str, system: str) -> Figures:
    """A task in a process of its own."""
    command = [sys.executable, __file__, "--task", task, "--data", str(data)]
    command += ["--corpora", corpus, "--systems", system]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    plan, fit = row["plan"], row["fit"]
    cells = [row["corpus"], row["system"], f"{plan['planning']:.1f}"]
    for name, unit in (("seconds", 1), ("memory", 2**20), ("disk", 2**20)):
        foreseen, real = plan[name] / unit, fit[name] / unit
        extra = f" ({fit['cpu']:.1f})" if name == "seconds" else ""
        cells.append(f"{foreseen:.1f} / {real:.1f}{extra} [{foreseen / real:.2f}]")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--corpora", nargs="+", default=CORPORA)
    parser.add_argument("--systems", nargs="+", default=SYSTEMS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--task", choices=["plan", "fit"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task is not None:
        task = planned if options.task == "plan" else fitted
        print(json.dumps(task(read(options.data, options.corpora[0]), options.systems[0])))
        return
    print("| corpus | system | planning s | seconds: plan / fit (CPU) | peak MiB | disk MiB |")
    print("|---|---|---:|---:|---:|---:|")
    rows = []
    for corpus in options.corpora:
        for system in options.systems:
            row = {"corpus": corpus, "system": system}
            row |= {t: in_process(t, options.data, corpus, system) for t in ("plan", "fit")}
            rows.append(row)
            print(line(row), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
