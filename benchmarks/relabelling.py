"""Labels that join by their texts alone: what is found of them, and what that costs the others.

    python benchmarks/relabelling.py --data DATA [--encoder MINILM --vectors FOLDER]
        [--corpora NAME ...] [--systems NAME ...] [--texts 8000] [--tests 2000] [--results FILE]
    python benchmarks/relabelling.py --data DATA --choose [--encoder MINILM --vectors FOLDER]
    python benchmarks/relabelling.py --data DATA --seconds

A fifth of the labels that texts carry is taken out of training, drawn at random, and added to the
trained system by name. A tenth of the training texts is held out: how loud new classifiers may be
is learned from these ("learned"); else the defaults are taken. Beside them: BM25 of names, and the
cosines of an encoder's vectors, as it comes, among the same labels. Words are stemmed everywhere.

R@10 is the mean over texts that carry such labels; "among unseen" ranks unseen labels alone, all
others rank all labels. --vectors keeps the encoder's vectors. --choose measures on texts of the
train part alone, with other values of the parameters of `Blend`: what defaults are chosen by.
--seconds measures how long it takes to add labels. Results are lines of JSON; one that is in the
file is not run again.
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
from scipy.sparse import csr_matrix, identity

import megalabel
from megalabel import Corpus, LabelSet, Tagger, systems
from megalabel.base import integer, value
from megalabel.data.hashes import text_hashes
from megalabel.data.strings import strings
from megalabel.features import Tfidf
from megalabel.linear.blend import Blend
from megalabel.parts import Featurizer
from megalabel.retrieval import NearestNeighbours

RESULTS = Path(__file__).parent / "results" / "relabelling.jsonl"
CORPORA = ["eurlex-titles", "gutenberg-lcsh", "debian-depends", "wordnet-hypernyms"]
UNSEEN, HELD_OUT, SEED = 5, 10, 1  # one of so many
OTHER: dict[str, dict[str, list[float]]] = {  # tried in place of the defaults, one at a time
    "words": {
        "neighbours": [0.0, 0.05, 0.18],
        "nearest": [5],
        "temperature": [0.1],
        "shift": [-0.85, -0.9, -0.95, -1.0],
    },
    "with MiniLM, learned": {
        "vectors": [0.5, 2.0],
        "hub": [0.4, 1.0],
        "neighbours": [0.0, 0.18],
    },
}


class Remembered(Featurizer):
    """An encoder whose vectors of texts are kept in a folder."""

    LEARNED = {"width_": value(integer(1))}  # noqa: RUF012

    def __init__(self, encoder: str = "", folder: Path | None = None) -> None:
        self.encoder = encoder
        self.folder = folder
        self._known: dict[int, np.ndarray] = {}
        self._model: Any = None

    def fit(self, inputs: Any, y: Any = None) -> Remembered:
        self.width_ = 384
        if self.folder is not None:
            self.folder.mkdir(exist_ok=True, parents=True)
            for file in sorted(self.folder.glob("*.npz")):
                with np.load(file) as kept:
                    self._known |= dict(zip(kept["keys"].tolist(), kept["vectors"], strict=True))
        return self

    def transform(self, inputs: Any) -> np.ndarray:
        texts = inputs.texts if isinstance(inputs, Corpus) else strings(inputs)
        keys = text_hashes(texts).tolist()
        new = sorted({place for place, key in enumerate(keys) if key not in self._known})
        if new:
            if self._model is None:
                from megalabel.neural import Embedding

                self._model = Embedding(self.encoder, max_length=64).fit(texts.take([0]))
            vectors = self._model.transform(texts.take(new)).astype(np.float16)
            added = [keys[place] for place in new]
            self._known |= dict(zip(added, vectors, strict=True))
            if self.folder is not None:
                name = f"{len(list(self.folder.glob('*.npz')))}.npz"
                np.savez(self.folder / name, keys=np.array(added, np.uint64), vectors=vectors)
        return np.array([self._known[key] for key in keys], np.float32)

    @property
    def n_features(self) -> int:
        return self.width_


def drawn(folder: Path, split: str, texts: int) -> Corpus:
    corpus = megalabel.read(folder, split=split)
    rows = np.random.default_rng(0).permutation(len(corpus))[:texts]
    return corpus[np.sort(rows)]


def of_labels(corpus: Corpus, numbers: np.ndarray) -> Corpus:
    """The corpus with some of its labels alone."""
    labels = corpus.labels.take(numbers)
    plain = LabelSet(labels.ids, labels.names)  # names alone, not their descriptions
    return Corpus(corpus.texts, None, csr_matrix(corpus.targets[:, numbers]), plain)


class Task:
    """Texts for training, to learn parts from and to measure on; and which labels are unseen."""

    def __init__(self, folder: Path, texts: int, tests: int, choosing: bool = False) -> None:
        train = drawn(folder, "train", texts)
        if choosing:
            order = np.random.default_rng(SEED).permutation(len(train))
            test, train = train[np.sort(order[:tests])], train[np.sort(order[tests:])]
        else:
            test = drawn(folder, "test", tests).aligned(train.labels)
        used = np.unique(np.concatenate([train.targets.indices, test.targets.indices]))
        train, self.test = of_labels(train, used), of_labels(test, used)
        random = np.random.default_rng(SEED)
        self.unseen = np.sort(random.permutation(len(used))[: len(used) // UNSEEN])
        self.seen = np.setdiff1d(np.arange(len(used)), self.unseen)
        order = random.permutation(len(train))
        apart = order[: len(train) // HELD_OUT]
        self.on = of_labels(train[np.sort(apart)], self.seen)
        self.train = of_labels(train[np.sort(order[len(apart) :])], self.seen)
        self.new = self.test.labels.take(self.unseen)
        # numbered as a tagger numbers them: seen labels, then those that came
        self.truth = csr_matrix(self.test.targets[:, np.append(self.seen, self.unseen)])

    def recall(self, ids: np.ndarray, low: int, high: int) -> float:
        """R@10 of the labels with numbers from low to high, in percent."""
        hits, rows = [], []
        for row, found in enumerate(ids[:, :10].tolist()):
            own = self.truth.indices[self.truth.indptr[row] : self.truth.indptr[row + 1]]
            own = own[(own >= low) & (own < high)]
            if len(own):
                rows.append(row)
                hits.append(np.isin(own, found).mean())
        return round(100 * float(np.mean(hits)), 2)

    def precision(self, ids: np.ndarray) -> float:
        """P@5 over all labels, in percent."""
        rows, places = np.nonzero(ids[:, :5] < self.truth.shape[1])
        hits = np.asarray(self.truth[rows, ids[rows, places]]).ravel() > 0
        return round(100 * float(hits.sum()) / (5 * len(ids)), 2)

    def among_unseen(self, ids: np.ndarray) -> float:
        """R@10 of a ranking of unseen labels alone."""
        known = len(self.seen)
        return self.recall(ids + known, known, self.truth.shape[1])

    def measured(self, tagger: Tagger) -> dict[str, float]:
        """What a tagger finds of labels that it has seen, and of those that joined, if any have."""
        known, labels = len(self.seen), len(tagger.labels)
        ids = tagger.rank(self.test, 10).ids
        found = {"R@10 seen": self.recall(ids, 0, known), "P@5": self.precision(ids)}
        if labels > known:
            found["R@10 unseen"] = self.recall(ids, known, labels)
            alone = tagger.take_labels(np.arange(known, labels)).rank(self.test, 10).ids
            found["R@10 among unseen"] = self.among_unseen(alone)
            both = found["R@10 seen"], found["R@10 unseen"]
            found["H"] = round(2 * both[0] * both[1] / max(sum(both), 1e-9), 2)
        return found


def bm25(task: Task) -> float:
    """R@10 among unseen labels by BM25 of their stemmed names."""
    counts: dict[str, Any] = {"use_idf": False, "norm": None, "sublinear_tf": False}
    words = Tfidf(stemmer="en", min_word_length=1, **counts)
    names = words.fit_transform(task.new.names)
    index = NearestNeighbours(similarity="bm25", neighbours=10)
    index.fit(names, csr_matrix(identity(len(task.new)), dtype=np.float32), task.new)
    texts = words.transform(task.test)
    found = index.rank(texts, 10).ids
    common = csr_matrix(texts @ names.T)
    rows, places = np.nonzero(found < len(task.new))
    shared = np.asarray(common[rows, found[rows, places]]).ravel() > 0
    found[rows[~shared], places[~shared]] = -task.truth.shape[1]  # no word in common: no answer
    return task.among_unseen(found)


def cosines(task: Task, encoder: Featurizer) -> float:
    """R@10 among unseen labels by the vectors of an encoder, as they come."""
    products = encoder.transform(task.test) @ encoder.transform(task.new.names).T
    return task.among_unseen(np.argsort(-products, axis=1, kind="stable")[:, :10])


def seconds(task: Task, system: str) -> dict[str, Any]:
    """How long it takes to add labels whose names are drawn from words of training."""
    tagger = systems.create(system, calibration=None).fit(task.train)
    random = np.random.default_rng(0)
    words = np.array(tagger.features_.terms_.to_pylist(), dtype=object)
    found: dict[str, Any] = {}
    for count in (1_000, 100_000):
        names = [" ".join(one) for one in random.choice(words, (count, 3))]
        new = LabelSet([f"new {i}" for i in range(count)], names)
        started, used = time.perf_counter(), time.process_time()
        tagger.add_labels(new)
        found[f"{count:,} labels"] = {
            "seconds": round(time.perf_counter() - started, 2),
            "CPU seconds": round(time.process_time() - used, 2),
        }
    return found


def command(options: argparse.Namespace) -> str:
    """What makes a row again, without the folders of a machine."""
    folders = {str(options.data): "DATA", str(options.results): "FILE"}
    folders |= {str(options.encoder): "MINILM", str(options.vectors): "FOLDER"}
    return " ".join(["python", *(folders.get(argument, argument) for argument in sys.argv)])


def rows_of(task: Task, system: str, encoder: Featurizer | None) -> Any:
    """The variants of a system, each with what it finds."""
    yield "", "BM25 of stemmed names", {"R@10 among unseen": bm25(task)}
    if encoder is not None:
        yield "", "MiniLM", {"R@10 among unseen": cosines(task, encoder)}
    tagger = systems.create(system, calibration=None, features__stemmer="en").fit(task.train)
    yield system, "before", task.measured(tagger)
    variants: dict[str, dict[str, Any]] = {
        "neighbours' classifiers alone": {"how": "neighbours"},
        "words alone, learned": {"how": "text", "on": task.on},
        "words and neighbours": {},
        "words and neighbours, learned": {"on": task.on},
    }
    if encoder is not None:
        variants["with MiniLM, learned"] = {"on": task.on, "encoder": encoder}
    for variant, options in variants.items():
        yield system, variant, task.measured(tagger.add_labels(task.new, **options))


def choices_of(task: Task, system: str, encoder: Featurizer | None) -> Any:
    """A system with other values for what new classifiers are made of, and what it finds."""
    tagger = systems.create(system, calibration=None, features__stemmer="en").fit(task.train)
    yield "before", task.measured(tagger)
    for variant, others in OTHER.items():
        options: dict[str, Any] = {}
        if "MiniLM" in variant:
            if encoder is None:
                continue
            options = {"on": task.on, "encoder": encoder}
        pairs = [(name, number) for name, numbers in others.items() for number in numbers]
        yield f"{variant}: defaults", task.measured(tagger.add_labels(task.new, **options))
        for name, number in pairs:
            more = tagger.add_labels(task.new, how=Blend()._replace(**{name: number}), **options)
            yield f"{variant}: {name} {number}", task.measured(more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", default="")
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--corpora", nargs="+", default=CORPORA)
    parser.add_argument("--systems", nargs="+", default=["xr-linear", "dismec"])
    parser.add_argument("--texts", type=int, default=8_000)
    parser.add_argument("--tests", type=int, default=2_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--seconds", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    megalabel.set_threads(options.threads)
    kept = options.results.read_text().splitlines() if options.results.exists() else []
    known = {json.dumps(json.loads(line)["setting"]) for line in kept}
    encoder = None
    if options.encoder:
        encoder = Remembered(options.encoder, options.vectors).fit([])

    def keep(setting: dict[str, Any], found: Any) -> None:
        print(setting["corpus"], setting["system"], setting["variant"], found, flush=True)
        if json.dumps(setting) in known:
            return
        known.add(json.dumps(setting))
        row = {"setting": setting, **found, "command": command(options)}
        row["machine"] = f"{platform.machine()}, {platform.system()}, {options.threads} threads"
        row["megalabel"] = megalabel.__version__
        options.results.parent.mkdir(exist_ok=True)
        with options.results.open("a") as file:
            file.write(json.dumps(row) + "\n")

    for name in options.corpora:
        task = Task(options.data / name, options.texts, options.tests, options.choose)
        size = {"texts": len(task.train), "seen": len(task.seen), "unseen": len(task.unseen)}
        for system in options.systems:
            if options.seconds:
                setting = {"corpus": name, **size, "system": system, "variant": "seconds"}
                keep(setting, seconds(task, system))
                continue
            if options.choose:
                for variant, found in choices_of(task, system, encoder):
                    about = {"corpus": name, "rows": "training", **size, "system": system}
                    keep({**about, "variant": variant}, found)
                continue
            for of, variant, found in rows_of(task, system, encoder):
                keep({"corpus": name, **size, "system": of, "variant": variant}, found)


if __name__ == "__main__":
    main()
