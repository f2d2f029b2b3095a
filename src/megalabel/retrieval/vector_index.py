"""VectorIndex: the vectors with the largest products with a query; they may come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from megalabel import _native
from megalabel.base import (
    Check,
    Component,
    Learned,
    array,
    check_argument,
    integer,
    list_of,
    made_once,
    number,
    one_of,
    optional,
    value,
)
from megalabel.data.matrix import dense, products
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.retrieval.lists import (
    REMOVED,
    Segment,
    columns_for,
    in_lists,
    joined,
    learned_centres,
    lengths_of_lists,
    padded,
)

EXACT_BELOW = 100_000  # vectors, which are scanned faster than they are put into lists
MEASURED_AT = 100  # the k of the recall that is measured
_QUERIES = 512  # by which recall is measured
_REMOVED = 0.25  # share of a segment: when more were removed, it is written anew
_CHANGED = 0.2  # share of the vectors: when more have changed, recall is measured anew
_GROWN = 4  # times as many vectors as centres were learned for, and they are learned anew
_MOST_KEY = 2**31 - 1
_COUNT = integer(1)
_NO_MARKS = np.zeros(0, np.uint8)


class VectorIndex(Component):
    """Dense vectors with keys, found by inner product or cosine.

    Fewer than 100,000 vectors are all looked at. More lie in lists, each of vectors that point into
    about the same direction, and a query looks into the lists nearest to it: so many that the
    recall is as wished on a sample of queries, against all vectors.

    `add`, `remove` and `replace` give a new index, which shares arrays with the old one, and leave
    that one as it is: searches may go on in it meanwhile, from any thread. What is added goes into
    the lists there are; when there are four times as many vectors as at the start, lists are made
    anew. The answer depends neither on the number of threads nor on how many queries are asked at
    once, and ties go to the lower key.

    Parameters
    ----------
    similarity : "inner_product" or "cosine"
        cosine: vectors and queries are scaled to length one.
    precision : "float32" or "float16"
        How vectors are kept. Products are made in single precision.
    recall : float
        The share of the 100 best vectors that is to be found, on average.
    lists : int, optional
        How many lists: by default what suits the number of vectors. 1: all vectors are looked at.
    seed : int
        What the sample is drawn by.

    Attributes
    ----------
    recall_ : float
        The recall at 100 that was measured, 1 where all vectors are looked at.
    probes_ : int
        How many lists a query looks into.

    Examples
    --------
    >>> index = VectorIndex().fit(np.array([[1.0, 0], [0, 1], [1, 1]]))
    >>> keys, products = index.search(np.array([[2.0, 1]]), k=2)
    >>> keys.tolist(), products.tolist()
    ([[2, 0]], [[3.0, 2.0]])
    >>> index.remove([2]).add([7], np.array([[0.0, 9]])).search(np.array([[2.0, 1]]), k=2)[0]
    array([[7, 0]], dtype=int32)
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "similarity": one_of("inner_product", "cosine"),
        "precision": one_of("float32", "float16"),
        "recall": number(0, 1),
        "lists": integer(1) | one_of(None),
        "seed": integer(0),
    }

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "width_": value(integer(1)),
        "vectors_": list_of(array((np.float32, np.float16), "places", "columns"), "segments"),
        "keys_": list_of(array(np.int32, "places"), "segments"),
        "starts_": list_of(array(np.int64, "starts"), "segments"),
        "centres_": array(np.float32, "lists", "columns"),
        "queries_": optional(array(np.float32, "queries", "columns")),
        "probes_": value(integer(1)),
        "recall_": value(number(0, 1)),
        "built_": value(integer(0)),
        "changed_": value(integer(0)),
    }

    width_: int
    vectors_: list[np.ndarray]
    keys_: list[np.ndarray]
    starts_: list[np.ndarray]
    centres_: np.ndarray  # of the lists; none where all vectors are looked at
    queries_: np.ndarray | None = None  # by which recall is measured; None: vectors of the index
    probes_: int
    recall_: float
    built_: int  # vectors when centres were learned
    changed_: int  # vectors added and removed since recall was measured

    def __init__(
        self,
        *,
        similarity: str = "inner_product",
        precision: str = "float32",
        recall: float = 0.95,
        lists: int | None = None,
        seed: int = 0,
    ) -> None:
        self.similarity = similarity
        self.precision = precision
        self.recall = recall
        self.lists = lists
        self.seed = seed

    def fit(self, X: Any, keys: Any = None, *, queries: Any = None) -> Self:
        """Index the rows of X.

        Parameters
        ----------
        X : array (n, width)
        keys : int array (n,), optional
            What rows are known by, such as the numbers of labels: by default the numbers of rows.
        queries : array (m, width), optional
            Such as will be asked, by which recall is measured: by default, and if there are none,
            some of the rows, each without itself.
        """
        self.check_parameters()
        X = _matrix(X, "X")
        keys = np.arange(len(X), dtype=np.int32) if keys is None else _checked(keys)
        _check_rows(keys, X)
        asked = None if queries is None else self._prepared(queries, X.shape[1])
        self.restore(self._built(X, keys, asked))
        return self

    # --- changes

    def add(self, keys: Any, X: Any) -> Self:
        """An index with further vectors, whose keys must be new."""
        X = self._like_ours(X)
        keys = _checked(keys)
        _check_rows(keys, X)
        for known in self.keys_:
            if len(same := np.intersect1d(known, keys)):
                raise DataError(f"there is a vector with the key {same[0]} already: replace it")
        return self._with_added(keys, X)

    def remove(self, keys: Any) -> Self:
        """An index without the vectors of these keys."""
        return self._changed(self._without(_checked(keys)), len(np.atleast_1d(keys)))

    def replace(self, keys: Any, X: Any) -> Self:
        """An index with other vectors for keys that are there."""
        X = self._like_ours(X)
        keys = _checked(keys)
        _check_rows(keys, X)
        return self._changed(self._without(keys), 0)._with_added(keys, X)

    # --- answers

    def search(
        self, queries: Any, k: int, *, allowed: Any = None, probes: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The k vectors with the largest products with each query, best first.

        Parameters
        ----------
        queries : array (n, width)
        k : int
        allowed : bool array or int array, optional
            What may be found: a mask of keys (those beyond its end may not), or a list of keys. A
            query looks into more lists then, until it has seen as many vectors as without.
        probes : int, optional
            How many lists to look into, in the place of `probes_`.

        Returns
        -------
        keys : int32 array (n, k)
            -1 in places left over, where fewer than k vectors are there or allowed.
        products : float32 array (n, k)
            -inf in places left over.
        """
        self.check_fitted()
        check_argument("k", k, _COUNT)
        if probes is not None:
            check_argument("probes", probes, _COUNT)
        asked = self._prepared(queries, self.width_)
        marks = _NO_MARKS if allowed is None else _marks(allowed)
        probes = min(self.probes_ if probes is None else probes, max(1, len(self.centres_)))
        keys, scores = self._found(asked, int(k), marks, probes)
        if (left := k - keys.shape[1]) > 0:
            keys = np.pad(keys, ((0, 0), (0, left)), constant_values=REMOVED)
            scores = np.pad(scores, ((0, 0), (0, left)), constant_values=-np.inf)
        return keys, scores

    def __len__(self) -> int:
        """The number of vectors."""
        self.check_fitted()
        return int(self._counts.sum())

    @property
    def keys(self) -> np.ndarray:
        """The keys of all vectors, rising."""
        self.check_fitted()
        return np.sort(np.concatenate([keys[keys >= 0] for keys in self.keys_]))

    @property
    def summary(self) -> str:
        """What is in it and how much of it is found, for people."""
        if not len(self.centres_):
            return f"{len(self):,} vectors of {self.width_} numbers, all looked at"
        return (
            f"{len(self):,} vectors of {self.width_} numbers in {len(self.centres_):,} lists, of "
            f"which {self.probes_} are looked into: recall at {MEASURED_AT} {self.recall_:.3f}"
        )

    def check_learned(self) -> None:
        """Segments must fit each other. What is in them is checked when it is searched."""
        for made in ("_made_counts", "_made_segments"):
            vars(self).pop(made, None)  # those of other arrays
        if self.centres_.shape[1] != columns_for(self.width_) or not self.vectors_:
            raise ValueError("centres_ of VectorIndex do not fit its width")
        for segment in self._segments:
            fits = (
                segment.vectors.dtype == self.precision
                and segment.vectors.shape == (len(segment.keys), self.centres_.shape[1])
                and len(segment.starts) == max(1, len(self.centres_)) + 1
            )
            if not fits:
                raise ValueError("the arrays of VectorIndex differ in their sizes")

    # --- how it is made

    @property
    def _segments(self) -> list[Segment]:
        return [
            Segment(*parts) for parts in zip(self.vectors_, self.keys_, self.starts_, strict=True)
        ]

    @property
    def _unit(self) -> bool:
        return self.similarity == "cosine"

    @property
    def _counts(self) -> np.ndarray:
        """The number of vectors in each list."""
        return made_once(self, "_made_counts", lambda: self._count(_NO_MARKS))

    @property
    def _natives(self) -> list[_native.VectorSegment]:
        return made_once(self, "_made_segments", lambda: [s.native() for s in self._segments])

    def _count(self, marks: np.ndarray) -> np.ndarray:
        counts: np.ndarray = _native.count_allowed(self._natives, max(1, len(self.centres_)), marks)
        return counts

    def _prepared(self, queries: Any, width: int) -> np.ndarray:
        queries = _matrix(queries, "queries")
        if queries.shape[1] != width:
            raise ShapeError(f"queries are {queries.shape} but the vectors have {width} columns")
        return padded(queries, unit=self._unit)

    def _like_ours(self, X: Any) -> np.ndarray:
        self.check_fitted()
        rows = _matrix(X, "X")
        if rows.shape[1] != self.width_:
            raise ShapeError(f"X is {rows.shape} but the index has {self.width_} columns")
        return rows

    def _built(self, X: np.ndarray, keys: np.ndarray, queries: np.ndarray | None) -> dict[str, Any]:
        """What is learned of vectors, with recall still to be measured."""
        lists = lists_for(len(X)) if self.lists is None else min(self.lists, max(1, len(X)))
        centres = np.empty((0, columns_for(X.shape[1])), np.float32)
        drawn = np.random.default_rng(self.seed).permutation(len(X))
        # what centres were learned from would be found too well
        aside = drawn[lists:][-_QUERIES:]
        if lists > 1:
            centres = learned_centres(X, drawn[: max(lists, len(X) - len(aside))], lists)
        segment = self._segment(X, keys, centres)
        if lists > 1 and not self._unit:
            centres *= lengths_of_lists(segment).astype(np.float32)[:, None]
        learned = _of_segments([segment]) | {
            "width_": X.shape[1],
            "centres_": centres,
            "queries_": queries,
            "built_": len(X),
        }
        made = self._made(learned, probes_=1, recall_=1.0, changed_=0)
        return learned | made._measured((padded(X[aside], unit=self._unit), keys[aside]))

    def _segment(self, X: np.ndarray, keys: np.ndarray, centres: np.ndarray) -> Segment:
        segment = in_lists(X, keys, centres, np.dtype(self.precision), unit=self._unit)
        if self.precision == "float16" and not np.isfinite(segment.vectors).all():
            raise DataError("X holds a value that is too large for float16")
        return segment

    def _made(self, learned: Mapping[str, Any], **more: Any) -> Self:
        """Another one with such arrays."""
        made = type(self)(**self.get_params(deep=False))
        made.restore({**learned, **more})
        return made

    def _changed(self, segments: Sequence[Segment], changed: int) -> Self:
        """Another one of such segments; recall is measured anew where much has changed by now."""
        learned = self.learned() | _of_segments(segments)
        made = self._made(learned, changed_=self.changed_ + changed)
        if len(self.centres_) and made.changed_ > _CHANGED * len(made):
            made.restore(made.learned() | made._measured())
        return made

    def _with_added(self, keys: np.ndarray, X: np.ndarray) -> Self:
        count = len(self) + len(keys)
        exact = not len(self.centres_)
        grown = count > _GROWN * max(self.built_, EXACT_BELOW) or (exact and lists_for(count) > 1)
        added = [self._segment(X, keys, self.centres_)]
        segments = [*self._segments, *added]
        if self.lists is None and grown:
            whole = joined(segments)
            rows = whole.vectors[:, : self.width_].astype(np.float32, copy=False)
            return self._made(self._built(rows, whole.keys, self.queries_))
        # a segment is at most half as large as the one before it: few of them, and few copies
        while len(segments) > 1 and 2 * len(segments[-1].keys) > len(segments[-2].keys):
            segments[-2:] = [joined(segments[-2:])]
        return self._changed(segments, len(keys))

    def _without(self, keys: np.ndarray) -> list[Segment]:
        self.check_fitted()
        segments, removed = [], 0
        for segment in self._segments:
            gone = np.isin(segment.keys, keys)
            if count := int(np.count_nonzero(gone)):
                removed += count
                left = np.where(gone, np.int32(REMOVED), segment.keys)
                segment = segment._replace(keys=left)
                if np.count_nonzero(left < 0) > _REMOVED * len(left):
                    segment = joined([segment])
            segments.append(segment)
        if removed < len(keys):
            missing = keys[~np.isin(keys, np.concatenate(self.keys_))]
            raise DataError(f"there is no vector with the key {missing[0]}")
        # what is empty goes, but for one, which says how wide vectors are
        return [segment for segment in segments if len(segment.keys)] or segments[:1]

    def _taken(self, numbers: np.ndarray) -> dict[str, Any]:
        """Keys are the numbers of labels: those of the labels taken become their places."""
        most = max((int(keys.max(initial=-1)) for keys in self.keys_), default=-1)
        place = np.full(max(most, int(numbers.max(initial=-1))) + 2, REMOVED, np.int32)
        place[numbers] = np.arange(len(numbers), dtype=np.int32)  # the last place stays for -1
        known = np.concatenate(self.keys_)
        gone = np.setdiff1d(known[known >= 0], numbers)
        kept = self._changed(self._without(gone.astype(np.int32)), len(gone))
        return kept.learned() | {"keys_": [place[keys] for keys in kept.keys_]}

    # --- how it is asked

    def _found(
        self, asked: np.ndarray, k: int, marks: np.ndarray, probes: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """At most k vectors for each query; queries are as `_prepared` gives them."""
        counts = self._count(marks) if len(marks) else self._counts
        # as many as without marks: the nearest that are allowed are further off
        candidates = len(self) * probes // max(1, len(self.centres_)) if len(marks) else 0
        k = max(1, min(k, int(counts.sum())))
        return _native.search_vectors(
            segments=self._natives,
            centres=self.centres_,
            queries=asked,
            allowed=marks,
            counts=counts,
            probes=probes,
            candidates=max(k, candidates),
            k=k,
        )

    def _measured(self, sample: tuple[np.ndarray, np.ndarray] | None = None) -> dict[str, Any]:
        """The fewest probes with the recall that is wished, and the recall they have, by the
        queries that were given or else by a sample of the vectors and its keys."""
        count, lists = len(self), len(self.centres_)
        if lists == 0 or count < 2:
            return {"probes_": 1, "recall_": 1.0, "changed_": 0}
        asked, own = self.queries_, np.empty(0, np.int32)
        if asked is None or not len(asked):
            asked, own = self._drawn() if sample is None or not len(sample[1]) else sample
        k = min(MEASURED_AT, count - 1)
        keys, _ = self._found(asked, k + (len(own) > 0), _NO_MARKS, lists)
        if len(own):
            others = keys != own[:, None]
            others[others.all(axis=1), -1] = False  # more alike than itself: the last goes
            keys = keys[others].reshape(len(asked), k)
        # how many lists each of them takes, those without vectors aside
        nearness = products(asked, self.centres_)
        nearness[:, self._counts == 0] = -np.inf
        order = np.argsort(-nearness, axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(lists)[None], axis=1)
        needed = np.take_along_axis(rank, self._list_of(keys), axis=1)
        # lists are looked into until k vectors are seen, however few the probes
        seen = self._counts[order].cumsum(axis=1)
        needed[needed <= np.argmax(seen >= k, axis=1)[:, None]] = 0
        shares = np.stack([np.bincount(row, minlength=lists) for row in needed]).cumsum(1) / k
        recall = shares.mean(axis=0)
        doubt = shares.std(axis=0) / np.sqrt(len(shares))
        enough = recall - 2 * doubt >= self.recall
        probes = int(np.argmax(enough)) + 1 if enough.any() else lists
        return {"probes_": probes, "recall_": float(recall[probes - 1]), "changed_": 0}

    def _drawn(self) -> tuple[np.ndarray, np.ndarray]:
        """Some of the vectors, and their keys."""
        rng = np.random.default_rng(self.seed)
        sizes = np.array([len(keys) for keys in self.keys_])
        drawn = np.sort(rng.choice(sizes.sum(), min(2 * _QUERIES, sizes.sum()), replace=False))
        rows, keys = [], []
        for at, first in enumerate(np.cumsum(sizes) - sizes):
            some = drawn[(drawn >= first) & (drawn < first + sizes[at])] - first
            some = some[self.keys_[at][some] >= 0]
            rows.append(self.vectors_[at][some].astype(np.float32))
            keys.append(self.keys_[at][some])
        kept = rng.permutation(sum(map(len, keys)))[:_QUERIES]
        return np.concatenate(rows)[kept], np.concatenate(keys)[kept]

    def _list_of(self, keys: np.ndarray) -> np.ndarray:
        """The list of each of these keys."""
        known = np.concatenate(self.keys_)
        numbers = np.arange(max(1, len(self.centres_)))
        lists = np.concatenate([np.repeat(numbers, np.diff(starts)) for starts in self.starts_])
        order = np.argsort(known, kind="stable")
        return np.asarray(lists[order[np.searchsorted(known, keys, sorter=order)]])


def lists_for(vectors: int) -> int:
    """How many lists suit so many vectors: a query should see about as many vectors as centres.

    Examples
    --------
    >>> lists_for(50_000), lists_for(1_000_000)
    (1, 2000)
    """
    return 1 if vectors < EXACT_BELOW else round(2 * vectors**0.5)


def _of_segments(segments: Iterable[Segment]) -> dict[str, Any]:
    vectors, keys, starts = zip(*segments, strict=True)
    return {"vectors_": list(vectors), "keys_": list(keys), "starts_": list(starts)}


def _matrix(X: Any, what: str) -> np.ndarray:
    rows = dense(X, what)
    if rows.shape[1] == 0:
        raise ShapeError(f"{what} is {rows.shape}: vectors have at least one column")
    return rows


def _checked(keys: Any) -> np.ndarray:
    """Keys as int32, each once."""
    found = np.asarray(keys)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise ParameterError(
            f"keys must be whole numbers in one dimension, not {found.dtype} {found.shape}"
        )
    least, most = (found.min(), found.max()) if found.size else (0, 0)
    if least < 0 or most > _MOST_KEY:
        raise ParameterError(
            f"keys must be from 0 to {_MOST_KEY}, not {least if least < 0 else most}"
        )
    names, counts = np.unique(found, return_counts=True)
    if len(names) < len(found):
        raise DataError(f"the key {names[counts > 1][0]} is given twice")
    return found.astype(np.int32)


def _check_rows(keys: np.ndarray, X: np.ndarray) -> None:
    if len(keys) != len(X):
        raise ShapeError(f"X is {X.shape} but there are {len(keys)} keys")


def _marks(allowed: Any) -> np.ndarray:
    """A mask of keys; never empty, which would allow all."""
    found = np.asarray(allowed)
    if found.dtype == bool and found.ndim == 1:
        return np.append(found, False).view(np.uint8)
    keys = _checked(np.unique(found))
    marks = np.zeros(int(keys.max(initial=0)) + 1, np.uint8)
    marks[keys] = 1
    return marks
