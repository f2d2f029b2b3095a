"""Why a label: what spoke for it and against it, in one form for classifiers of all kinds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from megalabel.data.matrix import canonical
from megalabel.features import Concat, Each, StemmedWords, Tfidf
from megalabel.linear import OneVsAll, OnlineTree, TreeClassifier
from megalabel.parts import Classifier, Featurizer
from megalabel.rankers import LexicalMatcher, Mix
from megalabel.retrieval import NearestNeighbours

LOOKED_AT = 1000  # labels of a text among which the one asked for is looked up
_VARIANTS = 64  # texts ranked to explain one of them
_WIDEST = 80  # characters of a word, a run of words or a title that are shown
_LEAST = 1e-7  # a probability that logits are still made of


class Evidence(NamedTuple):
    """A word or a training text, and its share in what a reason says."""

    text: str
    share: float
    """Above 0 it speaks for the label, below 0 against it."""
    similarity: float | None = None
    """Of a training text: how similar it is."""
    row: int | None = None
    """Of a training text: its number in training, from 0."""


@dataclass(frozen=True)
class Reason:
    """What one part of a model made of a text."""

    kind: str
    """What it goes by: "words" of a linear classifier, "neighbours", words of "names", words "left
    out", "members" of a mix."""
    title: str
    """What the part is, for people."""
    share: float
    """What it says of the label in all: a margin, a share of the votes, a score."""
    evidence: list[Evidence]
    """What speaks for it and against it, the largest shares first."""
    bias: float = 0.0
    """What the part says of the label whatever the text."""

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows for people; below the evidence stands what it adds up to."""
        columns, total = _SHOWN.get(self.kind, (["", "adds"], "in all"))
        similar = any(item.similarity is not None for item in self.evidence)
        rows = [
            [
                _short(item.text),
                *([f"{item.similarity:.3f}"] if similar else []),
                f"{item.share:+.3f}",
            ]
            for item in self.evidence
        ]
        blank = [""] if similar else []
        if self.kind not in ("left out", "members"):  # whose shares are no parts of a sum
            others = self.share - self.bias - sum(item.share for item in self.evidence)
            if abs(others) > 5e-4:
                rows.append(["(others)", *blank, f"{others:+.3f}"])
            if self.bias:
                rows.append(["(bias)", *blank, f"{self.bias:+.3f}"])
        rows.append([total, *blank, f"{self.share:+.3f}"])
        if similar:
            columns = [columns[0], "similarity", *columns[1:]]
        return columns, rows


_SHOWN = {
    "words": (["word", "adds"], "margin"),
    "neighbours": (["training text", "share of the vote"], "all of them"),
    "names": (["word of the name", "weighs"], "all that are in the text"),
    "left out": (["left out", "falls by"], "with all words"),
    "members": (["left out", "falls by"], "with all members"),
}


@dataclass(frozen=True)
class Explanation:
    """Why a text has a label, or has not."""

    label: str
    probability: float | None
    """Without calibration, the score. None if the label is not among the best thousand."""
    reasons: list[Reason]

    @property
    def heading(self) -> str:
        """The label with its probability."""
        if self.probability is None:
            return f"{self.label}: not among the best {LOOKED_AT:,} labels"
        is_share = 0 <= self.probability <= 1
        return f"{self.label}: {self.probability:{'.1%' if is_share else '.3f'}}"

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; evidence has those keys alone that say something."""
        plain = asdict(self)
        for reason, whole in zip(plain["reasons"], self.reasons, strict=True):
            reason["evidence"] = [
                {key: value for key, value in item._asdict().items() if value is not None}
                for item in whole.evidence
            ]
        return plain

    def __str__(self) -> str:
        lines = [self.heading]
        for reason in self.reasons:
            columns, rows = reason.table()
            widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
            lines += ["", reason.title]
            for first, *numbers in [columns, *rows]:
                cells = (cell.rjust(n) for cell, n in zip(numbers, widths[1:], strict=True))
                lines.append("  ".join(["", first.ljust(widths[0]), *cells]))
        return "\n".join(lines)


@dataclass(frozen=True)
class Asked:
    """A text and a label that a classifier is to explain."""

    features: Featurizer
    """What makes the classifier's rows of texts."""
    text: str
    label: int
    words: int
    """At most so many pieces of evidence are named in a reason."""
    members: Sequence[str] = ()
    """Of a mix: the systems of its members, where they are known."""

    def row(self) -> Any:
        """The text as the classifier sees it."""
        return self.features.transform([self.text])


