"""A fitted tagger answers several threads at once."""

from __future__ import annotations

import csv
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import megalabel
from megalabel import systems
from megalabel.base import made_once
from megalabel.data.formats.lines import long_fields
from megalabel.decision import Online

THREADS = 8


def at_once(call):
    """What a function gives to each of several threads that call it at the same time."""
    start = threading.Barrier(THREADS)

    def waiting(number):
        start.wait()
        return call(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(waiting, range(THREADS)))


class Slow:
    """Something that takes a while to make, and counts how often it was."""

    made = 0

    def make(self):
        time.sleep(0.02)
        self.made += 1
        return object()


def test_what_is_made_when_first_asked_is_made_once():
    slow = Slow()
    found = at_once(lambda _: made_once(slow, "_kept", slow.make))
    assert slow.made == 1
    assert len({id(value) for value in found}) == 1
    slow._kept = None  # as a new fit says
    assert made_once(slow, "_kept", slow.make) is not found[0]


def test_one_thing_may_need_another_and_an_error_leaves_nothing():
    slow = Slow()

    def nested():
        return made_once(slow, "_inner", slow.make), "outer"

    assert made_once(slow, "_outer", nested)[1] == "outer"
    with pytest.raises(ZeroDivisionError):
        made_once(slow, "_broken", lambda: 1 / 0)
    assert made_once(slow, "_broken", lambda: 1) == 1


@pytest.mark.parametrize("name", ["knn", "xr-linear", "astec", "attentionxml", "cascadexml"])
def test_tags_are_the_same_for_several_threads(name, create, corpus, tmp_path):
    if systems.get(name).neural:
        pytest.importorskip("torch", reason="torch is not installed")
    create(name, calibration=None).fit(corpus).save(tmp_path / "model")
    texts = corpus.texts.to_pylist()
    parts = [texts[i * 5 : i * 5 + 20] for i in range(THREADS)]
    expected = [megalabel.load(tmp_path / "model").tag(part, k=3) for part in parts]
    loaded = megalabel.load(tmp_path / "model")
    found = at_once(lambda i: loaded.tag(parts[i], k=3))
    for tags, wanted in zip(found, expected, strict=True):
        assert [[t.label for t in row] for row in tags] == [
            [t.label for t in row] for row in wanted
        ]


@pytest.mark.parametrize("name", ["astec", "attentionxml", "cascadexml", "inceptionxml", "renee"])
def test_a_network_is_made_once_and_never_drops_out(name, create, corpus, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from megalabel.neural import Encoder

    create(name, calibration=None).fit(corpus[:60]).save(tmp_path / "model")
    loaded = megalabel.load(tmp_path / "model")
    made, module_of = [], Encoder.module

    def slow(self):
        time.sleep(0.02)
        made.append(self)
        return module_of(self)

    monkeypatch.setattr(Encoder, "module", slow)
    found = at_once(lambda _: loaded.rank(["a red dress"], 2))
    assert len(made) == len({id(encoder) for encoder in made})
    modules = [value for value in vars(loaded.classifier_).values() if hasattr(value, "training")]
    assert not any(isinstance(m, torch.nn.Module) and m.training for m in modules)
    for ranking in found[1:]:
        np.testing.assert_array_equal(ranking.ids, found[0].ids)


def test_a_stream_is_decided_one_call_after_another(corpus):
    tagger = systems.create("knn", decision=Online()).fit(corpus)
    before = tagger.decision_.seen_ if tagger.decision_.fitted else 0
    at_once(lambda _: [tagger.tag("a red dress", k=2) for _ in range(5)])
    assert tagger.decision_.seen_ == before + 5 * THREADS


def test_a_name_is_looked_up_by_several_threads(corpus):
    labels = megalabel.LabelSet([f"label {i}" for i in range(20_000)])
    assert at_once(lambda i: labels.index(f"label {i}")) == list(range(THREADS))


def test_long_fields_are_read_by_several_threads():
    before = csv.field_size_limit()

    def read(i):
        with long_fields():
            time.sleep(0.002 * (THREADS - i))
            return len(next(csv.reader(["x" * (before + 1)]))[0])

    assert at_once(read) == [before + 1] * THREADS
    assert csv.field_size_limit() == before
