"""Taggers without torch: the same answers from every neural system."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch", reason="the neural room needs torch")
pytest.importorskip("onnxruntime", reason="the extra onnx")
pytest.importorskip("onnxscript", reason="the extra onnx")

import megalabel
from megalabel import systems
from megalabel.cli.app import app
from megalabel.errors import ParameterError
from megalabel.exporting import without_torch
from megalabel.features import BagEmbedding, Concat, Tfidf
from megalabel.linear import OneVsAll
from megalabel.neural import BagEncoder, Embedding, FullClassifier, Trainer
from megalabel.rankers import DualVectors, Ensemble
from megalabel.tagger import Tagger

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ["red evening gown", "", "zzyzx qwrtp", "denim trousers with rivets " * 9, "a lamp"]
NEURAL = [name for name in systems.names() if systems.get(name).neural]

WITHOUT = """
import json, sys
sys.modules["torch"] = None
import megalabel  # noqa: E402
ranking = megalabel.load(sys.argv[1]).rank(json.loads(sys.argv[2]), 4)
print(json.dumps([ranking.ids.tolist(), ranking.scores.tolist()]))
"""


def assert_same_answers(tagger, folder):
    """What a model folder answers where torch cannot be imported is what the tagger does."""
    k = len(tagger.labels)
    expected = tagger.rank(TEXTS, k).to_csr().toarray()
    command = [sys.executable, "-c", WITHOUT, str(folder), json.dumps(TEXTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ids, scores = map(np.array, json.loads(done.stdout))
    of_ids = np.take_along_axis(expected, ids, axis=1)
    np.testing.assert_allclose(scores, of_ids, atol=1e-3)
    # the same labels in the same order, but for ties
    np.testing.assert_allclose(-np.sort(-expected, axis=1)[:, :4], of_ids, atol=1e-3)


OPTIONS = {
    "lightxml": {"grouped_above": 4, "group_size": 2, "groups": 2, "bottleneck": 8},
    "inceptionxml": {"clusters": 4, "beam": 2, "head_learning_rate": 0.05},
    "cascadexml": {"ranker": "network", "resolutions": [2, 4], "beam": 2},
    "renee": {"bottleneck": 8},
    "attentionxml": {"clustered_above": 4, "levels": 2, "max_leaf": 2, "beam": 2},
}
QUICK = ("attentionxml", "lightxml")
CASES = [
    *((name, {}) for name in NEURAL),
    *(
        pytest.param(*case, marks=() if case[0] in QUICK else pytest.mark.slow)
        for case in OPTIONS.items()
    ),
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_every_system(name, options, corpus, create, tmp_path):
    tagger = create(name, **options).fit(corpus)
    made = without_torch(tagger, texts=corpus)
    about = made.provenance_["without_torch"]
    assert about["texts"] == len(corpus)
    assert about["difference"] < 1e-3
    assert about["agreement"] > 0.99
    made.save(tmp_path / "model")
    assert_same_answers(tagger, tmp_path / "model")
    assert made.system == name
    assert made.rank([""], 3).present.all()
    texts = ["red evening gown", "", "Ωμέγα", "👗"]
    np.testing.assert_array_equal(made.known(texts), tagger.known(texts))
    assert made.rank([], 3).ids.shape[0] == 0
    if isinstance(made.classifier_, DualVectors):  # new labels are read without torch too
        taggers = [one.add_labels(["a lamp"]) for one in (tagger, made)]
        first, second = (one.rank(TEXTS, 20).to_csr().toarray() for one in taggers)
        np.testing.assert_allclose(first, second, atol=1e-3)


@pytest.mark.parametrize(
    "name", ["xr-transformer", pytest.param("lightxml", marks=pytest.mark.slow)]
)
def test_an_ensemble(name, corpus, create, tmp_path):
    tagger = create(name, calibrate=False)
    tagger.set_params(classifier=Ensemble(tagger.classifier, models=2)).fit(corpus)
    without_torch(tagger).save(tmp_path / "model")
    assert_same_answers(tagger, tmp_path / "model")


def test_a_frozen_encoder_as_features(corpus, tiny_model, tmp_path):
    features = Concat([Tfidf(), Embedding(tiny_model, max_length=64, device="cpu")], weights=[2, 1])
    tagger = Tagger(OneVsAll(), features).fit(corpus)
    without_torch(tagger).save(tmp_path / "model")
    assert_same_answers(tagger, tmp_path / "model")


@pytest.mark.parametrize("residual", ["sum", "gated"])
def test_a_bag_of_words_with_a_residual_block(residual, corpus, tmp_path):
    encoder = BagEncoder(width=8, residual=residual)
    trainer = Trainer(steps=4, device="cpu")
    tagger = Tagger(FullClassifier(encoder, trainer), Tfidf(), None).fit(corpus)
    made = without_torch(tagger)
    assert isinstance(made.features_, BagEmbedding)
    made.save(tmp_path / "model")
    assert_same_answers(tagger, tmp_path / "model")
    with pytest.raises(ParameterError, match="int8 is for encoders that read tokens"):
        without_torch(tagger, int8=True)
    with pytest.raises(ParameterError, match="part of a trained tagger"):
        megalabel.load(tmp_path / "model").fit(corpus)


def test_from_the_command_line(corpus, create, tmp_path):
    create("renee").fit(corpus).save(tmp_path / "model")
    megalabel.data.write(corpus, tmp_path / "texts.jsonl")
    command = ["export", str(tmp_path / "model"), "--out", str(tmp_path / "served"), "--whole"]
    more = ["--int8", "--texts", str(tmp_path / "texts.jsonl"), "--json"]
    done = CliRunner().invoke(app, command + more)
    assert done.exit_code == 0, done.output
    about = json.loads(done.stdout)
    assert about["int8"]
    broken = "import sys, megalabel; sys.modules[sys.argv[2]] = None; megalabel.load(sys.argv[1])"
    for folder, absent, extra in (("model", "torch", "neural"), ("served", "onnxruntime", "onnx")):
        run = [sys.executable, "-c", broken, str(tmp_path / folder), absent]
        failed = subprocess.run(run, capture_output=True, text=True, check=False)
        assert f"megalabel[{extra}]" in failed.stderr
    assert 0 < about["difference"] < 1
    served = megalabel.load(tmp_path / "served")
    assert served.provenance_["without_torch"] == about
    assert len(served.tag("red evening gown", k=2)) == 2


def test_linear_systems_need_none(corpus):
    tagger = systems.create("plt").fit(corpus)
    with pytest.raises(ParameterError, match="plt needs no torch"):
        without_torch(tagger)
