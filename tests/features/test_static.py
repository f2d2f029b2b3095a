"""StaticEmbedding: means of word vectors, from folders that others have written."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.tiny_static import (
    write_json,
    write_model2vec,
    write_sentence_transformers,
    write_tokenizer,
)

from megalabel import Tagger, store
from megalabel.errors import DataError, ParameterError, StoreError
from megalabel.features import StaticEmbedding
from megalabel.features.static_folder import is_static
from megalabel.linear import OneVsAll

pytest.importorskip("tokenizers", reason="static word vectors need tokenizers")

WORDS = ["begin", "red", "blue", "dress", "jeans"]
TEXTS = ["Red dress", "blue unheard jeans jeans", "unheard", "", "dress red"]
IDS = [[1, 3], [2, None, 4, 4], [None], [], [3, 1]]  # places in WORDS; None: the unknown word


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def means(ids: list[list[int | None]], table: np.ndarray, unknown: np.ndarray | None) -> np.ndarray:
    """Means in float64, of the words' rows; None: unknown words do not count."""
    made = np.zeros((len(ids), table.shape[1]))
    for row, numbers in zip(made, ids, strict=True):
        vectors = [unknown if n is None else table[n].astype(np.float64) for n in numbers]
        vectors = [vector for vector in vectors if vector is not None]
        if vectors:
            row[:] = np.sum(vectors, axis=0) / len(vectors)
    return made


