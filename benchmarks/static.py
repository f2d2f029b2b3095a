"""What an encoder is worth on two processor cores: accuracy, seconds and memory by corpus.

    python benchmarks/static.py --data FOLDER … --static FOLDER --model FOLDER [--json FILE]
    python benchmarks/static.py --data FOLDER … --static FOLDER --model FOLDER --speed TEXTS
    python benchmarks/static.py --table FILE

Four encoders under the same head of all labels (renee, without calibration): "bag", vectors of
words from scratch; "static", word vectors of others (--static, a folder), trained on; "frozen
static", the same as they are, under a trained map; "frozen model", the vectors of a transformer
(--model, a folder) as they are, under a trained map. Beside them dismec on tf-idf. Each learns from
the same texts of a corpus, drawn by a seed, and the labels that these carry. Others of the test
texts count as not found.

Rates are those of the system by default; "bag, 1e-2" has a higher one. Test texts, of which --tests
are drawn, are read for the final figures alone.

Each way is a process of its own. Seconds are of CPU and by the clock, of features and training.
What features take is said apart: there a transformer reads the texts.
Memory is the peak of the process beyond what it had when the corpus was read. `--json` keeps a line
for each way, with the machine, the version and the command; `--table` prints such a file. `--speed`
prints how many texts of a corpus a model reads a second in each precision, on one thread.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import megalabel
from megalabel import Corpus, systems
from megalabel.features import StaticEmbedding
from megalabel.machine import forget_peak, memory_in_use, peak_memory
from megalabel.metrics import evaluate

Row = dict[str, Any]

RATES = {
    "bag": None,
    "bag, 1e-2": 1e-2,
    "static": None,
    "frozen static": None,
    "frozen model": None,
    "dismec": None,
}
ACCURACY = ("P@1", "P@3", "P@5", "PSP@5")


def created(way: str, options: argparse.Namespace) -> megalabel.Tagger:
    """A tagger of one of the ways."""
    if way == "dismec":
        return systems.create("dismec", calibrate=False)
    encoder = {
        "bag": "bag",
        "bag, 1e-2": "bag",
        "static": options.static,
        "frozen static": f"frozen:{options.static}",
        "frozen model": f"frozen:{options.model}",
    }[way]
    return systems.create(
        "renee",
        encoder=encoder,
        max_length=options.tokens,
        epochs=options.epochs,
        batch=options.batch,
        learning_rate=RATES[way],
        device="cpu",
        calibrate=False,
    )


def sample(corpus: Corpus, texts: int, skipped: int = 0) -> Corpus:
    """Some texts, drawn by a seed that is always the same."""
    order = np.random.default_rng(0).permutation(len(corpus))
    return corpus[np.sort(order[skipped : skipped + texts])]


def used(corpus: Corpus) -> Corpus:
    """A corpus with those labels alone that its texts carry: others cannot be learned."""
    return corpus.with_labels(np.flatnonzero(corpus.label_counts))


def measured(way: str, data: Path, options: argparse.Namespace) -> Row:
    """One way on one corpus."""
    train = used(sample(megalabel.read(data, "train"), options.texts))
    test = sample(megalabel.read(data, "test"), options.tests).aligned(train.labels)
    tagger = created(way, options)
    if way != "dismec":
        import torch

        torch.set_num_threads(options.threads)
    megalabel.set_threads(options.threads)
    forget_peak()
    before, clock, cpu = memory_in_use(), time.perf_counter(), time.process_time()
    prepared = tagger.prepare(train)
    features = time.process_time() - cpu
    tagger.fit(train, prepared=prepared)
    spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - clock}
    found = evaluate(tagger.rank(test, 5), test, k=(1, 3, 5), train_labels=train.targets)
    return {
        "corpus": data.name,
        "way": way,
        "texts": len(train),
        "labels": len(train.labels),
        "epochs": options.epochs,
        "features cpu": features,
        **spent,
        "MiB": (peak_memory() - before) / 2**20,
        **{name: 100 * found[name] for name in ACCURACY},
    }


def speed(data: Path, options: argparse.Namespace) -> list[Row]:
    """How fast the model reads texts of a corpus, in each precision, on one thread."""
    import torch

    from megalabel.neural import Embedding

    torch.set_num_threads(1)
    megalabel.set_threads(1)
    texts = sample(megalabel.read(data, "train"), options.speed)
    plain = Embedding(options.model, max_length=options.tokens, device="cpu").fit([])
    exact, rows = plain.transform(texts), []
    kinds: dict[str, Any] = {"float32": plain}
    kinds["bf16"] = Embedding(
        options.model, max_length=options.tokens, device="cpu", precision="bf16"
    ).fit([])
    kinds["int8, by onnxruntime"] = plain.onnx_twin(int8=True)
    kinds["static vectors"] = StaticEmbedding(options.static).fit()
    for kind, features in kinds.items():
        cpu = time.process_time()
        vectors = features.transform(texts)
        rate = len(texts) / (time.process_time() - cpu)
        alike = None
        if vectors.shape == exact.shape:
            alike = float(np.einsum("ij,ij->i", vectors, exact).mean())
        rows.append({"corpus": data.name, "kind": kind, "texts a CPU s": rate, "cosine": alike})
    return rows


def table(rows: list[Row]) -> str:
    """All rows as a table."""
    lines = ["| corpus | encoder | P@1 / 3 / 5 | PSP@5 | CPU s (features) | MiB |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    for row in rows:
        shown = [row["corpus"], row["way"]]
        shown.append(" / ".join(f"{row[name]:.1f}" for name in ACCURACY[:3]))
        shown += [f"{row['PSP@5']:.1f}", f"{row['cpu']:.0f} ({row['features cpu']:.0f})"]
        shown += [f"{row['MiB']:.0f}"]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", type=Path, nargs="+", help="corpora with train and test")
    what.add_argument("--table", type=Path, help="a file that --json has written")
    parser.add_argument("--static", help="a folder of static word vectors")
    parser.add_argument("--model", help="a folder of a transformer")
    parser.add_argument("--ways", nargs="+", choices=RATES, default=list(RATES))
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--tests", type=int, default=3_000)
    parser.add_argument("--tokens", type=int, default=64, help="of a text")
    parser.add_argument("--epochs", type=float, default=10)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where all figures go, a line each")
    parser.add_argument("--alone", action="store_true", help="one way, in this process")
    parser.add_argument("--speed", type=int, help="read so many texts in each precision instead")
    options = parser.parse_args()
    if options.table is not None:
        print(table([json.loads(line) for line in options.table.read_text().splitlines()]))
        return
    about = {
        "machine": f"{platform.machine()}, {platform.system()}, {options.threads} threads",
        "version": megalabel.__version__,
        "command": " ".join(Path(word).name for word in ["python", *sys.argv]),
    }
    if options.speed is not None:
        for data in options.data:
            print("\n".join(json.dumps(about | row) for row in speed(data, options)))
        return
    if options.alone:
        print(json.dumps(measured(options.ways[0], options.data[0], options)))
        return
    rows: list[Row] = []
    same = ("static", "model", "texts", "tests", "tokens", "epochs", "batch", "threads")
    given = [f"--{name}={getattr(options, name)}" for name in same]
    for data in options.data:
        for way in options.ways:
            one = [f"--data={data}", f"--ways={way}", "--alone"]
            run = subprocess.run(
                [sys.executable, __file__, *one, *given], check=True, capture_output=True, text=True
            )
            rows.append(json.loads(run.stdout.splitlines()[-1]))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            if options.json is not None:  # each time, so that nothing is lost
                lines = [json.dumps(about | row) for row in rows]
                options.json.write_text("\n".join(lines) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
