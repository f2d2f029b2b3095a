"""Labels that look at a few features: the native search and training step against their twins."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.native.fan_in_twin import (
    ALL,
    NO_FLOATS,
    NO_WEIGHTS,
    Layer,
    Moves,
    Truth,
    Twin,
    bits_of,
    numbers_of,
)

import megalabel
from megalabel import _native

SIZES = st.sampled_from([1, 2, 3, 16, 24, 32, 48, 64])
KINDS = st.sampled_from(["float32", "float16", "bfloat16", "int8"])
SHAPES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 999),
        "groups": st.integers(1, 9),
        "size": SIZES,
        "fan_in": st.integers(1, 20),
        "width": st.integers(1, 40),
        "padding": st.integers(0, 5),
    }
)
FEW = settings(max_examples=40, deadline=None)


def rows_of(seed: int, count: int, width: int, *, whole: bool = False) -> np.ndarray:
    random = np.random.default_rng(seed)
    if whole:
        return random.integers(-1, 2, (count, width)).astype(np.float32)
    return random.normal(size=(count, width)).astype(np.float32)


@pytest.fixture
def threads():
    before = megalabel.get_threads()
    yield megalabel.set_threads
    megalabel.set_threads(before)


# ------------------------------------------------------------ search


def twin_best(scores: np.ndarray, k: int, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best by exact scores, ties to the lower label; -inf: may not be found."""
    ids = np.full((len(scores), k), labels, np.int32)
    values = np.full((len(scores), k), -np.inf)
    for row, line in enumerate(scores):
        order = [i for i in np.lexsort((np.arange(labels), -line)) if line[i] > -np.inf][:k]
        ids[row, : len(order)], values[row, : len(order)] = order, line[order]
    return ids, values


@FEW
@given(SHAPES, KINDS, st.integers(0, 70), st.integers(1, 90))
def test_the_best_scores_of_all(shape, kind, rows, k):
    layer = Layer.drawn(**shape, kind=kind)
    X = rows_of(shape["seed"], rows, layer.width)
    ids, scores = layer.best(X, k)
    wanted = layer.scores(X)
    _, best = twin_best(wanted, k, layer.label_count)
    scale = 1 + np.abs(wanted).max(initial=0)
    np.testing.assert_allclose(scores, best, rtol=1e-5, atol=1e-5 * scale)
    there = ids < layer.label_count
    assert (there == (scores > -np.inf)).all()
    of_ids = np.take_along_axis(wanted, np.where(there, ids, 0), axis=1)[there]
    np.testing.assert_allclose(scores[there], of_ids, rtol=1e-5, atol=1e-5 * scale)


@FEW
@given(SHAPES, st.sampled_from([1, 5, 33]), st.integers(1, 200), st.booleans())
def test_ties_go_to_the_lower_label(shape, rows, k, some):
    layer = Layer.drawn(**shape, whole=True)
    X = rows_of(shape["seed"], rows, layer.width, whole=True)
    allowed = ALL
    scores = layer.scores(X)
    if some:
        allowed = (np.random.default_rng(k).random(layer.label_count) < 0.4).astype(np.uint8)
        scores = np.where(allowed, scores, -np.inf)
    ids, found = layer.best(X, k, allowed)
    best = twin_best(scores, k, layer.label_count)
    np.testing.assert_array_equal(ids, best[0])
    np.testing.assert_array_equal(found, best[1])


@pytest.mark.parametrize("size", [1, 3, 16, 48])
@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_a_row_does_not_depend_on_others_nor_on_threads(size, kind, threads):
    layer = Layer.drawn(3, groups=40, size=size, fan_in=9, width=30, kind=kind)
    X = rows_of(0, 150, 30)
    ids, scores = layer.best(X, 7)
    for count in (1, 2, 5, 33, 140):
        threads(1 + count % 3)
        some = layer.best(X[:count].copy(), 7)
        np.testing.assert_array_equal(some[0], ids[:count])
        np.testing.assert_array_equal(some[1], scores[:count])


def test_scores_that_are_no_numbers_are_not_found():
    layer = Layer.drawn(1, groups=2, size=16, fan_in=3, width=4)
    X = np.full((2, 4), np.nan, np.float32)
    assert (layer.best(X, 3)[0] == layer.label_count).all()


