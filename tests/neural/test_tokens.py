from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from megalabel.base import clone
from megalabel.errors import DataError
from megalabel.neural import Tokenizer

TEXTS = ["red dress", "", "blue jeans of a very fine cloth", "Ωμέγα ＲＥＤ 👗"]


def rows(tokens):
    return [tokens[[i]].ids.tolist() for i in range(len(tokens))]


def test_rows_are_picked_as_those_of_a_matrix_are():
    tokens = Tokenizer().fit_transform(TEXTS)
    every = rows(tokens)
    assert rows(tokens[[2, 0, 2]]) == [every[2], every[0], every[2]]
    assert rows(tokens[1:3]) == every[1:3]
    assert rows(tokens[np.array([True, False, False, True])]) == [every[0], every[3]]
    assert len(tokens[[]]) == 0


def test_a_batch_is_padded():
    tokens = Tokenizer().fit_transform(TEXTS)
    batch = tokens.batch(np.array([0, 2]), torch.device("cpu"))
    assert batch.ids.shape == batch.mask.shape == (2, 9)
    assert batch.mask.sum(1).tolist() == [4, 9]
    assert (batch.ids[~batch.mask] == tokens.pad).all()


def test_texts_begin_and_end_and_are_cut():
    tokenizer = Tokenizer(max_length=4).fit(TEXTS)
    special = tokenizer.special_
    for row in rows(tokenizer.transform(TEXTS)):
        assert 2 <= len(row) <= 4
        assert (row[0], row[-1]) == (special["cls"], special["sep"])


def test_unknown_words_are_spelled_by_known_characters():
    tokenizer = Tokenizer(vocabulary=1000).fit(["abc abc", "cab bca"])
    known = tokenizer.transform(["abc"]).ids
    spelled = tokenizer.transform(["bac"]).ids
    assert len(known) == 3
    assert len(spelled) == 5
    assert tokenizer.special_["unk"] not in spelled


def test_learning_does_not_depend_on_the_order_of_texts():
    first, second = Tokenizer(vocabulary=40).fit(TEXTS), Tokenizer(vocabulary=40).fit(TEXTS[::-1])
    assert first.definition_ == second.definition_
    assert first.n_features <= 40


def test_a_model_by_its_folder(tiny_model):
    tokenizer = Tokenizer(tiny_model, max_length=8).fit(None)
    assert set(tokenizer.special_) == {"pad", "unk", "cls", "sep", "mask"}
    tokens = tokenizer.transform(["red dress"])
    assert tokens.ids[0] == tokenizer.special_["cls"]


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(DataError, match="safetensors"):
        Tokenizer(str(tmp_path)).fit(None)
    with pytest.raises(DataError, match="not a folder"):
        Tokenizer(str(tmp_path / "none")).fit(None)


def test_saved_and_restored():
    tokenizer = Tokenizer().fit(TEXTS)
    other = Tokenizer()
    other.restore(tokenizer.learned())
    assert rows(other.transform(TEXTS)) == rows(tokenizer.transform(TEXTS))
    with pytest.raises(ValueError, match="definition_"):
        other.restore({"definition_": "{}", "special_": {}})


def test_the_cache_is_mapped_and_taken_up(tmp_path, monkeypatch):
    tokenizer = Tokenizer(cache=str(tmp_path)).fit(TEXTS)
    first = tokenizer.transform(TEXTS)
    assert isinstance(first.ids, np.memmap)
    monkeypatch.setattr(Tokenizer, "_tokenised", None)  # would fail if it were asked again
    assert rows(tokenizer.transform(TEXTS)) == rows(first)


def test_a_copy_of_one_that_has_learned_stays_as_it_is():
    tokenizer = Tokenizer(max_length=4).fit(TEXTS)
    copied = clone(clone(tokenizer)).set_params(max_length=6).fit(["other words"])
    assert copied.definition_ == tokenizer.definition_
    assert max(copied.transform(TEXTS).lengths) == 6
    assert max(tokenizer.transform(TEXTS).lengths) == 4
    assert clone(Tokenizer()).fit(["other words"]).definition_ != tokenizer.definition_
    assert tokenizer.fit(["other words"]).definition_ != copied.definition_  # asked to by itself


@pytest.mark.parametrize("changed", [{"vocabulary": 12}, {"lowercase": False}])
def test_a_copy_that_is_to_have_other_tokens_learns_them(changed):
    texts = ["Red dress", "red Jeans"]
    learned = Tokenizer().fit(texts)
    fresh = Tokenizer(**changed).fit(texts)
    assert fresh.definition_ != learned.definition_
    assert clone(learned).set_params(**changed).fit(texts).definition_ == fresh.definition_
    learned.set_params(**changed)
    assert clone(learned).fit(texts).definition_ == fresh.definition_


def test_a_copy_without_the_source_learns_words(tiny_model):
    taken = Tokenizer(tiny_model).fit([])
    copied = clone(taken).set_params(source=None).fit(["red dress"])
    assert copied.definition_ == Tokenizer().fit(["red dress"]).definition_


def test_a_tokenizer_with_numbers_far_beyond_its_tokens_is_refused():
    learned = Tokenizer().fit(["red dress"]).learned()
    definition = json.loads(learned["definition_"])
    definition["model"]["vocab"]["red"] = 2**32 - 1
    with pytest.raises(ValueError, match="far beyond its tokens"):
        Tokenizer().restore(learned | {"definition_": json.dumps(definition)})
    with pytest.raises(ValueError, match="padding"):
        Tokenizer().restore(learned | {"special_": {"unk": 1}})
