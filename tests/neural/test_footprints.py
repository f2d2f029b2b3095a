"""What a training takes of a GPU, said without one."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the neural room needs torch")

from megalabel import systems  # noqa: E402
from megalabel.neural import AssembledEncoder, FullClassifier, Tokenizer, heads  # noqa: E402
from megalabel.neural.footprints import gpu_bytes  # noqa: E402
from megalabel.neural.heads.base import Head  # noqa: E402

GIB = 1 << 30


@pytest.fixture(scope="module")
def tokens():
    random = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in random.integers(0, 5000, 60)) for _ in range(400)]
    return Tokenizer(vocabulary=30_000, max_length=64).fit(texts).transform(texts)


def planned(tokens, system, labels=3_000_000, **options):
    encoder = AssembledEncoder(width=384, layers=6, heads=6, max_length=64, pretrain_epochs=0)
    tagger = systems.create(system, encoder=encoder, batch=256, device="cpu", **options)
    return gpu_bytes(tagger.classifier, tokens, labels, 1_700_000)


def test_three_million_labels_with_a_small_encoder(tokens):
    assert planned(tokens, "haste", frequent=0.02, fan_in=64, group=64) < 6 * GIB
    assert planned(tokens, "haste") < 6 * GIB
    dense = planned(tokens, "renee")
    assert planned(tokens, "haste") < 0.75 * dense
    assert planned(tokens, "haste", momentum=0.9) > planned(tokens, "haste")


def test_a_bit_more_than_what_is_there(tokens):
    """The parts of a head are counted: weights, indices and biases are all there."""
    for name in ("dense", "fixed-fan-in", "grouped-fan-in", "frequent-and-sparse"):
        for options in ({}, {"momentum": 0.9}, {"optimiser": "adam"}):
            head = heads.create(name, precision="bf16", **options)
            counts = np.ones(5000, np.int64)
            module = head.build(64, counts, 10, None, device=torch.device("cpu"), seed=0)
            held = sum(t.numel() * t.element_size() for t in module.buffers())
            said = head.training_bytes(64, 5000, 8)
            working = head.training_bytes(64, 1, 8)
            assert held <= said, (name, options)
            assert said <= 2 * held + working + (96 << 20), (name, options)


def test_a_head_that_does_not_say(tokens):
    class Silent(heads.DenseHead):
        training_bytes = Head.training_bytes

    made = FullClassifier(AssembledEncoder(width=32, layers=1, heads=2), head=Silent())
    assert gpu_bytes(made, tokens, 10, 10) is None


def test_more_labels_texts_and_layers_take_more(tokens):
    assert planned(tokens, "haste", 10_000) < planned(tokens, "haste", 1_000_000)
    spartex = planned(tokens, "spartex", 100_000)
    assert planned(tokens, "spartex", 100_000, auxiliary=0) < spartex
    assert spartex < planned(tokens, "spartex", 100_000, intermediate=50_000)
