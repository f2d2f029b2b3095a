"""Judgements: what a judge said, kept on disk, within a budget of calls and tokens.

The file holds a line an answer: a hash of the judge, the text and the label, and the grade. Lines
are only ever added; one that was cut off when a process was killed is passed over.
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

import numpy as np

from megalabel.base import check_argument, integer, one_of
from megalabel.errors import BudgetError, JudgeError, ShapeError
from megalabel.judges.base import YES, Judge
from megalabel.outputs import naming
from megalabel.progress import progress

log = logging.getLogger(__name__)

FILE = "judgements.txt"
_LINE = re.compile(rb"([0-9a-f]{32}) (\?{8}|[01]\.[0-9]{6})\n")
_UNREAD = "?" * 8
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


class Judgements:
    """Grades of pairs by a judge: none is asked about twice, and no more than a budget allows.

    Parameters
    ----------
    judge : Judge
    folder : path, optional
        Where answers are kept; the same folder may serve several judges. None: in memory alone.
    calls, tokens : int, optional
        The most that may be spent. What would take more is refused before the first call.

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
        self._known: dict[bytes, float] = {} if self.file is None else _read(self.file)

    def cost(self, texts: Sequence[str], labels: Sequence[str]) -> Cost:
        """What it takes to judge pairs; nothing is asked."""
        keys, new = self._split(texts, labels)
        ask = [texts[i] for i in new], [labels[i] for i in new]
        tokens = self.judge.tokens(*ask)
        pairs = len(set(keys))
        return Cost(pairs, pairs - len(new), tokens, self.judge.price(tokens))

    def grades(self, texts: Sequence[str], labels: Sequence[str]) -> np.ndarray:
        """The grade of each pair, float32 from 0 to 1.

        What is not an answer is 0. Answers are kept as they come: after an error, or a killed
        process, the same call goes on from there.
        """
        keys, new = self._split(texts, labels)
        self.spent.known += len(set(keys)) - len(new)
        lost: dict[bytes, float] = {}
        if new:
            self._check_budget(texts, labels, new)
            lost = self._ask(keys, texts, labels, new)
        found = np.array([self._known.get(key, lost.get(key, 0.0)) for key in keys], np.float32)
        return np.nan_to_num(found, nan=0.0)

    def _split(self, texts: Sequence[str], labels: Sequence[str]) -> tuple[list[bytes], list[int]]:
        """The keys of all pairs, and the places of those that must be asked about, each once."""
        if len(texts) != len(labels):
            raise ShapeError(f"{len(texts)} texts but {len(labels)} labels: a pair takes both")
        identity = self.judge.identity.encode()
        keys = [_key(identity, text, label) for text, label in zip(texts, labels, strict=True)]
        first = {key: place for place, key in reversed(list(enumerate(keys)))}
        return keys, sorted(place for key, place in first.items() if key not in self._known)

    def _check_budget(self, texts: Sequence[str], labels: Sequence[str], new: list[int]) -> None:
        if self.calls is not None and self.spent.calls + len(new) > self.calls:
            raise BudgetError(
                f"{len(new):,} pairs are to be judged, but of the budget of {self.calls:,} calls "
                f"{self.calls - self.spent.calls:,} are left: allow more, or judge fewer texts"
            )
        if self.tokens is not None:
            due = self.judge.tokens([texts[i] for i in new], [labels[i] for i in new])
            if self.spent.tokens + due > self.tokens:
                raise BudgetError(
                    f"{len(new):,} pairs take about {due:,} tokens, but of the budget of "
                    f"{self.tokens:,} tokens {max(0, self.tokens - self.spent.tokens):,} are left: "
                    "allow more, or judge fewer texts"
                )

    def _ask(
        self, keys: list[bytes], texts: Sequence[str], labels: Sequence[str], new: list[int]
    ) -> dict[bytes, float]:
        """Ask about pairs and keep the answers; gives those pairs that got none."""
        waiting, lost, in_a_row = list[str](), dict[bytes, float](), 0
        answers = self.judge.answers([texts[i] for i in new], [labels[i] for i in new])
        try:
            with progress("judging pairs", len(new)) as bar:
                for answer in answers:
                    key = keys[new[answer.place]]
                    self.spent.calls += 1
                    self.spent.tokens += answer.tokens
                    bar.advance()
                    in_a_row = in_a_row + 1 if answer.lost else 0
                    if answer.lost:
                        self.spent.lost += 1
                        lost[key] = 0.0
                        if in_a_row >= min(_LOST, len(new)):
                            raise JudgeError(
                                f"{in_a_row} questions in a row got no answer: {answer.lost}"
                            )
                        continue
                    self._known[key] = answer.grade
                    self.spent.unread += math.isnan(answer.grade)
                    waiting.append(_line(key, answer.grade))
                    if len(waiting) >= _KEPT_AT:
                        self._keep(waiting)
                    if self.tokens is not None and self.spent.tokens > self.tokens:
                        raise BudgetError(
                            f"the budget of {self.tokens:,} tokens is spent after "
                            f"{self.spent.calls:,} calls; the answers are kept"
                        )
        finally:
            if isinstance(answers, Iterator) and hasattr(answers, "close"):
                answers.close()  # nothing more is asked
            self._keep(waiting)
        if len(self._known) and (self.spent.unread or self.spent.lost):
            log.warning("%s", self.spent)
        return lost

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


def _line(key: bytes, grade: float) -> str:
    return f"{key.hex()} {_UNREAD if math.isnan(grade) else f'{grade:.6f}'}\n"


def _read(file: Path) -> dict[bytes, float]:
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
    return {
        bytes.fromhex(found[1].decode()): math.nan if found[2][:1] == b"?" else float(found[2])
        for found in matched
    }
