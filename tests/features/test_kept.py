"""Vectors that are kept in a folder: no text is encoded twice."""

from __future__ import annotations

import numpy as np
import pytest

from megalabel import checkpoints
from megalabel.features import kept
from megalabel.features.kept import kept_vectors

TEXTS = ["a dress", "blue jeans", "", "a dress", "shoes", "a much longer text than all others"]


class Encoder:
    """Vectors of a text's length, and of what it has been given."""

    def __init__(self) -> None:
        self.given: list[list[str]] = []

    def __call__(self, texts) -> np.ndarray:
        texts = list(map(str, texts))
        self.given.append(texts)
        return np.array([[len(text), len(text.split())] for text in texts], np.float32)


def flat(given: list[list[str]]) -> list[str]:
    return [text for texts in given for text in texts]


def vectors(texts, encode, cache=None, model="one"):
    return kept_vectors(texts, cache, lambda: model, encode)


@pytest.fixture
def encode(monkeypatch) -> Encoder:
    monkeypatch.setattr(kept, "TEXTS", 2)
    return Encoder()


def test_without_a_folder_texts_are_encoded_as_they_come(encode):
    np.testing.assert_array_equal(vectors(TEXTS, encode), Encoder()(TEXTS))
    assert encode.given == [TEXTS]


def test_each_text_is_encoded_once(encode, tmp_path):
    np.testing.assert_array_equal(vectors(TEXTS, encode, str(tmp_path)), Encoder()(TEXTS))
    assert sorted(flat(encode.given)) == sorted(set(TEXTS))
    assert encode.given[0][0] == TEXTS[-1]  # the longest first
    again = [*TEXTS[::-1], "new"]
    before = len(encode.given)
    np.testing.assert_array_equal(vectors(again, encode, str(tmp_path)), Encoder()(again))
    assert encode.given[before:] == [["new"]]


def test_models_do_not_share(encode, tmp_path):
    vectors(TEXTS, encode, str(tmp_path), "one")
    before = len(encode.given)
    vectors(TEXTS, encode, str(tmp_path), "another")
    assert sorted(flat(encode.given[before:])) == sorted(set(TEXTS))


def test_what_was_encoded_before_an_interruption_stays(encode, tmp_path):
    def failing(texts):
        if encode.given:
            raise KeyboardInterrupt
        return encode(texts)

    with pytest.raises(KeyboardInterrupt):
        vectors(TEXTS, failing, str(tmp_path))
    np.testing.assert_array_equal(vectors(TEXTS, encode, str(tmp_path)), Encoder()(TEXTS))
    assert sorted(flat(encode.given)) == sorted(set(TEXTS))


def test_damaged_files_are_made_anew(encode, tmp_path):
    vectors(TEXTS, encode, str(tmp_path))
    for file in tmp_path.rglob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-3])
    before = len(encode.given)
    np.testing.assert_array_equal(vectors(TEXTS, encode, str(tmp_path)), Encoder()(TEXTS))
    assert sorted(flat(encode.given[before:])) == sorted(set(TEXTS))


def test_the_folder_of_checkpoints_is_taken(encode, tmp_path):
    with checkpoints.kept_in(tmp_path):
        vectors(TEXTS, encode)
        before = len(encode.given)
        np.testing.assert_array_equal(vectors(TEXTS, encode), Encoder()(TEXTS))
    assert len(encode.given) == before


def test_no_text(encode, tmp_path):
    assert vectors([], lambda texts: np.zeros((0, 2), np.float32), str(tmp_path)).shape == (0, 2)
    vectors(TEXTS, encode, str(tmp_path))
    assert vectors([], encode, str(tmp_path)).shape == (0, 2)