@pytest.mark.parametrize("width", [65_536, 65_537])
def test_the_last_feature_of_a_wide_row(width):
    kind = np.uint16 if width == 65_536 else np.uint32
    layer = Layer.drawn(1, groups=1, size=1, fan_in=1, width=width)
    layer.indices, layer.bias = np.array([[width - 1]], kind), NO_FLOATS
    X = np.zeros((1, width), np.float32)
    X[0, -1] = 2
    assert layer.best(X, 1)[1][0, 0] == 2 * layer.weights[0, 0, 0]


# ------------------------------------------------------------ arrays that no part makes


def broken(**changes) -> Layer:
    layer = Layer.drawn(1, groups=2, size=16, fan_in=3, width=4)
    for name, value in changes.items():
        setattr(layer, name, value)
    return layer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indices": np.full((2, 3), 4, np.uint16)}, "looks at feature 4 of 4"),
        ({"indices": np.zeros((2, 2), np.uint16)}, "2 groups by 2 features, but weights of 2 by 3"),
        ({"labels": np.full(32, 40, np.int32)}, "names label 40 of 32"),
        ({"labels": np.zeros(3, np.int32)}, "labels are 3 for 2 groups of 16"),
        ({"bias": np.zeros(3, np.float32)}, "biases are 3 for 2 groups of 16"),
        ({"scales": np.ones(3, np.float32)}, "scales are 3 for 2 groups of 16"),
        ({"labels": np.zeros(0, np.int32)}, "has no labels"),
        ({"weights": np.zeros((2, 3, 0), np.float32)}, "biases are 32 for 2 groups of 0"),
    ],
)
@pytest.mark.parametrize("rows", [1, 20])
def test_arrays_that_do_not_fit_are_refused(changes, message, rows):
    with pytest.raises(ValueError, match=message):
        broken(**changes).best(np.ones((rows, 4), np.float32), 2)


def test_rows_and_marks_that_do_not_fit_are_refused():
    layer = broken()
    with pytest.raises(ValueError, match="rows have 5 features, but a layer sees 4"):
        layer.best(np.ones((1, 5), np.float32), 2)
    with pytest.raises(ValueError, match="allowed are 3 of 32 labels"):
        layer.best(np.ones((1, 4), np.float32), 2, np.ones(3, np.uint8))
    with pytest.raises(ValueError, match="k must be at least 1"):
        layer.best(np.ones((1, 4), np.float32), 0)


# ------------------------------------------------------------ training


class Trained:
    """A layer that the native core trains."""

    def __init__(self, layer: Layer, moves: Moves) -> None:
        self.layer, self.moves, self.steps = layer, moves, 0
        self.weights, self.bias = layer.weights.copy(), layer.bias.copy()
        kept = moves.momentum > 0 or moves.method != "sgd"
        by_label = len(layer.labels) if moves.method == "label_adam" else 0
        self.squares = np.zeros(by_label, np.float32)
        none = NO_WEIGHTS.astype(self.weights.dtype)
        self.first = np.zeros_like(self.weights) if kept else none
        self.second = np.zeros_like(self.weights) if moves.method == "adam" else none

    def step(self, X, truth, form="logistic", number=0.0, *, update=True, valued=True):
        gradient = np.empty_like(X)
        value = _native.fan_in_step(
            layer=_native.FanInTraining(
                indices=self.layer.indices,
                weights=self.weights,
                first=self.first,
                second=self.second,
                squares=self.squares,
                bias=self.bias,
                labels=self.layer.labels,
                places=self.layer.places,
            ),
            rows=X,
            truth=truth if isinstance(truth, _native.FanInTruth) else truth.native(),
            form=_native.FanInForm[form],
            number=number,
            optimiser=self.moves.native(self.steps),
            gradient=gradient,
            update=update,
            valued=valued,
        )
        self.steps += 1
        return value, gradient


def assert_close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * (1 + np.abs(wanted).max()))


