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

SECTIONS = ["quality", "frequency", "coverage", "calibration", "pareto", "mistakes"]


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
    assert len(page.named("script")) == 1
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
    charts = [svg for svg in page.named("svg") if svg.get("role") == "img"]
    assert len(charts) >= 6
    assert all(svg["aria-label"] for svg in charts)
    assert "http" not in re.sub(r"http-equiv", "", report.render(tree_tagger, corpus))


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
