"""Labels that join a tagger without training, leave it, or get other names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel import Corpus, LabelSet, load, systems
from megalabel.base import integer, value
from megalabel.data import Concept, Vocabulary
from megalabel.data.synthetic import generate
from megalabel.decision import FrankWolfe
from megalabel.errors import DataError, ParameterError, ShapeError, UnknownLabelError
from megalabel.features import Tfidf
from megalabel.linear.blend import Blend
from megalabel.mixing import mix
from megalabel.parts import Featurizer
from megalabel.tagger import Tagger

NEW = ["red summer gown", "copper kettle", "qqq zzz"]
# systems with rows of labels, and settings that give small trees
ROWED = {
    "dismec": {},
    "ova-logistic": {},
    "xr-linear": {"max_leaf": 20, "trees": 2},
    "bonsai": {"max_leaf": 20, "trees": 1},
    "plt": {"max_leaf": 20, "classifier__exact": False},
}


@pytest.fixture(scope="module")
def shop() -> Corpus:
    return generate(texts=700, labels=200).corpus


@pytest.fixture(scope="module")
def fitted(shop):
    made: dict[str, Tagger] = {}

    def get(name: str) -> Tagger:
        if name not in made:
            made[name] = systems.create(name, **ROWED.get(name, {})).fit(shop[:500])
        return made[name]

    return get


@pytest.fixture(scope="module")
def mixed(fitted, shop) -> Tagger:
    return mix([fitted("dismec"), fitted("knn")], shop[500:600], form="means")


def scores(tagger: Tagger, corpus: Corpus) -> csr_matrix:
    """What the classifier says of every label, as far as it looks."""
    return tagger._scores(corpus, len(tagger.labels))


@pytest.mark.parametrize("name", ROWED)
def test_labels_that_are_there_do_not_move(name, fitted, shop):
    tagger = fitted(name)
    more, queries, known = tagger.add_labels(NEW), shop[600:], len(tagger.labels)
    assert more.labels.ids.to_pylist()[known:] == NEW
    assert len(tagger.labels) == known
    before, after = scores(tagger, queries), scores(more, queries)
    for row in range(len(queries)):
        then = dict(zip(before.ids[row].tolist(), before.scores[row].tolist(), strict=True))
        now = dict(zip(after.ids[row].tolist(), after.scores[row].tolist(), strict=True))
        # where a beam ends, labels that came take places of candidates
        assert all(then[label] == score for label, score in now.items() if label < known)
        assert set(before.ids[row, :5]) <= set(after.ids[row])
        old = [label for label in after.ids[row].tolist() if label < known]
        assert old == [label for label in before.ids[row].tolist() if label in set(old)]


@pytest.mark.parametrize("name", [*ROWED, "knn"])
def test_labels_that_came_and_went_leave_no_trace(name, fitted, shop):
    tagger, queries = fitted(name), shop[600:]
    back = tagger.add_labels(NEW).remove_labels(NEW)
    for one, other in ((tagger.rank(queries, 20), back.rank(queries, 20)),):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one.scores, other.scores)
    np.testing.assert_array_equal(back.label_counts_, tagger.label_counts_)


@settings(max_examples=8, deadline=None)
@given(
    words=st.lists(st.sampled_from(["red", "blue", "gown", "kettle", "qqq"]), min_size=1),
    gone=st.sets(st.integers(0, 199), max_size=30),
)
def test_any_labels_may_come_and_go(fitted, shop, words, gone):
    tagger, queries = fitted("xr-linear"), shop[600:620]
    names = [f"{word} {i}" for i, word in enumerate(words)]
    ids = [tagger.labels.ids[i].as_py() for i in sorted(gone)]
    one = tagger.add_labels(names).remove_labels([*ids, *names])
    other = tagger.remove_labels(ids) if ids else tagger
    np.testing.assert_array_equal(one.rank(queries, 5).ids, other.rank(queries, 5).ids)
    np.testing.assert_array_equal(one.rank(queries, 5).scores, other.rank(queries, 5).scores)


@pytest.mark.parametrize("name", ["dismec", "ova-logistic", "bonsai", "knn"])
def test_a_new_label_is_found_by_its_name(name, fitted):
    more = fitted(name).add_labels(NEW)
    assert NEW[0] in [tag.label for tag in more.tag("red summer gown", k=20)]
    assert NEW[1] in [tag.label for tag in more.tag("a copper kettle", k=20)]


@pytest.mark.parametrize("name", [*ROWED, "knn"])
def test_words_that_training_has_not_met_join(name, fitted, shop, tmp_path):
    tagger, names = fitted(name), ["qqq", "red yyy", "zzz"]
    texts = ["a qqq for the garden", "yyy red yyy", "zzz"]
    more = tagger.add_labels(names[:2]).add_labels(names[2:])
    found = [[tag.label for tag in tags] for tags in more.tag(texts, k=20)]
    assert [name in labels for name, labels in zip(names, found, strict=True)] == [True] * 3
    more.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.rank(texts, 9).scores, more.rank(texts, 9).scores)
    if name != "knn":  # neighbours vote
        rows, wider = tagger.features_.transform(texts), more.features_.transform(texts)
        np.testing.assert_array_equal(wider[:, : rows.shape[1]].toarray(), rows.toarray())


def test_words_left_out_for_being_common_stay_out():
    texts, labels = ["the cat", "the dog", "the cow"] * 9, [["cat"], ["dog"], ["cow"]] * 9
    tagger = systems.create("dismec").set_params(features__max_df=0.5).fit(texts, labels)
    assert tagger.add_labels(["the hen"]).features_ is tagger.features_


@pytest.mark.parametrize("name", ["bonsai", "xr-linear"])
def test_what_is_said_of_new_labels_opens_no_branch(name, fitted, shop):
    tagger, queries = fitted(name), shop[600:650]
    told = ["blue and red things of oak, made for summer"] * 150
    more = tagger.add_labels([f"zeb{i}qq" for i in range(150)], texts=told)
    before, after = scores(tagger, queries), scores(more, queries)
    for row in range(len(queries)):
        now = dict(zip(after.ids[row].tolist(), after.scores[row].tolist(), strict=True))
        for label, score in zip(before.ids[row, :5], before.scores[row, :5], strict=True):
            assert now[int(label)] == score


def test_members_that_read_the_same_words_hear_of_new_ones(shop):
    made = systems.create("mix", members=["xr-linear", "knn"]).fit(shop[:500])
    assert len(set(made.classifier_.sources_.tolist())) == 1
    more = made.add_labels(["zebra"])
    assert "zebra" in [tag.label for tag in more.tag("a zebra", k=10)]


@pytest.mark.parametrize("name", [*ROWED, "knn"])
def test_words_leave_with_their_labels(name, fitted):
    tagger = fitted(name)
    back = tagger.add_labels(["zebra", "red zebu"]).remove_labels(["zebra", "red zebu"])
    assert back.features_.n_features == tagger.features_.n_features
    assert back.tag("zebra zebu", k=3) == tagger.tag("zebra zebu", k=3)
    some = tagger.add_labels(["zebra", "red zebu"]).remove_labels(["zebra"])
    assert "red zebu" in [tag.label for tag in some.tag("red zebu", k=20)]


def test_an_encoder_beside_words_that_came(fitted, shop):
    more = fitted("dismec").add_labels(["zebra"])
    both = more.add_labels(["okapi"], encoder=Letters())
    texts, known = ["a zebra", "a red zebra of oak"], len(more.labels)
    before, after = more._scores(texts, known), both._scores(texts, known + 1)
    for row in range(len(texts)):
        now = dict(zip(after.ids[row].tolist(), after.scores[row].tolist(), strict=True))
        for label, score in zip(before.ids[row].tolist(), before.scores[row].tolist(), strict=True):
            assert now[label] == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize("name", ["dismec", "knn"])
def test_stems_do_not_move_scores(name):
    texts = ["new fresh thing", "old stale thing", "fresh cars", "stale things"] * 6
    labels = [["fresh"], ["stale"], ["fresh"], ["stale"]] * 6
    tagger = systems.create(name).set_params(features__stemmer="english").fit(texts, labels)
    before = tagger.rank(["the news"], 2)
    after = tagger.add_labels(["news"]).remove_labels(["news"]).rank(["the news"], 2)
    np.testing.assert_array_equal(before.scores, after.scores)
    np.testing.assert_array_equal(before.ids, after.ids)


def test_arrays_are_shared(fitted):
    tagger = fitted("xr-linear")
    known = tagger.features_.terms_.to_pylist()[:2]
    for made in (tagger.add_labels(known), tagger.rename_labels({"group-1": "wooden"})):
        assert made.features_ is tagger.features_
        assert made.text_hashes_ is tagger.text_hashes_
    more = tagger.add_labels(known)
    for tree, other, levels, others in zip(
        tagger.classifier_.trees_,
        more.classifier_.trees_,
        tagger.classifier_.levels_,
        more.classifier_.levels_,
        strict=True,
    ):
        assert all(a is b for a, b in zip(levels[:-1], others[:-1], strict=True))
        assert all(a is b for a, b in zip(tree.levels_[:-1], other.levels_[:-1], strict=True))


@pytest.mark.parametrize("name", ["dismec", "bonsai", "knn"])
def test_other_names_change_names_alone(name, fitted, shop):
    tagger, queries = fitted(name), shop[600:]
    old = tagger.labels.name(3)
    renamed = tagger.rename_labels({tagger.labels.ids[3].as_py(): "something else"})
    assert (renamed.labels.name(3), tagger.labels.name(3)) == ("something else", old)
    assert renamed.labels.ids.equals(tagger.labels.ids)
    np.testing.assert_array_equal(renamed.rank(queries, 9).scores, tagger.rank(queries, 9).scores)
    np.testing.assert_array_equal(renamed.rank(queries, 9).ids, tagger.rank(queries, 9).ids)
    assert renamed.classifier_.labels_.name(3) == "something else"


def test_a_mix_and_its_members(mixed, shop):
    queries, known = shop[600:], len(mixed.labels)
    more = mixed.add_labels(NEW)
    assert [len(member.labels_) for member in more.classifier_.members_] == [known + 3] * 2
    assert NEW[0] in [tag.label for tag in more.tag("red summer gown", k=5)]
    back = more.remove_labels(NEW)
    np.testing.assert_array_equal(back.rank(queries, 9).ids, mixed.rank(queries, 9).ids)
    renamed = mixed.rename_labels({mixed.labels.ids[0].as_py(): "first"})
    assert [member.labels_.name(0) for member in renamed.classifier_.members_] == ["first"] * 2
    np.testing.assert_array_equal(renamed.rank(queries, 9).scores, mixed.rank(queries, 9).scores)


# ------------------------------------------------------------------ names looked for in texts
NAMED = {  # systems that look for names, with words that no text of training has
    "lexical": {},
    "zeroshot": {"language": "en"},
    "zeroshot, vectors": {"language": "en", "encoder": Tfidf(), "judge": None},
}
FJORDS = ["sailing on fjords", "fjord gown"]
TEXTS = ["a boat that sails on the fjord", "fjord", "a red fjord gown", "qqq fjords and kettles"]


@pytest.fixture(scope="module")
def named(shop):
    made: dict[str, Tagger] = {}

    def get(name: str) -> Tagger:
        if name not in made:
            made[name] = systems.create(name.split(",")[0], **NAMED[name]).fit(shop[:500])
        return made[name]

    return get


@pytest.mark.parametrize("name", NAMED)
def test_a_label_is_found_by_words_that_no_text_had(name, named, shop, tmp_path):
    pytest.importorskip("snowballstemmer")
    tagger = named(name)
    more, queries = tagger.add_labels(FJORDS), [*shop[600:].texts.to_pylist(), *TEXTS]
    assert [more.tag(text, k=1)[0].label for text in TEXTS[::2]] == FJORDS
    known = len(tagger.labels)
    assert more.label_counts_[known:].tolist() == [0, 0]
    before, after = scores(tagger, queries).to_csr(), scores(more, queries).to_csr()
    if name == "lexical":  # which looks at what else a text names
        spoken = ["fjord" in text for text in queries]
        before, after = before[~np.array(spoken)], after[~np.array(spoken)]
    np.testing.assert_allclose(after[:, :known].toarray(), before.toarray(), atol=1e-8)
    back = more.remove_labels(FJORDS)
    again = more.add_labels(["whales"]).remove_labels(["whales"])
    for one, other in ((tagger, back), (more, again), (more, saved(more, tmp_path))):
        np.testing.assert_array_equal(one.rank(queries, 9).ids, other.rank(queries, 9).ids)
        np.testing.assert_array_equal(one.rank(queries, 9).scores, other.rank(queries, 9).scores)
    loaded = saved(tagger, tmp_path).add_labels(FJORDS)
    np.testing.assert_array_equal(loaded.rank(queries, 9).scores, more.rank(queries, 9).scores)


def saved(tagger: Tagger, folder) -> Tagger:
    tagger.save(folder / "model")
    return load(folder / "model")


def test_all_names_of_a_concept_are_looked_for():
    pytest.importorskip("snowballstemmer")
    concepts = [
        Concept("u:1", {"en": "gowns"}, {"en": ["evening dresses"]}),
        Concept("u:2", {"en": "trousers"}, {"en": ["jeans"]}),
        Concept("u:3", {"en": "headgear"}, {"en": ["hats", "caps"]}, broader=["u:1"]),
    ]
    whole = LabelSet(["u:1", "u:2", "u:3"]).joined(Vocabulary.of(concepts), "en")
    texts = ["red evening gown", "red dress", "blue jeans", "old jeans", "red dresses"] * 8
    targets = csr_matrix(np.array([[1, 0], [1, 0], [0, 1], [0, 1], [0, 0]] * 8, np.float32))
    for name in ("lexical", "zeroshot"):
        tagger = systems.create(name).fit(Corpus(texts, None, targets, whole.take([0, 1])))
        more = tagger.add_labels(["headgear"])
        assert more.tag("two caps of his", k=1)[0].label == "headgear"
        assert more.labels.ids[2].as_py() == "u:3"
    assert more.remove_labels(["u:1"]).tag("caps", k=1)[0].label == "headgear"
    links = tagger.add_labels(["headgear"]).labels.links("broader")
    assert links[2, 0]


def test_a_mix_of_systems_that_look_for_names(named, fitted, shop):
    pytest.importorskip("snowballstemmer")
    members = [named("lexical"), fitted("dismec"), named("zeroshot")]
    both = mix(members, shop[500:600], form="means", held_out=True)
    more = both.add_labels(FJORDS)
    assert [len(member.labels_) for member in more.classifier_.members_] == [len(more.labels)] * 3
    assert FJORDS[1] in [tag.label for tag in more.tag(TEXTS[2], k=5)]
    back, queries = more.remove_labels(FJORDS), shop[600:]
    np.testing.assert_array_equal(back.rank(queries, 9).scores, both.rank(queries, 9).scores)


def test_names_are_looked_for_not_vectors(named, fitted, shop):
    pytest.importorskip("snowballstemmer")
    rows = fitted("dismec").features_.transform(["gown"])
    for name in ("lexical", "zeroshot"):
        with pytest.raises(ParameterError, match="looks for names by vectors"):
            named(name).add_labels(["fjord"], vectors=rows)
    members = [named("lexical"), fitted("dismec")]
    both = mix(members, shop[500:600], form="means", held_out=True)
    more = both.add_labels(["fjord"], vectors=rows)  # by the member that they are for
    joined = [len(member.labels_) - len(both.labels) for member in more.classifier_.members_]
    assert joined == [0, 1]
    assert more.rank(["a gown on a fjord"], 5).present.all()


def test_definitions_join_with_their_labels():
    texts, labels = ["a red dress", "blue jeans", "old trousers"] * 8, ["dress", "trousers"]
    made = systems.create("zeroshot", encoder=Tfidf(), judge=None)
    tagger = made.fit(Corpus(texts, labels=labels))
    assert tagger.classifier_.definitions_ is None
    more = tagger.add_labels(["denim", "old"], texts=["denim: blue trousers", "old"])
    told = more.classifier_.definitions_.any(axis=1).tolist()
    assert told == [False, False, True, False]
    assert more.tag("blue", k=1)[0].label == "denim"


@pytest.mark.parametrize("name", ["dismec", "bonsai", "knn"])
def test_saved_and_loaded_with_new_labels(name, fitted, shop, tmp_path):
    more = fitted(name).add_labels(NEW)
    more.save(tmp_path / "model")
    loaded = load(tmp_path / "model", verify=True)
    np.testing.assert_array_equal(loaded.rank(shop[600:], 9).ids, more.rank(shop[600:], 9).ids)
    assert loaded.provenance_["relabelled"][0]["labels"] == 3
    again = loaded.add_labels(["blue lamp"]).remove_labels(["blue lamp"])
    np.testing.assert_array_equal(again.rank(shop[600:], 9).ids, more.rank(shop[600:], 9).ids)


def test_labels_alone_are_read_from_a_vocabulary():
    vocabulary = Vocabulary.of(
        [
            Concept("http://x/1", {"en": "gowns"}, {"en": ["evening dresses"]}),
            Concept("http://x/2", {"en": "trousers"}, {"en": ["jeans"]}),
            Concept("http://x/3", {"en": "headgear"}, {"en": ["hats", "caps"]}),
        ]
    )
    labels = LabelSet(
        ["http://x/1", "http://x/2"], ["gowns", "trousers"], None, vocabulary, [0, 1], "en"
    )
    texts = ["red evening gown", "red dress", "blue jeans", "old jeans", "hats and caps of red"] * 8
    targets = csr_matrix(np.array([[1, 0], [1, 0], [0, 1], [0, 1], [0, 0]] * 8, np.float32))
    tagger = systems.create("dismec").fit(Corpus(texts, None, targets, labels))
    more = tagger.add_labels(["http://x/3"])
    assert more.labels.name(2) == "headgear"
    assert more.tag("caps and hats", k=1)[0].label == "headgear"  # by other names
    with pytest.raises(UnknownLabelError, match="unknown concept"):
        tagger.add_labels(["headgearings"])
    own = tagger.add_labels([("mine-1", "electric scooters")])
    assert (own.labels.ids[2].as_py(), own.labels.concepts.tolist()) == ("mine-1", [0, 1, -1])


def test_texts_of_new_labels_are_learned(shop, fitted):
    for name in ("dismec", "bonsai", "ova-logistic", "xr-linear"):
        tagger = fitted(name)
        positives = Corpus(
            ["zebra crossing lamp", "zebra stripes lamp", "green table"],
            targets=[["stripes"], ["stripes"], []],
        )
        before = tagger.classifier_.joined_
        by_name = tagger.add_labels(["stripes"])
        more = tagger.add_labels(["stripes"], positives=positives)
        assert tagger.classifier_.joined_ is before
        for text, falls in (("lamp with stripes", False), ("green table", True)):
            margins = []
            for made in (by_name, more):
                ranking = made._scores([text], len(made.labels))
                margins.append(ranking.scores[ranking.ids == len(tagger.labels)].max(initial=0))
            assert (margins[1] <= margins[0]) if falls else (margins[1] >= margins[0])
        assert more.label_counts_[-1] == 2
        again = load_of(tagger).partial_fit(positives)  # joins by its name, then learns
        assert again.labels == more.labels
        np.testing.assert_array_equal(
            again.rank(shop[600:], 5).scores, more.rank(shop[600:], 5).scores
        )


def load_of(tagger: Tagger) -> Tagger:
    """A tagger that may change, of another's arrays."""
    from megalabel.base import clone

    made = clone(tagger)
    made.restore(tagger.learned())
    return made


