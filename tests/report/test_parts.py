"""What a report is made of: mistakes, trees and charts."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel import decision, report, systems
from megalabel.data import Corpus, LabelSet, Ranking
from megalabel.labels import LabelTree
from megalabel.metrics import evaluate
from megalabel.report import charts, sections, tree
from megalabel.report.mistakes import mistakes
from megalabel.report.page import STYLE

LABELS = LabelSet(list("abcd"))


def ranked(ids, scores):
    return Ranking(np.array(ids), np.array(scores, np.float32), LABELS)


# ------------------------------------------------------------ mistakes
def test_the_surest_wrong_label_comes_first():
    ranking = ranked([[0, 1], [0, 1], [2, 3]], [[0.9, 0.1], [0.6, 0.2], [0.8, 0.7]])
    truth = Corpus(["s", "t", "u"], targets=[["a"], ["b"], ["c"]], labels=LABELS)
    found = mistakes(ranking, truth, count=2)
    assert [example.text for example in found.confident] == ["u", "t"]
    assert found.confident[0].right == [True, False]
    assert found.confident[1].missed == []
    assert found.worst == []  # every true label is among the answers


def test_the_worst_miss_the_most_and_are_shown_once():
    ranking = ranked([[0, 1], [0, 1], [0, 1]], [[0.9, 0.1], [0.5, 0.2], [0.6, 0.2]])
    truth = Corpus(["s", "t", "u"], targets=[["c"], ["c", "d"], ["d"]], labels=LABELS)
    found = mistakes(ranking, truth, count=1)
    assert [example.text for example in found.confident] == ["s"]
    assert [example.text for example in found.worst] == ["t"]
    assert found.worst[0].missed == ["c", "d"]


def test_one_wrong_label_does_not_hide_the_others():
    ids = [[0, 1]] * 4 + [[1, 2]]
    ranking = ranked(ids, [[0.9, 0.1]] * 4 + [[0.5, 0.4]])
    truth = Corpus(list("stuvw"), targets=[["d"]] * 5, labels=LABELS)
    found = mistakes(ranking, truth, count=3)
    assert [example.text for example in found.confident] == ["s", "t", "w"]


def test_no_mistakes_and_padding():
    ranking = ranked([[0, 4]], [[0.9, -np.inf]])
    found = mistakes(ranking, Corpus(["s"], targets=[["a"]], labels=LABELS))
    assert found == ([], [])


def test_labels_of_one_name_are_told_apart():
    labels = LabelSet(["x1", "x2"], ["same", "same"])
    ranking = Ranking(np.array([[0]]), np.array([[0.9]]), labels)
    [example] = report.examples(ranking, Corpus(["s"], targets=csr_matrix([[0, 1]]), labels=labels))
    assert example.right == [False]
    assert example.missed == ["same"]


# ------------------------------------------------------------ the tree
def shown_tree(made: LabelTree, train=None) -> str:
    n = made.n_labels
    counts = np.ones(n, int) if train is None else train
    return tree.tree_html(made, LabelSet.numbered(n), [counts, counts, counts], 5)


def test_every_label_of_a_small_tree_is_shown_and_frequent_ones_first():
    html = shown_tree(LabelTree.from_parents([-1, 0, 0, -1, 3]), np.array([1, 5, 9, 2, 3]))
    leaves = re.findall(r"<li>(\d+) <span", html)
    assert leaves == ["2", "1", "0", "4", "3"]
    assert "R@5 100&nbsp;%" in html


def test_nodes_with_one_child_are_passed_over():
    chain = [csr_matrix(np.ones((1, 1))), csr_matrix(np.ones((1, 1))), csr_matrix(np.ones((2, 1)))]
    html = shown_tree(LabelTree.from_chain(chain))
    assert html.count("<details>") == 1
    assert html.count("<li>") == 3


@pytest.mark.parametrize("fan", [2, 1000, 200_000])
def test_a_large_tree_is_cut(fan):
    n = 200_000
    groups = np.arange(n) // fan
    html = shown_tree(
        LabelTree.from_chain(
            [
                csr_matrix(np.ones((groups[-1] + 1, 1))),
                csr_matrix((np.ones(n), (np.arange(n), groups))),
            ]
        )
    )
    assert len(html) < 500_000
    assert html.count("<li") <= tree.ENTRIES + tree.ENTRIES // tree.CHILDREN + 1
    assert "more</li>" in html


def test_a_deep_tree_is_cut():
    made = LabelTree.from_parents(np.arange(-1, 3000))
    html = shown_tree(made)
    assert html.count("<details>") <= tree.DEPTH + 1
    assert "not unfolded" in html


def test_trees_of_classifiers(corpus):
    clusters = {"classifier__max_leaf": 2}
    for name, options, expected in (
        ("parabel", clusters, 3),
        ("parabel", {}, 1),
        ("online-plt", {}, 1),
        ("dismec", {}, 0),
    ):
        trees = tree.label_trees(systems.create(name, **options).fit(corpus).classifier_)
        assert len(trees) == expected
        assert all(made.n_labels == len(corpus.labels) for made in trees)


# ------------------------------------------------------------ charts
@given(
    st.floats(-1e6, 1e6),
    st.floats(1e-6, 1e6),
)
def test_ticks_are_round_and_within(low, span):
    axis = charts.Axis("", low, low + span)
    if not axis.high - axis.low > 1e-9 * max(1, abs(low)):
        return
    ticks = axis.ticks()
    assert 3 <= len(ticks) <= 12
    assert all(low - span / 100 <= t <= low + span + span / 100 for t in ticks)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=6))
def test_charts_stay_within_their_frame(points):
    svg = charts.curve_chart("d", [(x, y, "p") for x, y in points], "x", "y")
    svg += charts.bar_chart("d", "y", {"s": [y for _, y in points]}, [str(x) for x, _ in points])
    for x in map(float, re.findall(r'\b(?:x|cx|x1|x2)="([^"]*)"', svg)):
        assert 0 <= x <= charts.WIDTH
    for y in map(float, re.findall(r'\b(?:y|cy|y1|y2|height)="([^"]*)"', svg)):
        assert 0 <= y <= charts.HEIGHT


def test_charts_escape():
    svg = charts.bar_chart("<d>", "<n>", {"<s>": [1.0]}, ["<g>"])
    svg += charts.curve_chart('"d"', [(1, 2, "<p>")], "<x>", "<y>")
    assert not re.search(r"<[dnsgpxy]>", svg)
    assert 'aria-label="&quot;d&quot;"' in svg


def test_scores_that_are_no_probabilities(corpus):
    labels = corpus.labels
    raw = Ranking(np.tile([0, 1], (300, 1)), np.tile([3.0, -1.0], (300, 1)), labels)
    evaluation = evaluate(raw, corpus, k=2)
    html = sections.calibration(evaluation, raw, corpus, calibrated=False)
    assert "not probabilities" in html
    assert "dashed line" not in html
    assert html.count("<circle") == 2
    rate = corpus.label_counts[0] / 300
    assert f"300 answers, {100 * rate:.1f} % right" in html


# ------------------------------------------------------------ the Pareto curve
def test_the_curve_of_points():
    points = [
        SimpleNamespace(weight=w, precision=0.8 - w / 10, metric=0.2 + w / 10) for w in (0, 0.5, 1)
    ]
    html = sections.pareto(points, "macro-f1", 5, 100, 50)
    assert html.count("<circle") == 3
    assert "75.00" in html
    assert "macro-f1" in html


def test_the_curve_is_on_the_page(tree_tagger, corpus):
    curve = decision.pareto(tree_tagger.rank(corpus, len(tree_tagger.labels)), 5, truth=corpus)
    page = report.render(tree_tagger, corpus)
    for point in curve.points:
        assert f"{100 * point.metric:.2f}" in page


# ------------------------------------------------------------ colours
def luminance(colour: str) -> float:
    digits = colour if len(colour) == 6 else "".join(2 * c for c in colour)
    channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(scheme):
    schemes = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    found = dict(re.findall(r"--(\w+): #(\w+)", schemes[scheme == "dark"]))
    for background in ("paper", "card"):
        for name in ("ink", "soft", "good", "one", "two", "three", "four"):
            pair = sorted(luminance(found[key]) for key in (background, name))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (name, background)
