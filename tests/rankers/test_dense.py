"""Labels by dense weights: what is left of neural systems without torch."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.special import expit

from megalabel.base import clone, integer, value
from megalabel.data import LabelSet, Ranking
from megalabel.errors import ParameterError, ShapeError
from megalabel.labels import LabelTree
from megalabel.rankers import AttentionTree, DenseTree, NearestLabels, dense
from megalabel.rankers.attention import OnnxStates, States

RANDOM = np.random.default_rng(0)
LABELS = LabelSet([f"l{i}" for i in range(12)])


def drawn(*shape, kind=np.float16):
    return RANDOM.normal(size=shape).astype(kind)


TREE = LabelTree.from_chain(
    [
        csr_matrix(np.ones((3, 1))),
        csr_matrix(np.repeat(np.eye(3), [2, 1, 3], axis=0)),
        csr_matrix(np.repeat(np.eye(6), [1, 2, 3, 1, 4, 1], axis=0)),
    ]
)
LEVELS = [(drawn(n, 4), drawn(n, kind=np.float32)) for n in (3, 6, 12)]
X = drawn(9, 12, kind=np.float32)


def made(beams=(3, 6), prediction="weighted"):
    model = DenseTree(beams=list(beams), prediction=prediction)
    model.restore(
        {
            "tree_": TREE,
            "weights_": [weights for weights, _ in LEVELS],
            "biases_": [bias for _, bias in LEVELS],
            "labels_": LABELS,
        }
    )
    return model


def twin(prediction):
    """The probabilities of all labels, where the beam leaves nothing out."""
    each = [
        expit(X[:, 4 * t : 4 * t + 4].astype(np.float64) @ weights.astype(np.float64).T + bias)
        for t, (weights, bias) in enumerate(LEVELS)
    ]
    leaves = each[2]
    if prediction == "weighted":
        parents = np.repeat(np.arange(6), np.diff(TREE.levels_[2]))
        leaves = leaves * each[1][:, parents]
    found = np.empty_like(leaves)
    found[:, TREE.label_of_leaf_] = leaves
    return found


@pytest.mark.parametrize("prediction", ["weighted", "level"])
def test_down_a_tree_as_label_by_label(prediction, monkeypatch):
    monkeypatch.setattr(dense, "_ROWS", 4)
    monkeypatch.setattr(dense, "_SCORES", 20)
    monkeypatch.setattr(dense, "_WEIGHTS", 20)
    ranking = made(prediction=prediction).rank(X, 12)
    np.testing.assert_allclose(ranking.to_csr().toarray(), twin(prediction), atol=1e-6)
    assert (np.diff(ranking.scores, axis=1) <= 0).all()


def test_a_narrow_beam_leaves_places_empty():
    ranking = made(beams=(1, 1)).rank(csr_matrix(X), 5)
    assert 0 < ranking.present.sum() < ranking.ids.size
    expected = np.append(twin("weighted"), np.full((9, 1), -np.inf), axis=1)
    of_ids = np.take_along_axis(expected, ranking.ids, axis=1)
    np.testing.assert_allclose(ranking.scores, of_ids, atol=1e-6)


def test_without_rows():
    assert made().rank(X[:0], 3).ids.shape == (0, 3)


@given(st.lists(st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 2.0]), min_size=1), st.integers(1, 9))
def test_ties_go_to_the_lower_number(scores, k):
    ids = np.random.default_rng(0).permutation(len(scores)) - 1
    found, at = dense.best(np.array([scores]), ids[None], k)
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], ids[i]))[:k]
    assert at[0].tolist() == ids[order].tolist()
    assert found[0].tolist() == [scores[i] for i in order]


def nearest():
    model = NearestLabels(shortlist=4, beta=0.25)
    centroids = drawn(12, 4)
    centroids[3] = 0
    model.restore(
        {
            "centroids_": centroids,
            "weights_": LEVELS[2][0],
            "bias_": LEVELS[2][1],
            "block_": {
                "weight": drawn(4, 4, kind=np.float32),
                "bias": drawn(4, kind=np.float32),
                "gates": np.ones(2, np.float32),
            },
            "label_counts_": np.array([0, *range(1, 12)]),
            "labels_": LABELS,
        }
    )
    return model


def test_the_nearest_labels_as_one_by_one():
    model, rows = nearest(), X[:, :4].astype(np.float64)
    ranking = model.rank(X[:, :4], 6)
    assert ranking.present.all()  # the most frequent come after the shortlist
    assert not (ranking.ids == 0).any()  # no text had it, and it is the rarest
    centroids, weights = (a.astype(np.float64) for a in (model.centroids_, model.weights_))
    block = model.block_
    for row, ids, scores in zip(rows, ranking.ids, ranking.scores, strict=True):
        cosines = centroids @ (row / np.linalg.norm(row))
        cosines[3] = -2
        near = sorted(np.argsort(-cosines)[:4])
        seen = row + np.maximum(block["weight"] @ row + block["bias"], 0)
        sure = 0.25 * expit(weights @ seen + model.bias_) + 0.75 * expit(cosines)
        expected = {label: sure[label] for label in near if label}
        found = dict(zip(ids.tolist(), scores.tolist(), strict=True))
        assert {k: v for k, v in found.items() if v > 0} == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_ties_and_what_is_not_there_in_the_best_of_many(kind):
    scores = np.round(drawn(7, 90, kind=np.float32))
    scores[0] = 1
    scores[1] = -np.inf
    scores[2, 5:] = np.nan
    ids = np.argsort(drawn(7, 90, kind=np.float32), axis=1).astype(kind)
    ids[:, 3] = -1
    scores[:, 3] = -np.inf
    every = zip(scores, ids, *dense.best(scores, ids, 8), strict=True)
    for row, own, found, at in every:
        if np.isnan(row).any():
            continue
        order = sorted(range(90), key=lambda i: (-row[i], own[i]))[:8]
        np.testing.assert_array_equal(found, row[order])
        np.testing.assert_array_equal(at, own[order])
    assert dense.best(scores, ids, 8)[0].shape == (7, 8)


def test_a_device_makes_the_products_where_there_is_one(monkeypatch):
    class Device:
        def best_products(self, X, weights, bias, k):
            return np.ones((len(X), k), np.float32), np.tile(np.arange(k), (len(X), 1))

        def shortlisted(self, X, weights, bias, shortlist):
            return np.zeros(shortlist.shape, np.float32)

    monkeypatch.setattr(dense, "accelerator", Device)
    scores = made(beams=(1, 1)).rank(X, 1).scores
    np.testing.assert_allclose(scores, 0.25)


@pytest.mark.parametrize("model", [made(), nearest()], ids=["tree", "nearest"])
def test_they_cannot_be_trained(model):
    with pytest.raises(ParameterError, match="part of a trained tagger"):
        clone(model).fit(X, csr_matrix(np.ones((9, 12))))
    with pytest.raises(ShapeError, match="columns"):
        model.rank(X[:, :3], 1)


@pytest.mark.parametrize(
    ("model", "change"),
    [
        (made(), {"tree_": None}),
        (made(), {"labels_": LabelSet(["a"])}),
        (made(), {"labels_": None}),
        (made(), {"weights_": [LEVELS[0][0]]}),
        (made(), {"weights_": [drawn(2, 4), *(weights for weights, _ in LEVELS[1:])]}),
        (made(), {"biases_": [np.zeros(n) for n in (3, 6, 12)]}),
        (nearest(), {"labels_": LabelSet(["a"])}),
        (nearest(), {"weights_": None}),
        (nearest(), {"centroids_": drawn(12, 5)}),
        (nearest(), {"block_": {}}),
        (nearest(), {"block_": nearest().block_ | {"weight": np.zeros((4, 3), np.float32)}}),
    ],
)
def test_what_does_not_fit_is_refused(model, change):
    fresh = clone(model)
    with pytest.raises(ValueError, match=r"labels|must"):
        fresh.restore(model.learned() | change)


def test_beams_for_all_levels():
    with pytest.raises(ValueError, match="1 beams for 3 levels"):
        made(beams=[2])


class Waves(States):
    """States that are functions of the token's number."""

    LEARNED: ClassVar = {"width_": value(integer(1))}

    def __init__(self):
        self.width_ = 2

    @property
    def width(self):
        return self.width_

    def of(self, tokens, mask):
        return np.stack([np.sin(tokens), np.cos(tokens)], axis=2).astype(np.float32)


