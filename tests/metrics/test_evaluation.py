import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel import _native, get_threads, set_threads
from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.labels import JPV_CONSTANTS, Jpv, jpv
from megalabel.metrics import evaluate


def ranked(lists, n_labels, width=None):
    """A ranking of lists of labels, padded to a common width."""
    width = max(map(len, lists)) if width is None else width
    ids = np.full((len(lists), width), n_labels)
    scores = np.full((len(lists), width), -np.inf)
    for i, row in enumerate(lists):
        ids[i, : len(row)] = row
        scores[i, : len(row)] = -np.arange(len(row))
    return Ranking(ids, scores, LabelSet.numbered(n_labels))


def matrix(sets, width):
    y = np.zeros((len(sets), width))
    for i, row in enumerate(sets):
        y[i, list(row)] = 1
    return csr_matrix(y)


def divided(a, b):
    return a / b if b else 0.0


def slow(lists, sets, ks, inverse, width):
    """The definitions, word for word."""
    values = {}
    for k in ks:
        rows = list(zip([row[:k] for row in lists], sets, strict=True))
        for name, value in (slow_rows(rows, k, inverse) | slow_labels(rows, width)).items():
            values[f"{name}@{k}"] = value
    return values


def slow_rows(rows, k, inverse):
    n = len(rows)
    sums = dict.fromkeys(("P", "R", "F1", "nDCG", "MRR", "abandonment"), 0.0)
    gained, attainable = np.zeros(3), np.zeros(3)
    for top, truth in rows:
        hits = [label in truth for label in top]
        discounts = [1 / math.log2(j + 2) for j in range(max(k, len(top)))]
        ideal = sum(discounts[: len(truth)][:k])
        p, r = sum(hits) / k, divided(sum(hits), len(truth))
        sums["P"] += p
        sums["R"] += r
        sums["F1"] += divided(2 * p * r, p + r)
        dcg = sum(d for d, hit in zip(discounts, hits, strict=False) if hit)
        sums["nDCG"] += divided(dcg, ideal)
        sums["MRR"] += 1 / (hits.index(True) + 1) if any(hits) else 0
        sums["abandonment"] += not any(hits)
        best = sorted((inverse[label] for label in truth), reverse=True)[:k]
        worth = [inverse[label] * hit for label, hit in zip(top, hits, strict=True)]
        for total, found in ((gained, worth), (attainable, best)):
            total += [
                sum(found),
                divided(sum(found), len(truth)),
                divided(sum(w * d for w, d in zip(found, discounts, strict=False)), ideal),
            ]
    values = {name: total / n for name, total in sums.items()}
    for i, (name, scale) in enumerate((("PSP", k), ("PSR", 1), ("PSnDCG", 1))):
        values[name] = divided(gained[i], attainable[i])
        values[f"{name}-raw"] = gained[i] / n / scale
    tp = sum(len(set(top) & truth) for top, truth in rows)
    predicted, positives = (sum(len(row[i]) for row in rows) for i in (0, 1))
    values["micro-P"], values["micro-R"] = divided(tp, predicted), divided(tp, positives)
    values["micro-F1"] = divided(
        2 * values["micro-P"] * values["micro-R"], values["micro-P"] + values["micro-R"]
    )
    return values


def slow_labels(rows, width, beta=2.0):
    found, covered = {}, 0
    for label in range(width):
        tp = sum(label in top and label in truth for top, truth in rows)
        fp = sum(label in top and label not in truth for top, truth in rows)
        fn = sum(label not in top and label in truth for top, truth in rows)
        tn = len(rows) - tp - fp - fn
        p, r, s = divided(tp, tp + fp), divided(tp, tp + fn), divided(tn, tn + fp)
        of_label = {
            "P": p,
            "R": r,
            "F1": divided(2 * p * r, p + r),
            "F2": divided((1 + beta**2) * p * r, beta**2 * p + r),
            "balanced-accuracy": (r + s) / 2,
            "G-mean": math.sqrt(r * s),
            "H-mean": 2 / (1 / r + 1 / s) if r and s else 0.0,
            "Fowlkes-Mallows": math.sqrt(p * r),
            "Jaccard": divided(tp, tp + fp + fn),
        }
        for name, value in of_label.items():
            found[f"macro-{name}"] = found.get(f"macro-{name}", 0) + value / width
        covered += tp > 0
    return found | {"coverage": covered / width}


