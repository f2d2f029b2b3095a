"""Probabilities by score, rank and frequency together."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.calibration import Isotonic, Joint, create
from megalabel.calibration.joint import STEPS
from megalabel.data import LabelSet, Ranking
from megalabel.errors import ParameterError, ShapeError

LABELS = 40
COUNTS = np.repeat([1, 10, 100, 1000], 10)


def chance_of(ids, scores):
    """What a joint map must find out: rare labels and low ranks are less likely."""
    ranks = np.arange(1, ids.shape[1] + 1)
    margins = 6 * scores - 4 + 0.8 * np.log10(COUNTS)[ids] - 0.9 * np.log(ranks)
    return 1 / (1 + np.exp(-margins))


def case(n=3000, k=12, seed=0):
    random = np.random.default_rng(seed)
    ids = np.argsort(random.random((n, LABELS)), axis=1)[:, :k].astype(np.int32)
    scores = np.sort(random.random((n, k)), axis=1)[:, ::-1].astype(np.float32)
    chance = chance_of(ids, scores)
    hit = random.random((n, k)) < chance
    truth = csr_matrix((np.ones(hit.sum()), (np.nonzero(hit)[0], ids[hit])), shape=(n, LABELS))
    return Ranking(ids, scores, LabelSet.numbered(LABELS)), truth, chance


@pytest.fixture(scope="module")
def fitted():
    ranking, truth, _ = case()
    return Joint(k=12).fit(ranking, truth, label_counts=COUNTS)


def test_finds_what_scores_ranks_and_frequencies_say(fitted):
    ranking, truth, _ = case()
    new, _, chance = case(seed=1)
    raw = fitted._arranged(new, fitted._levels_of(new))  # before the order is kept
    falling = _native.falling_rows(chance.astype(np.float32), 10)
    pooled = Isotonic(k=12).fit(ranking, truth)
    error = np.abs(fitted.apply(new).scores - falling).mean()
    assert error < 0.02
    assert error < np.abs(pooled.apply(new).scores - falling).mean() / 4
    assert np.abs(raw.scores - falling).mean() < 0.02


def test_is_that_of_numpy(fitted):
    """Interpolation, means and the last map in float64."""
    new, _, _ = case(n=50, seed=2)
    heights = np.interp(new.scores.astype(float), fitted.knots_, fitted.heights_)
    ranks, counts = np.log(np.arange(1, 13)), fitted.levels_[new.ids] / STEPS

    def at(grid, row, column):
        by_count = [np.interp(counts[row, column], fitted.frequencies_, line) for line in grid]
        return np.interp(ranks[column], fitted.ranks_, by_count)

    expected = np.empty(new.ids.shape)
    for row, column in np.ndindex(*new.ids.shape):
        margin = at(fitted.constants_, row, column)
        margin += at(fitted.slopes_, row, column) * heights[row, column]
        expected[row, column] = 1 / (1 + np.exp(-margin))
    plain = _native.joint_apply(
        scores=new.scores, levels=fitted.levels_[new.ids], **fitted._model()
    )
    np.testing.assert_allclose(plain, expected, rtol=2e-6)
    for row in expected:
        _share_means(row[:10])
    expected = np.minimum.accumulate(expected, axis=1)
    expected = np.interp(expected, fitted.thresholds_, fitted.values_)
    np.testing.assert_allclose(fitted.apply(new).scores, expected, atol=1e-4)  # steep in places


def _share_means(row):
    """Pool adjacent violators of a row that should fall, in place."""
    blocks = []
    for value in row:
        blocks.append([value, 1])
        while len(blocks) > 1 and blocks[-1][0] > blocks[-2][0]:
            (a, m), (b, n) = blocks.pop(), blocks.pop()
            blocks.append([(a * m + b * n) / (m + n), m + n])
    row[:] = np.concatenate([[value] * size for value, size in blocks])


def test_labels_keep_their_order_unless_asked_for(fitted):
    ranking, truth, _ = case()
    out = fitted.apply(ranking)
    np.testing.assert_array_equal(out.ids, ranking.ids)
    assert (np.diff(out.scores, axis=1) <= 0).all()
    anew = Joint(k=12, rerank=True).fit(ranking, truth, label_counts=COUNTS).apply(ranking)
    assert (np.diff(anew.scores, axis=1) <= 0).all()
    assert (anew.ids != ranking.ids).any()
    np.testing.assert_array_equal(np.sort(anew.ids, axis=1), np.sort(ranking.ids, axis=1))


def test_rises_with_the_score(fitted):
    scores = np.linspace(0, 1, 200, dtype=np.float32)[:, None]
    for label in (0, 15, 35):
        one = Ranking(np.full((200, 1), label), scores, LabelSet.numbered(LABELS))
        raw = fitted._arranged(one, fitted._levels_of(one)).scores.ravel()
        assert (np.diff(raw) > 0).all()
        assert (np.diff(fitted.apply(one).scores.ravel()) >= 0).all()


def test_further_labels_change_nothing_and_are_never_likelier(fitted):
    new, _, _ = case(n=200, k=30, seed=3)
    whole = fitted.apply(new).scores
    np.testing.assert_array_equal(
        fitted.apply(new.top(fitted.shortlist(3))).top(3).scores, whole[:, :3]
    )
    assert (whole[:, 12:] <= whole[:, 11:12]).all()


def test_rows_among_those_counted():
    """Labels of one text are ranked for texts that do not carry them: new texts may."""
    ranking, truth, _ = case()
    counts = np.asarray((truth > 0).sum(axis=0)).ravel()
    inside = Joint(k=12).fit(ranking, truth, label_counts=counts, counted=True)
    outside = Joint(k=12).fit(ranking, truth, label_counts=counts)
    np.testing.assert_array_equal(inside.levels_, outside.levels_)
    once = np.ones(LABELS, int)  # by themselves, no label of a hit was ever seen
    unseen = Joint(k=12).fit(ranking, truth, label_counts=once, counted=True)
    hits, never = unseen.for_counts(once).apply(ranking), unseen.for_counts(0 * once).apply(ranking)
    assert hits.scores.mean() < never.scores.mean()


def test_for_a_classifier_of_other_counts(fitted):
    ranking, _, _ = case(n=100, seed=4)
    other = fitted.for_counts(np.full(LABELS, 1000))
    assert other.apply(ranking).scores.mean() > 1.2 * fitted.apply(ranking).scores.mean()
    np.testing.assert_array_equal(fitted.levels_, fitted.for_counts(COUNTS).levels_)


def test_weights_are_numbers_of_rows():
    ranking, truth, _ = case(n=400)
    twice = np.repeat(np.arange(400), np.where(np.arange(400) < 100, 2, 1))
    weights = np.where(np.arange(400) < 100, 2, 1)
    several = Joint(k=12).fit(ranking[twice], truth[twice], label_counts=COUNTS)
    weighted = Joint(k=12).fit(ranking, truth, label_counts=COUNTS, weights=weights)
    new, _, _ = case(n=100, seed=5)
    apart = np.abs(weighted.apply(new).scores - several.apply(new).scores)
    assert apart.mean() < 0.005  # knots are quantiles of rows, whatever they count


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_nothing_right_or_all(share):
    ranking, _, _ = case(n=50)
    truth = csr_matrix(np.full((50, LABELS), share))
    out = Joint(k=12).fit(ranking, truth, label_counts=COUNTS).apply(ranking).scores
    np.testing.assert_allclose(out, share, atol=2e-3)
    assert ((out > 0) & (out < 1)).all()


def test_few_rows_one_score_and_infinite_ones():
    labels = LabelSet.numbered(3)
    truth = csr_matrix([[1, 0, 0], [0, 0, 0]])
    for scores in ([[0.5], [0.5]], [[np.inf], [-3e38]], [[-np.inf], [-np.inf]]):
        ranking = Ranking([[0], [1]], np.array(scores, np.float32), labels)
        out = Joint().fit(ranking, truth, label_counts=np.array([4, 4, 0])).apply(ranking).scores
        assert np.isfinite(out).all()
        assert ((out >= 0) & (out <= 1)).all()


def test_no_pairs_leave_scores_within_bounds(caplog):
    ranking, truth, _ = case(n=4)
    empty = Joint(k=12).fit(ranking[:0], truth[:0], label_counts=COUNTS)
    assert "no ranked label" in caplog.text
    np.testing.assert_array_equal(empty.apply(ranking).scores, ranking.scores)
    nothing = Joint(k=12).fit(ranking, truth, weights=np.zeros(4))
    np.testing.assert_array_equal(nothing.apply(ranking).scores, ranking.scores)


def test_padding_and_labels_that_came_later(fitted):
    more = LabelSet.numbered(LABELS + 2)
    ranking = Ranking([[0, LABELS + 1], [3, LABELS + 2]], [[0.9, 0.8], [0.7, -np.inf]], more)
    out = fitted.apply(ranking)
    assert out.scores[1, 1] == -np.inf
    assert 0 <= out.scores[0, 1] <= out.scores[0, 0] <= 1


def test_labels_can_be_taken(fitted):
    some = np.array([5, 25, 30])
    np.testing.assert_array_equal(fitted.take_labels(some).levels_, fitted.levels_[some])


def test_refuses_what_means_nothing():
    ranking, truth, _ = case(n=10)
    with pytest.raises(ShapeError, match="40 labels"):
        Joint().fit(ranking, truth, label_counts=np.ones(7))
    with pytest.raises(ParameterError, match="leave `by` out"):
        create("joint", by="rank")
    with pytest.raises(ParameterError, match="k of Joint"):
        Joint(k=0).fit(ranking, truth)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("knots_", [0.0, 0.0]),
        ("heights_", [1.0, 0.0]),
        ("slopes_", -1.0),
        ("constants_", np.nan),
        ("values_", [0.5, 2.0]),
    ],
)
def test_damaged_maps_are_refused(fitted, name, value):
    learned = fitted.learned()
    kind = learned[name].dtype
    if name in ("slopes_", "constants_"):
        learned[name] = np.full_like(learned[name], value)
    else:
        same = {"knots_": "heights_", "heights_": "knots_", "values_": "thresholds_"}[name]
        learned[same] = np.arange(2).astype(learned[same].dtype)
        learned[name] = np.array(value, kind)
    with pytest.raises(ValueError, match=r"Joint|Isotonic"):
        Joint(k=12).restore(learned)
