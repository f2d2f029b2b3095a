# Written by tools/make_stubs.py (`make stubs`) from the built module: do not edit.
import enum
from collections.abc import Sequence
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray

def get_threads() -> int:
    """The number of threads that native loops use."""

def set_threads(n: int) -> None:
    """Set the number of threads that native loops use."""

def give_back_memory() -> None:
    """Return memory to the system that was freed and kept for later."""

def sleep_loop(pieces: int, seconds: float, fail_at: int = -1) -> None:
    """
    A loop with nothing in it but time, so that tests can interrupt, fork and fail in it.
    """

class SparseRows:
    """
    A CSR matrix: where rows start, their columns and values, and the width.
    """

    def __init__(
        self,
        *,
        starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        columns: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        values: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        width: int,
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

class Ranked:
    """
    The best labels of each row, their scores, and how many labels there are.
    """

    def __init__(
        self,
        *,
        ids: Annotated[
            NDArray[numpy.int32], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ],
        scores: Annotated[
            NDArray[numpy.float32],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ],
        labels: int,
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

class Truth:
    """A CSR matrix of labels, of which those that are positive count."""

    def __init__(
        self,
        *,
        indptr: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        indices: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        positive: Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def all_finite(
    values: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
) -> bool: ...
def parse_sparse_text(
    text: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    *,
    svmlight: bool,
    features: int,
    labels: int,
    first_line: int,
    keep: int,
    piece_bytes: int = 1048576,
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
    int,
    list[tuple[int, int, bytes]],
]: ...
def format_sparse_text(
    *,
    target_indptr: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    target_indices: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    feature_indptr: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    feature_indices: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    values: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    begin: int,
    end: int,
) -> bytes: ...

UNICODE_VERSION: str = "14.0.0"

class Unit(enum.Enum):
    """What n-grams are made of."""

    word = 0

    char = 1

    char_wb = 2

class Case(enum.Enum):
    """What becomes of upper case."""

    keep = 0

    lower = 1

    fold = 2

class Norm(enum.Enum):
    """What a row is divided by."""

    none = 0

    l1 = 1

    l2 = 2

class Lookup:
    """Terms, and the slots of `lookup_slots` to find them by."""

    def __init__(
        self,
        *,
        slots: Annotated[
            NDArray[numpy.uint64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        offsets: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        data: Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

class Stems:
    """The stems of words, and what becomes of the endings of others."""

    def __init__(
        self,
        *,
        words: Lookup,
        stem_of: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        offsets: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        data: Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        endings: Lookup,
        cuts: Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        appended_offsets: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        appended_data: Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

class Analysis:
    """How the terms of a text are made."""

    def __init__(
        self,
        *,
        unit: Unit,
        case: Case,
        strip_marks: bool,
        shortest: int,
        longest: int,
        min_word_length: int,
        cut: int,
        stop_words: Lookup,
        stems: Stems,
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

class Selection:
    """Which terms stay: by their texts, and at most so many (0: all)."""

    def __init__(self, *, fewest: float, most: float, limit: int, by_texts: bool) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def encode_texts(
    values: Sequence[str],
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C")],
]: ...
def hash_texts(
    texts: tuple[
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ],
) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C")]: ...
def normalise_texts(
    texts: tuple[
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ],
    *,
    compose: bool,
    compatible: bool,
) -> (
    tuple[
        Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
        Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C")],
    ]
    | None
): ...
def analyse(
    texts: tuple[
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ],
    how: Analysis,
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C")],
]: ...
def lookup_slots(
    terms: tuple[
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ],
) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order="C")]: ...
def count_terms(
    texts: tuple[
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ],
    how: Analysis,
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
]: ...
def merge_terms(
    a: tuple[
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ],
    b: tuple[
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ],
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
]: ...
def select_terms(
    terms: tuple[
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ],
    wanted: Selection,
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
]: ...
def learn_rows(
    texts: tuple[
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ],
    how: Analysis,
    wanted: Selection,
) -> tuple[
    tuple[
        Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
        Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C")],
        Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
        Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    ],
    int,
    tuple[
        Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
        Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
        Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
    ],
]: ...
def find_rows(
    texts: tuple[
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ],
    how: Analysis,
    terms: Lookup,
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
]: ...
def hash_rows(
    texts: tuple[
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ],
    how: Analysis,
    columns: int,
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
]: ...
def weigh_rows(
    indptr: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    indices: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    *,
    idf: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    binary: bool,
    sublinear: bool,
    norm: Norm,
    counted: int = 9223372036854775807,
) -> None: ...

class MatchFeature(enum.Enum):
    """The columns of `match_features`."""

    weighted_share = 0

    share = 1

    whole = 2

    phrase = 3

    first_position = 4

    rarest_found = 5

    rarest_missing = 6

    name_words = 7

    text_share = 8

    stem_share = 9

class Names:
    """The words of labels' names, by number, and what is known of words."""

    def __init__(
        self,
        *,
        name_starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        word_starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        words: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        stems: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        word_idf: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        stem_idf: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        unknown_idf: float,
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def find_words(
    texts: tuple[
        Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ],
    how: Analysis,
    *,
    words: Lookup,
    stems: Lookup,
    inflected: Stems,
    stem_length: int,
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
]: ...
def match_features(
    names: Names,
    *,
    starts: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    ids: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    candidates: Annotated[
        NDArray[numpy.int32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")]: ...

TIERS: int = 8

class Postings:
    """An inverted index: the documents of each term, and bounds."""

    def __init__(
        self,
        *,
        starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        documents: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        weights: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        largest: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        common: Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        norm: float,
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def build_postings(
    rows: SparseRows,
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C")],
    float,
]: ...
def search_postings(
    *,
    postings: Postings,
    rows: SparseRows,
    queries: SparseRows,
    k: int,
    left_out: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    prune: bool,
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]: ...
def rescore_dense(
    *,
    queries: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    documents: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    starts: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    candidates: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    k: int,
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]: ...
def vote(
    *,
    ids: Annotated[
        NDArray[numpy.int32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    similarities: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    power: float,
    labels: SparseRows,
    prior: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    by_prior: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    allowed: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    k: int,
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]: ...
def products(
    *,
    rows: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    weights: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ]
    | Annotated[
        NDArray[numpy.float16], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
) -> None:
    """
    Fill `out` with X W^T; a cell does not depend on the rows and labels beside it.
    """

VECTOR_UNIT: int = 16

class VectorSegment:
    """Vectors in lists, their keys, and where the lists start."""

    def __init__(
        self,
        *,
        vectors: Annotated[
            NDArray[numpy.float32],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ]
        | Annotated[
            NDArray[numpy.float16],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ],
        keys: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def nearest_centres(
    vectors: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ]
    | Annotated[
        NDArray[numpy.float16], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    centres: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")]: ...
def count_allowed(
    segments: Sequence[VectorSegment],
    lists: int,
    allowed: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")]: ...
def search_vectors(
    *,
    segments: Sequence[VectorSegment],
    centres: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    queries: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    allowed: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    counts: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    probes: int,
    candidates: int,
    k: int,
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]: ...

FAN_IN_TILE: int = 32

class FanInForm(enum.Enum):
    """The losses of labels that look at a few features."""

    logistic = 0

    squared_hinge = 1

    focal = 2

    softmax = 3

class FanInMethod(enum.Enum):
    """How their weights move."""

    sgd = 0

    adam = 1

    label_adam = 2

class FanIn:
    """
    Groups of labels that share the features they look at.

    The numbers of these (groups, features), weights (groups, features, labels of a group) as
    float32, float16, the bits of bfloat16, or int8; by place, a scale, a bias and the label, -1
    for none. No scales: 1; no bias: 0.
    """

    def __init__(
        self,
        *,
        indices: Annotated[
            NDArray[numpy.uint16], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ]
        | Annotated[
            NDArray[numpy.uint32], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ],
        weights: Annotated[
            NDArray[numpy.float32],
            dict(shape=(None, None, None), order="C", device="cpu", writable=False),
        ]
        | Annotated[
            NDArray[numpy.float16],
            dict(shape=(None, None, None), order="C", device="cpu", writable=False),
        ]
        | Annotated[
            NDArray[numpy.uint16],
            dict(shape=(None, None, None), order="C", device="cpu", writable=False),
        ]
        | Annotated[
            NDArray[numpy.int8],
            dict(shape=(None, None, None), order="C", device="cpu", writable=False),
        ],
        scales: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        bias: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        labels: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        width: int,
        label_count: int,
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

class FanInTraining:
    """
    The same while it is trained.

    Weights and their moments are float32 or the bits of bfloat16; moments of size 0 are not
    kept. `squares`: of label_adam, the second moment of each place. `places`: of each label,
    -1 where it is not here.
    """

    def __init__(
        self,
        *,
        indices: Annotated[
            NDArray[numpy.uint16], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ]
        | Annotated[
            NDArray[numpy.uint32], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ],
        weights: Annotated[
            NDArray[numpy.float32], dict(shape=(None, None, None), order="C", device="cpu")
        ]
        | Annotated[NDArray[numpy.uint16], dict(shape=(None, None, None), order="C", device="cpu")],
        first: Annotated[
            NDArray[numpy.float32], dict(shape=(None, None, None), order="C", device="cpu")
        ]
        | Annotated[NDArray[numpy.uint16], dict(shape=(None, None, None), order="C", device="cpu")],
        second: Annotated[
            NDArray[numpy.float32], dict(shape=(None, None, None), order="C", device="cpu")
        ]
        | Annotated[NDArray[numpy.uint16], dict(shape=(None, None, None), order="C", device="cpu")],
        squares: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
        bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
        labels: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        places: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

class FanInTruth:
    """
    A CSR matrix of labels, and what their losses count for.

    Of each entry, what its loss as a label that applies counts for, and that as one that does
    not; what all other labels count for, each or all of them. Of softmax, for each row the
    logarithm of the sum of exponentials, and its weight.
    """

    def __init__(
        self,
        *,
        starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        labels: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        positives: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        negatives: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        weights: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        weight: float,
        normalisers: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        masses: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

class FanInOptimiser:
    """
    How weights move; `step` is the number of this one, from 0.

    Momentum is of sgd, betas and epsilon are of adam, which keeps a second moment of each
    weight, and of label_adam, which keeps one of each label: the mean over its weights.
    `first` is the number of the first place among all, for what is drawn.
    """

    def __init__(
        self,
        *,
        method: FanInMethod,
        rate: float,
        momentum: float,
        decay: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        seed: int,
        step: int,
        first: int,
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def fan_in_best(
    *,
    layer: FanIn,
    rows: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    allowed: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    k: int,
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]:
    """
    The k best labels of each row and their scores, ties to the lower label.

    `allowed` marks those that may be found, all if it is empty. A place that no label takes
    holds the number of labels and minus infinity.
    """

def fan_in_normalisers(
    *,
    layer: FanIn,
    rows: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    number: float,
) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")]:
    """
    Of each row, the logarithm of the sum of exp(number * score) over all labels.
    """

def fan_in_step(
    *,
    layer: FanInTraining,
    rows: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    truth: FanInTruth,
    form: FanInForm,
    number: float,
    optimiser: FanInOptimiser,
    gradient: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
    update: bool,
    valued: bool,
) -> float:
    """
    One step of training, in place; gives the sum of the losses, or 0 unless `valued`.

    Its gradient by the rows fills `gradient`; with `update`, weights and biases move. An error
    or an interrupt may leave some of them moved.
    """

LANES: int = 16

MOST_KEPT_ROWS: int = 131072

class Loss(enum.Enum):
    """What an error costs, by its margin."""

    squared_hinge = 0

    logistic = 1

class LabelGroups:
    """
    Groups of labels that share their rows, where each label is positive, and what errors cost.

    No row starts: one group with all rows. No factors: all 1.
    """

    def __init__(
        self,
        *,
        row_starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        rows: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        label_starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        positive_starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        positives: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        positive_costs: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        negative_costs: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        factors: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def train_groups(
    rows: SparseRows, groups: LabelGroups, *, loss: Loss, eps: float, bias: float, prune: float
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
]: ...

MOST_LEAVES: int = 256

MOST_BINS: int = 255

class BoostedTrees:
    """
    Boosted trees, ready to be applied.

    A ValueError where the arrays are no trees.
    """

    def __init__(
        self,
        *,
        starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        feature: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        threshold: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        left: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        right: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        missing_left: Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        value: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        base: float,
        features: int,
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def boosted_margins(
    trees: BoostedTrees,
    rows: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")]: ...
def train_boosted(
    *,
    rows: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    targets: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    weights: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    validation: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    trees: int,
    leaves: int,
    depth: int,
    bins: int,
    rate: float,
    min_rows: int,
    min_hessian: float,
    l2: float,
    min_gain: float,
    feature_share: float,
    row_share: float,
    patience: int,
    seed: int,
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
    float,
    Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C")],
]: ...

SECTION_FEATURES: int = 65536

class Precision(enum.Enum):
    """What is kept of a weight."""

    float32 = 0

    float16 = 1

    int8 = 2

class Post(enum.Enum):
    """What a margin becomes."""

    hinge1 = 0

    hinge2 = 1

    hinge3 = 2

    hinge4 = 3

    sigmoid = 4

    noop = 5

class Level:
    """The weights of a level of a tree, as ChunkedWeights has them."""

    def __init__(
        self,
        *,
        child_starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        section_starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        row_features: Annotated[
            NDArray[numpy.uint16], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        row_starts: Annotated[
            NDArray[numpy.uint16], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        block_starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        block_bits: int,
        entry_gaps: Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        entry_weights: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
        | Annotated[
            NDArray[numpy.float16], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
        | Annotated[
            NDArray[numpy.int8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        scales: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        biases: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        features: int,
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def build_chunks(
    weights: SparseRows,
    *,
    child_starts: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    precision: Precision,
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.uint16], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.uint16], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    int,
    Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")]
    | Annotated[NDArray[numpy.float16], dict(shape=(None,), order="C")]
    | Annotated[NDArray[numpy.int8], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
]: ...
def join_chunks(
    parts: Sequence[Level],
    *,
    places: Sequence[
        Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
    ],
    precision: Precision,
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.uint16], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.uint16], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    int,
    Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")]
    | Annotated[NDArray[numpy.float16], dict(shape=(None,), order="C")]
    | Annotated[NDArray[numpy.int8], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
]: ...
@overload
def score_pairs(
    level: Level,
    queries: SparseRows,
    *,
    bias: float,
    rows: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    parents: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")]: ...
@overload
def score_pairs(
    level: Level,
    queries: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    *,
    bias: float,
    rows: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    parents: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")]: ...
@overload
def beam_search(
    *,
    levels: Sequence[Sequence[Level]],
    label_of_leaf: Sequence[
        Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
    ],
    labels: int,
    post: Post,
    queries: SparseRows,
    bias: float,
    k: int,
    wide: int,
    allowed: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    beam: int,
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]: ...
@overload
def beam_search(
    *,
    levels: Sequence[Sequence[Level]],
    label_of_leaf: Sequence[
        Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
    ],
    labels: int,
    post: Post,
    queries: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    bias: float,
    k: int,
    wide: int,
    allowed: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    beam: int,
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]: ...
@overload
def best_first_search(
    *,
    levels: Sequence[Sequence[Level]],
    label_of_leaf: Sequence[
        Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
    ],
    labels: int,
    post: Post,
    queries: SparseRows,
    bias: float,
    k: int,
    wide: int,
    allowed: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    log_weights: Sequence[
        Sequence[
            Annotated[
                NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
            ]
        ]
    ],
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]: ...
@overload
def best_first_search(
    *,
    levels: Sequence[Sequence[Level]],
    label_of_leaf: Sequence[
        Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ]
    ],
    labels: int,
    post: Post,
    queries: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    bias: float,
    k: int,
    wide: int,
    allowed: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    log_weights: Sequence[
        Sequence[
            Annotated[
                NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
            ]
        ]
    ],
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]: ...

class Visits:
    """
    The rows that each node sees, and the columns that are positive for them.
    """

    def __init__(
        self,
        *,
        starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        rows: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        place_starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        places: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

class Blocks:
    """The weights of all nodes, as OnlineTree has them."""

    def __init__(
        self,
        *,
        feature_starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        features: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        columns: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        weights: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        squares: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def update_blocks(
    *,
    rows: SparseRows,
    visits: Visits,
    blocks: Blocks,
    columns: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    rate: float,
    epsilon: float,
    bias: float,
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
]: ...
def block_child_rows(
    blocks: Blocks, *, width: int, prune: float
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
]: ...
def weighted_sums(
    *, weights: SparseRows, rows: SparseRows, keep: int
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
]: ...
def thin_product(
    *, weights: SparseRows, rows: SparseRows, least: float
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
]:
    """Weights @ rows, without values that are smaller than `least`."""

def cooccurrence(
    *, texts: SparseRows, labels: SparseRows, threshold: float
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
]: ...
def halve_level(
    vectors: SparseRows,
    *,
    members: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    starts: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    seed: int,
    depth: int,
    spherical: bool,
    iterations: int,
) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")]: ...
def cluster_level(
    vectors: SparseRows,
    *,
    members: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    starts: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    seed: int,
    depth: int,
    largest: int,
    arity: int,
    aim: int,
    balanced: bool,
    iterations: int,
    tolerance: float,
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
]: ...

class LexicalFeature(enum.Enum):
    """The columns of `find_names`."""

    share = 0

    words_found = 1

    words_missing = 2

    mass_found = 3

    mass_missing = 4

    rarest_found = 5

    rarest_missing = 6

    commonest_found = 7

    phrase = 8

    window = 9

    occurrences = 10

    bm25 = 11

    first_position = 12

    last_position = 13

    spread = 14

    text_words = 15

    text_share = 16

    preferred = 17

    names = 18

    names_found = 19

    shared = 20

    longer = 21

    candidates = 22

    relative_bm25 = 23

    place = 24

    rivals = 25

    broader = 26

    narrower = 27

    related = 28

    collection = 29

class RowsOfNumbers:
    """Where rows start, and the numbers of all rows."""

    def __init__(
        self,
        *,
        starts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        items: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

class NameIndex:
    """The names of labels, the index of them, and links of labels."""

    def __init__(
        self,
        *,
        names: RowsOfNumbers,
        words: RowsOfNumbers,
        owners: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        shared: Annotated[
            NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        postings: RowsOfNumbers,
        idf: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        broader: RowsOfNumbers,
        narrower: RowsOfNumbers,
        related: RowsOfNumbers,
        collections: RowsOfNumbers,
        usual_words: float,
        share: float,
        looked_at: int,
        candidates: int,
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def index_names(
    words: RowsOfNumbers,
    *,
    owners: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    idf: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    share: float,
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
]: ...
def find_names(
    index: NameIndex, texts: RowsOfNumbers
) -> tuple[
    Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]: ...
def ranked_names(
    found: RowsOfNumbers,
    *,
    scores: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    others: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    other_scores: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    labels: int,
    k: int,
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]: ...

SAMPLE_GROUPS: int = 4096

ROW_SUMS_BEFORE: int = 2

OCTAVE_CELLS: int = 1024

FINE_CELLS: int = 24578

SMALLEST_CONFIDENCE: float = 5.960464477539063e-08

CONFIDENCE_UNIT: float = 2.3283064365386963e-10

EFFECT_LANES: int = 16

class RowTotal(enum.Enum):
    """What is summed over rows at each cutoff."""

    hits = 0

    recall = 1

    f1 = 2

    ndcg = 3

    reciprocal_rank = 4

    any_hit = 5

    predicted = 6

    squared_error = 7

    log_loss = 8

    gained = 9

    gained_recall = 10

    gained_ndcg = 11

    attainable = 12

    attainable_recall = 13

    attainable_ndcg = 14

def ranking_hits(
    ranked: Ranked, truth: Truth, k: int
) -> Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C")]: ...
def drop_labels(
    ranked: Ranked, cells: Truth
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]: ...
def add_row_sums(
    before: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    *,
    first_row: int,
    ranked: Ranked,
    truth: Truth,
    cutoffs: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    weights: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C")]: ...
def label_counts(
    ranked: Ranked,
    truth: Truth,
    *,
    cutoffs: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    width: int,
) -> Annotated[NDArray[numpy.int64], dict(shape=(None, None), order="C")]: ...
def reliability_cells(
    ranked: Ranked,
    truth: Truth,
    *,
    cutoffs: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    bins: int,
) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")]: ...
def grouped_reliability(
    ranked: Ranked,
    truth: Truth,
    *,
    cutoffs: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    group_of: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    groups: int,
) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C")]: ...
def add_effects(
    before: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    *,
    first_row: int,
    ranked: Ranked,
    truth: Truth,
    k: int,
    class_of: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    of_class: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    bins_of_cell: Annotated[
        NDArray[numpy.int32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    bins_of_errors: int,
    bins: int,
) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C")]: ...
def isotonic_fit(
    *,
    scores: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    hits: Annotated[
        NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    weights: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
) -> tuple[
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")],
]: ...
def isotonic_apply(
    *,
    scores: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    thresholds: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    values: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")]: ...
def falling_rows(
    rows: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    pooled: int,
) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")]: ...
def weighted_gram(
    rows: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    weights: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C")]:
    """The sum over rows of weight times row times row transposed."""

def joint_apply(
    *,
    scores: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    levels: Annotated[
        NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    steps: float,
    knots: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    heights: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    ranks: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    frequencies: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    constants: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    slopes: Annotated[
        NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")]: ...

class Joint:
    """A joint calibration, as calibration.Joint has learned it."""

    def __init__(
        self,
        *,
        steps: float,
        knots: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        heights: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        ranks: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        frequencies: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        constants: Annotated[
            NDArray[numpy.float64],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ],
        slopes: Annotated[
            NDArray[numpy.float64],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ],
        levels: Annotated[
            NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        pooled: int,
        thresholds: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        values: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def joint_answer(
    joint: Joint,
    *,
    ids: Annotated[
        NDArray[numpy.int32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    scores: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    labels: int,
) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")]: ...

class MacroMetric(enum.Enum):
    """The macro metrics that the native core knows."""

    precision = 0

    recall = 1

    f_beta = 2

    jaccard = 3

    balanced_accuracy = 4

    g_mean = 5

    h_mean = 6

    fowlkes_mallows = 7

    coverage = 8

class Objective:
    """
    `linear` times the probability plus `scale` times the metric of so many rows.
    """

    def __init__(
        self, *, metric: MacroMetric | None, beta: float, linear: float, scale: float, rows: float
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def decision_ascend(
    ranked: Ranked,
    *,
    labels: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    positives: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    caps: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    chosen: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
    order: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    k: int,
    floor: float,
    objective: Objective,
    custom: object | None,
) -> None: ...
def decision_gains(
    ranked: Ranked,
    *,
    labels: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    positives: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    caps: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    chosen: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
    objective: Objective,
    custom: object | None,
) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")]: ...
def decision_assign(
    ranked: Ranked,
    *,
    weights: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    offsets: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    caps: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    k: int,
    floor: float,
) -> tuple[
    Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C")],
]: ...
def decision_sums(
    ranked: Ranked,
    *,
    chosen: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
    sums: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def decision_recount(
    ranked: Ranked,
    *,
    chosen: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
    labels: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
@overload
def decision_rule_sums(
    ranked: Ranked,
    values: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    *,
    weights: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    offsets: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    k: int,
    floor: float,
    sums: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
@overload
def decision_rule_sums(
    ranked: Ranked,
    values: Annotated[
        NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    *,
    weights: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    offsets: Annotated[
        NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    k: int,
    floor: float,
    sums: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None: ...
def decision_choose(
    ranked: Ranked,
    *,
    weights: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    offsets: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    shares: Annotated[
        NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    k: int,
    floor: float,
    seed: int,
) -> Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C")]: ...
def decision_follow(
    ranked: Ranked,
    *,
    truth: Truth,
    labels: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
    k: int,
    floor: float,
    objective: Objective,
    custom: object | None,
) -> Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C")]: ...

MIX_OF_MEMBER: int = 3

MIX_SHARED: int = 4

MIX_TIE: float = 0.0010000000474974513

class Means:
    """Weights of members by label frequency."""

    def __init__(
        self,
        *,
        edges: Annotated[
            NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        weights: Annotated[
            NDArray[numpy.float64],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ],
        unlisted: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

class Stack:
    """A logistic regression on what members say."""

    def __init__(
        self,
        *,
        members: int,
        weights: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        means: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        scales: Annotated[
            NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

class Mixing:
    """
    What a mix knows beside its members.

    Of each of these it has the calibration, or None, and the numbers of its labels.
    """

    def __init__(
        self,
        *,
        counts: Annotated[
            NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
        ],
        shortlist: int,
        calibrations: Sequence[Joint | None],
        numbers: Sequence[
            Annotated[
                NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
            ]
        ],
        names: Names | None,
        combiner: BoostedTrees | Means | Stack,
    ) -> None: ...
    def __getstate__(self) -> tuple[object, ...]: ...
    def __setstate__(self, state: tuple[object, ...]) -> None: ...

def combined_margins(
    combiner: BoostedTrees | Means | Stack,
    said: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C")]:
    """One margin for each row of what is said."""

def mix_candidates(
    *,
    ids: Annotated[
        NDArray[numpy.int32],
        dict(shape=(None, None, None), order="C", device="cpu", writable=False),
    ],
    probabilities: Annotated[
        NDArray[numpy.float32],
        dict(shape=(None, None, None), order="C", device="cpu", writable=False),
    ],
    counts: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    shortlist: int,
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
]:
    """
    The labels that members list for each row, what is said of each, and labels further down.
    """

def mix_ordered(
    *,
    ids: Annotated[
        NDArray[numpy.int32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    scores: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    others: Annotated[
        NDArray[numpy.int32], dict(shape=(None, None), order="C", device="cpu", writable=False)
    ],
    labels: int,
    k: int,
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]:
    """
    The k best labels of each row: listed ones by their scores, then the others.
    """

def mix_rank(
    mixing: Mixing,
    *,
    ids: Sequence[
        Annotated[
            NDArray[numpy.int32], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ]
    ],
    scores: Sequence[
        Annotated[
            NDArray[numpy.float32],
            dict(shape=(None, None), order="C", device="cpu", writable=False),
        ]
    ],
    labels: Sequence[int],
    starts: Annotated[
        NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    words: Annotated[
        NDArray[numpy.int32], dict(shape=(None,), order="C", device="cpu", writable=False)
    ],
    depth: int,
    k: int,
) -> tuple[
    Annotated[NDArray[numpy.int32], dict(shape=(None, None), order="C")],
    Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C")],
]:
    """
    The k best labels of each row, of the rankings of all members and the words of texts.
    """
