"""What `megalabel plan` foresees beside what then happens.

    python benchmarks/plans.py --data FOLDER [--corpora eurlex-4k ...] [--systems xr-linear ...]
        [--json FILE]
    python benchmarks/plans.py --data FOLDER --corpora eurlex-titles --systems renee lightxml
        --set '{"encoder": MODEL, "epochs": 5, "max_length": 64, "device": "cuda"}'

FOLDER holds the corpora; "synthetic:LABELS" among the corpora is the built-in one with two texts a
label. Every plan and every fit is a process of its own, one after another. Seconds are those of the
fit, without reading; CPU seconds of the fit, those of all threads, are there to tell how busy the
machine was. Memory is the peak of the whole process, disk the model folder. A figure in brackets is
plan over reality. --set are parameters of all systems that have them; --texts takes some of the
corpus. The GPU's column is there where systems use one: the peak that torch has reserved.
"""

from __future__ import annotations

import argparse
import inspect
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import megalabel
from megalabel import Tagger, systems
from megalabel.data import Corpus
from megalabel.data.synthetic import generate

CORPORA = ["eurlex-4k", "eurlex-titles", "debian-depends", "rust-commits", "synthetic:30000"]
SYSTEMS = ["dismec", "ova-logistic", "xr-linear", "parabel", "bonsai", "plt"]

Figures = dict[str, float]


def read(data: Path, name: str, texts: int | None) -> Corpus:
    """The training part of a corpus, or so many texts of it."""
    kind, _, labels = name.partition(":")
    if kind == "synthetic":
        corpus = generate(2 * int(labels), int(labels)).corpus
    else:
        corpus = megalabel.read(data / name, "train")
    if texts is None or texts >= len(corpus):
        return corpus
    return corpus[np.sort(np.random.default_rng(0).permutation(len(corpus))[:texts])]


def created(system: str, parameters: dict[str, Any]) -> Tagger:
    """A system with those of the parameters that it has."""
    known = inspect.signature(systems.get(system).build).parameters
    return systems.create(system, **{k: v for k, v in parameters.items() if k in known})


def device_peak() -> Figures:
    """The most that torch has reserved on a GPU; nothing where it was not used."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    return {"gpu": torch.cuda.max_memory_reserved()}


def planned(corpus: Corpus, tagger: Tagger, system: str) -> Figures:
    """What is foreseen."""
    started = time.perf_counter()
    plan = systems.get(system).plan(tagger, corpus)
    if plan.seconds is None or plan.disk is None:
        raise SystemExit(f"{system} on {corpus} does not fit into memory: {plan}")
    figures = {"seconds": plan.seconds, "memory": plan.memory, "disk": plan.disk}
    if plan.gpu_memory is not None:
        figures["gpu"] = plan.gpu_memory
    return figures | {"planning": time.perf_counter() - started}


def fitted(corpus: Corpus, tagger: Tagger, system: str) -> Figures:
    """What happens."""
    started, cpu = time.perf_counter(), time.process_time()
    tagger.fit(corpus)
    figures = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    with tempfile.TemporaryDirectory() as folder:
        tagger.save(path := Path(folder) / "model")
        figures["disk"] = sum(file.stat().st_size for file in path.iterdir())
    return (
        figures
        | device_peak()
        | {"memory": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    )


def in_process(task: str, options: argparse.Namespace, corpus: str, system: str) -> Figures:
    """A task in a process of its own."""
    command = [sys.executable, __file__, "--task", task, "--data", str(options.data)]
    command += ["--corpora", corpus, "--systems", system, "--set", json.dumps(options.set)]
    if options.texts is not None:
        command += ["--texts", str(options.texts)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    plan, fit = row["plan"], row["fit"]
    cells = [row["corpus"], row["system"], f"{plan['planning']:.1f}"]
    for name, unit in (("seconds", 1), ("memory", 2**20), ("disk", 2**20), ("gpu", 2**20)):
        if name not in plan or name not in fit:
            cells.append("")
            continue
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
    parser.add_argument("--set", type=json.loads, default={}, metavar="JSON")
    parser.add_argument("--texts", type=int)
    parser.add_argument("--task", choices=["plan", "fit"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task is not None:
        task = planned if options.task == "plan" else fitted
        corpus, system = read(options.data, options.corpora[0], options.texts), options.systems[0]
        print(json.dumps(task(corpus, created(system, options.set), system)))
        return
    names = ["corpus", "system", "planning s", "seconds: plan / fit (CPU)", "peak MiB"]
    print(f"| {' | '.join([*names, 'disk MiB', 'GPU MiB'])} |")
    print("|---|---|---:|---:|---:|---:|---:|")
    rows = []
    for corpus in options.corpora:
        for system in options.systems:
            row = {"corpus": corpus, "system": system}
            row |= {t: in_process(t, options, corpus, system) for t in ("plan", "fit")}
            rows.append(row)
            print(line(row), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