def test_published_toy():
    ranking = ranked([[0, 2, 1], [0, 1, 2]], 3)
    truth = matrix([{0, 1}, {2}], 3)
    found = evaluate(ranking, truth, propensities=[1, 1 / 2, 1 / 10], k=(1, 2, 3))
    expected = {
        "P": (0.5, 0.25, 0.5),
        "R": (0.25, 0.25, 1),
        "nDCG": (0.5, 0.5 / (1 + 1 / math.log2(3)), None),
        "PSP": (1 / 12, 1 / 13, 1),
        "PSP-raw": (0.5, 0.25, 13 / 6),
    }
    for name, values in expected.items():
        for k, value in enumerate(values, start=1):
            if value is not None:
                assert found[f"{name}@{k}"] == pytest.approx(value, abs=1e-12)
    assert found["nDCG@2"] == pytest.approx(0.3066, abs=1e-4)
    assert found["nDCG@3"] == pytest.approx(0.7099, abs=1e-4)


@st.composite
def cases(draw):
    known = draw(st.integers(1, 12))
    width = known + draw(st.integers(0, 3))
    rows = draw(st.integers(1, 8))
    lists = [draw(st.permutations(range(known)))[: draw(st.integers(0, 8))] for _ in range(rows)]
    sets = [draw(st.sets(st.integers(0, width - 1))) for _ in range(rows)]
    inverse = draw(st.lists(st.floats(1, 50), min_size=width, max_size=width))
    ks = draw(st.lists(st.integers(1, 15), min_size=1, max_size=4))
    return lists, sets, known, width, inverse, ks


@given(cases())
@settings(max_examples=200)
def test_agrees_with_the_definitions(case):
    lists, sets, known, width, inverse, ks = case
    found = evaluate(
        ranked(lists, known), matrix(sets, width), propensities=1 / np.array(inverse), k=ks
    )
    expected = slow(lists, sets, ks, inverse, width)
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-12, abs=1e-12), name


def large(rows, seed=0):
    rng = np.random.default_rng(seed)
    lists = [rng.permutation(40)[:20].tolist() for _ in range(rows)]
    sets = [set(rng.integers(0, 40, rng.integers(0, 7)).tolist()) for _ in range(rows)]
    return lists, sets


def test_many_rows_agree_with_the_definitions():
    lists, sets = large(10_000)
    p = jpv(np.arange(40), 1000)
    found = evaluate(ranked(lists, 40), matrix(sets, 40), propensities=p, k=(1, 5, 10))
    for name, value in slow(lists, sets, (1, 5, 10), 1 / p, 40).items():
        assert found[name] == pytest.approx(value, rel=1e-12)


def test_threads_do_not_change_a_bit():
    lists, sets = large(20_000)
    ranking, truth = ranked(lists, 40), matrix(sets, 40)
    threads, seen = get_threads(), []
    try:
        for count in (1, 2, 5):
            set_threads(count)
            seen.append(evaluate(ranking, truth, train_labels=truth, k=(1, 3, 5, 20)).to_dict())
    finally:
        set_threads(threads)
    assert seen[0] == seen[1] == seen[2]


def test_a_perfect_ranking_is_exactly_one():
    lists = [[3, 1, 2], [0], []]
    truth = matrix([{3, 1, 2}, {0}, set()], 4)[:2]
    found = evaluate(ranked(lists, 4)[:2], truth, train_labels=truth, k=3)
    assert found["R@3"] == found["nDCG@3"] == found["PSP@3"] == 1
    assert found["P@3"] == pytest.approx(4 / 6)