def scaled(rows: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int8])
@pytest.mark.parametrize("normalize", [False, True])
def test_model2vec(tmp_path, random, kind, normalize):
    table = (40 * random.normal(size=(7, 3))).astype(kind)
    folder = write_model2vec(tmp_path, WORDS, {"embeddings": table}, normalize=normalize)
    expected = means(IDS, table[2:], None)
    expected = scaled(expected) if normalize else expected
    found = StaticEmbedding(folder).fit_transform(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_weights_and_vectors_that_tokens_share(tmp_path, random):
    table, weights = random.normal(size=(3, 4)).astype(np.float32), random.random(7)
    mapping = np.array([0, 0, 2, 1, 1, 2, 0])
    arrays = {"embeddings": table, "weights": weights, "mapping": mapping}
    folder = write_model2vec(tmp_path, WORDS, arrays)
    expected = means(IDS, (table[mapping] * weights[:, None])[2:], None)
    found = StaticEmbedding(folder).fit_transform(TEXTS)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("special", [["[UNK]"], ["[UNK]", "<pad>"]])
@pytest.mark.parametrize("modules", [["StaticEmbedding"], ["StaticEmbedding", "Normalize"]])
def test_sentence_transformers_gives_unknown_words_a_vector(tmp_path, random, special, modules):
    table = random.normal(size=(len(special) + 5, 4)).astype(np.float32)
    folder = write_sentence_transformers(tmp_path, WORDS, table, special=special, modules=modules)
    expected = means(IDS, table[len(special) :], table[0].astype(np.float64))
    expected = scaled(expected) if len(modules) > 1 else expected
    found = StaticEmbedding(folder).fit_transform(TEXTS)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.fixture
def folder(tmp_path, random) -> str:
    table = random.normal(size=(7, 4)).astype(np.float32)
    return write_model2vec(tmp_path / "words", WORDS, {"embeddings": table})


def test_norm_overrules_the_folder(folder):
    as_it_is = StaticEmbedding(folder, norm=None).fit_transform(TEXTS)
    np.testing.assert_array_equal(as_it_is, StaticEmbedding(folder).fit_transform(TEXTS))
    lengths = np.linalg.norm(StaticEmbedding(folder, norm="l2").fit_transform(TEXTS), axis=1)
    np.testing.assert_allclose(lengths, [1, 1, 0, 0, 1], rtol=1e-6)


def test_long_texts_are_cut(folder):
    short = StaticEmbedding(folder, max_length=2).fit()
    np.testing.assert_array_equal(
        short.transform(["red dress jeans jeans"]), short.transform(["red dress"])
    )


def test_texts_without_a_known_word_are_told(folder):
    features = StaticEmbedding(folder).fit()
    known = features.known(TEXTS, features.transform(TEXTS))
    assert known.tolist() == [True, True, False, False, True]


def test_a_model_folder_holds_it_all_and_maps_the_table(folder, tmp_path):
    features = StaticEmbedding(folder)
    tagger = Tagger(OneVsAll(), features, None).fit(TEXTS, [["a"], ["b"], ["b"], ["b"], ["a"]])
    tagger.save(tmp_path / "model")
    shutil.rmtree(folder)
    loaded = Tagger.load(tmp_path / "model")
    assert not loaded.features_.table_.flags.owndata  # it is a mapped file
    np.testing.assert_array_equal(
        loaded.features_.transform(TEXTS), tagger.features_.transform(TEXTS)
    )
    assert loaded.predict(["red"])[0] == tagger.predict(["red"])[0] == ["a"]


def test_a_tampered_model_is_refused(folder, tmp_path):
    features = StaticEmbedding(folder).fit()
    features.table_, features.silent_ = features.table_[:5], features.silent_[:5]
    store.save(features, tmp_path / "model")
    with pytest.raises(StoreError, match="token 6, but there are only 5 vectors"):
        store.load(tmp_path / "model")


def test_what_is_a_static_folder(folder, tmp_path):
    assert is_static(folder)
    assert not is_static(tmp_path)
    assert not is_static("potion")
    write_json(tmp_path / "config.json", {"model_type": "bert"})
    assert not is_static(tmp_path)


WRONG = {
    "no vectors": (lambda f: (f / "model.safetensors").unlink(), "no vectors"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "no such file"),
    "damaged": (lambda f: (f / "model.safetensors").write_bytes(b"\x80" * 40), "cannot be read"),
    "a pickle": (lambda f: (f / "model.safetensors").write_bytes(b"\x80\x04N."), "cannot be read"),
    "tokenizer of nothing": (lambda f: write_json(f / "tokenizer.json", []), "not a tokenizer"),
    "damaged tokenizer": (
        lambda f: write_json(f / "tokenizer.json", {"model": {"type": "x"}}),
        "tokenizer cannot be read",
    ),
    "damaged config": (lambda f: (f / "config.json").write_text("{"), "cannot be read"),
    "other arrays": ({"words": np.zeros((7, 2), np.float32)}, "found words"),
    "one axis": ({"embeddings": np.zeros(7, np.float32)}, "expected 2 axes"),
    "whole numbers": ({"embeddings": np.zeros((7, 2), np.int64)}, "type I64"),
    "few vectors": ({"embeddings": np.zeros((6, 2), np.float32)}, "7 tokens but 6 vectors"),
    "not finite": ({"embeddings": np.full((7, 2), np.nan, np.float32)}, "not finite"),
    "few weights": (
        {"embeddings": np.zeros((7, 2), np.float32), "weights": np.ones(3)},
        "7 tokens but 3 weights",
    ),
    "mapping outside": (
        {"embeddings": np.zeros((3, 2), np.float32), "mapping": np.arange(7)},
        "outside of the 3 vectors",
    ),
    "short mapping": (
        {"embeddings": np.zeros((9, 2), np.float32), "mapping": np.arange(4)},
        "7 tokens but 4 vectors",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_folders_that_cannot_be_read(name, folder):
    change, message = WRONG[name]
    if isinstance(change, dict):
        save_file(change, Path(folder, "model.safetensors"))
    else:
        change(Path(folder))
    with pytest.raises(DataError, match=message):
        StaticEmbedding(folder).fit()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ([{"type": "x.StaticEmbedding", "path": "../words"}], "outside of the folder"),
        ([{"type": "x.StaticEmbedding", "path": "/etc"}], "outside of the folder"),
        ([{"type": "x.StaticEmbedding"}, {"type": "x.Dense"}], "more after .* Dense"),
        ([{"type": "x.Transformer"}], "no static word vectors, but Transformer"),
        ([], "neither a config.json"),
        ({"type": "x"}, "expected a list"),
    ],
)
def test_modules_that_cannot_be_read(tmp_path, said, message):
    write_json(tmp_path / "modules.json", said)
    with pytest.raises(DataError, match=message):
        StaticEmbedding(str(tmp_path)).fit()


@pytest.mark.parametrize("said", [[], "model2vec", None])
def test_settings_that_have_no_names(tmp_path, said):
    write_json(tmp_path / "config.json", said)
    for read in (is_static, lambda folder: StaticEmbedding(str(folder)).fit()):
        with pytest.raises(DataError, match=r"config\.json.*expected settings by name"):
            read(tmp_path)


def test_a_folder_is_needed(tmp_path):
    with pytest.raises(ParameterError, match="needs the folder"):
        StaticEmbedding().fit()
    with pytest.raises(DataError, match="not a folder"):
        StaticEmbedding(str(tmp_path / "none")).fit()


def test_numbers_of_tokens_far_beyond_the_vectors(folder):
    file = Path(folder, "tokenizer.json")
    said = json.loads(file.read_text())
    said["model"]["vocab"]["far"] = 1 << 31
    write_json(file, said)
    with pytest.raises(DataError, match="token 2147483648 is far beyond the 8 tokens"):
        StaticEmbedding(folder).fit()


@pytest.fixture(scope="session")
def word_llama(tmp_path_factory) -> str:
    """Real static vectors, of a package, as a folder of sentence-transformers."""
    found = importlib.util.find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        pytest.skip("wordllama's vectors are not here")
    package = Path(found.submodule_search_locations[0])
    folder = tmp_path_factory.mktemp("word-llama")
    shutil.copy(package / "weights/l2_supercat_256.safetensors", folder / "model.safetensors")
    tokenizer = package / "tokenizers/l2_supercat_tokenizer_config.json"
    shutil.copy(tokenizer, folder / "tokenizer.json")
    write_json(folder / "modules.json", [{"path": "", "type": "models.StaticEmbedding"}])
    return str(folder)


def test_real_vectors_know_what_is_alike(word_llama):
    texts = ["a relational database", "SQL server for data", "knitting a woollen hat"]
    vectors = StaticEmbedding(word_llama, norm="l2").fit_transform(texts)
    cosines = vectors @ vectors.T
    assert cosines[0, 1] > cosines[0, 2] + 0.1


def test_the_word_put_before_texts_is_left_out(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json", WORDS, special=["[UNK]"])
    from tokenizers import Tokenizer

    read = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert read.encode("red").tokens == ["begin", "red"]  # else the tests above say nothing