@pytest.mark.parametrize(
    "change",
    [
        {"queries_": [drawn(3, 2)]},
        {"layers_": [[drawn(1, 2, kind=np.float32)]]},
        {"layers_": [[drawn(1, 3, kind=np.float32), drawn(1, kind=np.float32)]]},
        {"states_": []},
        {"states_": [np.zeros(8, np.uint8)]},
        {"queries_": [drawn(2, 3)]},
        {"pad_": "0"},
        {"label_counts_": np.zeros(3, np.int64)},
        {"labels_": LabelSet(["a"])},
    ],
)
def test_damaged_attention_is_refused(change):
    sound = {
        "tree_": LabelTree.from_parents(np.array([-1, -1])),
        "states_": [Waves()],
        "queries_": [drawn(2, 2)],
        "layers_": [[drawn(1, 2, kind=np.float32), drawn(1, kind=np.float32)]],
        "pad_": 0,
        "label_counts_": np.ones(2, np.int64),
        "labels_": LabelSet(["a", "b"]),
    }
    with pytest.raises(ValueError, match=r"AttentionTree|labels"):
        AttentionTree().restore(sound | change)


def test_damaged_graphs_are_refused():
    pytest.importorskip("onnxruntime", reason="the extra onnx")
    with pytest.raises(ValueError, match="OnnxStates"):
        OnnxStates().restore({"graph_": np.zeros(8, np.uint8)})


def test_attention_of_some_labels():
    layers = [drawn(1, 2, kind=np.float32), drawn(1, kind=np.float32)]
    model = AttentionTree()
    model.restore(
        {
            "tree_": LabelTree.from_parents(np.array([-1, -1, -1, 0, 0, 1, 1, 2])),
            "states_": [Waves(), Waves()],
            "queries_": [drawn(3, 2), drawn(8, 2)],
            "layers_": [layers, layers],
            "pad_": 0,
            "label_counts_": np.arange(1, 9),
            "labels_": LabelSet(list("abcdefgh")),
        }
    )
    tokens = np.array([[1, 5, 2], [7, -1, -1]], np.int32)
    chosen = np.array([6, 0, 3])
    taken = model.take_labels(chosen)
    assert taken.label_counts_.tolist() == [7, 1, 4]
    expected = model.rank(tokens, 8).to_csr().toarray()[:, chosen]
    np.testing.assert_allclose(taken.rank(tokens, 3).to_csr().toarray(), expected, rtol=1e-6)


def test_labels_that_fill_a_row_stand_behind_those_found_below_zero():
    labels = LabelSet(["a", "b", "c"])
    short = Ranking([[2, 3, 3], [0, 3, 3]], [[-1.5, *[-np.inf] * 2], [0.5, *[-np.inf] * 2]], labels)
    found = dense.filled(short, np.array([1, 4, 2]))
    assert found.ids.tolist() == [[2, 1, 0], [0, 1, 2]]
    assert found.scores.tolist() == [[-1.5] * 3, [0.5, 0, 0]]
