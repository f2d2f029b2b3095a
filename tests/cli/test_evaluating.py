"""`megalabel evaluate`: the headline, and all that can be asked for."""

from __future__ import annotations

import json

import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from megalabel import data, systems
from megalabel.cli.app import app
from megalabel.errors import OutputError, ParameterError
from megalabel.metrics import HEADLINE


def run(*args):
    done = CliRunner().invoke(app, [str(a) for a in args], env={"COLUMNS": "160"})
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.fixture(scope="module")
def places(corpus, tmp_path_factory):
    """A corpus, a model of it, and a model that knows nothing but frequencies."""
    where = tmp_path_factory.mktemp("evaluate")
    train, test = data.split(corpus, test=0.3)
    data.write(train, where / "things" / "trn.jsonl")
    data.write(test, where / "things" / "tst.jsonl")
    for name in ("knn", "prior"):
        systems.create(name).fit(train).save(where / name)
    return where


def test_what_is_shown_first_is_in_plain_words(places):
    shown = run("evaluate", places / "knn", places / "things")
    for words in (
        "in %",
        "Is the first suggestion right? (P@1)",
        "Of 5 suggestions, how many are right? (P@5)",
        "(coverage@5)",
    ):
        assert words in shown
    for word in ("PSP", "macro", "warning"):
        assert word not in shown
    everything = run("evaluate", places / "knn", places / "things", "--all")
    for name in ("PSP", "macro-F1", "micro-F1"):
        assert name in everything


def test_propensities_that_do_not_fit_are_said_once_and_where_all_is_shown(places, tmp_path):
    rare = tmp_path / "rare.tsv"
    known = data.read(places / "things", "train").labels.ids.to_pylist()
    rare.write_text("".join(f"{name}\t0.1\n" for name in known))
    command = ["evaluate", places / "knn", places / "things", "--propensities", rare]
    assert "propensities" not in run(*command, "--intervals")
    shown = run(*command, "--all", "--intervals", "--compare", places / "prior")
    assert shown.count("propensities do not fit the data") == 1
    assert "megalabel propensities CORPUS --model richards --complete SAMPLE" in shown


def test_bins_intervals_reliability_and_another_model(places):
    shown = run(
        "evaluate", places / "knn", places / "things", "-k", "1,2", "--bins", 3, "--intervals",
        "--reliability", "--compare", places / "prior",
    )  # fmt: skip
    for words in ("equal volume", "adds to", "intervals over texts", "top 2 right", "second"):
        assert words in shown
    assert "95% interval" in shown
    for words in ("by rank", "by frequency", "20–99", "100+", "gap"):
        assert words in shown
    intervals = shown[shown.index("intervals over texts") :]
    assert "how many are right? (P@2)" in intervals[: intervals.index("equal volume")]


def test_json_is_what_people_are_shown(places):
    def values(*options):
        return json.loads(run("evaluate", places / "knn", places / "things", "--json", *options))

    facts = {"rows", "split", "labels", "seconds", "trained_on"}
    bare = values()
    assert {name.partition("@")[0] for name in bare} - facts <= set(HEADLINE)
    assert {"P@1", "nDCG@5", "macro-F1@5"} < bare.keys()
    asked = values("--intervals", "--bins", 2, "--reliability", "--compare", places / "prior")
    reliabilities = {"reliability", "reliability_by_rank", "reliability_by_frequency"}
    assert asked.keys() - bare.keys() == {"intervals", "bins", "comparison", *reliabilities}
    assert [row["low"] for row in asked["reliability_by_rank"]["5"]] == [1, 2, 3, 4, 5]
    assert [row["low"] for row in asked["reliability_by_frequency"]["5"]] == [0, 1, 6, 20, 100]
    assert asked["intervals"].keys() <= bare.keys() - facts
    assert {"P@1"} < asked["comparison"].keys() < bare.keys() - facts
    assert len(asked["bins"]["5"]) == 2
    assert bare.keys() < values("--all").keys()


def test_json_of_all_is_whole(places):
    command = ["evaluate", places / "knn", places / "things", "--json", "--all"]
    values = json.loads(run(*command, "--compare", places / "prior"))
    assert values["macro-F1@5"] <= 100
    for name in ("P@1", "macro-F1@5", "coverage@5", "ECE@3"):
        low, high = values["intervals"][name]
        assert low <= values[name] <= high
    assert sum(row["contribution"] for row in values["bins"]["5"]) == pytest.approx(
        values["P@5"] / 100, abs=1e-5
    )
    assert len(values["reliability"]["5"]) == 15
    compared = values["comparison"]["P@1"]
    assert compared["first"] == values["P@1"]
    assert compared["difference"] == pytest.approx(compared["first"] - compared["second"], abs=0.01)
    assert compared["p"] < 0.05
    assert isinstance(values["warnings"], list)


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_a_table_of_labels(places, tmp_path, kind):
    file = tmp_path / f"labels.{kind}"
    run("evaluate", places / "knn", places / "things", "--labels", file)
    if kind == "jsonl":
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    else:
        read = pyarrow.csv.read_csv if kind == "csv" else pyarrow.parquet.read_table
        rows = read(file).to_pylist()
    by_name = {row["name"]: row for row in rows}
    assert by_name["dress"]["tp"] > 0
    assert 0 < by_name["dress"]["F1"] <= 1


@pytest.mark.parametrize(
    ("name", "error"), [("labels.xlsx", ParameterError), ("nowhere/labels.csv", OutputError)]
)
def test_a_table_that_cannot_be_written_is_refused_first(places, tmp_path, name, error):
    with pytest.raises(error, match=name):
        run("evaluate", places / "absent", places / "things", "--labels", tmp_path / name)


def test_propensities_and_beta_of_ones_own(places, tmp_path):
    def values(*options):
        return json.loads(
            run("evaluate", places / "knn", places / "things", "-k", 3, "--json", "--all", *options)
        )

    usual = values()
    everywhere = tmp_path / "one.tsv"
    known = data.read(places / "things", "train").labels.ids.to_pylist()
    known += data.read(places / "things", "test").labels.ids.to_pylist()
    everywhere.write_text("".join(f"{name}\t1\n" for name in dict.fromkeys(known)))
    never_missing = values("--propensities", everywhere, "--beta", 1, "--compare", places / "prior")
    # with propensities of 1 the best that could be had is what P@k could have at most
    assert never_missing["PSP@3"] != usual["PSP@3"]
    assert values("--propensities", "jpv-wikipedia")["P@3"] == usual["P@3"]
    assert "macro-F2@3" in usual
    assert "macro-F2@3" not in never_missing
    with pytest.raises(ParameterError, match="bathtub"):
        values("--propensities", "bathtub")
