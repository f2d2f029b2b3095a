"""What the tests of the neural room share; all of them need torch."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install megalabel[neural]")
pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture(autouse=True)
def one_thread(one_thread):
    """In all tests of this room."""


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