def nothing_found(found):
    """Whether there were no hits; a right answer of "no" counts in balanced accuracy alone."""
    values = {name.partition("@")[0]: value for name, value in found.items()}
    assert values.pop("abandonment") == 1
    assert values.pop("macro-balanced-accuracy") <= 0.5
    return set(values.values()) == {0}


def test_rows_without_labels_count_as_zero():
    found = evaluate(ranked([[0], [0]], 1), matrix([{0}, set()], 1), k=1)
    for name in ("P@1", "R@1", "nDCG@1", "MRR@1", "abandonment@1"):
        assert found[name] == 0.5


def test_no_labels_at_all_give_zero():
    found = evaluate(ranked([[0]], 2), matrix([set()], 2), propensities=[0.5, 0.5], k=1)
    assert nothing_found(found)


def test_fewer_columns_than_k_still_divide_by_k():
    assert evaluate(ranked([[0]], 3), matrix([{0}], 3), k=5)["P@5"] == pytest.approx(1 / 5)


def test_a_ranking_without_columns():
    found = evaluate(ranked([[], []], 3, width=0), matrix([{0}, {1}], 3), k=1)
    assert nothing_found(found)


def test_padding_never_hits_a_label_of_its_number():
    # label 2 is unknown to the ranking, whose padding is the number 2
    found = evaluate(ranked([[0], []], 2, width=3), matrix([{2}, {2}], 3), k=(1, 3))
    assert nothing_found(found)


def test_unknown_labels_count_but_cannot_be_hit():
    found = evaluate(ranked([[0, 1]], 2), matrix([{0, 3}], 4), train_labels=([5, 5], 10), k=2)
    assert found["R@2"] == 0.5
    inverse = 1 / jpv([5, 0], 10)
    assert found["PSP@2"] == pytest.approx(inverse[0] / inverse.sum(), rel=1e-12)


def test_relevance_above_zero_is_positive():
    truth = csr_matrix(([0.2, 0.0, -1.0], [0, 1, 2], [0, 3]), shape=(1, 3))
    found = evaluate(ranked([[0, 1, 2]], 3), truth, k=3)
    assert found["P@3"] == pytest.approx(1 / 3)
    assert found["R@3"] == 1


def test_equal_scores_keep_the_order_of_the_ranking():
    ranking = Ranking([[1, 0]], [[0.5, 0.5]], LabelSet.numbered(2))
    assert evaluate(ranking, matrix([{1}], 2), k=1)["P@1"] == 1
    assert evaluate(ranking, matrix([{0}], 2), k=1)["P@1"] == 0


def test_unsorted_and_doubled_cells_are_one_label():
    truth = csr_matrix(
        (np.ones(3, np.float32), np.array([2, 0, 2], np.int32), np.array([0, 3], np.int32)),
        shape=(1, 3),
    )
    assert evaluate(ranked([[2, 1]], 3), truth, k=2)["R@2"] == 0.5
    assert truth.indices.tolist() == [2, 0, 2]


def test_excluded_cells_leave_the_ranking_but_not_the_truth():
    ranking, truth = ranked([[0, 1, 2]], 3), matrix([{0, 1}], 3)
    found = evaluate(ranking, truth, excluded=matrix([{0}], 3), k=(1, 3))
    assert found["P@1"] == 1  # label 1 moves up
    assert found["R@3"] == 0.5  # label 0 is still wanted
    wide = evaluate(ranking, matrix([{0, 1}], 5), excluded=matrix([{0, 4}], 5), k=(1, 3))
    assert wide["P@1"] == 1


def test_train_labels_in_any_form_agree():
    ranking, truth = ranked([[0, 1], [1, 0]], 2), matrix([{0}, {0, 1}], 2)
    train = matrix([{0}, {0}, {1}, set(), {0}], 2)
    corpus = Corpus(features=np.zeros((5, 1)), targets=train)
    expected = evaluate(ranking, truth, propensities=jpv([3, 1], 5)).to_dict()
    for form in (train, corpus, ([3, 1], 5)):
        assert evaluate(ranking, truth, train_labels=form).to_dict() == expected


