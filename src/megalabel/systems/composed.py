"""Composed: a tagger whose fit makes another one and takes its parts over."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from megalabel.answering import as_corpus
from megalabel.base import Check
from megalabel.data import Corpus, LabelSet
from megalabel.data.corpus import by_name
from megalabel.errors import ParameterError
from megalabel.linear import Prior
from megalabel.parts import Calibrator, Decision
from megalabel.preparing import Prepared, check_learnable
from megalabel.tagger import Tagger, provenance_of


class Composed(Tagger):
    """A tagger that is put together in its fit: once fitted, its parts are those of another.

    Its classifier and its features are no parameters: they are known once it is fitted, as is its
    `system`. What is saved is a plain `Tagger`.

    Parameters
    ----------
    calibration, decision, calibration_texts, seed
        As for `Tagger`.
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        name: Tagger.PARAMETERS[name]
        for name in ("calibration", "decision", "calibration_texts", "seed")
    }

    name: ClassVar[str]
    """That of the recipe, which is its `system` until it is fitted."""

    def __init__(
        self,
        *,
        calibration: Calibrator | str | None = "joint",
        decision: Decision | None = None,
        calibration_texts: int = 5_000,
        seed: int = 0,
    ) -> None:
        # before a fit nothing is known but labels
        super().__init__(
            Prior(),
            calibration=calibration,
            decision=decision,
            calibration_texts=calibration_texts,
            seed=seed,
            system=self.name,
        )

    @abstractmethod
    def _compose(self, corpus: Corpus) -> Tagger:
        """A fitted tagger of a corpus."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        labels: LabelSet | None = None,
        prepared: Prepared | None = None,
    ) -> Self:
        """Learn from a corpus, or from texts (or vectors) X with their labels y, as `Tagger.fit`
        does; nothing is prepared for it."""
        if prepared is not None:
            raise ParameterError(f"{self.name} chooses its features itself: give it a corpus alone")
        started = time.perf_counter()
        self.check_parts()
        corpus = as_corpus(X, y, labels)
        check_learnable(corpus)
        if "label_shard" in corpus.source:
            raise ParameterError(
                f"{self.name} learns from all labels at once: for a part of the labels, name a "
                "system that can be merged, such as xr-linear"
            )
        made = self._compose(corpus)
        self.origin, self.system = None, made.system
        self.classifier, self.features = made.classifier, made.features
        self.restore(made.learned())
        self.in_names_ = y is not None and by_name(y)
        seconds = time.perf_counter() - started
        own = {name: told for name, told in made.provenance_.items() if name != "seconds"}
        self.provenance_ = provenance_of(corpus, seconds) | own
        return self

    def plain(self) -> Tagger:
        """A tagger of no special kind with the parts that were taken over."""
        self.check_fitted()
        made = Tagger(
            self.classifier,
            self.features,
            self.calibration,
            self.decision,
            calibration_texts=self.calibration_texts,
            seed=self.seed,
            system=self.system,
        )
        made.restore(self.learned())
        made.origin = self.origin
        return made

    def take_labels(self, numbers: Any) -> Tagger:  # type: ignore[override]
        """A plain tagger of some of the labels."""
        return self.plain().take_labels(numbers)

    def save(self, path: str | Path) -> None:
        """Write the model folder of a plain tagger; an older model there is replaced."""
        self.plain().save(path)

    def prune(self, threshold: float = 0.0, **options: Any) -> Tagger:
        """A smaller, plain tagger of the largest weights, as `Tagger.prune` makes it."""
        return self.plain().prune(threshold, **options)
