"""DualVectors: labels that join by what views give of their texts."""

from __future__ import annotations

import numpy as np
import pytest

from megalabel import LabelSet, store
from megalabel.errors import ParameterError, ShapeError
from megalabel.linear.blend import Blend
from megalabel.rankers import DualVectors

RANDOM = np.random.default_rng(3)
LABELS = LabelSet([f"label {i}" for i in range(30)])
NEW = LabelSet(["new", "newer"])
WIDTHS, OWN = [6, 4], [0.0, 1.0]
BLEND = Blend(vectors=0.4, neighbours=0.7, nearest=3, temperature=0.2, shift=-0.25)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def views(count: int) -> np.ndarray:
    """Rows of two views, each of length one."""
    parts = [unit(RANDOM.normal(size=(count, width))) for width in WIDTHS]
    return np.hstack(parts).astype(np.float32)


WEIGHTS, ROWS, USUAL, X = views(30).astype(np.float16), views(2), views(5), views(9)


def model(own=OWN) -> DualVectors:
    return DualVectors.of(LABELS, WEIGHTS, WIDTHS, own)


def twin(row: np.ndarray, own: list[float]) -> np.ndarray:
    """A label's row by its definition, in float64."""
    weights, usual = WEIGHTS.astype(np.float64), USUAL.astype(np.float64)
    at = {0: slice(0, 6), 1: slice(6, 10)}
    read = [view for view in at if own[view] < 1] or list(at)
    nearness = sum(weights[:, at[view]] @ row[at[view]] for view in read)
    near = np.argsort(-nearness)[: BLEND.nearest]
    shares = np.exp(nearness[near] / BLEND.temperature)
    made = []
    for view, share in enumerate(own):
        text, there = row[at[view]], weights[:, at[view]]
        length = np.linalg.norm(there, axis=1).mean()
        mine = length * BLEND.vectors * (text - usual[:, at[view]].mean(axis=0))
        mine += BLEND.neighbours * (shares @ there[near] / shares.sum())
        mine += (1 - BLEND.neighbours) * there.mean(axis=0)
        made.append((1 - share) * text + share * mine)
    return np.concatenate(made)


@pytest.mark.parametrize("own", [[0.0, 1.0], [0.0, 0.5], [1.0, 1.0], [0.0, 0.0]])
def test_rows_of_new_labels_are_those_of_the_definition(own):
    more = model(own).add_labels(NEW, ROWS, BLEND, usual=USUAL)
    made = more.weights_[0][30:].astype(np.float64)
    for row, found in zip(ROWS, made, strict=True):
        np.testing.assert_allclose(found, twin(row.astype(np.float64), own), atol=2e-3)
    np.testing.assert_array_equal(more.biases_[0][30:], np.float32(-0.25))


def test_texts_are_divided_as_those_of_labels_there_were():
    made = DualVectors.of(LABELS, WEIGHTS, WIDTHS, [0.0, 0.0], temperature=0.05)
    found = made.add_labels(NEW, ROWS, BLEND).weights_[0][30:]
    np.testing.assert_array_equal(found, (ROWS / np.float32(0.05)).astype(np.float16))


def test_scores_of_labels_there_do_not_move():
    before, after = model().rank(X, 30), model().add_labels(NEW, ROWS, BLEND).rank(X, 32)
    scores = after.to_csr().toarray()
    np.testing.assert_array_equal(before.to_csr().toarray(), scores[:, :30])
    assert (scores[:, 30:] > 0).all()


def test_labels_that_came_and_went_leave_no_trace():
    order = np.array([4, 0, 29, 7])
    for tagged in (model(), model().take_labels(order)):
        more = tagged.add_labels(NEW, ROWS, BLEND)
        back = more.take_labels(np.arange(len(tagged.labels_)))
        for one, other in ((tagged, back), (tagged.take_labels([1, 3]), back.take_labels([1, 3]))):
            np.testing.assert_array_equal(one.rank(X, 4).ids, other.rank(X, 4).ids)
            np.testing.assert_array_equal(one.rank(X, 4).scores, other.rank(X, 4).scores)


def test_a_label_of_which_nothing_is_known_is_hardly_ever_answered():
    more = model().add_labels(NEW, ROWS, BLEND, known=np.array([True, False]))
    np.testing.assert_allclose(more.weights_[0][31], WEIGHTS.mean(0, dtype=np.float32), atol=1e-3)
    assert (more.rank(WEIGHTS.astype(np.float32), 1).ids != 31).all()


def test_saved_and_loaded(tmp_path):
    more = model().add_labels(NEW, ROWS, BLEND)
    store.save(more, tmp_path / "model")
    again = store.load(tmp_path / "model", verify=True)
    np.testing.assert_array_equal(again.rank(X, 9).scores, more.rank(X, 9).scores)
    assert len(again.add_labels(LabelSet(["last"]), ROWS[:1], BLEND).labels_) == 33


def test_what_cannot_be_said_why():
    with pytest.raises(ParameterError, match="read by an encoder of their own, which is not kept"):
        model(None).add_labels(NEW, ROWS, BLEND)
    with pytest.raises(ShapeError):
        model().add_labels(NEW, ROWS[:, :9], BLEND)
    for learned, told in (
        ({"widths_": np.array([6, 5])}, "widths_ of DualVectors must add up to 10"),
        ({"own_": np.array([0, 2], np.float32)}, "own_ of DualVectors must be shares"),
        ({"own_": np.array([0], np.float32)}, "own_"),
    ):
        with pytest.raises(ValueError, match=told):
            DualVectors().restore(model().learned() | learned)
