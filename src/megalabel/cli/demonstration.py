"""demo: the whole road once, on a corpus that is written on the spot."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.markup import escape

from megalabel import data, store, systems
from megalabel.cli import output
from megalabel.cli.reading import AS_USUAL
from megalabel.cli.shared import Seed, System, Threads, use_threads
from megalabel.data import Corpus
from megalabel.data.writing import write_split
from megalabel.errors import ParameterError
from megalabel.metrics import Evaluation, evaluate
from megalabel.metrics.plain import plain_value, questions
from megalabel.outputs import check_folder, replacing_file
from megalabel.report import Example, examples, page
from megalabel.tagger import Tagger
from megalabel.units import duration, size


def demo(
    out: Annotated[
        Path, typer.Option(help="A folder for the corpus, the model and the page.")
    ] = Path("demo"),
    folder: Annotated[
        Path | None, typer.Option("--data", help="Your corpus instead of the built-in one.")
    ] = None,
    texts: Annotated[int, typer.Option(min=100, help="Texts of the built-in corpus.")] = 20_000,
    labels: Annotated[int, typer.Option(min=1000, help="Labels of the built-in corpus.")] = 2_000,
    system: System = "knn",
    threads: Threads = None,
    seed: Seed = 0,
) -> None:
    """Make a corpus, train, calibrate, evaluate, tag, save, and write a page to look at."""
    use_threads(threads)
    if out.exists() and not out.is_dir():
        raise ParameterError(f"--out must be a folder, and {out} is a file")
    check_folder(out)
    tagger = systems.create(system, seed=seed)
    measured: dict[str, Evaluation] = {}
    if folder is None:
        train, test = _write_corpus(out / "corpus", texts, labels, seed, measured)
    else:
        train, test = (AS_USUAL.corpus(folder, part) for part in ("train", "test"))
    output.console.print(
        f"[bold]1.[/] corpus: {len(train):,} texts to learn from, "
        f"{len(test):,} to be tested on, {len(train.labels):,} labels"
    )

    started = time.perf_counter()
    tagger.fit(train)
    output.console.print(
        f"[bold]2.[/] trained and calibrated [cyan]{system}[/] in "
        f"{duration(time.perf_counter() - started)}"
    )
    tagger.save(out / "model")
    floor = systems.create("prior", seed=seed).fit(train)
    measured = {
        "prior (the floor)": floor.evaluate(test),
        system: tagger.evaluate(test),
        **measured,
    }
    scores = {name: evaluation.to_dict(percent=True) for name, evaluation in measured.items()}
    with replacing_file(out / "metrics.json") as fresh:
        fresh.write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
    answers = {
        question: {name: values[metric] for name, values in measured.items() if metric in values}
        for metric, question in questions(measured[system]).items()
    }
    output.console.print("[bold]3.[/] measured on the test texts:")
    rows = [
        [question, *(plain_value(values[name]) if name in values else "–" for name in measured)]
        for question, values in answers.items()
    ]
    output.show_table("", ["in %", *(name.replace(" ", "\n", 1) for name in measured)], rows)

    chosen = _examples(tagger, test)
    said = "some test texts and their tags (✓: a true label):"
    output.console.print(
        f"[bold]4.[/] {said if chosen else 'the corpus has vectors and no texts to show'}"
    )
    for example in chosen[:3]:
        output.console.print(f"   [bold]{escape(example.text)}[/]", soft_wrap=True)
        for tag, right in zip(example.tags, example.right, strict=True):
            mark = "✓" if right else " "
            output.console.print(f"   {tag.probability:6.1%} {mark} {escape(tag.label)}")
    facts = {
        "system": system,
        "training texts": f"{len(train):,}",
        "test texts": f"{len(test):,}",
        "labels": f"{len(train.labels):,}",
        "features": f"{tagger.features_.n_features:,}",
        "model size": size(store.folder_bytes(out / "model")),
    }
    summary = f"{system} trained on {len(train):,} texts, measured on {len(test):,} others."
    with replacing_file(out / "index.html") as fresh:
        fresh.write_text(page("megalabel demo", summary, answers, facts, chosen), encoding="utf-8")
    model = out / "model"
    if chosen:
        attempt = ["tag", model, chosen[0].text.split(".")[0]]
    else:
        attempt = ["evaluate", model, folder, "--all", "--intervals"]
    places = f"model in {model}, page in {out / 'index.html'}"
    command = shlex.join(["megalabel", *map(str, attempt)])
    output.console.print(
        f"[bold]5.[/] {escape(places)}. Try:\n   {escape(command)}", soft_wrap=True
    )


def _write_corpus(
    folder: Path, texts: int, labels: int, seed: int, measured: dict[str, Evaluation]
) -> tuple[Corpus, Corpus]:
    """The built-in corpus, split and kept as files; and what the best system would get."""
    from megalabel.data import synthetic  # its word lists take a while to build

    made = synthetic.generate(texts=texts, labels=labels, seed=seed)
    train, test = data.split(made.corpus, test=0.2, seed=seed)
    write_split(folder, train, test)
    number = {uid: row for row, uid in enumerate(made.corpus.ids.to_pylist())}  # type: ignore[union-attr]
    rows = np.array([number[uid] for uid in test.ids.to_pylist()])  # type: ignore[union-attr]
    measured["best possible"] = evaluate(
        made.best(5, observed=True)[rows],
        test,
        train_labels=(train.label_counts, len(train)),
        probabilities=True,
    )
    return train, test


def _examples(tagger: Tagger, test: Corpus, count: int = 20) -> list[Example]:
    rows = np.linspace(0, len(test) - 1, min(count, len(test))).astype(int)
    chosen = test[rows]
    return [] if chosen.texts is None else examples(tagger.decide(chosen, 5), chosen)