@FEW
@given(
    SHAPES,
    st.integers(1, 70),
    st.sampled_from(["logistic", "squared_hinge", "focal"]),
    st.sampled_from(
        [
            Moves(),
            Moves(momentum=0.9),
            Moves(decay=0.1),
            Moves("adam", decay=0.1),
            Moves("label_adam", decay=0.1),
        ]
    ),
    st.booleans(),
)
def test_steps_as_in_float64(shape, rows, form, moves, weighted):
    layer = Layer.drawn(**shape)
    X = rows_of(shape["seed"], rows, layer.width)
    # within 0.1 / rows no sum of gradients leaves the range in which both twins agree
    moves = Moves(**vars(moves) | {"rate": 0.1 / rows if moves.method == "sgd" else 0.01})
    trained, twin = Trained(layer, moves), Twin(layer, moves)
    for step in range(2):
        truth = Truth.drawn(step, rows, layer.label_count, weighted=weighted)
        value, gradient = trained.step(X, truth, form, 2.0)
        wanted = twin.step(X, truth, form, 2.0)
        assert_close(value, wanted[0])
        assert_close(gradient, wanted[1])
    if moves.method == "sgd":
        assert_close(trained.weights, twin.weights)
    else:  # where a gradient is close to zero, its sign decides
        assert np.abs(trained.weights - twin.weights).max() <= 0.05
        assert np.median(np.abs(trained.weights - twin.weights)) < 1e-5
    assert_close(trained.bias, twin.bias)
    padding = (layer.labels < 0).reshape(len(layer.indices), -1)
    kept = trained.weights.swapaxes(1, 2)[padding]
    if not moves.decay:
        np.testing.assert_array_equal(kept, layer.weights.swapaxes(1, 2)[padding])