def test_what_was_trained_stays(fitted, shop):
    with pytest.raises(ParameterError, match="goes on learning labels alone that were added"):
        load_of(fitted("dismec")).partial_fit(shop[600:610])


def test_classifiers_of_labels_are_made_as_asked(fitted):
    tagger = fitted("dismec")
    own = tagger.add_labels(["copper kettle"], how="text").classifier_.weights_.to_csr()[-1]
    near = tagger.add_labels(["copper kettle"], how="neighbours").classifier_.weights_.to_csr()[-1]
    both = tagger.add_labels(["copper kettle"]).classifier_.weights_.to_csr()[-1]
    assert own.nnz < both.nnz
    assert set(own.indices) <= set(both.indices)
    assert len(set(near.indices) - set(both.indices))  # what is small beside the name is left out
    louder = tagger.add_labels(["copper kettle"], how=Blend(shift=5.0))
    assert louder.tag("something else", k=1)[0].label == "copper kettle"
    blank = tagger.add_labels(["qqq zzz"]).classifier_.weights_.to_csr()[-1]
    assert blank.nnz == 3  # its words and the bias
    # a label that nothing speaks for must not fill the top
    assert blank.toarray()[0, -1] * tagger.classifier_.bias < -0.8


def test_what_counts_is_learned_from_other_texts(fitted, shop):
    for name in ("dismec", "bonsai", "ova-logistic"):
        tagger = fitted(name)
        more = tagger.add_labels(NEW, on=shop[500:600])
        assert NEW[0] in [tag.label for tag in more.tag("red summer gown", k=20)]
        queries, known = shop[600:], len(tagger.labels)
        before, after = tagger.rank(queries, 5), more.rank(queries, 5)
        assert np.isin(before.ids, after.ids).mean() > 0.9
        assert (after.ids >= known).mean() < 0.1
        again = tagger.add_labels(NEW, on=shop[500:600])
        np.testing.assert_array_equal(after.ids, again.rank(queries, 5).ids)