def test_corpora_are_aligned_by_label_ids():
    ranking = Ranking([[0, 1], [1, 0]], [[2, 1], [2, 1]], LabelSet(["cat", "dog"]))
    test = Corpus(["x", "y"], targets=[["dog", "ant"], ["dog"]])
    train = Corpus(["a", "b", "c"], targets=[["dog", "cat"], ["bee", "dog"], ["ant"]])
    found = evaluate(ranking, test, train_labels=train, k=(1, 2))
    assert found["P@1"] == 0.5
    assert found["R@2"] == 0.75
    inverse = {name: 1 / jpv([count], 3)[0] for name, count in {"dog": 2, "ant": 1}.items()}
    attainable = inverse["dog"] * 2 + inverse["ant"]
    assert found["PSP@2"] == pytest.approx(2 * inverse["dog"] / attainable, rel=1e-12)


def test_aligning_leaves_the_corpus_as_it_was():
    corpus = Corpus(["x"], targets=csr_matrix([[1.0, 5.0]]), labels=LabelSet(["cat", "dog"]))
    evaluate(Ranking([[0]], [[1]], LabelSet(["dog", "cat"])), corpus, k=1)
    assert corpus.targets.toarray().tolist() == [[1, 5]]


def test_the_excluded_cells_of_a_corpus_are_used():
    labels = LabelSet(["cat", "dog"])
    corpus = Corpus(
        ["x"], targets=[["ant", "cat"]], excluded=csr_matrix([[0, 0, 1]]),
        labels=LabelSet(["ant", "cat", "dog"]),
    )  # fmt: skip
    ranking = Ranking([[1, 0]], [[2, 1]], labels)
    assert evaluate(ranking, corpus, k=1)["P@1"] == 1
    nothing = csr_matrix((1, 2))
    assert evaluate(ranking, corpus, excluded=nothing, k=1)["P@1"] == 0


def test_calibration_error_only_on_request():
    ranking = Ranking(
        [[0, 1, 2], [0, 1, 2]], [[0.9, 0.9, 0.6], [0.9, 0.9, 0.6]], LabelSet.numbered(3)
    )
    truth = matrix([{0, 1, 2}, {0}], 3)  # hits at .9: 1, 1, 1, 0; at .6: 1, 0
    assert "ECE@3" not in evaluate(ranking, truth)
    found = evaluate(ranking, truth, probabilities=True, k=(1, 3, 9))
    assert found["ECE@1"] == pytest.approx(0.1, abs=1e-7)
    assert found["ECE@3"] == pytest.approx(0.8 / 6, abs=1e-7)
    assert found["ECE@9"] == found["ECE@3"]


@pytest.mark.parametrize("k", [0, -1, [], [1, 0], 2.5, "5", None])
def test_bad_cutoffs(k):
    with pytest.raises(ParameterError, match="k must be"):
        evaluate(ranked([[0]], 1), matrix([{0}], 1), k=k)


def test_cutoffs_may_be_given_in_any_order():
    found = evaluate(ranked([[0]], 1), matrix([{0}], 1), k=(5, 1, 5))
    assert [name for name in found if name.startswith("P")] == ["P@1", "P@5"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"propensities": [0.5]}, ShapeError, r"\(1,\).*\(2, 2\)"),
        ({"propensities": [0.5, 0]}, ParameterError, "above 0"),
        ({"propensities": "jpv"}, ParameterError, "train_labels"),
        ({"propensities": "jvp", "train_labels": ([3, 1], 5)}, ParameterError, "jvp"),
        ({"propensities": [0.5, np.nan]}, ParameterError, "above 0"),
        ({"beta": 0}, ParameterError, "beta"),
        ({"train_labels": ([1], 2)}, ShapeError, r"\(1,\).*2 and the truth 2"),
        ({"train_labels": csr_matrix((4, 3))}, ShapeError, r"\(3,\)"),
        ({"train_labels": ([1, 3], 2)}, ParameterError, "from 0 to n = 2"),
        ({"excluded": csr_matrix(np.ones((1, 2)))}, ShapeError, r"\(1, 2\).*\(2, 2\)"),
        ({"probabilities": True}, DataError, "not probabilities"),
    ],
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        evaluate(ranked([[0, 1], [0, 1]], 2), matrix([{0}, {1}], 2), **options)


