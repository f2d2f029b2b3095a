"""Word vectors of files."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from megalabel import systems
from megalabel.errors import DataError, ParameterError
from megalabel.neural import BagEncoder, ConvolutionalEncoder, RecurrentEncoder, Tokenizer
from megalabel.neural.encoders import read_vectors

LINES = "red 1 0.5 -2\nblue 0 2 1e-3\nlight blue 7 8 9\n"


@pytest.mark.parametrize("head", ["", "3 3\n"])
def test_text_with_and_without_a_first_line(tmp_path, head):
    file = tmp_path / "words.vec"
    file.write_text(head + LINES)
    vectors, found = read_vectors(file, ["blue", "green", "light blue", "blue"])
    assert found.tolist() == [True, False, True, True]
    expected = [[0, 2, 1e-3], [0, 0, 0], [7, 8, 9], [0, 2, 1e-3]]
    np.testing.assert_array_equal(vectors, np.array(expected, np.float32))


def test_an_array_with_its_words_beside_it(tmp_path):
    np.save(tmp_path / "words.npy", np.arange(6, dtype=np.float16).reshape(2, 3))
    with pytest.raises(DataError, match=r"words\.txt: the words of words\.npy are missing"):
        read_vectors(tmp_path / "words.npy", ["red"])
    (tmp_path / "words.txt").write_text("red\nblue\n")
    vectors, found = read_vectors(tmp_path / "words.npy", ["blue", "green"])
    np.testing.assert_array_equal(vectors, [[3, 4, 5], [0, 0, 0]])
    assert found.tolist() == [True, False]
    (tmp_path / "words.txt").write_text("red\n")
    with pytest.raises(DataError, match=r"1 words for an array of shape \(2, 3\)"):
        read_vectors(tmp_path / "words.npy", ["red"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("red 1 2\nblue 1\n", "line 2: expected a word and 2 numbers, found 1"),
        ("red 1 2\nblue 1 x\n", "line 2: could not convert"),
        ("red 1 2\nblue 1 nan\n", "line 2: a vector has numbers that are not finite"),
        ("red 1 2\n\n", "line 2: expected a word and 2"),
        ("green 1 2\n", "none of the words"),
        ("", "none of the words"),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, message):
    file = tmp_path / "words.vec"
    file.write_text(text)
    with pytest.raises(DataError, match=rf"words\.vec.*{message}"):
        read_vectors(file, ["red", "blue"] if "green" not in text else ["red"])


def test_no_such_file(tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        read_vectors(tmp_path / "words.vec", ["red"])


@pytest.mark.parametrize(
    "kind", [RecurrentEncoder, ConvolutionalEncoder], ids=["recurrent", "convolutional"]
)
def test_encoders_of_tokens_start_from_them(tmp_path, kind):
    file = tmp_path / "words.vec"
    numbers = np.random.default_rng(0).normal(size=16) * 3
    file.write_text("dress " + " ".join(map(str, numbers)) + "\n")
    tokens = Tokenizer().fit_transform(["Red dress", "blue jeans"])
    table = kind(token_width=16, vectors=str(file)).begin(tokens, seed=0).table.weight
    place = tokens.names.index("dress")
    torch.testing.assert_close(table[place].double(), torch.from_numpy(numbers), rtol=1e-5, atol=0)
    # other words are as long
    assert table.std().item() == pytest.approx(3, rel=0.3)
    with pytest.raises(ParameterError, match="vectors of 16 numbers, the encoder of 20"):
        kind(token_width=20, vectors=str(file)).begin(tokens, seed=0)


def test_words_of_a_matrix_have_names_by_the_tagger(tmp_path, corpus):
    file = tmp_path / "words.vec"
    words = sorted({word for text in corpus.texts.to_pylist() for word in text.lower().split()})
    file.write_text("".join(f"{word} {i} {i + 1} 0 1\n" for i, word in enumerate(words)))
    options = {"width": 4, "epochs": 0.01, "surrogate_learning_rate": 0.0, "device": "cpu"}
    made = systems.create("astec", vectors=str(file), **options).fit(corpus)
    table, terms = made.features_.table_, made.features_.words_.terms_.to_pylist()
    known = [(i, words.index(term)) for i, term in enumerate(terms) if term in words]
    assert known
    for i, number in known:
        np.testing.assert_array_equal(table[i], [number, number + 1, 0, 1])


def test_rows_without_names_say_so(tmp_path):
    file = tmp_path / "words.vec"
    file.write_text("red 1 2\n")
    with pytest.raises(ParameterError, match="these rows have none"):
        BagEncoder(width=2, vectors=str(file)).begin(torch.zeros(2, 3).numpy(), seed=0)