class Letters(Featurizer):
    """Dense vectors of texts, as an encoder's are."""

    LEARNED = {"n_texts_": value(integer(0))}  # noqa: RUF012

    def fit(self, inputs, y=None):
        self.n_texts_ = len(inputs)
        return self

    def transform(self, inputs):
        texts = inputs.texts.to_pylist() if isinstance(inputs, Corpus) else list(inputs)
        counts = [[str(text).count(letter) for letter in "abcdefghij"] for text in texts]
        return np.asarray(counts, np.float32)

    @property
    def n_features(self):
        return 10


@pytest.mark.parametrize("name", ["dismec", "bonsai"])
def test_an_encoder_for_new_labels_alone(name, fitted, shop):
    tagger, queries = fitted(name), shop[600:]
    more = tagger.add_labels(["abba", "jiji"], encoder=Letters(), on=shop[500:600])
    known = len(tagger.labels)
    before, after = scores(tagger, queries), scores(more, queries)
    for row in range(len(queries)):
        then = dict(zip(before.ids[row].tolist(), before.scores[row].tolist(), strict=True))
        now = dict(zip(after.ids[row].tolist(), after.scores[row].tolist(), strict=True))
        for label, score in now.items():
            assert label >= known or score == pytest.approx(then[label], rel=1e-5, abs=1e-7)
    width = tagger.features_.n_features
    weights = more.classifier_.weights_.to_csr() if name == "dismec" else None
    if weights is not None:
        assert weights[:known, width:-1].nnz == 0
    again = more.add_labels(["dodo"], on=shop[500:600])  # which has the encoder by now
    assert again.features_ is more.features_
    with pytest.raises(ParameterError, match="an encoder can be put beside the features of a lin"):
        fitted("knn").add_labels(["abba"], encoder=Letters())


