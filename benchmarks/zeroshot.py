"""Zero-shot answers beside what they are made of: no labelled text is used, one setting for all.

    python benchmarks/zeroshot.py --data DATA --encoder MODEL [--corpora NAME ...] [--cache FOLDER]

Learns from --texts texts of the train part without their labels, words from the same ones, and
measures on --tests texts of the test part; all labels may be answers. Beside `zeroshot` stand: BM25
of stemmed words over names, and over names and definitions; names that are found whole in a text;
the encoder's cosines as they come, with names, and with names and definitions. `zeroshot` is
measured without training, with parts of texts, and with the lexical judge, over --seeds seeds.

With --judge, the address of a service with the API of OpenAI, a model judges --judged texts on the
wire, too: that shows what it takes, not what good models would say.

Each line of results holds one row of one corpus. --cache keeps vectors, so that another run encodes
nothing.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, diags

import megalabel
from megalabel import Corpus, Ranking
from megalabel.data.matrix import normalised_rows
from megalabel.features import Tfidf
from megalabel.judges import ChatJudge
from megalabel.neural import FrozenEncoder
from megalabel.rankers.by_text import definitions_of
from megalabel.systems.zeroshot import ZeroShot

RESULTS = Path(__file__).parent / "results" / "zeroshot.jsonl"
CORPORA = ("eurlex-titles", "yso-finna-en", "wordnet-hypernyms")
DEEP = 20
JUDGED = 5_000  # texts, by the lexical judge
MEASURES = ("R@10", "P@5", "nDCG@20")
MARGINS = {"R@10": 1.5, "P@5": 1.0, "nDCG@20": 1.5}
ROWS = 500  # of texts, whose scores of all labels are held at a time
Scores = Callable[[csr_matrix, np.ndarray], np.ndarray]


def some(corpus: Corpus, count: int) -> Corpus:
    order = np.random.default_rng(0).permutation(len(corpus))[:count]
    return corpus[np.sort(order)]


def measured(ids: np.ndarray, targets: csr_matrix) -> dict[str, float]:
    """The measures, in percent, of the best labels of each text."""
    hits = np.zeros(ids.shape)
    for row in range(len(ids)):
        own = targets.indices[targets.indptr[row] : targets.indptr[row + 1]]
        hits[row] = np.isin(ids[row], own)
    counts = np.diff(targets.indptr)
    gains = 1 / np.log2(np.arange(DEEP) + 2)
    ideal = np.concatenate([[0], np.cumsum(gains)])[np.minimum(counts, DEEP)]
    recall = (hits[:, :10].sum(1) / counts).mean()
    values = (recall, hits[:, :5].mean(), (hits @ gains / ideal).mean())
    return {name: 100 * float(value) for name, value in zip(MEASURES, values, strict=True)}


def best(scores: Scores, words: csr_matrix, vectors: np.ndarray) -> np.ndarray:
    """The labels of the highest scores, ties to the lower number; -1 where there are no more."""
    found = []
    for start in range(0, words.shape[0], ROWS):
        part = slice(start, start + ROWS)
        made = scores(words[part], vectors[part])
        order = np.argsort(-made, axis=1, kind="stable")[:, :DEEP]
        # what shares no word with a text is no answer
        found.append(np.where(np.take_along_axis(made, order, axis=1) == 0, -1, order))
    return np.concatenate(found)


def bm25(names: csr_matrix, k1: float = 1.2, b: float = 0.75) -> Scores:
    """Names as documents, texts as queries of their distinct words."""
    lengths = np.asarray(names.sum(axis=1)).ravel()
    counts = np.bincount(names.indices, minlength=names.shape[1])
    idf = np.log(1 + (names.shape[0] - counts + 0.5) / (counts + 0.5))
    norm = k1 * (1 - b + b * lengths / lengths.mean())
    rows = np.repeat(np.arange(names.shape[0]), np.diff(names.indptr))
    weights = names.copy()
    weights.data = idf[names.indices] * names.data * (k1 + 1) / (names.data + norm[rows])
    return lambda words, vectors: (words.sign() @ weights.T).toarray()


def exact(names: csr_matrix, words: csr_matrix) -> Scores:
    """Names all of whose stems are in the text, the rarest first by the idf of texts."""
    counts = np.bincount(words.indices, minlength=words.shape[1])
    idf = np.maximum(np.log((words.shape[0] + 1) / (counts + 0.5)), 0.01)
    weighed = names.sign() @ diags(idf)
    mass = np.asarray(weighed.sum(axis=1)).ravel()

    def scores(some: csr_matrix, vectors: np.ndarray) -> np.ndarray:
        found = (some.sign() @ weighed.T).toarray()
        return np.where((found >= 0.999 * mass) & (mass > 0), mass, 0)

    return scores


def cosines(*names: np.ndarray) -> Scores:
    return lambda words, vectors: sum((vectors @ rows.T for rows in names), np.float32(0))


def baselines(
    train: Corpus, test: Corpus, encode: Callable[[Any], np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """What zero-shot answers are measured against."""
    labels, own = train.labels, definitions_of(train.labels)
    every = [train.texts, labels.names] + ([own] if own else [])
    counter = Tfidf(use_idf=False, norm=None, sublinear_tf=False, min_word_length=1, stemmer="en")
    counter.fit(every)
    names, words = counter.transform(labels.names), counter.transform(test.texts)
    vectors, of_names = encode(test.texts), encode(labels.names)
    yield "BM25, names", best(bm25(names), words, vectors)
    yield "exact names", best(exact(names, counter.transform(train.texts)), words, vectors)
    yield "encoder, names", best(cosines(of_names), words, vectors)
    if own:
        both = csr_matrix(names + counter.transform(own))
        yield "BM25, names and definitions", best(bm25(both), words, vectors)
        yield "encoder, names and definitions", best(cosines(of_names, encode(own)), words, vectors)


def systems(given: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "zeroshot, untrained", {"judge": None}
    yield "zeroshot, words alone", {"judge": None, "encoder": None}
    if given.segments:
        yield "zeroshot, parts of texts", {"judge": None, "segments": True}
    for seed in range(given.seeds):
        yield "zeroshot, lexical judge", {"judge": "lexical", "seed": seed, "judged_texts": JUDGED}
    if given.judge:
        judge = ChatJudge(given.judge, given.model, soft=True, concurrency=1)
        yield (
            "zeroshot, a model's judgements",
            {"judge": judge, "judged_texts": given.judged, "shortlist": 5, "rounds": 1},
        )


def run(given: argparse.Namespace, name: str) -> Iterator[dict[str, Any]]:
    train = some(megalabel.read(given.data / name, "train"), given.texts)
    test = some(megalabel.read(given.data / name, "test"), given.tests)
    blind = Corpus(train.texts, labels=train.labels)
    encoder = FrozenEncoder(given.encoder, cache=given.cache).features(128)
    fitted = encoder.fit(blind.texts)

    def encode(texts: Any) -> np.ndarray:
        return np.asarray(normalised_rows(fitted.transform(texts)))

    for what, ids in () if given.only else baselines(blind, test, encode):
        yield {"what": what} | measured(ids, test.targets)
    for what, settings in systems(given):
        if given.only and what not in given.only:
            continue
        tagger = ZeroShot(**({"encoder": encoder, "language": "en"} | settings))
        started = time.process_time()
        tagger.fit(blind)
        seconds = time.process_time() - started
        ranking: Ranking = tagger.rank(test.texts, DEEP)
        told = tagger.provenance_["zeroshot"].get("rounds", [])
        rounds = [round(100 * one["precision"], 1) for one in told]
        line = {"what": what, "seed": settings.get("seed", 0), "fit CPU s": round(seconds, 1)}
        made = line | measured(ranking.ids, test.targets) | {"judged P@1": rounds}
        yield made | {"judged": [one["pairs"] for one in told], "fit": [one["fit"] for one in told]}


def shown(lines: list[dict[str, Any]]) -> None:
    """A table in Markdown, and by how much each row of `zeroshot` is above the others."""
    print("\n| corpus | what | R@10 | P@5 | nDCG@20 |\n|---|---|---:|---:|---:|")
    for line in lines:
        cells = " | ".join(f"{line[m]:.1f}" for m in MEASURES)
        print(f"| {line['corpus']} | {line['what']} | {cells} |")
    for corpus in dict.fromkeys(line["corpus"] for line in lines):
        own = [line for line in lines if line["corpus"] == corpus]
        floor = {
            m: max(x[m] for x in own if not x["what"].startswith("zeroshot")) for m in MEASURES
        }
        for what in dict.fromkeys(x["what"] for x in own if x["what"].startswith("zeroshot")):
            rows = [x for x in own if x["what"] == what]
            gains = {m: np.mean([x[m] for x in rows]) - floor[m] for m in MEASURES}
            met = all(gains[m] >= MARGINS[m] for m in MEASURES)
            told = ", ".join(f"{m} {gain:+.1f}" for m, gain in gains.items())
            print(f"{corpus}: {what}: {told}{' (met)' if met else ''}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--corpora", nargs="+", default=list(CORPORA))
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--tests", type=int, default=2_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--segments", action="store_true")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--judge")
    parser.add_argument("--model", default="default")
    parser.add_argument("--judged", type=int, default=60)
    parser.add_argument("--cache")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    megalabel.set_threads(1)
    about = {"megalabel": megalabel.__version__, "machine": platform.machine()}
    about |= {"texts": given.texts, "tests": given.tests}
    about["command"] = "python benchmarks/zeroshot.py --data DATA --encoder MODEL"
    if given.judge:
        about["command"] += f" --judge URL --model {given.model} --judged {given.judged}"
    lines: list[dict[str, Any]] = []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with open(given.out, "w", encoding="utf-8") as out:
        for name in given.corpora:
            for line in run(given, name):
                lines.append({"corpus": name} | line)
                out.write(json.dumps(lines[-1] | about) + "\n")
                out.flush()
    if not given.only:
        shown(lines)


if __name__ == "__main__":
    main()
