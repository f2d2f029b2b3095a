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
def text_views(corpus):
    """Features fitted on the corpus: words and tokens."""
    from megalabel.features import Tfidf
    from megalabel.neural import TextViews, Tokenizer

    return TextViews(Tfidf(), Tokenizer(max_length=16)).fit(corpus)


@pytest.fixture(scope="session")
def views(corpus, text_views):
    """The corpus as words and as tokens."""
    return text_views.transform(corpus)


@pytest.fixture(scope="session")
def tokens(views):
    """The corpus as tokens."""
    return views.tokens


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)
