"""Which texts a tagger was trained on: 8 bytes of each are kept."""

from __future__ import annotations

import numpy as np
import pytest

import megalabel
from megalabel import systems
from megalabel.data import Corpus
from megalabel.data.hashes import text_hashes
from megalabel.data.strings import strings

MASK = 2**64 - 1
K1, K2 = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93


def slow_hash(text: str) -> int:
    """What the native hash does, in whole numbers."""

    def fold(a: int, b: int) -> int:
        product = a * b
        return (product & MASK) ^ (product >> 64)

    data = text.encode()
    h = (len(data) + 1) * K2 & MASK
    whole = len(data) - len(data) % 16
    rest = data[whole:].ljust(16, b"\0")
    for piece in [*(data[i : i + 16] for i in range(0, whole, 16)), rest]:
        first, second = (int.from_bytes(piece[i : i + 8], "little") for i in (0, 8))
        h = fold(first ^ h ^ K1, second ^ K2)
    return fold(h ^ K2, K1)


@pytest.mark.parametrize("count", [1, 3])
def test_hashes_agree_with_slow_ones(count, threads):
    threads(count)
    texts = ["", "a", "a\0", *("xyé" * n for n in range(40)), *map(str, range(30_000))]
    found = text_hashes(strings(texts))
    assert found.dtype == np.uint64
    assert found[:60].tolist() == [slow_hash(text) for text in texts[:60]]
    assert len(np.unique(found)) == len({*texts})
    assert text_hashes(strings(texts)[5:9]).tolist() == found[5:9].tolist()  # a slice


@pytest.fixture(scope="module")
def tagger(corpus):
    return systems.create("dismec").fit(corpus[:200])


def test_texts_of_training_are_counted_and_said(tagger, corpus, caplog):
    known = {*corpus.texts[:200].to_pylist()}
    expected = sum(text in known for text in corpus.texts[150:250].to_pylist())
    assert tagger.seen_texts(corpus[150:250]) == expected >= 50
    tagger.evaluate(corpus[150:250])
    said = f"{expected} of the 100 texts ({expected}.0%) were in the training data"
    assert said in caplog.text
    caplog.clear()
    new = Corpus(["a new red lamp"], targets=corpus.targets[:1], labels=corpus.labels)
    tagger.evaluate(new)
    assert not caplog.records


def test_they_are_part_of_the_model(tagger, corpus, tmp_path):
    assert tagger.text_hashes_.nbytes <= 8 * 200
    tagger.save(tmp_path / "model")
    for same in (megalabel.load(tmp_path / "model"), tagger.prune(0.1)):
        assert same.seen_texts(corpus[:200]) == 200
    shards = [systems.create("dismec").fit(corpus[:200].label_shard(i, 2)) for i in (1, 2)]
    assert megalabel.merge(shards).seen_texts(corpus[:200]) == 200
    assert megalabel.mix([tagger], corpus[200:]).seen_texts(corpus) == 300


def test_more_texts_join(corpus):
    tagger = systems.create("knn").fit(["red gown"], [["dress"]])
    tagger.partial_fit(["blue denim"], [["jeans"]])
    assert tagger.seen_texts(["red gown", "blue denim", "green lamp"]) == 2


def test_of_vectors_nothing_is_known():
    vectors = Corpus(features=np.eye(4), targets=np.eye(4))
    tagger = systems.create("knn").fit(vectors)
    assert tagger.text_hashes_ is None
    assert tagger.seen_texts(vectors) == 0
