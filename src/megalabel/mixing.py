"""mix: one tagger of several unlike ones, which may come from anywhere."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import (
    check_argument,
    clone,
    instance,
    integer,
    one_of,
    sequence_of,
    unfitted,
    with_learned,
)
from megalabel.calibrating import calibrated
from megalabel.calibration import Joint
from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.data.hashes import known_hashes, text_hashes
from megalabel.decision import TopK
from megalabel.errors import DataError, ParameterError
from megalabel.features import Each, NameWords, PlainTexts
from megalabel.labels.own import OwnLabels
from megalabel.metrics import evaluate
from megalabel.parts import Calibrator, Decision, Featurizer
from megalabel.rankers.combining import Boosted, Combiner, Means, Stack
from megalabel.rankers.mix import Candidates, Mix, counts_for, renumbered
from megalabel.store import fingerprint
from megalabel.tagger import Tagger, calibrator_for

log = logging.getLogger(__name__)

FORMS: dict[str, Callable[[int], Combiner]] = {"means": Means, "stack": Stack, "boosted": Boosted}
MEASURES = ("P@1", "P@3", "P@5", "nDCG@10", "PSP@5")
BY = "nDCG@10"  # the measure by which a form is chosen
FOLDS = 3
DEPTH = 100  # labels of each member that are looked at to learn from
FEWEST = 20  # texts to learn from


def mix(
    taggers: Sequence[Tagger],
    on: Corpus,
    *,
    form: str = "auto",
    names: bool = True,
    shortlist: int = 40,
    calibration: Calibrator | str | None = "joint",
    decision: Decision | None = None,
    held_out: bool = False,
) -> Tagger:
    """One tagger that answers with what several say.

    Parameters
    ----------
    taggers : list of Tagger
        They are fitted and have not seen the texts of `on`. They may be of any systems, and know
        different labels. One alone is ranked anew.
    on : Corpus
        Texts with their labels, some hundred or thousand, to learn from what each tagger is worth.
    form : str
        "means": means of probabilities, with weights by label frequency. "stack": a logistic
        regression on what each says. "boosted": boosted trees on the same. "auto": the one with the
        best nDCG@10 on texts that it has not learned from.
    names : bool
        Whether a stack or boosted trees also look for the labels' names in the text.
    shortlist : int
        How many labels of each tagger are judged.
    calibration, decision
        As for `Tagger`. Both learn from rankings of texts that the form has not learned from.
    held_out : bool
        True if `on` was held out when members were trained: texts that are equal to some of theirs
        are no mistake then.

    Returns
    -------
    Tagger
        Its `provenance_["mix"]` has the form, and what each form and each member measured.

    Examples
    --------
    >>> from megalabel import systems
    >>> from megalabel.data.synthetic import generate
    >>> shop = generate(texts=2_000, labels=200).corpus
    >>> members = [systems.create(name).fit(shop[:1_500]) for name in ("knn", "xr-linear")]
    >>> both = mix(members, shop[1_500:])
    >>> both.system, len(both.classifier_.members_)
    ('mix', 2)
    """
    check_argument("form", form, one_of("auto", *FORMS))
    check_argument("shortlist", shortlist, integer(1))
    check_argument("taggers", taggers, sequence_of(instance(Tagger)))
    check_argument("on", on, instance(Corpus))
    members = _Members.of(taggers)
    labels = members.labels
    corpus = on.aligned(labels)
    targets = csr_matrix(corpus.targets[:, : len(labels)])
    if len(corpus) < FEWEST or not targets.nnz:
        raise DataError(
            f"a mix learns from at least {FEWEST} texts with labels that its members know: "
            f"{len(corpus)} texts were given, with {targets.nnz} such labels"
        )
    if not held_out:
        _check_unseen(taggers, corpus)
    excluded = None if corpus.excluded is None else corpus.excluded[:, : len(labels)]
    leaves_own_out = any(tagger.leaves_own_out_ for tagger in taggers)
    if leaves_own_out:
        cells = OwnLabels(labels).cells(corpus)
        excluded = cells if excluded is None else cells + excluded
    counts = members.label_counts
    if (counts == 0).sum() < (counts == 1).sum():  # labels are those that some text carries
        # of one that only these texts carry, it would be certain that it is right
        lone = csr_matrix((targets > 0).multiply(counts == 0), dtype=np.float32)
        lone.eliminate_zeros()
        excluded = lone if excluded is None else lone + excluded
    calibrators, rankings = [], []
    for tagger, numbers in zip(taggers, members.numbers, strict=True):
        calibrator, ranking = _probabilities(tagger, corpus)
        calibrators.append(calibrator)
        rankings.append(renumbered(ranking, numbers, labels).without(excluded))
    named = names and corpus.texts is not None and NameWords.useful(labels)
    words = NameWords().fit(Corpus(corpus.texts, labels=labels)) if named else None
    judged = counts_for([tagger.classifier_ for tagger in taggers], counts)
    found = Candidates.of(rankings, judged, shortlist, words, corpus.texts)
    trial = _Trial(found, targets, members)
    measured = {f"member {number}": trial.measured(r) for number, r in enumerate(rankings)}
    by_form = {}
    for name in FORMS if form == "auto" else (form,):
        by_form[name] = trial.cross_fitted(name)
        measured[name] = trial.measured(by_form[name])
        log.info("%s: %s %.2f%%", name, BY, 100 * measured[name][BY])
    chosen = max(by_form, key=lambda name: measured[name][BY])
    ranking, combiner = by_form[chosen], trial.fitted(chosen)
    classifier = Mix(
        [unfitted(tagger.classifier_) for tagger in taggers],
        unfitted(combiner),
        shortlist=shortlist,
    )
    classifier.restore(
        {
            "labels_": labels,
            "members_": [tagger.classifier_ for tagger in taggers],
            "calibrators_": calibrators,
            "sources_": members.sources,
            "numbers_": members.numbers,
            "label_counts_": members.label_counts,
            "combiner_": combiner,
            "names_": words,
        }
    )
    made = Tagger(unfitted(classifier), None, calibration, decision, system="mix")
    rule = TopK() if decision is None else clone(decision)
    learned: dict[str, Any] = {"calibration_": None, "metrics_": {}, "reliability_": {}}
    if calibration is not None:
        calibrator = calibrator_for(calibration, rule)
        settled = calibrated(calibrator, ranking, targets, counts, False, members.train_labels)
        learned = dict(zip(learned, settled, strict=True))
        ranking = settled.calibrator.apply(ranking)
    if rule.learns:
        rule.fit(ranking, targets, members.train_labels)
    described = {
        "form": chosen,
        "texts": len(corpus),
        "trained_on": [tagger.n_texts_ for tagger in taggers],
        "members": [tagger.system or type(tagger.classifier_).__name__ for tagger in taggers],
        "held_out": measured,
    }
    learned |= {"decision_": rule, "provenance_": {"mix": described}}
    own = None if corpus.texts is None else text_hashes(corpus.texts)
    learned["text_hashes_"] = _seen(taggers, own)
    learned["leaves_own_out_"] = leaves_own_out
    return _with_parts(made, classifier, members, learned)


def with_members(mixed: Tagger, taggers: Sequence[Tagger], texts: Corpus | None = None) -> Tagger:
    """The same mix over members that were trained anew, such as on all texts.

    Parameters
    ----------
    mixed : Tagger
        What `mix` gave.
    taggers : list of Tagger
        As many, of the same kinds and with the same labels.
    texts : Corpus, optional
        Texts to count words of names in; by default those counts stay as they are.
    """
    before, members = mixed.classifier_, _Members.of(taggers)
    if not isinstance(before, Mix) or len(before.members_) != len(taggers):
        raise ParameterError(f"this is not a mix of {len(taggers)} members: {mixed!r}")
    if members.labels != before.labels_:
        raise DataError("the members know other labels than those of the mix")
    words = before.names_
    if words is not None and texts is not None:
        words = NameWords().fit(Corpus(texts.texts, labels=members.labels))
    classifier = before.with_members(
        [tagger.classifier_ for tagger in taggers],
        calibrators_=[
            calibrator.for_counts(tagger.label_counts_)
            for calibrator, tagger in zip(before.calibrators_, taggers, strict=True)
        ],
        sources_=members.sources,
        numbers_=members.numbers,
        label_counts_=members.label_counts,
        names_=words,
    )
    learned = mixed.learned()
    described = mixed.provenance_["mix"] | {"trained_on": [tagger.n_texts_ for tagger in taggers]}
    learned["provenance_"] = mixed.provenance_ | {"mix": described}
    if mixed.calibration_ is not None:
        learned["calibration_"] = mixed.calibration_.for_counts(members.label_counts)
    learned["text_hashes_"] = _seen(taggers, mixed.text_hashes_)
    learned["leaves_own_out_"] = any(tagger.leaves_own_out_ for tagger in taggers)
    return _with_parts(unfitted(mixed), classifier, members, learned)


def _seen(taggers: Sequence[Tagger], own: np.ndarray | None) -> np.ndarray | None:
    """The hashes of texts that a mix or one of its members has learned from."""
    known = [hashes for tagger in taggers if (hashes := tagger.text_hashes_) is not None]
    known += [] if own is None else [own]
    return known_hashes(*known) if known else None


@dataclass(frozen=True)
class _Members:
    """What several taggers know together."""

    labels: LabelSet
    numbers: list[np.ndarray]
    """The numbers in `labels` of each one's labels; empty where they are the same."""
    label_counts: np.ndarray
    n_texts: int
    features: list[Featurizer]
    """Those that differ."""
    sources: np.ndarray
    """Which of the features each one has."""

    @classmethod
    def of(cls, taggers: Sequence[Tagger]) -> _Members:
        if not taggers:
            raise ParameterError("a mix needs at least one tagger")
        for tagger in taggers:
            tagger.check_fitted()
        labels = taggers[0].labels
        for tagger in taggers[1:]:
            labels = labels.extended(tagger.labels)
        numbers, label_counts = [], np.zeros(len(labels), np.int64)
        for tagger in taggers:
            own = labels.indices(tagger.labels.ids)
            label_counts[own] = np.maximum(label_counts[own], tagger.label_counts_)
            same = labels == tagger.labels
            numbers.append(np.zeros(0, np.int32) if same else own.astype(np.int32))
        features: dict[str, Featurizer] = {}
        sources = []
        for tagger in taggers:
            key = fingerprint(tagger.features_)
            features.setdefault(key, tagger.features_)
            sources.append(list(features).index(key))
        n_texts = max(tagger.n_texts_ for tagger in taggers)
        return cls(
            labels, numbers, label_counts, n_texts, list(features.values()), np.array(sources)
        )

    @property
    def train_labels(self) -> tuple[np.ndarray, int]:
        """How often each label occurs, in how many texts."""
        return self.label_counts, self.n_texts


