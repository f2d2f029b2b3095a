"""Why a label: words, neighbours, and words left out, in one form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from megalabel import Ranking, Tagger, systems
from megalabel.data import Concept, Corpus, Vocabulary
from megalabel.errors import DataError, ParameterError
from megalabel.explaining import Evidence, Reason, reasons_for
from megalabel.features import Tfidf
from megalabel.linear import OneVsAll, Prior
from megalabel.mixing import mix
from megalabel.parts import Classifier, Featurizer
from megalabel.rankers import Ensemble

TEXTS = ["red dress", "red evening dress", "blue jeans", "faded blue jeans"]
LABELS = [["dress"], ["dress"], ["jeans"], ["jeans"]]


class Marked(Classifier):
    """Scores the label 0 by three times the first column and twice the second, less one; what is
    ranked is noted."""

    def _fit(self, examples):
        self.ranked = []

    def rank(self, X, k):
        self.ranked.append(X.shape[0])
        margins = np.asarray(X @ np.array([3.0, 2.0] + [0.0] * (X.shape[1] - 2))) - 1
        other = np.full(len(margins), -9.0)
        return Ranking([[0, 1]] * len(margins), np.column_stack([margins, other]), self.labels_)


def marked(texts=("alpha beta gamma delta",)):
    features = Tfidf(use_idf=False, sublinear_tf=False, norm=None)
    return Tagger(Marked(), features, None).fit(list(texts), [["first", "second"]] * len(texts))


def test_words_left_out_are_worth_what_the_score_falls_by():
    explanation = marked().explain("Alpha, beta! delta", "first")
    [reason] = explanation.reasons
    assert reason.kind == "left out"
    assert reason.share == pytest.approx(4.0)
    assert reason.evidence == [Evidence("Alpha", 3.0), Evidence("beta", 2.0), Evidence("delta", 0)]
    assert "in scores" in reason.title  # not from 0 to 1
    assert "Alpha" in str(explanation)
    twice = marked().explain("alpha beta ALPHA", "first").reasons[0].evidence
    assert twice[0] == Evidence("alpha", 6.0)  # wherever it stands


def test_of_a_long_text_runs_of_words_are_left_out_and_few_texts_are_ranked():
    words = [f"w{i}" for i in range(500)]
    text = " ".join([*words[:300], "alpha", *words[300:]])
    tagger = marked()
    tagger.classifier_.ranked.clear()
    [reason] = tagger.explain(text, "first", words=2).reasons
    assert tagger.classifier_.ranked == [1, 63 + 1]  # the probability; then all in one batch
    assert "alpha" in reason.evidence[0].text.split()
    assert reason.evidence[0].text in text
    assert [round(item.share, 6) for item in reason.evidence] == [3, 0]
    assert len(str(reason.table()[1][0][0])) <= 80


def test_probabilities_are_compared_as_logits():
    tagger = Tagger(Ensemble(OneVsAll(), models=2, combine="sigmoid"), Tfidf(), None)
    tagger.fit(TEXTS, LABELS)
    [reason] = tagger.explain("a blue dress", "dress").reasons
    assert reason.kind == "left out"
    assert "in logits" in reason.title
    shares = {item.text: item.share for item in reason.evidence}
    assert shares["dress"] > 0 > shares["blue"]
    assert shares["a"] == 0
    one, none = (
        tagger.rank([text], 2).to_csr().toarray()[0, 0] for text in ("a blue dress", "a blue")
    )
    fall = np.log(one / (1 - one)) - np.log(none / (1 - none))
    assert shares["dress"] == pytest.approx(fall, rel=1e-4)


class Numbers(Featurizer):
    """Whether a text has two words, as numbers without a name."""

    def fit(self, inputs, y=None):
        return self

    def transform(self, inputs):
        texts = inputs.texts.to_pylist() if isinstance(inputs, Corpus) else inputs
        return np.array([["dress" in text, "blue" in text] for text in texts], np.float32)

    @property
    def n_features(self):
        return 2


def test_a_linear_classifier_over_vectors_alone_has_no_words():
    tagger = Tagger(OneVsAll(), Numbers(), None).fit(TEXTS, LABELS)
    [reason] = tagger.explain("a blue dress", "dress").reasons
    assert reason.kind == "left out"
    shares = {item.text: item.share for item in reason.evidence}
    assert shares["dress"] > 0 > shares["blue"]


def test_neighbours_are_named_by_how_they_begin():
    long = "red evening dress\nwith   a hem " + "and much more of the same " * 9
    tagger = systems.create("knn").fit([TEXTS[0], long, *TEXTS[2:]], LABELS)
    explanation = tagger.explain("a red evening dress", "dress")
    [reason] = explanation.reasons
    assert reason.kind == "neighbours"
    assert {item.text for item in reason.evidence} == {
        "red dress",
        "red evening dress with a hem and much more of the same and much more of the s…",
    }
    assert {item.row for item in reason.evidence} == {0, 1}
    assert all(0 < item.similarity <= 1 for item in reason.evidence)
    plain = Tagger(tagger.classifier, tagger.features, None).fit(
        [TEXTS[0], long, *TEXTS[2:]], LABELS
    )
    score = plain.rank(["a red evening dress"], 1).scores[0, 0]
    assert sum(item.share for item in reason.evidence) == pytest.approx(score)
    assert reason.share == pytest.approx(score)
    [none] = tagger.explain("a red evening dress", "jeans").reasons
    assert (none.evidence, none.share) == ([], 0)


@pytest.mark.parametrize("form", ["means", "stack", "boosted"])
def test_a_mix_says_what_each_member_is_worth(corpus, form):
    train, others = corpus[:150], corpus[150:]
    members = [systems.create(name).fit(train) for name in ("knn", "dismec")]
    tagger = mix(members, others, form=form, shortlist=3, calibration=None)
    explanation = tagger.explain("red evening gown", "dress")
    worth, *others = explanation.reasons
    assert worth.kind == "members"
    assert {item.text for item in worth.evidence} == {
        "knn",
        "dismec",
        "(match of the label's name)",
    }
    assert worth.share == pytest.approx(explanation.probability, abs=0.01)  # but for ties
    assert sum(item.share for item in worth.evidence) > 0
    assert [reason.kind for reason in others] == ["neighbours", "words"]
    for member, reason in zip(members, others, strict=True):
        [own] = member.explain("red evening gown", "dress").reasons
        assert reason.evidence == own.evidence
        assert reason.title.lower() == f"{member.system}: {own.title}".lower()
    unlisted = tagger.explain("red evening gown", "never seen").reasons[0]
    assert unlisted.evidence == []
    assert "best 3 labels of any member" in unlisted.title


def test_members_of_one_system_are_numbered_and_older_mixes_name_classes(corpus):
    train, others = corpus[:150], corpus[150:]
    members = [systems.create("knn", neighbours=n).fit(train) for n in (5, 20)]
    tagger = mix([*members, systems.create("dismec").fit(train)], others, form="means")

    def named() -> set[str]:
        return {item.text for item in tagger.explain("red evening gown").reasons[0].evidence}

    assert named() >= {"knn 1", "knn 2", "dismec"}
    tagger.provenance_ = {}
    assert named() >= {"NearestNeighbours 1", "NearestNeighbours 2", "OneVsAll"}


def test_titles_are_kept_saved_and_joined_by_those_of_new_texts(tmp_path):
    tagger = systems.create("knn").fit(TEXTS, LABELS)
    tagger.partial_fit(["green hat, red dress"], [["hat"]])
    tagger.save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model")
    assert [loaded.classifier_.title(row) for row in range(5)] == [*TEXTS, "green hat, red dress"]
    assert loaded.explain("red dress", "hat").reasons[0].evidence[0].row == 4
    few = loaded.take_labels([1])
    assert few.explain("blue jeans", "jeans").reasons[0].evidence[0].text == "blue jeans"
    without = systems.create("knn", keep_titles=False).fit(TEXTS, LABELS)
    assert without.classifier_.title_bytes_ is None
    assert without.explain("red dress").reasons[0].evidence[0].text == "row 0"
    without.classifier_.keep_titles = True  # as a model from before there were titles
    without.partial_fit(["green hat"], [["hat"]])
    assert [without.classifier_.title(row) for row in range(5)] == [""] * 4 + ["green hat"]


def test_without_texts_there_is_nothing_to_explain_by():
    vectors = csr_matrix(np.eye(6)[np.arange(60) % 6])
    corpus = Corpus(features=vectors, targets=csr_matrix(np.eye(3)[np.arange(60) % 3]))
    tagger = systems.create("knn").fit(corpus)
    with pytest.raises(ParameterError, match="vectors made elsewhere"):
        tagger.explain("red dress", "0")


def test_what_is_asked_wrongly_is_told():
    tagger = systems.create("dismec", calibrate=False).fit(TEXTS, LABELS)
    with pytest.raises(DataError, match="nothing in the text is known"):
        tagger.explain("qwertz")
    assert tagger.explain("qwertz", "dress").reasons[0].evidence == []
    with pytest.raises(ParameterError, match="words"):
        tagger.explain("red dress", words=0)


def test_a_label_far_down_is_said_to_be_there(monkeypatch):
    monkeypatch.setattr("megalabel.answering.LOOKED_AT", 1)
    monkeypatch.setattr("megalabel.explaining.LOOKED_AT", 1)
    explanation = Tagger(Prior(), Tfidf(), None).fit(TEXTS, LABELS).explain("red dress", "jeans")
    assert explanation.probability is None
    assert "not among the best 1 labels" in str(explanation)
    assert explanation.reasons[0].evidence == []


def test_classifiers_of_another_kind_bring_their_own_reasons():
    class Two(Marked):
        """Two members, each with its own part in the score."""

    @reasons_for.register(Two)
    def _(classifier, asked):
        parts = [Evidence("knn", 0.5), Evidence("match", -0.25)]
        of_member = reasons_for(OneVsAll().fit(asked.row(), csr_matrix([[1.0]])), asked)
        return [Reason("members", "By members", 0.25, parts), *of_member]

    tagger = Tagger(Two(), Tfidf(), None).fit(["alpha beta"], [["first"]])
    first, second = tagger.explain("alpha", "first").reasons
    assert first.evidence[0].text == "knn"
    assert second.kind == "words"
    assert "+0.500" in str(tagger.explain("alpha", "first"))


def test_a_label_that_was_renamed_is_explained_by_words_of_the_text():
    concepts = [
        Concept("x/1", {"en": "dog"}, {"en": ["old hound"]}),
        Concept("x/2", {"en": "cat"}),
    ]
    corpus = Corpus(["a hound barks", "a cat sits"] * 5, targets=[["dog"], ["cat"]] * 5)
    tagger = systems.create("lexical", stemmer=None).fit(corpus.joined(Vocabulary.of(concepts)))
    for made, label in ((tagger, "dog"), (tagger.rename_labels({"dog": "canine"}), "canine")):
        reason = made.explain("the hound is old", label).reasons[0]
        assert reason.title == "By words of its name: “old hound”"
        assert sorted(word.text for word in reason.evidence) == ["hound", "old"]
