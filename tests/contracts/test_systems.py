"""What every system must do, whatever is inside."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from megalabel import answering, systems
from megalabel.base import clone
from megalabel.data import Corpus, LabelSet
from megalabel.errors import DataError, MegalabelError, NotFittedError, ParameterError
from megalabel.tagger import Tagger

pytestmark = pytest.mark.parametrize("name", systems.names())

NEURAL = [name for name in systems.names() if systems.get(name).neural]
READ_LABELS = (
    "depsl",
    "dexml",
    "ngame",
    "siamesexml",
    "unidec",
    "zeroshot",
)  # and know labels by their texts
# those with rows of labels that can be made of the labels' texts
TAKE_LABELS_IN = {
    *("dismec", "ova-logistic", "xr-linear", "bonsai", "parabel", "plt", "knn", "auto", "mix"),
    *("cascadexml", "xr-transformer", "depsl", "dexml", "ngame", "siamesexml", "unidec"),
    *("lexical", "zeroshot"),
}

QUERIES = [
    "red evening gown",
    "",
    "zzyzx qwrtp",
    "Ωμέγα ﬁne ＲＥＤ дом 紅い 👗",
    "red " * 500,
    "kettle\x00lamp\nchair\t",
]


@pytest.fixture(autouse=True)
def torch_for_neural_systems(name, request):
    """Skip them where there is no torch, else have it run in one thread."""
    if name in NEURAL:
        request.getfixturevalue("one_thread")


@pytest.fixture
def create_for_vectors(name, create):
    """A new tagger; only of systems that vectors will do for."""
    if create(name).classifier.reads_texts:
        pytest.skip("reads texts")
    return lambda: create(name)


@pytest.fixture(scope="module")
def fitted(corpus, create):
    made = {}

    def get(name: str) -> Tagger:
        if name not in made:
            made[name] = create(name).fit(corpus)
        return made[name]

    return get


def answer(tagger: Tagger, inputs=QUERIES, k=5):
    ranking = tagger.rank(inputs, k)
    return ranking.ids, ranking.scores


def assert_same(first, second):
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])


def assert_agree(name, first, second):
    """The same, for neural systems up to rounding: how products are summed up depends on how
    many rows there are."""
    if name not in NEURAL:
        assert_same(first, second)
        return
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_allclose(first[1], second[1], atol=1e-4)


def assert_sound(ranking, n, k):
    assert ranking.ids.shape == (n, k)
    assert ranking.present.all()
    assert np.isfinite(ranking.scores).all()
    assert (np.diff(ranking.scores, axis=1) <= 0).all()
    assert all(len(set(row)) == k for row in ranking.ids.tolist())


def test_answers_every_text(name, fitted):
    assert_sound(fitted(name).rank(QUERIES, 5), len(QUERIES), 5)


def test_scores_are_probabilities(name, fitted, corpus):
    scores = fitted(name).rank(corpus, 5).scores
    assert scores.min() >= 0
    assert scores.max() <= 1


def test_saved_and_loaded_answers_the_same(name, fitted, tmp_path):
    fitted(name).save(tmp_path / "model")
    loaded = Tagger.load(tmp_path / "model", verify=True)
    assert_same(answer(fitted(name)), answer(loaded))
    assert type(loaded) is Tagger
    assert loaded.get_params(deep=False).keys() == set(Tagger.parameter_names())
    assert loaded.system == fitted(name).system
    loaded.save(tmp_path / "model")  # over the folder it is mapped from
    assert_same(answer(fitted(name)), answer(Tagger.load(tmp_path / "model")))


def test_same_for_any_number_of_threads(name, fitted, corpus, threads, create):
    answers = []
    for count in (1, 2, 5):
        threads(count)
        answers.append(answer(create(name).fit(corpus)))
    assert_agree(name, answers[0], answers[1])
    assert_agree(name, answers[0], answers[2])


def test_same_for_any_batch(name, fitted, corpus, monkeypatch):
    whole = answer(fitted(name), corpus)
    monkeypatch.setattr(answering, "_BATCH", 7)
    assert_agree(name, whole, answer(fitted(name), corpus))
    one = fitted(name).rank([QUERIES[0]], 5)
    assert_agree(name, (one.ids[0], one.scores[0]), [a[0] for a in answer(fitted(name))])


def test_same_for_the_same_seed(name, corpus, create):
    first, second = (answer(create(name, seed=3).fit(corpus)) for _ in range(2))
    assert_same(first, second)


def test_learns_from_texts_of_labels_or_says_why_not(name, corpus, create, tmp_path):
    if name in ("auto", "lexical", "mix", "prior", "zeroshot"):
        with pytest.raises(ParameterError, match="label_points"):
            create(name, label_points="cooccurrence").fit(corpus)
        return
    points = "self" if name == "knn" else "cooccurrence"
    tagger = create(name, label_points=points)
    assert systems.get(name).plan(tagger, corpus).fits
    tagger.fit(corpus)
    assert_sound(tagger.rank(QUERIES, 5), len(QUERIES), 5)
    assert tagger.label_counts_.tolist() == corpus.label_counts.tolist()
    tagger.save(tmp_path / "model")
    assert_same(answer(tagger), answer(Tagger.load(tmp_path / "model")))


def test_k_larger_than_the_labels(name, fitted):
    labels = len(fitted(name).labels)
    assert_sound(fitted(name).rank(QUERIES, labels + 50), len(QUERIES), labels)


def test_the_first_k_do_not_depend_on_k(name, fitted):
    np.testing.assert_array_equal(answer(fitted(name), k=3)[0], answer(fitted(name), k=9)[0][:, :3])


def test_one_label(name, create):
    fitted = create(name).fit(["a cat", "a dog", "a bird"], [["pet"], ["pet"], []])
    assert [[t.label for t in tags] for tags in fitted.tag(["a cat", ""])] == [["pet"], []]
    assert fitted.rank([""], 5).ids.tolist() == [[0]]


def test_one_text(name, create):
    fitted = create(name).fit(["a cat sleeps"], [["pet", "quiet"]])
    assert {t.label for t in fitted.tag("a cat")} == {"pet", "quiet"}


def test_texts_without_labels_and_empty_texts_in_training(name, create):
    fitted = create(name).fit(["a cat", "", "no label here"], [["pet"], ["blank"], []])
    assert_sound(fitted.rank(["a cat", ""], 2), 2, 2)


def test_texts_of_no_known_word_only(name, create):
    # nothing that a word-based featurizer could learn from
    try:
        fitted = create(name).fit(["!!!", "?", ""], [["a"], ["b"], ["a"]])
    except DataError:
        return
    assert fitted.rank(["!!!"], 1).ids.tolist() == [[fitted.labels.index("a")]]


def test_a_text_of_which_nothing_is_known_is_not_answered(name, fitted):
    tagger, texts = fitted(name), ["red evening gown", "", " \n\t", "zzyzx qwrtp"]
    known = tagger.known(texts)
    assert known[:3].tolist() == [True, False, False]
    if name not in (*NEURAL, "prior", "online-plt"):  # which know pieces of words, or hash any
        assert not known[3]
    assert [bool(tags) for tags in tagger.tag(texts)] == known.tolist()
    assert [bool(labels) for labels in tagger.predict(texts).getnnz(1)] == known.tolist()
    assert tagger.rank(texts, 5).present.all()
    assert not tagger.rank(texts, 5, unknown=False).present[~known].any()


def test_labels_below_a_threshold_are_left_out(name, fitted):
    tagger = fitted(name)
    scores = tagger.rank(QUERIES[:1], 5).scores[0]
    threshold = float(scores[2])
    kept = [tag.probability for tag in tagger.tag(QUERIES[0], threshold=threshold)]
    assert len(kept) == (scores >= threshold).sum()
    assert all(kept)
    assert tagger.tag(QUERIES[0], threshold=1.0) == []
    with pytest.raises(ParameterError, match="threshold"):
        tagger.tag(QUERIES[0], threshold=1.5)


def test_the_best_label_is_explained_in_one_form(name, fitted, corpus):
    tagger, text = fitted(name), "red evening gown for everyone"
    tagger.explain(text)  # the first call opens encoders
    started = time.process_time()  # whatever else the machine does
    explanation = tagger.explain(text, words=4)
    assert time.process_time() - started < 1
    [best] = tagger.tag(text, k=1)
    assert (explanation.label, explanation.probability) == best[:2]
    assert explanation.reasons
    texts = corpus.texts.to_pylist()
    for reason in explanation.reasons:
        assert reason.kind in ("words", "neighbours", "names", "left out", "members")
        assert np.isfinite(reason.share + reason.bias)
        assert 1 <= len([item for item in reason.evidence if item.text != "(vector)"]) <= 4
        for item in reason.evidence:
            assert np.isfinite(item.share)
            if reason.kind == "neighbours":
                assert item.text == texts[item.row]
                assert corpus.targets[item.row, corpus.labels.index(best.label)]
            elif reason.kind != "members":
                assert item.text in (*text.split(), "(vector)")
        assert reason.title in str(explanation)
    told = json.loads(json.dumps(explanation.to_dict()))
    assert told.keys() == {"label", "probability", "reasons"}
    for reason in told["reasons"]:
        assert reason.keys() == {"kind", "title", "share", "evidence", "bias"}
        assert all({"text", "share"} <= item.keys() for item in reason["evidence"])
    unlikely = tagger.explain(text, "never seen")
    assert unlikely.label == "never seen"
    with pytest.raises(DataError, match="nothing in the text is known"):
        tagger.explain("")


def test_label_never_seen_comes_last(name, fitted):
    if name in READ_LABELS:
        pytest.skip("ranks a label that no text has by the label's own text")
    ids = fitted(name).rank(["red evening gown"], 100).ids
    assert fitted(name).labels.name(ids[0, -1]) == "never seen"


def test_duplicate_rows(name, corpus, create):
    twice = Corpus(
        corpus.texts.to_pylist() * 2,
        targets=csr_matrix(np.vstack([corpus.targets.toarray()] * 2)),
        labels=corpus.labels,
    )
    assert_sound(create(name).fit(twice).rank(QUERIES, 5), len(QUERIES), 5)


def test_vectors_will_not_do_where_texts_are_read(name, create):
    made = create(name)
    if made.classifier.reads_texts:
        with pytest.raises(DataError, match="reads texts"):
            made.fit(csr_matrix(np.eye(3, dtype=np.float32)), np.eye(3))


@pytest.mark.parametrize("dense", [False, True])
def test_vectors_in_place_of_texts(name, dense, create_for_vectors):
    X = csr_matrix(np.random.default_rng(0).random((40, 12), np.float32))
    X.data[X.data < 0.5] = 0
    X.eliminate_zeros()
    Y = csr_matrix(np.eye(4, dtype=np.float32)[np.arange(40) % 4])
    if dense:
        X = X.toarray()
    fitted = create_for_vectors().fit(X, Y)
    assert_sound(fitted.rank(X, 3), 40, 3)
    with pytest.raises(MegalabelError, match=r"12.*11|11.*12"):
        fitted.rank(X[:, :11], 3)


def test_read_only_arrays(name, create_for_vectors):
    X = csr_matrix(np.random.default_rng(0).random((30, 8), np.float32))
    Y = csr_matrix(np.eye(3, dtype=np.float32)[np.arange(30) % 3])
    for matrix in (X, Y):
        for array in (matrix.data, matrix.indices, matrix.indptr):
            array.flags.writeable = False
    assert_sound(create_for_vectors().fit(X, Y).rank(X, 3), 30, 3)


def test_inputs_are_left_alone(name, create_for_vectors):
    X = csr_matrix(np.random.default_rng(0).random((30, 8), np.float32))
    Y = csr_matrix(np.eye(3, dtype=np.float32)[np.arange(30) % 3])
    before = X.toarray().copy(), Y.toarray().copy()
    create_for_vectors().fit(X, Y).rank(X, 3)
    np.testing.assert_array_equal(X.toarray(), before[0])
    np.testing.assert_array_equal(Y.toarray(), before[1])


def test_from_several_threads_at_once(name, fitted):
    expected = answer(fitted(name))
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: answer(fitted(name)), range(16)):
            assert_same(expected, found)


def _answer_in_child(tagger: Tagger, results) -> None:
    results.put([array.tolist() for array in answer(tagger)])


def test_in_a_forked_child(name, fitted):
    expected = answer(fitted(name))  # the parent's pool is running
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_answer_in_child, args=(fitted(name), results))
    child.start()
    found = results.get()
    child.join(20)
    assert child.exitcode == 0
    assert found == [array.tolist() for array in expected]


SAVE_FOREVER = """
import sys
from megalabel.tagger import Tagger
tagger = Tagger.load(sys.argv[1])
print("ready", flush=True)
while True:
    tagger.save(sys.argv[1])
