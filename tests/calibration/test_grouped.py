"""A map for each group of labels."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel.calibration import Beta, ByFrequency, ByRank, Isotonic, Platt
from megalabel.data import LabelSet, Ranking
from megalabel.errors import ParameterError, ShapeError
from megalabel.metrics import evaluate

LABELS = 40
COUNTS = np.repeat([1, 10, 100, 1000], 10)


def case(n=3000, k=4, seed=0):
    """Scores that are right for frequent labels and far too high for rare ones."""
    random = np.random.default_rng(seed)
    ids = np.array([random.permutation(LABELS)[:k] for _ in range(n)], np.int32)
    scores = np.sort(random.random((n, k)), axis=1)[:, ::-1].astype(np.float32)
    chance = scores * np.log10(10 * COUNTS)[ids] / 4
    hit = random.random((n, k)) < chance
    truth = csr_matrix((np.ones(hit.sum()), (np.nonzero(hit)[0], ids[hit])), shape=(n, LABELS))
    return Ranking(ids, scores, LabelSet.numbered(LABELS)), truth, chance


@pytest.mark.parametrize("kind", [Isotonic, Platt, Beta])
def test_each_frequency_gets_its_own_map(kind):
    ranking, truth, chance = case()
    by = ByFrequency(kind(k=4), bins=4, rerank=True)
    by.fit(ranking, truth, label_counts=COUNTS)
    assert by.bins_.tolist() == np.repeat([0, 1, 2, 3], 10).tolist()
    new, new_truth, chance = case(seed=1)
    one = kind(k=4).fit(ranking, truth)

    def error(out):
        true = np.zeros((len(new), LABELS))
        np.put_along_axis(true, new.ids.astype(int), chance, axis=1)
        said = np.take_along_axis(true, out.ids.astype(int), axis=1)
        return np.abs(out.scores - said).mean()

    out = by.apply(new)
    assert error(out) < error(one.apply(new)) / 2
    assert (np.diff(out.scores, axis=1) <= 0).all()
    found, before = evaluate(out, new_truth, k=(1, 4)), evaluate(new, new_truth, k=(1, 4))
    assert found["P@4"] == before["P@4"]
    assert found["P@1"] > before["P@1"]


def test_order_is_kept_unless_asked_for():
    ranking, truth, _ = case()
    kept = ByFrequency(Isotonic(k=4)).fit(ranking, truth, label_counts=COUNTS).apply(ranking)
    np.testing.assert_array_equal(kept.ids, ranking.ids)
    assert (np.diff(kept.scores, axis=1) <= 0).all()
    # the mean over a text is that of the maps
    anew = ByFrequency(Isotonic(k=4), rerank=True).fit(ranking, truth, label_counts=COUNTS)
    sums = anew.apply(ranking).scores.sum(axis=1)
    np.testing.assert_allclose(kept.scores.sum(axis=1), sums, rtol=1e-5)


def test_bins_by_counts_and_groups_too_small():
    ranking, truth, _ = case()

    def bins(wanted, rows=slice(None)):
        by = ByFrequency(Isotonic(k=4), bins=wanted)
        by.fit(ranking[rows], truth[rows], label_counts=COUNTS)
        assert len(by.maps_) == by.bins_.max() + 1
        return by.bins_[::10].tolist()

    assert bins([10, 1000]) == [0, 1, 1, 2]
    assert bins([1000, 10]) == [0, 1, 1, 2]
    assert bins(1) == [0, 0, 0, 0]
    assert bins(2) == [0, 0, 1, 1]
    assert bins(4, slice(200)) == [0, 0, 0, 0]  # 800 pairs
    assert bins(4, slice(400)) == [0, 0, 1, 1]  # 1600: two of the four are enough for a map
    assert bins(4, slice(0)) == [0, 0, 0, 0]


def test_labels_that_came_later_are_rare():
    ranking, truth, _ = case()
    by = ByFrequency(Isotonic(k=4), bins=4).fit(ranking, truth, label_counts=COUNTS)
    more = LabelSet.numbered(LABELS + 5)
    rare, new = (by.apply(Ranking([[i]], [[0.9]], more)).scores for i in (0, LABELS + 3))
    assert rare == new


def test_counts_must_be_those_of_the_labels():
    ranking, truth, _ = case(50)
    with pytest.raises(ParameterError, match="label_counts"):
        ByFrequency(Isotonic()).fit(ranking, truth)
    with pytest.raises(ShapeError, match=r"\(39,\) label counts for 40"):
        ByFrequency(Isotonic()).fit(ranking, truth, label_counts=COUNTS[:39])
    with pytest.raises(ParameterError, match="bins of ByFrequency"):
        ByFrequency(Isotonic(), bins=0).fit(ranking, truth, label_counts=COUNTS)
    with pytest.raises(ParameterError, match="k of Isotonic"):
        ByRank(Isotonic(k=0)).fit(ranking, truth)


def test_each_rank_gets_its_own_map():
    random = np.random.default_rng(0)
    ids = np.tile(np.arange(3, dtype=np.int32), (2000, 1))
    ranking = Ranking(ids, np.full((2000, 3), 0.5), LabelSet.numbered(3))
    truth = csr_matrix(random.random((2000, 3)) < [0.9, 0.5, 0.1])
    by = ByRank(Isotonic(k=3)).fit(ranking, truth)
    assert by.apply(ranking[:1]).scores[0] == pytest.approx([0.9, 0.5, 0.1], abs=0.03)
    wider = Ranking([[0, 1, 2, 3, 4]], [[0.5, 0.5, 0.5, 0.4, 0.3]], LabelSet.numbered(5))
    assert by.apply(wider).scores[0, 2:].tolist() == [by.maps_[2].values_[0]] * 3
    few = ByRank(Isotonic(k=3)).fit(ranking[:300], truth[:300])
    assert few.bins_.tolist() == [0, 0, 0]


@pytest.mark.parametrize("rerank", [False, True])
def test_the_first_k_do_not_depend_on_those_after(rerank):
    ranking, truth, _ = case(k=8)
    for by in (ByFrequency(Isotonic(k=4), rerank=rerank), ByRank(Isotonic(k=4), rerank=rerank)):
        by.fit(ranking, truth, label_counts=COUNTS)
        wide, narrow = by.apply(ranking), by.apply(ranking.top(by.shortlist(2)))
        np.testing.assert_array_equal(wide.ids[:, :4], narrow.ids)
        np.testing.assert_array_equal(wide.scores[:, :4], narrow.scores)
        assert (np.diff(wide.scores, axis=1) <= 0).all()


def test_taken_back_only_whole():
    ranking, truth, _ = case()
    by = ByFrequency(Isotonic(k=4)).fit(ranking, truth, label_counts=COUNTS)
    learned = by.learned()
    again = ByFrequency(Isotonic(k=4))
    again.restore(learned)
    np.testing.assert_array_equal(again.apply(ranking).scores, by.apply(ranking).scores)
    for change in (
        {"bins_": learned["bins_"] + np.uint8(9)},
        {"bins_": learned["bins_"].astype(int)},
        {"bins_": learned["bins_"][:0]},
        {"maps_": []},
        {"maps_": [Isotonic()] * 5},
        {"maps_": [Beta()] * 5},
        {"maps_": 3},
        {"other_": 3},
    ):
        with pytest.raises(ValueError, match="ByFrequency"):
            ByFrequency(Isotonic(k=4)).restore(learned | change)