@pytest.mark.parametrize("size", [1, 3, 32])
@pytest.mark.parametrize("form", ["logistic", "squared_hinge"])
def test_threads_change_nothing(size, form, threads):
    layer = Layer.drawn(3, groups=4000 // size, size=size, fan_in=100, width=50)
    X = rows_of(0, 130, 50)
    truth = Truth.drawn(0, 130, layer.label_count)
    found = []
    for count in (1, 2, 5):
        threads(count)
        trained = Trained(layer, Moves("adam"))
        value, gradient = trained.step(X, truth, form)
        found.append((np.array(value), gradient, trained.weights, trained.bias, trained.second))
    for one, other in pairwise(found):
        assert all((a == b).all() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("size", [1, 32])
def test_labels_and_rows_that_are_right_change_nothing(size):
    layer = Layer.drawn(3, groups=64 // size, size=size, fan_in=5, width=20)
    layer.bias[:] = -50
    layer.bias[7] = 0
    X = rows_of(0, 40, 20)
    X[5:] = 0
    X[:5] *= 0.1
    trained = Trained(layer, Moves())
    nothing = Truth.drawn(0, 40, layer.label_count)
    nothing.applies[:] = False
    _, gradient = trained.step(X, nothing, "squared_hinge")
    twin = Twin(layer, Moves())
    _, wanted = twin.step(X, nothing, "squared_hinge", 0.0)
    assert_close(gradient, wanted)
    assert_close(trained.weights, twin.weights)
    changed = np.flatnonzero((trained.weights != layer.weights).any(axis=1).ravel())
    assert changed.tolist() == [7]


def test_without_an_update_nothing_moves():
    layer = Layer.drawn(3, groups=2, size=16, fan_in=5, width=20)
    trained, X, truth = Trained(layer, Moves()), rows_of(0, 9, 20), Truth.drawn(0, 9, 32)
    value, gradient = trained.step(X, truth, update=False)
    assert (trained.weights == layer.weights).all()
    assert (trained.bias == layer.bias).all()
    quick, same = trained.step(X, truth, valued=False)
    assert value > 0
    assert quick == 0
    np.testing.assert_array_equal(gradient, same)


def test_without_biases():
    layer = Layer.drawn(3, groups=2, size=16, fan_in=5, width=20)
    layer.bias = NO_FLOATS
    trained, twin = Trained(layer, Moves()), Twin(layer, Moves())
    X, truth = rows_of(0, 9, 20), Truth.drawn(0, 9, 32)
    assert_close(trained.step(X, truth)[1], twin.step(X, truth, "logistic", 0.0)[1])
    assert_close(trained.weights, twin.weights)


def softmax_step(layer, X, wanted, number, moves):
    """A step whose loss of a row is -sum t log softmax(number * scores)."""
    masses = wanted.sum(axis=1)
    own = _native.fan_in_normalisers(layer=layer.native(), rows=X, number=number)
    there = wanted > 0
    truth = _native.FanInTruth(
        starts=np.append(0, np.cumsum(there.sum(axis=1))).astype(np.int64),
        labels=np.nonzero(there)[1].astype(np.int32),
        positives=wanted[there],
        negatives=np.zeros(there.sum(), np.float32),
        weights=NO_FLOATS,
        weight=1.0,
        normalisers=own,
        masses=masses,
    )
    trained = Trained(layer, moves)
    return own, trained, trained.step(X, truth, "softmax", number)


@FEW
@given(SHAPES, st.integers(1, 70), st.sampled_from([1.0, 4.0]))
def test_a_softmax_over_labels(shape, rows, number):
    layer = Layer.drawn(**shape)
    X = rows_of(shape["seed"], rows, layer.width)
    truth = Truth.drawn(0, rows, layer.label_count)
    wanted = np.where(truth.applies, truth.positives, 0).astype(np.float32)
    own, trained, (value, gradient) = softmax_step(layer, X, wanted, number, Moves(rate=0.1))
    scores = number * layer.scores(X)
    exact = np.logaddexp.reduce(scores, axis=1)
    assert_close(own, exact)
    logits = scores - exact[:, None]
    assert_close(value, -(wanted * logits).sum())
    by_score = number * (wanted.sum(axis=1, keepdims=True) * np.exp(logits) - wanted)
    weights, _ = layer.dense()
    assert_close(gradient, by_score @ weights)
    by_place = np.where(layer.labels >= 0, by_score.sum(axis=0)[layer.labels], 0)
    assert_close(trained.bias, layer.bias - 0.1 * by_place)


def test_normalisers_do_not_depend_on_threads(threads):
    layer = Layer.drawn(3, groups=4000, size=1, fan_in=200, width=50)
    X, found = rows_of(0, 130, 50), []
    for count in (1, 3):
        threads(count)
        found.append(_native.fan_in_normalisers(layer=layer.native(), rows=X, number=1.0))
    np.testing.assert_array_equal(*found)
    with pytest.raises(ValueError, match="rows have 3 features, but a layer sees 50"):
        _native.fan_in_normalisers(layer=layer.native(), rows=X[:, :3].copy(), number=1.0)


# ------------------------------------------------------------ numbers of 16 bits


@pytest.mark.parametrize("method", ["sgd", "adam", "label_adam"])
@pytest.mark.parametrize("size", [1, 32])
def test_numbers_of_16_bits_are_neighbours_of_the_exact_ones(size, method):
    layer = Layer.drawn(3, groups=64 // size, size=size, fan_in=6, width=20, kind="bfloat16")
    X, truth = rows_of(0, 20, 20), Truth.drawn(0, 20, layer.label_count)
    moves = Moves(method, momentum=0.5)
    wide = Layer(**vars(layer) | {"weights": numbers_of(layer.weights)})
    exact, trained = Trained(wide, moves), Trained(layer, moves)
    np.testing.assert_array_equal(trained.step(X, truth)[1], exact.step(X, truth)[1])
    for name in ("weights", "first", "second"):
        found, wanted = getattr(trained, name), getattr(exact, name)
        if not found.size:
            continue
        below, above = bits_of(wanted), bits_of(wanted) + 1
        assert ((found == below) | (found == above)).all()
        assert 0.3 < (found == above)[numbers_of(below) != wanted].mean() < 0.7
    again = Trained(layer, moves)
    again.step(X, truth)
    assert (again.weights == trained.weights).all()
    other = Trained(layer, Moves(method, momentum=0.5, seed=1))
    other.step(X, truth)
    assert (other.weights != trained.weights).any()


def test_rounding_is_right_on_average():
    """1 + 1/512 lies a quarter of the way from 1 to its neighbour."""
    layer = Layer.drawn(1, groups=100, size=32, fan_in=20, width=1)
    layer.weights = np.full_like(layer.weights, 1 + 1 / 512)
    layer = Layer(**vars(layer) | {"weights": bits_of(np.full(layer.weights.shape, 1.0))})
    layer.bias = NO_FLOATS
    # a single row, of which the slope is 20 * 1 + 1 for a squared hinge: 2 * 21 * weight
    X = np.full((1, 1), 1.0, np.float32)
    truth = Truth.drawn(0, 1, 3200)
    truth.applies[:] = False
    trained = Trained(layer, Moves(rate=-1 / 512 / (2 * 21 * 0.5)))
    draws = []
    for _ in range(3):
        trained.weights[:] = layer.weights
        trained.step(X, truth, "squared_hinge")
        draws.append(numbers_of(trained.weights))
        assert set(np.unique(draws[-1])) == {1, 1 + 1 / 128}
        assert abs(draws[-1].mean() - (1 + 1 / 512)) < 4 * np.sqrt(3 / 16 / 64_000) / 128
    same = (draws[0] == draws[1]).mean()
    assert abs(same - (1 / 16 + 9 / 16)) < 0.01  # each step draws anew


# ------------------------------------------------------------ what is refused


def refused(message, layer=None, moves=None, **changes):
    layer = layer or Layer.drawn(1, groups=2, size=16, fan_in=3, width=4)
    trained = Trained(layer, moves or Moves())
    given = {
        "starts": np.array([0, 1], np.int64),
        "labels": np.array([3], np.int32),
        "positives": np.ones(1, np.float32),
        "negatives": np.zeros(1, np.float32),
        "weights": NO_FLOATS,
        "weight": 1.0,
        "normalisers": NO_FLOATS,
        "masses": NO_FLOATS,
    }
    truth = _native.FanInTruth(**given | {k: v for k, v in changes.items() if k in given})
    with pytest.raises(ValueError, match=message):
        trained.step(np.ones((1, 4), np.float32), truth, changes.get("form", "logistic"))
    np.testing.assert_array_equal(trained.weights, layer.weights)


def test_a_truth_that_does_not_fit_is_refused():
    refused("names label 32 of 32", labels=np.array([32], np.int32))
    refused("names label -1 of 32", labels=np.array([-1], np.int32))
    refused("row 0 of the truth lies outside", starts=np.array([0, 2], np.int64))
    refused("row 0 of the truth lies outside", starts=np.array([1, 0], np.int64))
    refused("row starts are 1, not 2", starts=np.array([0], np.int64))
    refused("positives are 2, not 1", positives=np.ones(2, np.float32))
    refused("negatives are 2, not 1", negatives=np.ones(2, np.float32))
    refused("weights of labels are 2, not 32", weights=np.ones(2, np.float32))
    refused("normalisers are 0, not 1", form="softmax")
    two = np.ones(2, np.float32)
    refused(
        "row 0 has a label twice",
        starts=np.array([0, 2], np.int64),
        labels=np.array([3, 3], np.int32),
        positives=two,
        negatives=two,
    )


def test_a_layer_that_does_not_fit_is_refused():
    layer = Layer.drawn(1, groups=2, size=16, fan_in=3, width=4)
    layer.indices[0, 2] = 9
    refused("looks at feature 9 of 4", layer)
    trained = Trained(Layer.drawn(1, groups=2, size=16, fan_in=3, width=4), Moves("adam"))
    trained.second = NO_WEIGHTS
    with pytest.raises(ValueError, match="adam keeps moments of each weight"):
        trained.step(np.ones((1, 4), np.float32), Truth.drawn(0, 1, 32))
    trained.moves = Moves("label_adam")
    with pytest.raises(ValueError, match="label_adam keeps a square of each place"):
        trained.step(np.ones((1, 4), np.float32), Truth.drawn(0, 1, 32))
    trained.moves = Moves("adam")
    trained.second = np.zeros((1, 3, 16), np.float32)
    with pytest.raises(ValueError, match="moments must be as many as weights"):
        trained.step(np.ones((1, 4), np.float32), Truth.drawn(0, 1, 32))
    trained.second = np.zeros((2, 3, 16), np.uint16)
    with pytest.raises(ValueError, match="moments must be of the type of their weights"):
        trained.step(np.ones((1, 4), np.float32), Truth.drawn(0, 1, 32))