"""


def test_kill_during_save_leaves_a_whole_model(name, fitted, tmp_path):
    if name in NEURAL and name != "renee":
        pytest.skip("saved by the same code as renee, and importing torch takes seconds")
    model = tmp_path / "model"
    fitted(name).save(model)
    expected = answer(fitted(name))
    wait = random.Random(0)
    for _ in range(1 if name in NEURAL else 4):
        saver = subprocess.Popen(
            [sys.executable, "-c", SAVE_FOREVER, str(model)], stdout=subprocess.PIPE, text=True
        )
        assert saver.stdout.readline() == "ready\n"
        time.sleep(wait.uniform(0.002, 0.05))
        os.kill(saver.pid, signal.SIGKILL)
        saver.communicate()
        assert_same(expected, answer(Tagger.load(model, verify=True)))
    fitted(name).save(model)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]  # leftovers were cleared


def test_learning_more_or_saying_that_it_cannot(name, corpus, create):
    fitted = create(name).fit(corpus)
    try:
        fitted.partial_fit(["a purple unicorn horn"] * 5, [["unicorn", "red"]] * 5)
    except ParameterError:
        return
    assert "unicorn" in fitted.labels.names.to_pylist()
    assert_sound(fitted.rank(QUERIES, len(corpus.labels) + 1), len(QUERIES), len(corpus.labels) + 1)


def test_scikit_learn_tools(name, corpus, create):
    from sklearn.base import clone as sklearn_clone
    from sklearn.model_selection import GridSearchCV, cross_val_score
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    texts, Y = corpus.texts.to_pylist(), corpus.targets.toarray().astype(int)
    if name in READ_LABELS:
        with pytest.raises(DataError, match="known by number alone"):
            create(name).fit(texts, Y)
        Y = pd.DataFrame(Y, columns=corpus.labels.names.to_pylist())
    made = create(name)
    assert sklearn_clone(made).get_params().keys() == made.get_params().keys()
    assert not sklearn_clone(create(name).fit(corpus)).fitted
    scores = cross_val_score(made, texts, Y, cv=3)
    assert scores.shape == (3,)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert cross_val_score(made, texts, Y, cv=3, scoring="f1_micro").shape == (3,)
    pipeline = Pipeline([("same", FunctionTransformer()), ("tag", made)]).fit(texts, Y)
    predicted = pipeline.predict(texts[:4])
    assert predicted.shape == (4, Y.shape[1])
    search = GridSearchCV(made, {"calibration_texts": [10, 100]}, cv=2).fit(texts, Y)
    assert search.best_params_["calibration_texts"] in (10, 100)


def test_parameters_are_kept_as_they_are(name, create):
    made = create(name)
    for key, value in made.get_params(deep=False).items():
        assert getattr(made, key) is value
    assert repr(clone(made)) == repr(made)


def test_asking_too_early_and_asking_wrongly(name, corpus, create):
    made = create(name)
    with pytest.raises(NotFittedError, match="fit"):
        made.tag("a text")
    with pytest.raises(ParameterError, match="no_such"):
        create(name, no_such=1)
    with pytest.raises(DataError, match="no text"):
        made.fit([], [])
    with pytest.raises(DataError, match="no labels"):
        made.fit(["a text"], [[]])
    with pytest.raises(DataError, match="label"):
        made.fit(["a text"])
    with pytest.raises(MegalabelError, match=r"2.*1|1.*2"):
        made.fit(["a text", "another"], [["a"]])


def test_evaluates_labels_it_does_not_know(name, fitted, corpus):
    other = Corpus(
        ["red evening gown"] * 2,
        targets=[["red"], ["brand new"]],
        labels=LabelSet(["brand new", "red"]),
    )
    values = fitted(name).evaluate(other)
    assert 0 <= values["P@1"] <= 0.5


def test_plan_says_what_a_fit_costs(name, corpus, create):
    plan = systems.get(name).plan(create(name), corpus)
    assert plan.fits
    assert plan.memory > 0
    assert plan.disk > 0
    assert plan.seconds >= 0


def test_takes_labels_in_or_says_that_it_cannot(name, fitted, corpus, tmp_path):
    tagger, new = fitted(name), ["red evening things", "copper kettles"]
    known = len(tagger.labels)
    if name not in TAKE_LABELS_IN:
        with pytest.raises(ParameterError, match=r"labels cannot be added to a|can take labels in"):
            tagger.add_labels(new)
    else:
        more = tagger.add_labels(new)
        assert more.labels.ids.to_pylist()[known:] == new
        assert new[0] in more.rank(["red evening things"], known + 2).tags()[0].__repr__()
        assert_sound(more.rank(QUERIES, 5), len(QUERIES), 5)
        more.save(tmp_path / "model")
        assert_same(answer(more), answer(Tagger.load(tmp_path / "model")))
        assert_same(answer(more.remove_labels(new)), answer(tagger.take_labels(np.arange(known))))
    assert len(tagger.labels) == known
    label = tagger.labels.ids[0].as_py()
    renamed = tagger.rename_labels({label: "another name"})
    assert renamed.labels.name(0) == "another name"
    assert_same(answer(renamed), answer(tagger))
