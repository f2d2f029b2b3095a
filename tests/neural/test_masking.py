"""Masked tokens: how many, which, and what becomes of them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="the neural room needs torch")

from megalabel.errors import ParameterError
from megalabel.neural.masking import UNITS, masked
from megalabel.neural.tokens import Tokens

SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
VOCABULARY = 1000


def texts(rows: int, length: int, pieces: float = 0.0, seed: int = 0) -> Tokens:
    """Rows between [CLS] and [SEP]; a share of the vocabulary goes on with words."""
    random = np.random.default_rng(seed)
    ids = random.integers(5, VOCABULARY, (rows, length))
    ids[:, 0], ids[:, -1] = SPECIAL["cls"], SPECIAL["sep"]
    continues = np.arange(VOCABULARY) >= VOCABULARY * (1 - pieces)
    indptr = np.arange(rows + 1) * length
    return Tokens(ids.astype(np.int32).ravel(), indptr, VOCABULARY, 0, SPECIAL, continues)


@pytest.mark.parametrize("units", UNITS)
def test_shares_over_many_tokens(units):
    tokens = texts(1000, 102)
    made = masked(tokens, np.arange(1000), seed=0, epoch=0, units=units)
    n, count = 100_000, len(made.chosen)
    assert abs(count - 0.15 * n) <= 3 * np.sqrt(n * 0.15 * 0.85)
    now = made.tokens.ids[made.chosen]
    hidden, kept = (now == SPECIAL["mask"]).sum(), (now == made.truth).sum()
    for found, share in ((hidden, 0.8), (count - hidden - kept, 0.1), (kept, 0.1)):
        # swapping may hit the same token: one time in a thousand of a tenth
        assert abs(found - share * count) <= 3 * np.sqrt(count * share * (1 - share)) + 3


@pytest.mark.parametrize("units", UNITS)
def test_special_tokens_are_never_chosen_nor_put_in(units):
    tokens = texts(300, 20, pieces=0.3)
    tokens.ids[::7] = SPECIAL["unk"]
    made = masked(tokens, np.arange(300), seed=1, epoch=0, share=0.5, units=units)
    assert not np.isin(made.truth, list(SPECIAL.values())).any()
    swapped = made.tokens.ids[made.chosen]
    others = swapped[swapped != SPECIAL["mask"]]
    assert not np.isin(others, list(SPECIAL.values())).any()
    rest = np.setdiff1d(np.arange(len(tokens.ids)), made.chosen)
    np.testing.assert_array_equal(made.tokens.ids[rest], tokens.ids[rest])


def test_draws_depend_on_seed_epoch_and_row_alone():
    tokens = texts(20, 40)
    every = masked(tokens, np.arange(20), seed=0, epoch=2)
    some = masked(tokens, np.array([7, 3]), seed=0, epoch=2)
    np.testing.assert_array_equal(some.tokens.ids, every.tokens[[7, 3]].ids)
    again = [masked(tokens, np.arange(20), seed=s, epoch=e).chosen for s, e in ((0, 3), (1, 2))]
    assert not any(np.array_equal(every.chosen, other) for other in again)


def test_whole_words_are_chosen():
    tokens = texts(200, 30, pieces=0.4)
    made = masked(tokens, np.arange(200), seed=0, epoch=0, units="words")
    word = np.zeros(len(tokens.ids), int)
    word[tokens.word_starts()] = 1
    word = np.cumsum(word)
    ordinary = ~np.isin(tokens.ids, list(SPECIAL.values()))
    chosen = np.zeros(len(word), bool)
    chosen[made.chosen] = True
    for w in np.unique(word[made.chosen]):
        assert chosen[(word == w) & ordinary].all()


def test_spans_are_neighbours():
    tokens = texts(500, 102)
    runs = {}
    for units in ("tokens", "spans"):
        made = masked(tokens, np.arange(500), seed=0, epoch=0, units=units)
        runs[units] = len(made.chosen) / (1 + (np.diff(made.chosen) > 1).sum())
    assert runs["tokens"] < 1.3
    assert runs["spans"] > 2.5


def test_a_row_has_at_least_one_and_an_empty_row_none():
    tokens = Tokens(np.array([2, 9, 3, 2, 3], np.int32), np.array([0, 3, 5, 5]), 10, 0, SPECIAL)
    for units in UNITS:
        made = masked(tokens, np.arange(3), seed=0, epoch=0, units=units)
        assert made.chosen.tolist() == [1]
        assert made.truth.tolist() == [9]


def test_a_tokenizer_without_a_mask_is_refused():
    with pytest.raises(ParameterError, match="no mask token"):
        masked(Tokens(np.array([1]), np.array([0, 1]), 5), np.array([0]), seed=0, epoch=0)


def test_words_begin_where_nothing_is_gone_on_with():
    continues = np.arange(10) >= 8
    ids = np.array([2, 5, 8, 9, 6, 3, 8, 7, 1, 9], np.int32)
    tokens = Tokens(ids, np.array([0, 6, 6, 8, 10]), 10, 0, SPECIAL, continues)
    assert tokens.word_starts().tolist() == [1, 4, 6, 7, 8]
