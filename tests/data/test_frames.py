"""Corpora from pandas, polars, Arrow and Hugging Face tables, through one way in."""

import subprocess
import sys

import pyarrow as pa
import pytest

from megalabel.data import Corpus, LabelSet, Problems, from_frame, read
from megalabel.errors import DataError

COLUMNS = {"title": ["a", "b", "c"], "content": ["x", None, ""], "labels": [["p", "q"], [], ["q"]]}


def make(kind: str, columns: dict):
    if kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(columns)
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    if kind == "datasets":
        return pytest.importorskip("datasets").Dataset.from_dict(columns)
    return pa.table(columns)


def check(corpus: Corpus) -> None:
    assert corpus.texts.to_pylist() == ["a x", "b", "c"]
    assert corpus.labels.ids.to_pylist() == ["p", "q"]
    assert corpus.targets.toarray().tolist() == [[1, 1], [0, 0], [0, 1]]


KINDS = ["pandas", "polars", "datasets", "arrow"]


@pytest.mark.parametrize("kind", KINDS)
def test_usual_columns(kind):
    corpus = read(make(kind, COLUMNS))
    check(corpus)
    assert corpus.source["format"] == "frame"
    assert corpus.source["skipped"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_known_in_any_case(kind):
    check(read(make(kind, {f" {name.upper()}": values for name, values in COLUMNS.items()})))


def test_class_names_of_a_column_in_another_case():
    datasets = pytest.importorskip("datasets")
    labels = datasets.ClassLabel(names=["p", "q"])
    features = datasets.Features({"Text": datasets.Value("string"), "Labels": labels})
    table = datasets.Dataset.from_dict({"Text": ["a", "b"], "Labels": [1, 0]}, features)
    assert read(table).labels.ids.to_pylist() == ["p", "q"]


def test_two_columns_of_one_name():
    with pytest.raises(DataError, match="expected one column title, found 'title' and 'Title'"):
        read(pa.table({"title": ["a"], "Title": ["b"]}))
    table = pa.table([pa.array(["a"]), pa.array(["b"])], names=["body", "body"])
    with pytest.raises(DataError, match="several columns are named 'body'"):
        from_frame(table, text="body")


@pytest.mark.parametrize("kind", KINDS)
def test_named_columns(kind):
    columns = {
        "body": COLUMNS["title"],
        "more": COLUMNS["content"],
        "tags": ["q; p", "", "q"],
        "n": [7, 8, 9],
    }
    corpus = from_frame(make(kind, columns), text=["body", "more"], labels="tags", ids="n")
    check(corpus)
    assert corpus.ids.to_pylist() == ["7", "8", "9"]


@pytest.mark.parametrize("kind", KINDS)
def test_numbers(kind):
    columns = {"text": ["a", "b"], "target_ind": [[1], [0, 1]], "target_rel": [[0.5], [1.0, 2.0]]}
    corpus = from_frame(make(kind, columns), label_set=LabelSet(["p", "q", "r"]))
    assert corpus.targets.toarray().tolist() == [[0, 0.5, 0], [1, 2, 0]]


def test_one_number_a_row():
    frame = make("pandas", {"text": ["a", "b"], "label": [2, 0]})
    assert from_frame(frame, labels="label").targets.toarray().tolist() == [[0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_categories(kind):
    frame = make(kind, {"text": ["a", "b"], "label": ["p", "q"]})
    if kind == "pandas":
        frame["label"] = frame["label"].astype("category")
    else:
        frame = frame.cast({"label": sys.modules["polars"].Categorical})
    assert from_frame(frame, labels="label").labels.ids.to_pylist() == ["p", "q"]


def test_datasets_rows_names_and_parts():
    datasets = pytest.importorskip("datasets")
    labels = datasets.Sequence(datasets.ClassLabel(names=["p", "q", "r"]))
    features = datasets.Features({"text": datasets.Value("string"), "labels": labels})
    whole = datasets.Dataset.from_dict(
        {"text": ["a", "b", "c"], "labels": [[0], [1, 2], []]}, features
    )
    chosen = whole.select([2, 1])
    corpus = read(chosen)
    assert corpus.texts.to_pylist() == ["c", "b"]
    assert corpus.labels.ids.to_pylist() == ["p", "q", "r"]
    assert corpus.targets.toarray().tolist() == [[0, 0, 0], [0, 1, 1]]
    parts = datasets.DatasetDict({"train": whole, "test": chosen})
    assert len(read(parts, "trn")) == 3
    with pytest.raises(DataError, match="the parts are train, test; say which"):
        read(parts)
    with pytest.raises(DataError, match="there is no 'dev'"):
        read(parts, "dev")


def test_bad_rows():
    frame = make("pandas", {"text": ["a", None, "c"], "labels": [["p"], ["q"], [None]]})
    with pytest.raises(DataError, match="pandas DataFrame: row 2: expected a title"):
        read(frame)
    problems = Problems(skip=True)
    assert read(frame, problems=problems).texts.to_pylist() == ["a"]
    assert problems.count == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: read([1, 2]), "expected a path, a pandas"),
        (lambda: from_frame(pa.table(COLUMNS), text="body"), "no column 'body'; there are title"),
        (lambda: from_frame(pa.table(COLUMNS), labels="tags"), "no column 'tags'"),
        (lambda: read(make("pandas", {"text": ["a", 5]})), "cannot be read as a table"),
    ],
)
def test_wrong(call, message):
    with pytest.raises(DataError, match=message):
        call()


def test_none_of_these_packages_is_imported():
    packages = {"pandas", "polars", "datasets", "torch", "sklearn"}
    code = f"import sys, megalabel.data; sys.exit(bool({packages} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)
