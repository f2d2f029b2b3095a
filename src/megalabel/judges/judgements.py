"""Judgements: what a judge said, kept on disk, within a budget of calls and tokens.

The file holds a line an answer: a hash of the judge, the text and the label, the tokens it cost
where there are any, and the grade. Lines are only ever added; one that was cut off when a process
was killed is passed over.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from megalabel.base import check_argument, integer, one_of
from megalabel.errors import BudgetError, JudgeError, ShapeError
from megalabel.judges.base import YES, Answer, Judge
from megalabel.outputs import naming
from megalabel.progress import progress

log = logging.getLogger(__name__)

FILE = "judgements.txt"
# the grade comes last and has one length, so that no part of a line is taken for a whole one
_LINE = re.compile(rb"([0-9a-f]{32}) (?:([0-9]{1,18}) )?(\?{8}|[01]\.[0-9]{6})\n")
_UNREAD = "?" * 8
_DIGITS = 6  # of a grade, in the file and in memory
_KEPT_AT = 64  # answers that are written together
_LOST = 10  # questions in a row without an answer: the judge is not there


@dataclass(frozen=True)
class Cost:
    """What it takes to have pairs judged, said before the first is."""

    pairs: int
    """Different ones."""
    known: int
    """Of these, so many were judged before."""
    tokens: int
    """About so many, of those that were not; 0: the judge is not paid by tokens."""
    price: float = 0.0
    """What they cost; 0: no price is known."""

    @property
    def calls(self) -> int:
        """How many pairs must be asked about."""
        return self.pairs - self.known

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.pairs + other.pairs,
            self.known + other.known,
            self.tokens + other.tokens,
            self.price + other.price,
        )

    def __str__(self) -> str:
        told = f"{self.pairs:,} pairs, {self.known:,} of them judged before: {self.calls:,} calls"
        if self.tokens:
            told += f", about {self.tokens:,} tokens"
        if self.price:
            told += f", about {self.price:,.2f} at the price given"
        return told


@dataclass
class Spent:
    """What was asked so far."""

    calls: int = 0
    known: int = 0
    """Pairs that were judged before."""
    tokens: int = 0
    known_tokens: int = 0
    """What those judged before cost then."""
    unread: int = 0
    """Answers in which neither yes nor no could be read: they count as no."""
    lost: int = 0
    """Questions without an answer: they count as no, and will be asked again."""

    def __str__(self) -> str:
        told = f"{self.calls:,} calls, {self.known:,} pairs judged before"
        if self.tokens:
            told += f", {self.tokens:,} tokens"
        if self.unread:
            told += f"; {self.unread:,} answers were neither yes nor no and count as no"
        if self.lost:
            told += f"; {self.lost:,} questions got no answer and count as no"
        return told


class _Kept(NamedTuple):
    """What is kept of an answer."""

    grade: float
    tokens: int = 0

    @classmethod
    def of(cls, answer: Answer) -> _Kept:
        return cls(round(float(answer.grade), _DIGITS), max(0, int(answer.tokens)))


_NONE = _Kept(0.0)


class Judgements:
    """Grades of pairs by a judge: none is asked about twice, and no more than a budget allows.

    Parameters
    ----------
    judge : Judge
    folder : path, optional
        Where answers are kept; the same folder may serve several judges. None: in memory alone.
    calls, tokens : int, optional
        The most that may be spent. What would take more is refused before the first call. Pairs
        that were judged before count as if they were asked about now: what was stopped and goes on
        gets as far as it would have at once.

    Attributes
    ----------
    spent : Spent

    Examples
    --------
    >>> from megalabel.judges import LexicalJudge
    >>> judge = LexicalJudge().learn(["a tale of whales", "red dress", "blue dress"])
    >>> said = Judgements(judge)
    >>> said.grades(["a tale of whales", "red dress"], ["whale", "whale"])
    array([1., 0.], dtype=float32)
    """

    def __init__(
        self,
        judge: Judge,
        folder: str | os.PathLike[str] | None = None,
        *,
        calls: int | None = None,
        tokens: int | None = None,
    ) -> None:
        for name, value in (("calls", calls), ("tokens", tokens)):
            check_argument(name, value, integer(0) | one_of(None))
        self.judge, self.calls, self.tokens = judge, calls, tokens
        self.spent = Spent()
        self.file = None if folder is None or judge.free else Path(folder) / FILE
        self._known: dict[bytes, _Kept] = {} if self.file is None else _read(self.file)
        self._met = set[bytes]()  # what was asked of this, and counted
        self._lost = 0  # questions in a row without an answer

    def cost(self, texts: Sequence[str], labels: Sequence[str]) -> Cost:
        """What it takes to judge pairs; nothing is asked."""
        _, first = self._split(texts, labels)
        new = [place for key, place in first.items() if key not in self._known]
        tokens = self._foreseen(texts, labels, new)
        return Cost(len(first), len(first) - len(new), tokens, self.judge.price(tokens))

    def grades(self, texts: Sequence[str], labels: Sequence[str]) -> np.ndarray:
        """The grade of each pair, float32 from 0 to 1.

        What is not an answer is 0. Answers are kept as they come: after an error, or a killed
        process, the same call goes on from there.
        """
        keys, first = self._split(texts, labels)
        new = {key: place for key, place in first.items() if key not in self._known}
        fresh = {key: place for key, place in first.items() if key not in self._met}
        self._check_budget(texts, labels, sorted({*new.values(), *fresh.values()}))
        self._met.update(fresh)
        kept = [self._known[key] for key in fresh if key in self._known]
        self.spent.known += len(kept)
        self.spent.known_tokens += sum(one.tokens for one in kept)
        self._check_spent()
        if new:
            self._ask(new, texts, labels)
        found = np.array([self._known.get(key, _NONE).grade for key in keys], np.float32)
        return np.nan_to_num(found, nan=0.0)

    def _split(
        self, texts: Sequence[str], labels: Sequence[str]
    ) -> tuple[list[bytes], dict[bytes, int]]:
        """The keys of all pairs, and where each comes first."""
        if len(texts) != len(labels):
            raise ShapeError(f"{len(texts)} texts but {len(labels)} labels: a pair takes both")
        identity = self.judge.identity.encode()
        keys = [_key(identity, text, label) for text, label in zip(texts, labels, strict=True)]
        first = dict[bytes, int]()
        for place, key in enumerate(keys):
            first.setdefault(key, place)
        return keys, first

    def _foreseen(self, texts: Sequence[str], labels: Sequence[str], some: list[int]) -> int:
        return self.judge.tokens([texts[i] for i in some], [labels[i] for i in some])

    def _check_budget(self, texts: Sequence[str], labels: Sequence[str], due: list[int]) -> None:
        """Refuse pairs that are too many; those that were judged before are among them."""
        too = ", as pairs that were judged before count too" if self.spent.known else ""
        used = self.spent.calls + self.spent.known
        if self.calls is not None and due and used + len(due) > self.calls:
            raise BudgetError(
                f"{len(due):,} pairs are to be judged, but of the budget of {self.calls:,} calls "
                f"{max(0, self.calls - used):,} are left{too}: allow more, or judge fewer texts"
            )
        if self.tokens is not None and due:
            most, left = self._foreseen(texts, labels, due), self.tokens - self._tokens_used
            if most > left:
                raise BudgetError(
                    f"{len(due):,} pairs take about {most:,} tokens, but of the budget of "
                    f"{self.tokens:,} tokens {max(0, left):,} are left{too}: allow more, or judge "
                    "fewer texts"
                )

    @property
    def _tokens_used(self) -> int:
        return self.spent.tokens + self.spent.known_tokens

    def _check_spent(self) -> None:
        if self.tokens is not None and self._tokens_used > self.tokens:
            raise BudgetError(
                f"the budget of {self.tokens:,} tokens is spent after "
                f"{self.spent.calls + self.spent.known:,} pairs; the answers are kept"
            )

    def _ask(self, new: dict[bytes, int], texts: Sequence[str], labels: Sequence[str]) -> None:
        """Ask about pairs and keep the answers."""
        keys, places = list(new), list(new.values())
        waiting, spent = list[str](), self.spent
        answers = self.judge.answers([texts[i] for i in places], [labels[i] for i in places])
        try:
            with progress("judging pairs", len(new)) as bar:
                for answer in answers:
                    spent.calls += 1
                    spent.tokens += answer.tokens
                    bar.advance()
                    self._lost = self._lost + 1 if answer.lost else 0
                    if answer.lost:
                        spent.lost += 1
                        last = spent.calls == spent.lost == len(new) and not spent.known
                        if last or self._lost >= _LOST:
                            raise JudgeError(
                                f"{self._lost} questions in a row got no answer: {answer.lost}"
                            )
                        continue
                    key, kept = keys[answer.place], _Kept.of(answer)
                    self._known[key] = kept
                    spent.unread += math.isnan(kept.grade)
                    waiting.append(_line(key, kept))
                    if len(waiting) >= _KEPT_AT:
                        self._keep(waiting)
                    self._check_spent()
        finally:
            if isinstance(answers, Iterator) and hasattr(answers, "close"):
                answers.close()  # nothing more is asked
            self._keep(waiting)
        if spent.unread or spent.lost:
            log.warning("%s", spent)

    def _keep(self, lines: list[str]) -> None:
        """Write lines, at once, and forget them."""
        if self.file is not None and lines:
            with naming(self.file):
                self.file.parent.mkdir(parents=True, exist_ok=True)
                with open(self.file, "ab", buffering=0) as out:
                    out.write("".join(lines).encode())
        lines.clear()


def says_yes(grades: np.ndarray) -> np.ndarray:
    """Which grades say that a label fits.

    Examples
    --------
    >>> says_yes(np.array([0.9, 0.1]))
    array([ True, False])
    """
    return np.asarray(grades >= YES)


def _key(identity: bytes, text: str, label: str) -> bytes:
    """128 bits of a judge, a text and a label; lengths keep the three apart."""
    digest = hashlib.sha256()
    for part in (identity, text.encode(), label.encode()):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()[:16]


def _line(key: bytes, kept: _Kept) -> str:
    grade = _UNREAD if math.isnan(kept.grade) else f"{kept.grade:.{_DIGITS}f}"
    return " ".join([key.hex(), *([str(kept.tokens)] if kept.tokens else []), grade]) + "\n"


def _read(file: Path) -> dict[bytes, _Kept]:
    """The answers of a file; lines that are damaged are passed over, and counted."""
    if not file.exists():
        return {}
    with naming(file):
        data = file.read_bytes()
        if data and not data.endswith(b"\n"):  # what comes next is not to be joined to it
            with open(file, "ab") as out:
                out.write(b"\n")
    lines = data.splitlines(keepends=True)
    matched = [found for line in lines if (found := _LINE.fullmatch(line))]
    if len(matched) < len(lines):
        log.warning("%s: %d damaged lines are passed over", file.name, len(lines) - len(matched))
    return {bytes.fromhex(found[1].decode()): _read_back(found) for found in matched}


def _read_back(found: re.Match[bytes]) -> _Kept:
    grade = math.nan if found[3][:1] == b"?" else float(found[3])
    return _Kept(grade, int(found[2] or 0))
