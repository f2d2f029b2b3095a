"""Mixes of unlike systems beside their members, and match features beside none, on test texts.

    python benchmarks/mixes.py --data DATA [--corpora NAME ...] [--texts 0] [--results FILE]
    python benchmarks/mixes.py --data DATA --corpora NAME ... --texts 8000 --answering-only

Of each corpus members are trained on most training texts and mixed on the others (a fifth, 8,000 at
most), in each form; then they are trained on all, and all is measured on the test part. The best
member is the one with the best nDCG@10 on the texts held out. "ranked anew" is the member xr-linear
alone, by boosted trees with and without the labels' names. --texts bounds the training texts, drawn
by a seed. Results are lines of JSON, one a corpus; one that is in the file is not run again.
Seconds are CPU seconds of training all members twice, and of learning a form, its trial included.

--answering-only measures single queries alone, of members that are trained once and of their mix.
--note says in the results which library it was.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import megalabel
from megalabel import Corpus, Tagger, systems
from megalabel.mixing import mix, with_members
from megalabel.preparing import in_random_order

RESULTS = Path(__file__).parent / "results" / "mixes.jsonl"
QUERIES = RESULTS.with_name("mixes-queries.jsonl")
MEMBERS: list[tuple[str, dict[str, Any]]] = [
    ("xr-linear", {"trees": 1, "max_leaf": 100}),
    ("xr-linear", {"trees": 3, "max_leaf": 100}),
    ("knn", {}),
    ("dismec", {}),
]
MOST_CELLS = 6e8  # texts times labels; of more, one-versus-all takes over ten minutes
ANEW = 1  # the member that is ranked anew
MEASURES = ("P@1", "P@3", "P@5", "nDCG@10", "PSP@5")
HELD_OUT, SHARE = 8_000, 0.2


def measured(tagger: Tagger, test: Corpus) -> dict[str, float]:
    found = tagger.evaluate(test, k=(1, 3, 5, 10))
    return {name: 100 * float(found[name]) for name in MEASURES}


def members_of(corpus: Corpus) -> list[tuple[str, dict[str, Any]]]:
    large = len(corpus) * len(corpus.labels) > MOST_CELLS
    return [one for one in MEMBERS if not (large and one[0] == "dismec")]


def taggers_on(corpus: Corpus, members: list[tuple[str, dict[str, Any]]]) -> list[Tagger]:
    return [systems.create(n, **p, calibration=None).fit(corpus) for n, p in members]


def run(train: Corpus, test: Corpus) -> dict[str, Any]:
    members = members_of(train)
    order = in_random_order(train.targets, 0)
    held_out, rest = np.split(order, [min(HELD_OUT, int(SHARE * len(train)))])
    learned, others = train[np.sort(rest)], train[np.sort(held_out)]
    begin = time.process_time()
    first, final = taggers_on(learned, members), taggers_on(train, members)
    training = time.process_time() - begin
    result: dict[str, Any] = {"members": [[n, p] for n, p in members], "CPU s, members": training}
    scores: dict[str, dict[str, float]] = {}
    for number, tagger in enumerate(final):
        scores[f"member {number}"] = measured(tagger, test)
    best: dict[str, float] = {}
    for name, chosen, form, names in (
        ("weights", slice(None), "means", False),
        ("stack", slice(None), "stack", True),
        ("boosted, no names", slice(None), "boosted", False),
        ("boosted", slice(None), "boosted", True),
        ("ranked anew, no names", slice(ANEW, ANEW + 1), "boosted", False),
        ("ranked anew", slice(ANEW, ANEW + 1), "boosted", True),
    ):
        begin = time.process_time()
        mixed = mix(first[chosen], others, form=form, names=names)
        seconds = time.process_time() - begin
        again = with_members(mixed, final[chosen], train)
        scores[name] = measured(again, test) | {"CPU s": seconds}
        for row, values in mixed.provenance_["mix"]["held_out"].items():
            if row.startswith("member") and chosen == slice(None):
                best[row] = values["nDCG@10"]
        print(f"  {name}: {scores[name]}", flush=True)
        if name == "boosted":
            result["answering"] = answering(again, final, test)
    result["best member"] = max(best, key=lambda row: best[row])
    return result | {"scores": scores}


def queries(train: Corpus, test: Corpus) -> dict[str, Any]:
    """Of single queries alone: members trained once, and their mix by boosted trees."""
    members = members_of(train)
    order = in_random_order(train.targets, 0)
    held_out, rest = np.split(order, [min(HELD_OUT, int(SHARE * len(train)))])
    taggers = taggers_on(train[np.sort(rest)], members)
    mixed = mix(taggers, train[np.sort(held_out)], form="boosted")
    names = [[name, settings] for name, settings in members]
    return {"members": names, "answering": answering(mixed, taggers, test)}


def answering(mixed: Tagger, members: list[Tagger], test: Corpus) -> dict[str, float]:
    """Seconds to open a saved mix, and microseconds of a query beside the sum of its members'.

    A member that is asked alone, text after text, finds what it needs in the processor's caches. To
    be compared with a mix, members are also asked in turn for each text.
    """
    texts = test[:500].texts.to_pylist()

    def query(*taggers: Tagger) -> float:
        seconds = []
        for text in texts[:50] + texts:
            begin = time.perf_counter()
            for tagger in taggers:
                tagger.rank([text], 5)
            seconds.append(time.perf_counter() - begin)
        return float(1e6 * np.median(seconds[50:]))

    with tempfile.TemporaryDirectory() as folder:
        mixed.save(Path(folder) / "model")
        begin = time.perf_counter()
        megalabel.load(Path(folder) / "model")
        opening = time.perf_counter() - begin
    threads = megalabel.get_threads()
    megalabel.set_threads(1)
    result = {
        "s to open": opening,
        "µs, mix": query(mixed),
        "µs, members": sum(map(query, members)),
        "µs, members in turn": query(*members),
    }
    megalabel.set_threads(threads)
    return result


def shown(results: dict[str, dict[str, Any]]) -> None:
    """Tables in Markdown."""
    line: Callable[[dict[str, float]], str] = lambda s: " / ".join(  # noqa: E731
        f"{s[name]:.2f}" for name in MEASURES
    )
    print(f"\n| corpus | what | {' / '.join(MEASURES)} | over the best member, nDCG@10 / PSP@5 |")
    print("|---|---|---:|---:|")
    for corpus, result in results.items():
        scores, best = result["scores"], result["scores"][result["best member"]]
        for name, values in scores.items():
            against = best
            if name.startswith("member"):
                number = int(name.split()[1])
                system, settings = result["members"][number]
                told = "".join(f", {v} trees" for k, v in settings.items() if k == "trees")
                name = f"{system}{told}{' (best)' if values is best else ''}"
            elif name.startswith("ranked anew"):
                against = scores[f"member {ANEW}"]
            gain = [values[m] - against[m] for m in ("nDCG@10", "PSP@5")]
            cells = "" if values is best else f"{gain[0]:+.2f} / {gain[1]:+.2f}"
            print(f"| {corpus} | {name} | {line(values)} | {cells} |")
    print("\n| corpus | opens in s | one query, µs | the members' sum, µs | ratio |")
    print("|---|---:|---:|---:|---:|")
    for corpus, result in results.items():
        a = result["answering"]
        ratio = a["µs, mix"] / a["µs, members"]
        print(
            f"| {corpus} | {a['s to open']:.3f} | {a['µs, mix']:.0f} | {a['µs, members']:.0f} | "
            f"{ratio:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder of corpora")
    parser.add_argument("--corpora", nargs="*", default=())
    parser.add_argument("--texts", type=int, default=0, help="training texts at most; 0: all")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--answering-only", action="store_true", help="single queries alone")
    parser.add_argument("--note", default="", help="kept with results of --answering-only")
    given = parser.parse_args()
    if given.results is None:
        given.results = QUERIES if given.answering_only else RESULTS
    lines = given.results.read_text().splitlines() if given.results.exists() else []
    known = {line["corpus"]: line for line in map(json.loads, lines) if "corpus" in line}
    if not lines:
        about = {"machine": platform.processor() or platform.machine(), "cores": 2}
        about |= {
            "megalabel": megalabel.__version__,
            "command": " ".join(Path(word).name for word in sys.argv),
        }
        given.results.write_text(json.dumps(about) + "\n")
    for name in given.corpora or [f.name for f in sorted(given.data.iterdir()) if f.is_dir()]:
        if name in known and not given.answering_only:
            continue
        train = megalabel.read(given.data / name, "train")
        if given.texts and len(train) > given.texts:
            order = np.random.default_rng(0).permutation(len(train))
            train = train[np.sort(order[: given.texts])]
        print(f"{name}: {train}", flush=True)
        known[name] = {"corpus": name, "texts": len(train)}
        test = megalabel.read(given.data / name, "test")
        if given.answering_only:
            known[name] |= {"note": given.note} | queries(train, test)
            print(f"  {known[name]['answering']}")
        else:
            known[name] |= run(train, test)
        with given.results.open("a") as out:
            out.write(json.dumps(known[name]) + "\n")
    if not given.answering_only:
        shown(known)


if __name__ == "__main__":
    main()
