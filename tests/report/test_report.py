"""The report: what is on the page, and that nothing else gets onto it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from typer.testing import CliRunner

from megalabel import report, systems
from megalabel.cli.app import app
from megalabel.data import Corpus, LabelSet, write
from megalabel.errors import DataError, ParameterError
from megalabel.metrics.shown import group_name

SECTIONS = ["quality", "labels", "frequency", "coverage", "calibration", "pareto", "mistakes"]


class Page(HTMLParser):
    """Collects a page's elements, and fails where they are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def sections(self) -> list[str | None]:
        return [h["id"] for h in self.named("h2")]


def assert_self_contained(page: Page) -> None:
    for tag, attributes in page.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith("#")
    assert [script.get("type") for script in page.named("script")] == ["application/json", None]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_everything_is_on_the_page(tree_tagger, corpus):
    page = Page(report.render(tree_tagger, corpus))
    assert page.sections == [*SECTIONS, "tree", "model", "corpus"]
    assert [link["href"] for link in page.named("a")] == [f"#{name}" for name in page.sections]
    assert_self_contained(page)
    evaluation = tree_tagger.evaluate(corpus)
    assert f"{100 * evaluation['P@1']:.2f}" in page.text
    for name in ("P@3", "macro-F1@5", "coverage@1", "ECE@5"):
        low, high = evaluation.intervals()[name]
        assert f"{100 * low:.1f}–{100 * high:.1f}" in page.text
    for said in ("xr-linear", "TreeClassifier", "Joint", "max_leaf", "never seen"):
        assert said in page.text
    assert "Is the first suggestion right? (P@1)" in page.text
    for row in evaluation.bins(5).to_pylist():
        if row["labels"]:
            assert f"{group_name(row['low'], row['high'])} texts" in page.text
    assert not re.search(r"\bbin \d", page.text)
    charts = [svg for svg in page.named("svg") if svg.get("role") == "img"]
    assert len(charts) >= 6
    assert all(svg["aria-label"] for svg in charts)
    assert "http" not in re.sub(r"http-equiv", "", report.render(tree_tagger, corpus))


def test_it_begins_with_what_anyone_can_read(tree_tagger, corpus):
    page = Page(report.render(tree_tagger, corpus))
    first = page.text[: page.text.index("How good is it?")]
    evaluation = tree_tagger.evaluate(corpus)
    few = np.minimum(np.diff(corpus.targets.indptr), 5).mean()
    for said in (
        f"out of {len(corpus.labels)}",
        f"from {len(corpus)} texts",
        f"right for {100 * evaluation['P@1']:.0f}\xa0%",
        f"Of 5 suggestions, {5 * evaluation['P@5']:.1f} are right on average ({few:.1f} could be",
        f"It finds {100 * evaluation['R@5']:.0f}\xa0%",
        f"{max(100 * evaluation['ECE-debiased@5'], 0):.1f} points apart",
    ):
        assert said in first
    assert "P@" not in first
    once = Page(report.render(tree_tagger, corpus, k=2)).text
    assert "first suggestion" not in once[: once.index("How good is it?")]


def test_probabilities_that_are_off_are_said_to_be(tree_tagger, corpus):
    rotated = csr_matrix(np.roll(corpus.targets.toarray(), 7, axis=0))
    other = Corpus(corpus.texts, targets=rotated, labels=corpus.labels)
    assert "not to be relied on" in report.render(tree_tagger, other)


