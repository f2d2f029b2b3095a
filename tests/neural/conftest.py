"""What the tests of the neural room share; all of them need torch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install megalabel[neural]")
pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture(autouse=True)
def one_thread():
    """Torch's threads and those of parallel tests would get into each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tokens(corpus):
    """The corpus as tokens."""
    from megalabel.neural import Tokenizer

    return Tokenizer(max_length=16).fit_transform(corpus)


@pytest.fixture(scope="session")
def tiny_model(corpus, tmp_path_factory) -> str:
    """The folder of a small transformer with random weights, as a hub would have it."""
    from tokenizers import Tokenizer as Backend
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
    from transformers.utils import logging

    from megalabel.neural import Tokenizer

    logging.disable_progress_bar()
    folder = str(tmp_path_factory.mktemp("model"))
    words = Tokenizer().fit(corpus)
    names = {f"{n}_token": f"[{n.upper()}]" for n in ("pad", "unk", "cls", "sep", "mask")}
    backend = Backend.from_str(words.definition_)
    PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=words.n_features,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)
