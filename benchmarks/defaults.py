"""Defaults of the linear systems and of knn, chosen on training rows of many corpora at once.

    python benchmarks/defaults.py --data DATA [--systems bonsai knn ...] [--corpora bibtex ...]
        [--texts 60000] [--results FILE] [--settings '[{"trees": 1}, {"trees": 3}]']

DATA is a folder of corpora, or one corpus. Test parts are never read. Each corpus is a case with at
most 60,000 of its training texts, drawn by a seed; one that has more is a second case with 8,000.
Labels without a text in a case are left out. A case is cut into five folds: a system is trained on
four and judged on the fifth, on as many folds as it takes to judge 3,000 texts.

All settings of a system's grid run on the cases of at most 8,000 texts and on those of at most
1,000 labels; the best of them by the rule below, and the defaults, run on all cases.

The rule: in each case settings are ranked by the mean of P@1, P@3 and P@5. The setting with the
lowest mean rank over cases is chosen among those that are in no case more than 0.1 below the
defaults and whose training takes, in the sum over cases, at most so many times the CPU seconds of
one tree of xr-linear as the system may take (COST). --texts leaves out the cases with more texts.

Results are lines of JSON, one a setting, case and fold. A run that is in the file is not run again:
lines of settings that are left to the data (null) must be deleted when the data decide otherwise.
--settings compares other settings of the systems, on all cases. Training and ranking use one
thread; seconds are CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

import megalabel
from megalabel import systems
from megalabel.errors import MegalabelError
from megalabel.features import Precomputed, Tfidf
from megalabel.metrics import evaluate
from megalabel.systems.planning import learned_bytes

RESULTS = Path(__file__).parent / "results" / "defaults.jsonl"
MOST, FEW, FEW_LABELS = 60_000, 8_000, 1_000  # texts of a case; a case for all settings
FOLDS, JUDGED = 5, 3_000
FINALISTS = 4
PRECISIONS = ("P@1", "P@3", "P@5")
MOST_LOST = 0.1  # against the defaults, in any case

Settings = dict[str, Any]
Result = dict[str, Any]


REFERENCE: tuple[str, Settings] = ("xr-linear", {"trees": 1})
GRIDS: dict[str, list[Settings]] = {  # the defaults come first
    "dismec": [{}, {"cost": 0.5}, {"cost": 1.0}],
    "ova-logistic": [{}, {"cost": 5.0}],
    "xr-linear": [
        {},
        {"trees": 1},
        {"trees": 3},
        {"trees": 1, "max_leaf": 50},
        {"trees": 3, "max_leaf": 50},
        {"trees": 3, "max_leaf": 50, "cost": 0.7},
    ],
    "bonsai": [
        {},
        {"trees": 3},
        {"trees": 3, "max_leaf": 50},
        {"trees": 3, "max_leaf": 200},
        {"trees": 3, "max_leaf": 800},
    ],
    "parabel": [{}, {"cost": 0.5}, {"prune": 0.1}],
    "plt": [{}, {"cost": 3.0}, {"cost": 5.0}, {"cost": 20.0}],
    "online-plt": [{}, {"rate": 0.5}, {"max_leaf": 63}],
    "knn": [
        {},
        {"neighbours": 20},
        {"neighbours": 50},
        {"power": 2.0},
        {"neighbours": 50, "power": 2.0},
    ],
}
# How many times the reference's CPU seconds a system may take; others may take any.
COST = {"xr-linear": 3.0, "bonsai": 6.0, "parabel": 4.0, "plt": 3.0}


@dataclass(frozen=True)
class Case:
    """Some training texts of a corpus as vectors and labels."""

    folder: Path
    size: int

    @property
    def name(self) -> str:
        """The corpus and the number of texts."""
        return f"{self.folder.name}, {self.size:,} texts"

    @cached_property
    def data(self) -> tuple[csr_matrix | np.ndarray, csr_matrix]:
        """The vectors, and the labels that some text has."""
        corpus = megalabel.read(self.folder, "train")
        order = np.random.default_rng(0).permutation(len(corpus))
        corpus = corpus[np.sort(order[: self.size])]
        features = Precomputed() if corpus.texts is None else Tfidf(min_df=2)
        X = features.fit_transform(corpus)
        return X, csr_matrix(corpus.targets[:, np.flatnonzero(corpus.label_counts)])

    @property
    def labels(self) -> int:
        """How many labels there are."""
        return int(self.data[1].shape[1])

    @property
    def folds(self) -> range:
        """The folds that are judged."""
        return range(min(FOLDS, math.ceil(JUDGED * FOLDS / self.size)))

    def forget(self) -> None:
        """Give the memory of the vectors back."""
        self.__dict__.pop("data", None)

    def run(self, system: str, settings: Settings, fold: int) -> Result:
        """Train on all folds but one, and judge on that one."""
        X, Y = self.data
        of_row = np.random.default_rng(1).integers(FOLDS, size=X.shape[0])
        learned, judged = np.flatnonzero(of_row != fold), np.flatnonzero(of_row == fold)
        classifier = systems.create(system, **settings).classifier
        begin = time.process_time()
        classifier.fit(X[learned], Y[learned])
        trained = time.process_time()
        ranking = classifier.rank(X[judged], 5)
        ranked = time.process_time()
        values = evaluate(ranking, Y[judged], train_labels=Y[learned])
        return {
            "train": trained - begin,
            "rank": 1000 * (ranked - trained) / len(judged),
            "MB": learned_bytes(classifier) / 1e6,
            **{name: 100 * values[name] for name in (*PRECISIONS, "PSP@5")},
        }


class Results:
    """What has been run, in a file of JSON lines."""

    def __init__(self, file: Path) -> None:
        self.file = file
        lines = file.read_text().splitlines() if file.exists() else []
        self._found = {self._key(line): line["result"] for line in map(json.loads, lines)}

    @staticmethod
    def _key(line: dict[str, Any]) -> str:
        return json.dumps([line[name] for name in ("case", "system", "settings", "fold")])

    def of(self, case: Case, system: str, settings: Settings) -> Result:
        """The mean over the folds of a case; those that are not in the file are run."""
        results = []
        for fold in case.folds:
            settings = settings_of(system, settings)
            line = {"case": case.name, "system": system, "settings": settings, "fold": fold}
            if self._key(line) not in self._found:
                result = case.run(system, settings, fold)
                self._found[self._key(line)] = result
                with self.file.open("a") as out:
                    out.write(json.dumps(line | {"result": result}) + "\n")
                print(f"{case.name}: {system} {settings}: {said(result)}", flush=True)
            results.append(self._found[self._key(line)])
        return {name: float(np.mean([run[name] for run in results])) for name in results[0]}


def settings_of(system: str, settings: Settings) -> Settings:
    """Settings with the defaults of the parameters that the system's grid varies.

    So a line of the results says what was run, whatever the defaults become.
    """
    own = systems.get(system).parameters()
    varied = {name for some in GRIDS[system] for name in some} | set(settings)
    return {name: settings.get(name, own.get(name)) for name in sorted(varied)}


def said(result: Result) -> str:
    precisions = " / ".join(f"{result[name]:.2f}" for name in PRECISIONS)
    return (
        f"{precisions}, PSP@5 {result['PSP@5']:.2f}; {result['train']:.2f} s, "
        f"{result['rank']:.3f} s per 1,000, {result['MB']:.2f} MB"
    )


def cases_of(data: Path, names: Sequence[str]) -> Iterator[Case]:
    """The cases of a folder of corpora, or of one corpus; folders that hold none are left out."""
    for folder in sorted([data, *filter(Path.is_dir, data.iterdir())]):
        if names and folder.name not in names:
            continue
        try:
            size = len(megalabel.read(folder, "train"))
        except MegalabelError:
            continue
        if size > MOST:
            yield Case(folder, FEW)
        yield Case(folder, min(size, MOST))


@dataclass
class Table:
    """Settings of a system compared over cases."""

    cases: list[Case]
    system: str
    grid: list[Settings]
    results: Results

    def __post_init__(self) -> None:
        self.runs: list[list[Result]] = []
        self.reference = 0.0
        for case in self.cases:
            row = [self.results.of(case, self.system, settings) for settings in self.grid]
            self.reference += self.results.of(case, *REFERENCE)["train"]
            self.runs.append(row)
            case.forget()

    @cached_property
    def quality(self) -> np.ndarray:
        """The mean of P@1, P@3 and P@5 of each case and setting."""
        return np.array([[np.mean([r[p] for p in PRECISIONS]) for r in row] for row in self.runs])

    @cached_property
    def mean_rank(self) -> np.ndarray:
        """The mean over cases of each setting's rank, from 1; equal ones share theirs."""
        above = self.quality[:, None, :] > self.quality[:, :, None] + 0.005
        return 1 + above.sum(axis=2).mean(axis=0)

    @cached_property
    def times(self) -> np.ndarray:
        """How many times the reference's CPU seconds of training, in the sum over cases."""
        return np.sum([[run["train"] for run in row] for row in self.runs], axis=0) / self.reference

    @cached_property
    def lost(self) -> np.ndarray:
        """How far each setting is below the defaults, in the case where it is furthest."""
        return (self.quality[:, :1] - self.quality).max(axis=0)

    def best(self, count: int = 1) -> list[int]:
        """The settings that the rule puts first; the defaults where all are too dear."""
        affordable = self.times <= COST.get(self.system, np.inf)
        allowed = np.flatnonzero(affordable & (self.lost <= MOST_LOST))
        order = allowed[np.argsort(self.mean_rank[allowed], kind="stable")]
        return [int(which) for which in order[:count]] or [0]

    def show(self) -> None:
        print(f"\n{self.system}: {len(self.cases)} cases\n")
        columns = ["settings", "P@1 / 3 / 5, mean", "mean rank", "most lost"]
        columns += ["times one tree's CPU s", "CPU s", "MB"]
        print("| " + " | ".join(columns) + " |\n|---|" + "---:|" * (len(columns) - 1))
        for which in np.argsort(self.mean_rank, kind="stable"):
            every = [row[which] for row in self.runs]
            means = {name: np.mean([result[name] for result in every]) for name in PRECISIONS}
            shown = " / ".join(f"{value:.2f}" for value in means.values())
            print(
                f"| {json.dumps(self.grid[which])} | {shown} | {self.mean_rank[which]:.2f} | "
                f"{self.lost[which]:.2f} | {self.times[which]:.1f} | "
                f"{sum(r['train'] for r in every):.1f} | {sum(r['MB'] for r in every):.1f} |"
            )
        chosen = self.best()[0]
        print(f"\nchosen: {json.dumps(settings_of(self.system, self.grid[chosen]))}\n")
        print("| case | chosen | defaults |\n|---|---|---|")
        for case, row in zip(self.cases, self.runs, strict=True):
            print(f"| {case.name} | {said(row[chosen])} | {said(row[0])} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder of corpora, or one")
    parser.add_argument("--systems", nargs="*", choices=[*GRIDS], default=[*GRIDS])
    parser.add_argument("--corpora", nargs="*", default=(), help="names; all without it")
    parser.add_argument("--texts", type=int, default=MOST, help="of the largest case")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--settings", type=json.loads, help="a list of parameters")
    given = parser.parse_args()
    megalabel.set_threads(1)
    results = Results(given.results)
    cases = [case for case in cases_of(given.data, given.corpora) if case.size <= given.texts]
    for system in given.systems:
        grid = given.settings
        if grid is None:
            few = [c for c in cases if c.size <= FEW or c.labels <= FEW_LABELS]
            coarse = Table(few, system, GRIDS[system], results)
            coarse.show()
            grid = [{}, *(coarse.grid[which] for which in coarse.best(FINALISTS))]
            grid = [one for at, one in enumerate(grid) if one not in grid[:at]]
        Table(cases, system, grid, results).show()


if __name__ == "__main__":
    main()
