import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel.data import LabelSet, Ranking
from megalabel.errors import ParameterError
from megalabel.metrics import HEADLINE, Evaluation, evaluate
from megalabel.metrics.macro import equal_volumes


@pytest.fixture
def measured():
    rng = np.random.default_rng(3)
    n, m = 500, 40
    ids = np.argsort(rng.random((n, m)), axis=1)[:, :6]
    scores = np.sort(rng.random((n, 6)))[:, ::-1]
    truth = csr_matrix(rng.random((n, m)) < 0.1)
    counts = (1000 / np.arange(1, m + 1)).astype(int)
    ranking = Ranking(ids, scores, LabelSet.numbered(m))
    return evaluate(ranking, truth, train_labels=(counts, 1000), probabilities=True, k=(1, 5))


def test_labels_add_up(measured):
    table = measured.per_label(5)
    assert table.column_names[:9] == [
        "label", "name", "train", "positives", "predicted", "tp", "fp", "fn", "tn",
    ]  # fmt: skip
    columns = {name: table[name].to_numpy() for name in table.column_names[2:]}
    assert columns["tp"].sum() / (500 * 5) == pytest.approx(measured["P@5"], rel=1e-12)
    assert columns["predicted"].sum() == 500 * 5
    assert (columns["tp"] + columns["fp"] + columns["fn"] + columns["tn"] == 500).all()
    for name in ("P", "R", "F1", "F2", "G-mean", "Jaccard"):
        assert columns[name].mean() == pytest.approx(measured[f"macro-{name}@5"], rel=1e-12)
    assert measured.per_label().equals(table)  # the largest cutoff


@pytest.mark.parametrize("bins", [1, 3, 5, 60])
def test_contributions_add_up_to_precision(measured, bins):
    for k in (1, 5):
        table = measured.bins(k, bins)
        contributions = table["contribution"].to_numpy()
        assert contributions.sum() == pytest.approx(measured[f"P@{k}"], rel=1e-12)
        assert sum(table["labels"].to_pylist()) == 40
        assert table["high"].to_pylist()[0] == 1000
        for row in table.to_pylist():
            if row["labels"]:
                assert row["low"] * row["labels"] <= row["train"] <= row["high"] * row["labels"]
            else:
                assert row["low"] is row["high"] is None


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 8))
def test_bins_hold_equal_volumes(counts, bins):
    counts = np.array(counts)
    found = equal_volumes(counts, bins)
    order = np.lexsort((np.arange(len(counts)), -counts))
    assert (np.diff(found[order]) >= 0).all()  # from frequent to rare
    if counts.sum():
        assert found[order[0]] == 0 or counts[order[0]] == 0
        volume = np.bincount(found, weights=counts, minlength=bins)
        # off by at most the labels on a bin's two ends
        assert (np.abs(np.cumsum(volume) - counts.sum() * np.arange(1, bins + 1) / bins)
                <= counts.max()).all()  # fmt: skip
    assert (found[counts == 0] == bins - 1).all()


def test_what_was_not_given_is_asked_for():
    ranking = Ranking([[0]], [[1]], LabelSet.numbered(1))
    plain = evaluate(ranking, csr_matrix([[1]]), k=1)
    with pytest.raises(ParameterError, match="train_labels"):
        plain.bins()
    with pytest.raises(ParameterError, match="probabilities=True"):
        plain.reliability()
    with pytest.raises(ParameterError, match=r"cutoffs \[1\], not 3"):
        plain.per_label(3)
    with pytest.raises(ParameterError, match="values alone"):
        Evaluation({"P@1": 1}, rows=1).per_label()


def test_tables_for_json(measured):
    shown = measured.to_dict(percent=True, tables=True)
    assert shown["intervals"]["P@5"][0] < shown["P@5"] < shown["intervals"]["P@5"][1]
    assert len(shown["bins"]["5"]) == 5
    assert len(shown["reliability"]["1"]) == 15
    assert [len(shown["reliability_by_rank"][k]) for k in ("1", "5")] == [1, 5]
    by_frequency = shown["reliability_by_frequency"]["5"]
    assert sum(row["count"] for row in by_frequency) == 500 * 5
    assert Evaluation.from_dict(measured.to_dict(tables=True)) == measured


def test_the_summary_is_what_people_are_shown(measured):
    bare = measured.summary()
    assert {name.partition("@")[0] for name in bare} <= {"rows", *HEADLINE}
    assert bare["P@5"] == measured.to_dict(percent=True)["P@5"]
    more = measured.summary(intervals=True, bins=2, reliability=True)
    reliabilities = {"reliability", "reliability_by_rank", "reliability_by_frequency"}
    assert more.keys() - bare.keys() == {"intervals", "bins", *reliabilities}
    assert more["intervals"].keys() <= bare.keys()
    assert [len(more[name]["5"]) for name in ("bins", *sorted(reliabilities))] == [2, 15, 5, 5]
    compared = measured.compare(measured)
    assert compared.to_dict(headline=True).keys() == bare.keys() - {"rows"}
    assert compared.to_dict().keys() == dict(measured).keys()


def test_micro_precision_counts_the_labels_that_were_predicted():
    labels = LabelSet.numbered(3)
    ranking = Ranking([[0, 3], [1, 2]], [[1, -np.inf], [2, 1]], labels)
    found = evaluate(ranking, csr_matrix([[1, 0, 0], [0, 1, 0]]), k=2)
    assert found["micro-P@2"] == pytest.approx(2 / 3)
    assert found["P@2"] == 0.5
    assert found["micro-F1@2"] == pytest.approx(2 * 2 / (3 + 2))


@pytest.mark.parametrize("rows", [50, 6000])
def test_reliability_tables_belong_to_the_errors(rows):
    rng = np.random.default_rng(1)
    scores = np.sort(rng.random((rows, 4)) ** 4, axis=1)[:, ::-1].astype(np.float32)
    truth = csr_matrix(rng.random((rows, 4)) < scores**1.5)
    ranking = Ranking(np.tile(np.arange(4), (rows, 1)), scores, LabelSet.numbered(4))
    found = evaluate(ranking, truth, k=(1, 4), probabilities=True)
    for k in (1, 4):
        for name, mass in (("ECE", False), ("ACE", True)):
            table = found.reliability(k, mass=mass).to_pydict()
            filled = [i for i, count in enumerate(table["count"]) if count]
            error = sum(
                table["count"][i] * abs(table["confidence"][i] - table["hit_rate"][i])
                for i in filled
            ) / (rows * k)
            assert found[f"{name}@{k}"] == pytest.approx(error, rel=1e-9)
            for i in filled:
                assert table["low"][i] <= table["confidence"][i] <= table["high"][i]
                rate = table["hit_rate"][i]
                assert table["hit_rate_low"][i] <= rate <= table["hit_rate_high"][i]
        counts = np.array(found.reliability(k, mass=True)["count"])
        assert np.abs(counts - rows * k / 15).max() < 2 + 0.02 * rows * k
