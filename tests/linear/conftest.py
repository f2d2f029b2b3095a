"""A real corpus for the linear classifiers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import megalabel


@pytest.fixture(scope="session")
def eurlex(shared_data):
    """Fits a classifier on eurlex-4k, or a part of it, and gives P@1, P@3 and P@5 in percent."""
    if not (shared_data / "eurlex-4k").is_dir():
        pytest.skip("eurlex-4k is not among the real corpora")
    corpora = [megalabel.read(shared_data / "eurlex-4k" / f"{s}.txt.gz") for s in ("train", "test")]

    def unit(X):
        lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)))
        return csr_matrix(X.multiply(1 / np.maximum(lengths, 1e-12)), dtype=np.float32)

    (X, Y), (Z, truth) = ((unit(c.features), c.targets) for c in corpora)

    def precision(classifier, rows=None, labels=None):
        frequent = np.argsort(-np.asarray(Y[:rows].sum(axis=0)).ravel(), kind="stable")[:labels]
        hits = truth[:, frequent].toarray() > 0
        ranking = classifier.fit(X[:rows], Y[:rows][:, frequent]).rank(Z, k=5)
        found = np.take_along_axis(hits, ranking.ids.astype(np.int64), axis=1)
        return np.array([100 * found[:, :k].mean() for k in (1, 3, 5)])

    return precision