def label_rows(html: str) -> list[list[object]]:
    [data] = re.findall(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    return json.loads(data)


def test_every_label_is_in_a_table(tree_tagger, corpus):
    ranking = tree_tagger.rank(corpus, 5)
    rows = {row[0]: row[1:] for row in label_rows(report.render(tree_tagger, corpus))}
    assert rows.keys() == set(corpus.labels.names.to_pylist())
    for row in tree_tagger.evaluate(corpus).per_label(5).to_pylist():
        *counts, probability = rows[row["name"]]
        assert counts == [row[c] for c in ("train", "positives", "predicted", "tp", "fn")]
        scores = ranking.scores[ranking.ids == corpus.labels.index(row["name"])]
        expected = round(100 * float(scores.mean()), 1) if len(scores) else None
        assert probability == pytest.approx(expected, abs=0.11)


def test_a_table_of_many_labels_is_cut(tree_tagger, corpus, monkeypatch):
    monkeypatch.setattr("megalabel.report.labels.BYTES", 200)
    html = report.render(tree_tagger, corpus)
    rows = label_rows(html)
    assert 1 < len(rows) < len(corpus.labels)
    assert f"Here are the {len(rows)} labels with the most test texts" in html
    counts = [row[2] for row in rows]
    assert counts == sorted(corpus.label_counts, reverse=True)[: len(rows)]


def test_identifiers_are_shown_where_there_are_any(tree_tagger, corpus):
    assert "identifier" not in report.render(tree_tagger, corpus)
    names = corpus.labels.names.to_pylist()
    labels = LabelSet([f"http://labels/{i}" for i in range(len(names))], names)
    named = Corpus(corpus.texts, targets=corpus.targets, labels=labels)
    html = report.render(systems.create("dismec", calibrate=False).fit(named), named)
    assert "mean probability" not in html
    for row in label_rows(html):
        assert row[-1] == f"http://labels/{names.index(row[0])}"


def test_texts_are_ranked_once(tree_tagger, corpus, monkeypatch):
    ranked, rank = [], type(tree_tagger.classifier_).rank
    monkeypatch.setattr(
        type(tree_tagger.classifier_),
        "rank",
        lambda self, X, *args, **options: (
            ranked.append(X.shape[0]) or rank(self, X, *args, **options)
        ),
    )
    monkeypatch.setattr("megalabel.report.writing.SAMPLE", 10)
    report.render(tree_tagger, corpus)
    assert sorted(ranked) == [10, 10, len(corpus)]


def test_the_page_is_the_same_again(tree_tagger, corpus):
    assert report.render(tree_tagger, corpus) == report.render(tree_tagger, corpus)


def test_before_and_after_calibration(tree_tagger, corpus):
    html = report.render(tree_tagger, corpus)
    assert "Before: the classifier's scores" in html
    assert "After: probabilities" in html


def test_probabilities_by_rank_and_by_frequency(tree_tagger, corpus):
    page = Page(report.render(tree_tagger, corpus))
    captions = [svg["aria-label"] for svg in page.named("svg") if svg.get("role") == "img"]
    for by in ("rank of the answer", "training texts of label"):
        assert f"Mean probability and share of right answers by {by}." in captions
    evaluation = tree_tagger.evaluate(corpus)
    for by in ("rank", "frequency"):
        for row in evaluation.reliability(by=by).to_pylist():
            if row["count"]:
                assert f"{100 * row['gap']:+.1f}" in page.text
    assert f"{100 * evaluation['ECE-debiased@5']:.2f}" in page.text


def test_without_calibration(corpus):
    tagger = systems.create("dismec", calibrate=False).fit(corpus)
    page = Page(report.render(tagger, corpus))
    assert page.sections == [*SECTIONS, "model", "corpus"]
    assert "not calibrated" in page.text
    assert "After" not in page.text


NASTY = '<script>alert("x")</script><img src=x onerror=alert(1)>&amp;\'"></p></article>'


def test_texts_names_and_sources_are_escaped():
    names = [f"{NASTY}{i}" for i in range(4)]
    labels = LabelSet([f"id{i}" for i in range(4)], names)
    texts = [f"word{i % 4} {NASTY}" for i in range(40)]
    wrong = csr_matrix(np.eye(4)[(np.arange(40) * 7 // 3) % 4])
    source = {"path": NASTY, NASTY: NASTY, "licence": "CC0"}
    corpus = Corpus(texts, targets=wrong, labels=labels, ids=texts, source=source)
    tagger = systems.create("xr-linear", calibrate=True).fit(corpus)
    tagger.system = NASTY
    page = Page(report.render(tagger, corpus))
    assert_self_contained(page)
    assert page.text.count(NASTY) > 20
    assert "CC0" in page.text


def test_long_texts_are_cut():
    corpus = Corpus(["ab " * 100_000, "cd"] * 4, targets=[["x" * 5_000], ["y"]] * 4)
    tagger = systems.create("xr-linear", calibrate=True).fit(corpus)
    swapped = Corpus(corpus.texts, targets=corpus.targets[::-1], labels=corpus.labels)
    html = report.render(tagger, swapped)
    assert "300,000 characters" in html
    assert len(html) < 200_000
    Page(html)


def test_vectors_alone_and_labels_without_names():
    random = np.random.default_rng(0)
    X = csr_matrix(random.random((60, 8)))
    Y = csr_matrix((random.random((60, 5)) < 0.3).astype(np.float32))
    tagger = systems.create("knn").fit(X, Y)
    page = Page(report.render(tagger, Corpus(features=X, targets=Y)))
    assert "text 1" in page.text
    assert page.sections == [*SECTIONS, "model", "corpus"]


def test_more_answers_than_labels(corpus):
    few = corpus.with_labels(["dress", "jeans"])
    tagger = systems.create("xr-linear", calibrate=True).fit(few)
    page = Page(report.render(tagger, few, k=(1, 50)))
    assert "P@50" in page.text


def test_labels_the_model_does_not_know(tree_tagger):
    corpus = Corpus(["red dress gown"], targets=[["dress", "brand new"]])
    page = Page(report.render(tree_tagger, corpus))
    assert "brand new (unknown to the model)" in page.text


def test_excluded_labels_are_no_mistakes(tree_tagger, corpus):
    excluded = csr_matrix(np.ones((len(corpus), len(corpus.labels)), np.float32))
    excluded[:, corpus.labels.index("red")] = 0
    excluded.eliminate_zeros()
    only = Corpus(corpus.texts, targets=corpus.targets, labels=corpus.labels, excluded=excluded)
    html = report.render(tree_tagger, only)
    articles = html[html.index('id="mistakes"') : html.index('id="tree"')]
    shown = set(re.findall(r"<li[^>]*><span>([^<]*)</span>", articles))
    assert shown == {"red"}


def test_what_cannot_be_reported_on(tree_tagger, corpus, tmp_path):
    with pytest.raises(DataError, match="no texts"):
        report.render(tree_tagger, corpus[:0])
    with pytest.raises(DataError, match="no labels"):
        report.render(tree_tagger, Corpus(["red dress"]))
    with pytest.raises(ParameterError, match="is a folder"):
        report.write(tree_tagger, corpus, tmp_path)
    with pytest.raises(ParameterError, match="there is no folder"):
        report.write(tree_tagger, corpus, tmp_path / "no" / "report.html")


@pytest.mark.parametrize("name", systems.names())
def test_every_system_has_a_report(name, corpus, create):
    Page(report.render(create(name).fit(corpus), corpus[:50]))


def test_command_line(tree_tagger, corpus, tmp_path):
    tree_tagger.save(tmp_path / "model")
    write(corpus, tmp_path / "test.jsonl")
    out = tmp_path / "page.html"

    def run(*more):
        arguments = ["report", tmp_path / "model", tmp_path / "test.jsonl", *more]
        return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})

    assert "page.html" in run("--out", out).stdout
    shown = json.loads(run("--out", out, "-k", "1,2", "--json").stdout)
    assert shown == {"report": str(out), "bytes": out.stat().st_size}
    page = Page(out.read_text(encoding="utf-8"))
    assert "R@2" in page.text
    assert "model folder" in page.text
    assert isinstance(run("--out", tmp_path).exception, ParameterError)


def test_python_takes_a_model_folder(tree_tagger, corpus, tmp_path):
    tree_tagger.save(tmp_path / "model")
    path = report.write(str(tmp_path / "model"), corpus, tmp_path / "report.html")
    assert path.read_text(encoding="utf-8") == report.render(tmp_path / "model", corpus)
