"""What is measured, in words: the questions that a few of the metrics answer."""

from __future__ import annotations

from collections.abc import Iterable

FIRST = "Is the first suggestion right?"
"""What `P@1` answers."""

QUESTIONS = {
    "P": "Of {k} suggestions, how many are right?",
    "R": "Of the right labels, how many are found?",
    "nDCG": "How good is the order of the {k}?",
    "ECE-debiased": "How far off are probabilities?",
    "coverage": "How many labels are ever found?",
}
"""What a metric answers at the largest cutoff."""


def questions(names: Iterable[str]) -> dict[str, str]:
    """The questions that values of these names answer, by name: of the first suggestion, and of as
    many as the largest cutoff.

    Examples
    --------
    >>> for question in questions(["P@1", "P@3", "R@3", "MRR@3"]).values():
    ...     print(question)
    Is the first suggestion right? (P@1)
    Of 3 suggestions, how many are right? (P@3)
    Of the right labels, how many are found? (R@3)
    """
    measured = set(names)
    cutoffs = {name.partition("@")[2] for name in measured}
    k = max((int(cutoff) for cutoff in cutoffs if cutoff.isdecimal()), default=1)
    asked = {"P@1": FIRST}
    for metric, words in QUESTIONS.items():
        asked.setdefault(f"{metric}@{k}", words.format(k=k))
    return {name: f"{words} ({name})" for name, words in asked.items() if name in measured}


def plain_value(value: float) -> str:
    """A fraction in percent. An error that is below 0, as one without what noise adds may be, is
    none."""
    return f"{100 * max(value, 0.0):.1f}"