def test_vectors_in_place_of_texts(shop):
    rows = np.eye(6, dtype=np.float32)
    tagger = systems.create("dismec").fit(rows, [["a"], ["b"], ["a"], ["b"], ["c"], []])
    with pytest.raises(ParameterError, match="reads no texts: give vectors"):
        tagger.add_labels(["d"])
    more = tagger.add_labels(["d"], vectors=rows[5:])
    assert more.rank(rows[5:], 1).tags()[0][0].label == "d"
    with pytest.raises(ShapeError, match="vectors are"):
        tagger.add_labels(["d"], vectors=rows)


def test_decisions_know_labels_that_came(fitted, shop):
    tagger = load_of(fitted("dismec"))
    tagger.set_decision(FrankWolfe("macro-f1", k=2), shop[500:600])
    more = tagger.add_labels(NEW)
    assert len(more.decision_.weights_) == len(more.labels)
    assert len(more.tag("red summer gown", k=2)) == 2


def test_errors_say_what_to_do(fitted):
    tagger = fitted("dismec")
    label = tagger.labels.ids[5].as_py()
    for labels, error, message in (
        ([label], ParameterError, f"label {label!r} is there already"),
        (["new", "new"], DataError, "label 'new' is given twice"),
        (["new", " "], DataError, "label 2 of 2 .* has no name"),
        ([], ParameterError, "no label to add"),
        ("new", ParameterError, "give labels as a list"),
        ([("a", "b", "c")], ParameterError, "pairs of identifier and name"),
    ):
        with pytest.raises(error, match=message):
            tagger.add_labels(labels)
    with pytest.raises(ParameterError, match="give it or vectors, not both"):
        tagger.add_labels(["new"], vectors=np.ones((1, 3)), encoder=Letters())
    with pytest.raises(ParameterError, match="how must be one of 'all'"):
        tagger.add_labels(["new"], how="magic")
    with pytest.raises(UnknownLabelError, match=f"unknown label '{label}x'; did you mean"):
        tagger.remove_labels([f"{label}x"])
    with pytest.raises(ParameterError, match="at least one label"):
        tagger.remove_labels(tagger.labels.ids.to_pylist())
    with pytest.raises(UnknownLabelError, match="unknown label 'nothing"):
        tagger.rename_labels({"nothing of the kind": "new"})
    with pytest.raises(ParameterError, match="the new name of"):
        tagger.rename_labels({label: ""})