@pytest.mark.parametrize("shape", [(1, 3), (3, 3), (2, 2)])
def test_a_truth_of_another_shape_names_both(shape):
    with pytest.raises(ShapeError, match=rf"\({shape[0]}, {shape[1]}\).*\(2, 3\)"):
        evaluate(ranked([[0], [1]], 3), csr_matrix(shape))


def test_no_rows():
    with pytest.raises(DataError, match="no rows"):
        evaluate(ranked([[0]], 2)[:0], csr_matrix((0, 2)))


def test_truth_that_is_not_a_number():
    with pytest.raises(DataError, match="row 0"):
        evaluate(ranked([[0]], 2), csr_matrix([[np.nan, 1]]))


@pytest.mark.parametrize(
    ("indptr", "indices", "cutoffs", "weights"),
    [
        ([0, 2], [0, 1], [1], []),  # a row too few
        ([0, 3, 2], [0, 1], [1], []),  # falls
        ([-1, 1, 2], [0, 1], [1], []),
        ([0, 1, 9], [0, 1], [1], []),  # beyond the columns
        ([0, 2, 2], [1, 0], [1], []),  # not sorted
        ([0, 2, 2], [0, 7], [1], [1.0, 1.0]),  # a label without a weight
        ([0, 2, 2], [-1, 0], [1], [1.0, 1.0]),
        ([0, 2, 2], [0, 1], [1], [1.0]),
        ([0, 2, 2], [0, 1], [], []),
        ([0, 2, 2], [0, 1], [0], []),
        ([0, 2, 2], [0, 1], [2, 2], []),
    ],
)
def test_the_kernel_refuses_arrays_that_lie(indptr, indices, cutoffs, weights):
    before = np.zeros((_native.SAMPLE_GROUPS, 2 + 15 * len(cutoffs)))
    ids, scores = np.zeros((2, 1), np.int32), np.empty((0, 0), np.float32)
    ranked_rows = _native.Ranked(ids=ids, scores=scores, labels=2)
    truth = native_truth(indptr, indices)
    cutoffs, weights = np.array(cutoffs, np.int64), np.array(weights, float)
    with pytest.raises(ValueError, match=r"truth|weights|cutoffs"):
        _native.add_row_sums(
            before, first_row=0, ranked=ranked_rows, truth=truth, cutoffs=cutoffs, weights=weights
        )
    if not len(weights):
        with pytest.raises(ValueError, match=r"truth|cutoffs"):
            _native.label_counts(ranked_rows, truth, cutoffs=cutoffs, width=2)
        scored = _native.Ranked(ids=ids, scores=np.zeros((2, 1), np.float32), labels=2)
        with pytest.raises(ValueError, match=r"truth|cutoffs"):
            _native.reliability_cells(scored, truth, cutoffs=cutoffs, bins=15)


def native_truth(indptr: list[int], indices: list[int]) -> _native.Truth:
    return _native.Truth(
        indptr=np.array(indptr),
        indices=np.array(indices, np.int32),
        positive=np.ones(len(indices), np.uint8),
    )


