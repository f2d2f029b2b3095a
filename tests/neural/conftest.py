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
def views(corpus, tokens):
    """The corpus as words and as tokens."""
    from megalabel.features import Tfidf
    from megalabel.neural import Views

    return Views(Tfidf().fit_transform(corpus), tokens)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)
