"""What missing labels do to metrics, to training and to answers.

    python benchmarks/missing_labels.py --data ../shared/data [--only raw head answers truth]

`raw`: propensity-scored precision without normalisation, which would estimate the precision under
full annotation, passes 100 % where the propensities do not fit. `head`: a model that knows only the
frequent labels, by instance-wise and by macro metrics. `answers`: weights in training, and ranking
by probability over propensity. `truth`: the same on the built-in corpus, where the labels that went
missing are known. All values in percent.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

import megalabel
from megalabel import Corpus, Ranking, evaluate, systems
from megalabel.data.synthetic import generate
from megalabel.labels import (
    PROPENSITIES,
    Richards,
    direct_propensities,
    label_propensities,
)

K = (1, 3, 5)
SHORTLIST = 100  # labels of which the answers are chosen
Row = tuple[str, list[float]]


def train_and_test(folder: Path) -> tuple[Corpus, Corpus]:
    train, test = (megalabel.read(folder, part) for part in ("train", "test"))
    return train, test.aligned(train.labels)


def by_propensity(ranking: Ranking, propensities: np.ndarray) -> Ranking:
    """The labels of the shortlist with the largest probability over propensity."""
    scores = ranking.to_csr()
    scores.data = np.maximum(scores.data, 1e-9) / propensities[scores.indices]
    return Ranking.from_csr(scores, max(K), ranking.labels)


def measured(ranking: Ranking, truth: csr_matrix, names: list[str], **options: Any) -> list[float]:
    """The named metrics at each k, in percent; options as for `evaluate`."""
    values = evaluate(ranking, truth, k=K, **options)
    return [100 * values[f"{name}@{k}"] for name in names for k in K]


# ---------------------------------------------------------------- tables
def raw(data: Path) -> Iterator[Row]:
    """P PSP PSP-raw"""
    for name in ("eurlex-titles", "debian-depends", "gutenberg-lcsh", "wordnet-hypernyms"):
        train, test = train_and_test(data / name)
        ranking = (
            systems.create("xr-linear", trees=1, calibrate=False).fit(train).rank(test, max(K))
        )
        known = (train.label_counts, len(train))
        for model in PROPENSITIES:
            names = raw.__doc__.split()
            values = measured(ranking, test.targets, names, train_labels=known, propensities=model)
            yield f"{name}, {model}", values


def head(data: Path) -> Iterator[Row]:
    """P nDCG PSP macro-P macro-R macro-F1 coverage"""
    for name in ("eurlex-titles", "wordnet-hypernyms"):
        train, test = train_and_test(data / name)
        truth = test.targets[:, : len(train.labels)]
        known = (train.label_counts, len(train))
        order = np.argsort(-train.label_counts, kind="stable")
        for share in (1.0, 0.2, 0.1, 0.05):
            kept = np.sort(order[: round(share * len(order))])
            tagger = systems.create("xr-linear", trees=1, calibrate=False).fit(
                train.with_labels(kept)
            )
            ranking = tagger.rank(test, max(K))
            ids = np.append(kept, len(train.labels))[ranking.ids]
            ranking = Ranking(ids, ranking.scores, train.labels)
            title = f"{name}, {len(kept):,} labels"
            yield title, measured(ranking, truth, head.__doc__.split(), train_labels=known)


def answers(data: Path) -> Iterator[Row]:
    """P PSP macro-F1 coverage"""
    train, test = train_and_test(data / "eurlex-titles")
    truth = test.targets[:, : len(train.labels)]
    p = label_propensities(None, train.label_counts, len(train))
    for title, ranking in rankings(train, test, {"jpv": p}, cost=10.0):
        values = measured(ranking, truth, answers.__doc__.split(), propensities=p)
        yield f"eurlex-titles, {title}", values


def truth(_: Path) -> Iterator[Row]:
    """P macro-F1 coverage"""
    shop = generate(texts=12_000, labels=1_000, removal=1.0)
    train, test, sample = shop[:8_000], shop[8_000:], shop[:800]
    counts, n = train.corpus.label_counts, len(train)
    known = direct_propensities(sample.corpus.targets, sample.complete, smoothing=0)
    weights = np.asarray(sample.complete.sum(axis=0)).ravel()
    models = {
        "true": shop.propensities,
        "richards": Richards.fit_to(counts, n, known, weights).propensities(counts, n),
        "jpv": label_propensities(None, counts, n),
    }
    names = truth.__doc__.split()
    for title, ranking in rankings(train.corpus, test.corpus, models, cost=1.0):
        yield title, measured(ranking, test.complete, names)
    yield "the best there is", measured(test.best(max(K)), test.complete, names)


def rankings(
    train: Corpus, test: Corpus, models: dict[str, np.ndarray], cost: float
) -> Iterator[tuple[str, Ranking]]:
    """Answers without care for missing labels, with weights in training, or in ranking."""
    # one map for all labels together would make the probabilities of rare ones worse
    create = partial(systems.create, "ova-logistic", cost=cost, calibrate=False)
    plain = create().fit(train).rank(test, SHORTLIST)
    yield "plain", plain
    for name, p in models.items():
        yield f"ranked by probability / {name}", by_propensity(plain, p)
    for weighting in ("propensity", "propensity-balanced", "propensity-rebalanced"):
        for name, p in models.items():
            tagger = create(weighting=weighting, propensities=p)
            yield f"{weighting}, {name}", tagger.fit(train).rank(test, SHORTLIST)


TABLES: dict[str, Callable[[Path], Iterator[Row]]] = {
    table.__name__: table for table in (raw, head, answers, truth)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of corpora")
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES))
    asked = parser.parse_args()
    for name in asked.only:
        table = TABLES[name]
        metrics = str(table.__doc__).split()
        print(f"\n| {name} | " + " | ".join(f"{m}@1 / 3 / 5" for m in metrics) + " |")
        print("|---|" + "---:|" * len(metrics))
        started = time.process_time()
        for title, values in table(asked.data):
            shown = [" / ".join(f"{v:.1f}" for v in row) for row in np.reshape(values, (-1, 3))]
            print(f"| {title} | {' | '.join(shown)} |", flush=True)
        print(f"\n{time.process_time() - started:.0f} CPU s")


if __name__ == "__main__":
    main()