@pytest.mark.parametrize("name", ["lexical", "mix"])
def test_labels_that_one_text_carries_do_not_make_new_ones_certain(name):
    random = np.random.default_rng(0)
    nouns = [f"noun{number}x" for number in range(400)]
    daily = [f"daily{number}x" for number in range(60)]
    texts, labels = [], []
    for row in range(900):  # most labels are those of a single text
        own = nouns[int(random.geometric(0.03)) % 130] if row % 3 else nouns[130 + row % 270]
        words = [own, *(nouns[int(place) % 130] for place in random.geometric(0.03, 3))]
        words.append(daily[row % len(daily)])
        texts.append(" ".join(random.permutation(words)))
        labels.append([own])
    tagger = systems.create(name).fit(texts, labels)
    more = tagger.add_labels(daily)
    tags = [tag for some in more.tag(texts[:100], k=3) for tag in some]
    found = [tag.probability for tag in tags if tag.label in daily]
    assert max(found, default=0.0) < 0.9
    right = [
        tags[0].label == own[0] for tags, own in zip(more.tag(texts, k=1), labels, strict=True)
    ]
    before = [t[0].label == own[0] for t, own in zip(tagger.tag(texts, k=1), labels, strict=True)]
    assert np.mean(right) > np.mean(before) - 0.1