@singledispatch
def reasons_for(classifier: Classifier, asked: Asked) -> list[Reason]:
    """The reasons of a classifier for a label, or against it.

    `reasons_for.register(SomeClassifier)` takes a function that explains classifiers of another
    kind. Without one, words are left out to see what becomes of the label.
    """
    pieces = _pieces(asked.text, _VARIANTS - 1)
    variants = [asked.text, *(_without(asked.text, spans) for _, spans in pieces)]
    ranking = classifier.rank(asked.features.transform(variants), LOOKED_AT)
    named = ranking.ids == asked.label
    if not named[0].any():
        title = f"Not among the best {LOOKED_AT:,} labels: leaving words out says nothing"
        return [Reason("left out", title, 0.0, [])]
    scores = ranking.scores.astype(np.float64)
    there = ranking.present & np.isfinite(scores)
    # a label that is not named has the lowest score at most
    lowest = np.where(there, scores, np.inf).min(axis=1)
    own = np.where(named.any(axis=1), np.where(named, scores, 0).sum(axis=1), lowest)
    unit = "scores"
    if scores[there].min() >= 0 and scores[there].max() <= 1:
        chances = np.clip(own, _LEAST, 1 - _LEAST)
        own, unit = np.log(chances / (1 - chances)), "logits"
    falls = own[0] - own[1:]
    evidence = [
        Evidence(piece, fall) for (piece, _), fall in zip(pieces, falls.tolist(), strict=True)
    ]
    title = f"By leaving words out, in {unit}"
    return [Reason("left out", title, float(own[0]), _largest(evidence, asked.words))]


@reasons_for.register(OneVsAll)
@reasons_for.register(TreeClassifier)
@reasons_for.register(OnlineTree)
def _by_words(classifier: OneVsAll | TreeClassifier | OnlineTree, asked: Asked) -> list[Reason]:
    """The words of the classifiers on the way to a label; columns that are no words together."""
    row = canonical(asked.row(), "features")
    names = _names_of_columns(asked.features, asked.text)
    if row.nnz and not any(names(column) for column in row.indices.tolist()):
        return reasons_for.dispatch(Classifier)(classifier, asked)
    steps = classifier.explain(row, asked.label)
    trees = [step.tree for step in steps]
    reasons = []
    for number, step in enumerate(steps):
        words, others = [], 0.0
        for column, share in zip(step.features.tolist(), step.contributions.tolist(), strict=True):
            if name := names(column):
                words.append(Evidence(name, share))
            else:
                others += share
        evidence = _largest(words, asked.words)
        if others:
            evidence.append(Evidence("(vector)", others))
        down = trees.count(step.tree)
        where = [f"tree {step.tree + 1} of {trees[-1] + 1}"] if trees[-1] else []
        if down > 1:
            where.append(f"step {number - trees.index(step.tree) + 1} of {down} down the tree")
        title = ", ".join(["By words", *where])
        reasons.append(Reason("words", title, step.margin, evidence, step.bias))
    return reasons


@reasons_for.register
def _by_neighbours(classifier: NearestNeighbours, asked: Asked) -> list[Reason]:
    """The training texts that voted for a label."""
    rows, similarities, shares = classifier.votes(asked.row(), asked.label)
    evidence = [
        Evidence(classifier.title(row) or f"row {row}", share, round(similarity, 6), row)
        for row, similarity, share in zip(
            rows.tolist(), similarities.tolist(), shares.tolist(), strict=True
        )
    ]
    count = f"{len(rows)} of the {classifier.neighbours} nearest training texts"
    share = float(shares.sum())
    return [Reason("neighbours", f"By {count}", share, _largest(evidence, asked.words))]


@reasons_for.register
def _by_names(classifier: LexicalMatcher, asked: Asked) -> list[Reason]:
    """The words of the label's name that are in the text, by how rare they are; then what becomes
    of the label without them."""
    left_out = reasons_for.dispatch(Classifier)(classifier, asked)
    assert isinstance(asked.features, StemmedWords)
    named = classifier.explain(asked.row(), asked.label)
    if named is None:
        return left_out
    words, weights = named
    evidence = [
        Evidence(" ".join(asked.features.matched(asked.text, np.array([word]))[:1]), weight)
        for word, weight in zip(words.tolist(), weights.tolist(), strict=True)
    ]
    total = float(weights.sum(dtype=np.float64))
    # as the text has them: the label may be called otherwise by now
    title = f"By words of its name: “{' '.join(item.text for item in evidence)}”"
    reason = Reason("names", title, total, _largest(evidence, asked.words))
    return [reason, *left_out]