def test_the_kernels_refuse_labels_and_sums_that_do_not_fit():
    ids, none = np.zeros((1, 1), np.int32), np.empty((0, 0), np.float32)
    truth = native_truth([0, 1], [5])
    cutoffs, weights = np.array([1]), np.empty(0)
    for labels, width in ((2, 2), (7, 6)):
        of_labels = _native.Ranked(ids=ids, scores=none, labels=labels)
        with pytest.raises(ValueError, match="truth"):
            _native.label_counts(of_labels, truth, cutoffs=cutoffs, width=width)
    of_labels = _native.Ranked(ids=ids, scores=none, labels=9)
    for shape in ((4096, 3), (10, 17)):
        with pytest.raises(ValueError, match="sums before"):
            _native.add_row_sums(
                np.zeros(shape),
                first_row=0,
                ranked=of_labels,
                truth=truth,
                cutoffs=cutoffs,
                weights=weights,
            )


def test_propensities_by_name_by_model_or_as_they_are():
    ranking, truth = ranked([[0], [1]], 2), matrix([{0, 1}, {1}], 2)
    train = ([30, 10], 50)
    expected = evaluate(ranking, truth, propensities=jpv(*train, *JPV_CONSTANTS["amazon"]))
    for model in ("jpv-amazon", Jpv(*JPV_CONSTANTS["amazon"])):
        found = evaluate(ranking, truth, propensities=model, train_labels=train)
        assert found == expected
    usual = evaluate(ranking, truth, propensities="jpv", train_labels=train)
    assert usual == evaluate(ranking, truth, train_labels=train) != expected


def test_own_propensities_leave_the_training_counts_to_the_bins():
    ranking, truth = ranked([[0, 1], [1, 0]], 2), matrix([{0}, {0, 1}], 2)
    own = evaluate(ranking, truth, propensities=[1, 0.5], train_labels=([3, 1], 5))
    assert own["PSP@1"] == evaluate(ranking, truth, propensities=[1, 0.5])["PSP@1"]
    assert own.bins(k=1, bins=2)["train"].to_pylist() == [3, 1]


def test_unnormalised_values_above_1_are_warned_of():
    ranking, truth = ranked([[0, 2, 1], [0, 1, 2]], 3), matrix([{0, 1}, {2}], 3)
    found = evaluate(ranking, truth, propensities=[1, 1 / 2, 1 / 10], k=(1, 3))
    assert len(found.warnings) == 1
    assert "propensities do not fit" in str(found.table())
    assert "propensities do not fit" not in str(found)
    assert not evaluate(ranking, truth, k=3).warnings
    assert not evaluate(ranking, truth, propensities=[1, 1, 1], k=3).warnings


@given(cases())
@settings(max_examples=100)
def test_identities(case):
    lists, sets, known, width, _, ks = case
    found = evaluate(ranked(lists, known), matrix(sets, width), propensities=np.ones(width), k=ks)
    for k in found.cutoffs:
        value = {name.partition("@")[0]: found[name] for name in found if name.endswith(f"@{k}")}
        # where every label is sure to be annotated, propensities change nothing
        assert value["PSP-raw"] == pytest.approx(value["P"], abs=1e-12)
        assert value["PSR-raw"] == pytest.approx(value["R"], abs=1e-12)
        assert value["PSnDCG-raw"] == pytest.approx(value["nDCG"], abs=1e-12)
        assert value["abandonment"] >= 1 - min(1, k * value["P"]) - 1e-12
        assert value["MRR"] <= 1 - value["abandonment"] + 1e-12
        assert value["macro-Jaccard"] <= value["macro-F1"] + 1e-12
        assert value["macro-H-mean"] <= value["macro-G-mean"] + 1e-12
        assert value["macro-G-mean"] <= value["macro-balanced-accuracy"] + 1e-12
        assert value["macro-F1"] <= value["macro-Fowlkes-Mallows"] + 1e-12
        # P@k from the labels' side
        tp = np.array(found.per_label(k)["tp"].to_pylist())
        assert tp.sum() / (len(lists) * k) == pytest.approx(value["P"], abs=1e-12)
        assert (tp > 0).mean() == value["coverage"]
        if k == 1:
            assert value["P"] == value["MRR"] == value["nDCG"]
            assert value["P"] == pytest.approx(1 - value["abandonment"], abs=1e-12)
