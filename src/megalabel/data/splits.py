"""Splitting a corpus: by the text itself, by labels, or at random; the same for the same seed."""

from __future__ import annotations

import hashlib

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.data.corpus import Corpus
from megalabel.errors import ParameterError

_WAYS = ("hash", "labels", "random")


def split(
    corpus: Corpus, test: float = 0.2, how: str = "hash", seed: int = 0
) -> tuple[Corpus, Corpus]:
    """Split a corpus into a training and a test part, each in the order of the corpus.

    Parameters
    ----------
    corpus : Corpus
    test : float
        The share of the test part, between 0 and 1.
    how : "hash", "labels" or "random"
        "hash": each text decides for itself, by its content without regard to case and white
        space. Equal texts never come to different parts, and a text stays in its part on every
        machine, in any order and whatever is added. "labels": each label has its share in the
        test part, as nearly as it can, and each label of two or more texts is in the training
        part. "random": exactly the given share.
    seed : int
        Another seed gives another split.

    Examples
    --------
    >>> corpus = Corpus([f"text {i}" for i in range(100)])
    >>> [len(part) for part in split(corpus, test=0.3, how="random")]
    [70, 30]
    """
    if not 0 < test < 1:
        raise ParameterError(f"test must be a share between 0 and 1, not {test!r}")
    if how not in _WAYS:
        raise ParameterError(f"how must be one of {', '.join(_WAYS)}, not {how!r}")
    if how == "hash":
        chosen = _hashes(corpus, seed) < np.uint64(min(int(test * 2.0**64), 2**64 - 1))
    elif how == "labels":
        chosen = _stratified(corpus.targets, test, seed)
    else:
        chosen = np.zeros(len(corpus), bool)
        order = np.random.default_rng(seed).permutation(len(corpus))
        chosen[order[: round(test * len(corpus))]] = True
    if min(test, 1 - test) * len(corpus) > 10 and chosen.all() | ~chosen.any():
        raise ParameterError(
            f"all {len(corpus)} texts would come to one part; a part of an earlier split needs "
            "another seed to be split again"
        )
    return corpus[np.flatnonzero(~chosen)], corpus[np.flatnonzero(chosen)]


def _hashes(corpus: Corpus, seed: int) -> np.ndarray:
    """64 bits of each text's (or else row of features') content."""
    salt = str(seed).encode()
    digests = []
    if corpus.texts is not None:
        for start in range(0, len(corpus), 65536):
            for text in corpus.texts[start : start + 65536].to_pylist():
                content = " ".join(text.casefold().split()).encode()
                digests.append(hashlib.blake2b(content, digest_size=8, key=salt).digest())
    else:
        features = csr_matrix(corpus.features)
        indices, data = features.indices.astype("<i4"), features.data.astype("<f4")
        for low, high in zip(features.indptr[:-1], features.indptr[1:], strict=True):
            content = indices[low:high].tobytes() + data[low:high].tobytes()
            digests.append(hashlib.blake2b(content, digest_size=8, key=salt).digest())
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _stratified(targets: csr_matrix, share: float, seed: int) -> np.ndarray:
    """Iterative stratification with labels from rare to frequent: each shares out those of its
    texts that no rarer label has, so as to reach its share given what rarer labels did."""
    random = np.random.default_rng(seed)
    n, width = targets.shape
    shuffled = random.permutation(n)  # which texts of a label go where must not follow their order
    by_label = targets[shuffled].tocsc()
    counts = np.diff(by_label.indptr)
    rounding = random.random(width)  # so that labels of few texts have their share on average
    chosen, placed = np.zeros(n, bool), np.zeros(n, bool)
    for label in np.argsort(counts, kind="stable")[np.count_nonzero(counts == 0) :]:
        rows = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]
        free = rows[~placed[rows]]
        if not len(free):
            continue
        wanted = int(share * len(rows) + rounding[label])
        if len(rows) > 1:
            wanted = min(wanted, len(rows) - 1)
        chosen[free[: max(0, wanted - np.count_nonzero(chosen[rows]))]] = True
        placed[free] = True
    bare = np.flatnonzero(~placed)
    chosen[bare[: int(share * len(bare) + random.random())]] = True
    # A label whose texts all went by rarer labels may have none left to learn from.
    training = np.bincount(
        np.repeat(np.arange(width), counts)[~chosen[by_label.indices]], minlength=width
    )
    for label in np.flatnonzero((training == 0) & (counts > 1)):
        rows = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]
        if chosen[rows].all():  # an earlier label may have brought one back
            chosen[rows[0]] = False
    result = np.zeros(n, bool)
    result[shuffled[chosen]] = True
    return result
