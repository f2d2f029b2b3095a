"""Labels fit where enough of their words are in the text."""

from __future__ import annotations

import numpy as np
import pytest

from megalabel.errors import NotFittedError, ParameterError
from megalabel.judges import Judgements, LexicalJudge

TEXTS = ["the tale of whales", "the red dress", "the blue dress", "the tale of the sea"]


def grades(judge, texts, labels):
    return [answer.grade for answer in judge.answers(texts, labels)]


def test_shares_are_weighed_by_how_rare_words_are():
    judge = LexicalJudge(threshold=0.6).learn(TEXTS)
    pairs = [
        ("whales at sea", "whale"),
        ("the sea", "the whale"),  # "the" is in all texts
        ("a whale", "the whale"),
        ("a dress", "red dress"),
        ("a red dress", "dresses, red"),
        ("a red dress", "unheard of"),
        ("", "whale"),
        ("a whale", ""),
    ]
    assert grades(judge, *zip(*pairs, strict=True)) == [1, 0, 1, 0, 1, 0, 0, 0]


def test_by_hand():
    """The share of a name's words by idf, of stems of five letters, in float64."""
    texts = ["alpha beta", "alpha gamma", "alpha delta beta"]

    def idf(word):
        count = sum(word in text.split() for text in texts)
        return np.log((len(texts) + 1) / (count + 0.5))

    label, text = "alpha beta omega", "beta alpha"
    share = (idf("alpha") + idf("beta")) / sum(idf(word) for word in label.split())
    for threshold, grade in ((share - 1e-4, 1), (share + 1e-4, 0)):
        assert grades(LexicalJudge(threshold=threshold).learn(texts), [text], [label]) == [grade]


def test_does_not_depend_on_the_pairs_beside():
    judge = LexicalJudge().learn(TEXTS)
    texts, labels = TEXTS * 3, ["whale", "dress", "red dress", "sea"] * 3
    together = grades(judge, texts, labels)
    alone = [grades(judge, [t], [label])[0] for t, label in zip(texts, labels, strict=True)]
    assert together == alone
    assert Judgements(judge).grades(texts, labels).tolist() == together


def test_keeps_no_answers(tmp_path):
    Judgements(LexicalJudge().learn(TEXTS), tmp_path).grades(["a whale"], ["whale"])
    assert list(tmp_path.iterdir()) == []


def test_identity_is_of_what_it_learned():
    one = LexicalJudge().learn(TEXTS)
    assert one.identity == LexicalJudge().learn(TEXTS).identity
    assert one.identity != LexicalJudge().learn(TEXTS[:2]).identity
    assert one.identity != LexicalJudge(threshold=0.7).learn(TEXTS).identity


def test_wrong_use():
    with pytest.raises(NotFittedError, match="call learn"):
        list(LexicalJudge().answers(["a"], ["b"]))
    with pytest.raises(ParameterError, match="threshold must be a number from 0 to 1"):
        LexicalJudge(threshold=2)
