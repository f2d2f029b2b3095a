"""megalabel: tag a text with the right few of thousands to millions of labels."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public names and where they live; loaded on first use, so that `import megalabel` is instant.
_WHERE = {
    "Corpus": "megalabel.data",
    "LabelSet": "megalabel.data",
    "Ranking": "megalabel.data",
    "read": "megalabel.data",
    "Tagger": "megalabel.tagger",
    "load": "megalabel.store",
    "merge": "megalabel.merging",
    "mix": "megalabel.mixing",
    "evaluate": "megalabel.metrics",
    "systems": "megalabel",
    "get_threads": "megalabel._native",
    "set_threads": "megalabel._native",
}
__all__ = [  # noqa: RUF022 - nouns first
    "Corpus",
    "LabelSet",
    "Ranking",
    "Tagger",
    "read",
    "load",
    "merge",
    "mix",
    "evaluate",
    "systems",
    "get_threads",
    "set_threads",
    "__version__",
]

if TYPE_CHECKING:
    from megalabel import systems
    from megalabel._native import get_threads, set_threads
    from megalabel.data import Corpus, LabelSet, Ranking, read
    from megalabel.merging import merge
    from megalabel.metrics import evaluate
    from megalabel.mixing import mix
    from megalabel.store import load
    from megalabel.tagger import Tagger


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'megalabel' has no attribute {name!r}")
    if name == "systems":
        return importlib.import_module("megalabel.systems")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