@dataclass(frozen=True)
class _Trial:
    """Candidates of texts whose labels are known."""

    candidates: Candidates
    targets: csr_matrix
    members: _Members

    def cross_fitted(self, form: str) -> Ranking:
        """The ranking by a form, each text by what was learned from other texts."""
        said, texts, present, hits = self._pairs()
        margins = np.zeros(len(said), np.float32)
        for fold in range(FOLDS):
            inside = texts % FOLDS == fold
            learned = present & ~inside
            combiner = self._new(form).fit(said[learned], hits[learned], texts[learned])
            margins[inside] = combiner.margins(said[inside])
        return self.candidates.ranked(margins, DEPTH, self.members.labels)

    def fitted(self, form: str) -> Combiner:
        """The form learned from all texts."""
        said, texts, present, hits = self._pairs()
        return self._new(form).fit(said[present], hits[present], texts[present])

    def measured(self, ranking: Ranking) -> dict[str, float]:
        """What is measured of a ranking of the texts."""
        values = evaluate(
            ranking, self.targets, train_labels=self.members.train_labels, k=(1, 3, 5, 10)
        )
        return {name: float(values[name]) for name in MEASURES}

    def _new(self, form: str) -> Combiner:
        return FORMS[form](len(self.members.numbers))

    def _pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What is said of each candidate, the number of its text, whether it is no padding, and
        whether it is right."""
        ids = self.candidates.ids
        present = (ids < len(self.members.labels)).ravel()
        texts = np.repeat(np.arange(len(ids)), ids.shape[1])
        hits = np.zeros(ids.size, bool)
        relevant = self.targets > 0
        hits[present] = np.asarray(relevant[texts[present], ids.ravel()[present]]).ravel()
        return self.candidates.said, texts, present, hits


def _check_unseen(taggers: Sequence[Tagger], on: Corpus) -> None:
    """Raise a DataError where a tagger was trained on most of some texts; say so of fewer."""
    seen = max(tagger.seen_texts(on) for tagger in taggers)
    told = f"{seen:,} of the {len(on):,} texts to learn from were in the training data of a member"
    if 2 * seen > len(on):
        raise DataError(
            f"{told}, which is better on them than it will ever be: give texts that are new to all"
        )
    if seen:
        log.warning("%s: the mix will trust it too much", told)


def _probabilities(tagger: Tagger, corpus: Corpus) -> tuple[Calibrator, Ranking]:
    """The calibrator of a tagger, or one that is learned from a corpus; and its ranking of it."""
    calibrator = tagger.calibration_
    if calibrator is None:
        ranking = tagger.rank(corpus, DEPTH)
        truth = csr_matrix(corpus.aligned(tagger.labels).targets[:, : len(tagger.labels)])
        calibrator = Joint().fit(ranking, truth, label_counts=tagger.label_counts_)
        return calibrator, calibrator.apply(ranking)
    return calibrator, tagger.rank(corpus, DEPTH)


def _with_parts(
    tagger: Tagger, classifier: Mix, members: _Members, learned: dict[str, Any]
) -> Tagger:
    """A tagger that is not fitted, with a mix of members and what else it has learned."""
    features = Each.of([*members.features, *([] if classifier.names_ is None else [PlainTexts()])])
    tagger.set_params(classifier=unfitted(classifier), features=unfitted(features))
    parts = {
        "features_": features,
        "classifier_": classifier,
        "label_counts_": members.label_counts,
        "n_texts_": members.n_texts,
    }
    return with_learned(tagger, **(learned | parts))