@reasons_for.register
def _by_members(mix: Mix, asked: Asked) -> list[Reason]:
    """What each member is worth, and the match of the label's name; then the members' reasons."""
    assert isinstance(asked.features, Each)
    names = _told_apart(asked.members, mix)
    whole, without = mix.without_each(asked.row(), asked.label)
    title = "By leaving members out, in logits"
    if whole is None:
        title, whole = f"Not among the best {mix.shortlist} labels of any member", 0.0
    parts = zip([*names, "(match of the label's name)"], without, strict=False)
    evidence = [Evidence(name, whole - margin) for name, margin in parts]
    reasons = [Reason("members", title, whole, _largest(evidence, len(evidence)))]
    for name, member, numbers, source in zip(
        names, mix.members_, mix.numbers_, mix.sources_.tolist(), strict=True
    ):
        own = np.flatnonzero(numbers == asked.label) if len(numbers) else [asked.label]
        for label in map(int, own):
            question = replace(
                asked, features=asked.features.parts_[source], label=label, members=()
            )
            reasons += [
                replace(reason, title=f"{name}: {reason.title[0].lower()}{reason.title[1:]}")
                for reason in reasons_for(member, question)
            ]
    return reasons


def _told_apart(systems: Sequence[str], mix: Mix) -> list[str]:
    """The members' systems, those of the same name numbered; their classes where nothing is told
    of systems."""
    names = [str(system) for system in systems]
    if len(names) != len(mix.members_):
        names = [type(member).__name__ for member in mix.members_]
    return [
        f"{name} {names[: place + 1].count(name)}" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def _short(text: str) -> str:
    """A text as one line that is not too long."""
    line = " ".join(text.split())
    return line if len(line) <= _WIDEST else f"{line[: _WIDEST - 1]}…"


def _largest(evidence: Sequence[Evidence], most: int) -> list[Evidence]:
    return sorted(evidence, key=lambda item: -abs(item.share))[:most]


def _pieces(text: str, most: int) -> list[tuple[str, list[tuple[int, int]]]]:
    """What is left out of a text at a time, and where it stands: each word, wherever it comes; of
    many words, runs of them.

    Examples
    --------
    >>> _pieces("Red, red dress", 5)
    [('Red', [(0, 3), (5, 8)]), ('dress', [(9, 14)])]
    >>> _pieces("Red, red dress", 1)
    [('Red, red dress', [(0, 14)])]
    """
    found = [match.span() for match in re.finditer(r"\w+", text)]
    found = found or [match.span() for match in re.finditer(r"\S+", text)]
    words: dict[str, list[tuple[int, int]]] = {}
    for start, end in found:
        words.setdefault(text[start:end].casefold(), []).append((start, end))
    if len(words) <= most:
        return [(text[slice(*spans[0])], spans) for spans in words.values()]
    length = -(-len(found) // most)
    runs = [found[start : start + length] for start in range(0, len(found), length)]
    bounds = [(run[0][0], run[-1][1]) for run in runs]
    return [(text[start:end], [(start, end)]) for start, end in bounds]


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """A text without some pieces of it.

    Examples
    --------
    >>> _without("Red, red dress", [(0, 3), (5, 8)])
    ',  dress'
    """
    for start, end in reversed(spans):
        text = text[:start] + text[end:]
    return text


def _names_of_columns(features: Featurizer, text: str) -> Callable[[int], str | None]:
    """What the columns of a text's vector stand for; None where that is no word."""
    if isinstance(features, Concat):
        parts = [_names_of_columns(part, text) for part in features.parts_]
        starts = np.cumsum([0, *(part.n_features for part in features.parts_)])

        def named(column: int) -> str | None:
            part = int(np.searchsorted(starts, column, "right")) - 1
            return parts[part](column - int(starts[part]))

        return named
    terms = getattr(features, "terms_", None)
    if terms is not None:
        return lambda column: str(terms[column].as_py())
    found: dict[int, str] = {}
    if isinstance(features, Tfidf):  # with hashing: the columns of the text's own terms
        own = sorted(dict.fromkeys(features.analyse(text)), key=len)
        rows = features.transform(own)
        for i, term in enumerate(own):
            # the columns of a phrase are its own and those of shorter terms in it
            columns = set(rows.indices[rows.indptr[i] : rows.indptr[i + 1]].tolist())
            if len(columns - found.keys()) == 1:
                found[(columns - found.keys()).pop()] = term
    return found.get
