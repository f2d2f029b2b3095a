"""Label points beside none: what texts of labels as rows of training gain, on real corpora.

    python benchmarks/label_points.py --data DATA [--corpora NAME ...] [--systems NAME ...]
        [--seeds 2] [--texts 0] [--tests 0] [--known] [--held-out]
        [--choose | --ablation] [--results FILE]

Each variant is trained on the same texts by the same features as the control, which has no label
points, and measured on the test part; differences have 95 % intervals over its texts, paired, of
the mean over seeds. A seed draws the texts of training (--texts of them; 0: all) and fixes trees.
--known leaves out labels that no training text has: with few texts of many labels their label
points would be most of the rows. Where texts are labels that they do not carry, these are left out
of the answers of all variants, and texts that are labels are also measured apart from the others.

--choose compares weights and texts of labels on a tenth of the training texts, held out, where the
defaults are from; --held-out compares targets there. It flatters label points, as labels of no text
left are reached by theirs alone. --ablation compares targets, thresholds, shares and samples.
Results are lines of JSON, one a variant; one that is in the file is not run again.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import megalabel
from megalabel import Corpus, systems
from megalabel.labels import LabelPoints
from megalabel.labels.own import OwnLabels, own_labels
from megalabel.metrics import Evaluation
from megalabel.metrics.bootstrap import percentiles

RESULTS = Path(__file__).parent / "results" / "label_points.jsonl"
CORPORA = ["gutenberg-lcsh", "rust-commits", "eurlex-titles", "debian-depends", "wordnet-hypernyms"]
SYSTEMS: dict[str, dict[str, Any]] = {
    "xr-linear": {},
    "dismec": {},
    "astec": {"width": 64, "classifier__trainer__epochs": 5, "device": "cpu"},
    "unidec": {"epochs": 15, "device": "cpu"},
}
MOST_CELLS = 6e8  # texts times labels; of more, one-versus-all takes over ten minutes
MEASURES = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "coverage@5")
SAMPLES = 1_000

Parts = dict[str, Evaluation]  # of a variant: of all texts, and of some of them
Variants = dict[str, dict[str, Any]]
MAIN: Variants = {
    "self": {},
    "co-occurrence 0.1": {"targets": "cooccurrence", "threshold": 0.1},
    "co-occurrence 0.3": {"targets": "cooccurrence", "threshold": 0.3},
}
CHOICES: Variants = {
    **{f"weight {weight}": {"weight": weight} for weight in (0.2, 0.4, 0.7, 1.0, 1.5)},
    **{f"weight 1.0, {texts}": {"texts": texts} for texts in ("texts", "both")},
}
ABLATION: Variants = {
    "self": {},
    **{
        f"co-occurrence {threshold}": {"targets": "cooccurrence", "threshold": threshold}
        for threshold in (0.0, 0.1, 0.2, 0.3, 0.5)
    },
    "random walks": {"targets": "random-walk"},
    "symmetric": {"targets": "symmetric"},
    **{
        f"self, {share:.0%} of labels, {sample}": {"share": share, "sample": sample}
        for share in (0.25, 0.5)
        for sample in ("random", "tail-first")
    },
}


def read(folder: Path, split: str) -> Corpus:
    made = megalabel.read(folder, split=split)
    assert isinstance(made, Corpus)
    return made


def without_own(corpus: Corpus) -> Corpus:
    """The corpus, whose texts that are labels leave their own label out."""
    cells = OwnLabels(corpus.labels).cells(corpus)
    return Corpus(corpus.texts, None, corpus.targets, corpus.labels, ids=corpus.ids, excluded=cells)


def parts(options: argparse.Namespace, name: str, seed: int) -> tuple[Corpus, Corpus]:
    """What is trained on, and what it is measured on."""
    train = read(options.data / name, "train")
    random = np.random.default_rng(seed)
    order = random.permutation(len(train))
    if options.held_out:
        apart, order = np.split(order, [len(train) // 10])
        test = train[np.sort(apart)]
    else:
        test = read(options.data / name, "test").aligned(train.labels)
    train = train[np.sort(order[: options.texts or None])]
    if options.known:
        known = np.flatnonzero(train.label_counts)
        train, test = train.with_labels(known), test.with_labels(known)
        test = test[np.flatnonzero(np.diff(test.targets.indptr))]
    if options.tests and len(test) > options.tests:
        test = test[np.sort(random.permutation(len(test))[: options.tests])]
    return train, test if own_labels(train) is None else without_own(test)


def measured(
    system: str, parameters: dict[str, Any] | None, train: Corpus, test: Corpus, seed: int
) -> tuple[Parts, float]:
    """The evaluations of one variant, and CPU seconds of its fit."""
    points = None if parameters is None else LabelPoints(**parameters)
    tagger = systems.create(
        system, calibration=None, label_points=points, seed=seed, **SYSTEMS[system]
    )
    started = time.process_time()
    tagger.fit(train)
    seconds = time.process_time() - started
    made = {"all": tagger.evaluate(test, k=(1, 3, 5))}
    are_labels = np.diff(OwnLabels(test.labels).cells(test).indptr) > 0
    if test.excluded is not None and are_labels.any() and not are_labels.all():
        made["labels"] = tagger.evaluate(test[np.flatnonzero(are_labels)], k=(1, 3, 5))
        made["others"] = tagger.evaluate(test[np.flatnonzero(~are_labels)], k=(1, 3, 5))
    return made, seconds


def row_of(found: list[tuple[Parts, float]], control: list[tuple[Parts, float]]) -> dict[str, Any]:
    """Means over seeds, and differences from the control with their intervals; those of all texts
    first, then those of texts that are labels, and of the others, if some are."""
    row: dict[str, Any] = {"CPU s": round(float(np.mean([s for _, s in found])), 1)}
    for part in found[0][0]:
        made = gains([p[part] for p, _ in found], [p[part] for p, _ in control], found is control)
        row |= made if part == "all" else {part: made}
    return row


def gains(found: list[Evaluation], control: list[Evaluation], same: bool) -> dict[str, Any]:
    """Means over seeds, and differences from the control with their intervals."""
    row: dict[str, Any] = {"texts": found[0].rows}
    ours, theirs = (
        [evaluation.sampled(samples=SAMPLES, seed=0) for evaluation in side]
        for side in (found, control)
    )
    for name in MEASURES:
        mean = 100 * np.mean([evaluation[name] for evaluation in found])
        row[name] = round(float(mean), 2)
        if same:
            continue
        base = 100 * np.mean([evaluation[name] for evaluation in control])
        sampled = np.mean([a[name] - b[name] for a, b in zip(ours, theirs, strict=True)], axis=0)
        low, high = percentiles(100 * sampled, 0.95)
        row[f"{name} gain"] = [round(float(x), 2) for x in (mean - base, low, high)]
    return row


def command(options: argparse.Namespace) -> str:
    """What makes a row again, without the folders of a machine."""
    folders = {str(options.data): "DATA", str(options.results): "FILE"}
    return " ".join(["python", *(folders.get(argument, argument) for argument in sys.argv)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--corpora", nargs="+", default=CORPORA)
    parser.add_argument("--systems", nargs="+", default=["xr-linear", "dismec"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--texts", type=int, default=0)
    parser.add_argument("--tests", type=int, default=0)
    parser.add_argument("--known", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--held-out", action="store_true", help="held out of training, not tests")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--choose", action="store_true")
    kind.add_argument("--ablation", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.held_out |= options.choose
    megalabel.set_threads(options.threads)
    variants = CHOICES if options.choose else ABLATION if options.ablation else MAIN
    kept = options.results.read_text().splitlines() if options.results.exists() else []
    known = {json.dumps(json.loads(line)["setting"]) for line in kept}
    for name in options.corpora:
        for system in options.systems:
            pairs = [parts(options, name, seed) for seed in range(options.seeds)]
            train = pairs[0][0]
            if system == "dismec" and len(train) * len(train.labels) > MOST_CELLS:
                print(f"{name}: {system} would take over ten minutes")
                continue
            control: list[tuple[Parts, float]] = []
            for variant, parameters in [("none", None), *variants.items()]:
                if "texts" in (parameters or {}) and train.labels.texts is None:
                    continue
                setting = {
                    "corpus": name,
                    "texts": len(train),
                    "system": system,
                    "variant": variant,
                    "seeds": options.seeds,
                    "held out": options.held_out,
                }
                setting |= {"tests": options.tests} if options.tests else {}
                setting |= {"known": True} if options.known else {}
                if json.dumps(setting) in known and variant != "none":
                    continue
                found = [
                    measured(system, parameters, *pair, seed) for seed, pair in enumerate(pairs)
                ]
                control = control or found
                if json.dumps(setting) in known:
                    continue
                row = {"setting": setting, **row_of(found, control)}
                row |= {
                    "command": command(options),
                    "machine": f"{platform.machine()}, {platform.system()}",
                    "megalabel": megalabel.__version__,
                }
                for part in found[0][0]:
                    some = row if part == "all" else row[part]
                    shown = {n: some.get(f"{n} gain", some[n]) for n in ("P@1", "PSP@5")}
                    print(name, system, variant, part, some["texts"], shown, flush=True)
                options.results.parent.mkdir(exist_ok=True)
                with options.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
