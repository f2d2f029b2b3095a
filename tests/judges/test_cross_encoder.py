"""A transformer that reads a text and a label together."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from megalabel.errors import JudgeError, MissingExtraError
from megalabel.judges import CrossEncoderJudge, Judgements, cross_encoder

TEXTS = ["red dress", "blue jeans with many rivets and pockets for everyone", "", "kettle"] * 10
LABELS = ["dress", "jeans", "lamp", "unheard of"] * 10


@pytest.fixture(scope="module")
def folder(tiny_model, tmp_path_factory):
    """Makes a folder of a small model with random weights and so many outputs."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def make(outputs: int, names: dict[int, str] | None = None) -> str:
        where = tmp_path_factory.mktemp("cross-encoder")
        shutil.copytree(tiny_model, where, dirs_exist_ok=True)
        more = {"id2label": names, "label2id": {v: k for k, v in names.items()}} if names else {}
        config = transformers.AutoConfig.from_pretrained(tiny_model, num_labels=outputs, **more)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            transformers.BertForSequenceClassification(config).save_pretrained(where)
        return str(where)

    return make


def logits(folder, text, label):
    """By transformers alone, one pair at a time."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        return model(**tokenizer(text, label, return_tensors="pt")).logits[0].double().numpy()


@pytest.mark.usefixtures("one_thread")
def test_grades_are_the_models(folder):
    where = folder(1)
    grades = Judgements(CrossEncoderJudge(where, max_length=64)).grades(TEXTS, LABELS)
    expected = [
        1 / (1 + np.exp(-logits(where, text, label)[0]))
        for text, label in zip(TEXTS[:4], LABELS[:4], strict=True)
    ]
    np.testing.assert_allclose(grades, expected * 10, atol=1e-5)


@pytest.mark.usefixtures("one_thread")
def test_one_of_several_outputs_says_yes(folder):
    where = folder(3, {0: "contradiction", 1: "neutral", 2: "entailment"})
    said = logits(where, "red dress", "This is about dress.")
    expected = np.exp(said) / np.exp(said).sum()
    for yes, at in ((None, 2), ("Neutral", 1), (0, 0)):
        judge = CrossEncoderJudge(where, yes=yes, template="This is about {}.")
        [answer] = judge.answers(["red dress"], ["dress"])
        assert answer.grade == pytest.approx(expected[at], abs=1e-5)


def test_which_output_says_yes_must_be_known(folder):
    where = folder(3, {0: "a", 1: "b", 2: "c"})
    for yes in (None, "d", 3):
        with pytest.raises(JudgeError, match=r"outputs of .* are a, b, c: say which"):
            next(CrossEncoderJudge(where, yes=yes).answers(["a"], ["b"]))


def test_identity_is_of_the_weights_not_of_the_folder(folder, tmp_path):
    where = folder(1)
    copy = shutil.copytree(where, tmp_path / "copy")
    one = CrossEncoderJudge(where).identity
    assert one == CrossEncoderJudge(str(copy)).identity
    assert one != CrossEncoderJudge(where, template="about {}").identity
    weights = Path(copy) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    assert one != CrossEncoderJudge(str(copy)).identity


def test_identity_knows_where_files_are(folder, tmp_path):
    where = folder(1)
    for name in ("one", "other"):
        copy = shutil.copytree(where, tmp_path / name)
        (copy / name).mkdir()
        (copy / name / "more.txt").write_text("the same")
    one, other = (CrossEncoderJudge(str(tmp_path / name)) for name in ("one", "other"))
    assert one.identity != other.identity


def test_files_are_read_once_for_the_identity(folder, monkeypatch):
    judge, count = CrossEncoderJudge(folder(1)), [0]
    digest = cross_encoder.hashlib.file_digest

    def counted(*args):
        count[0] += 1
        return digest(*args)

    monkeypatch.setattr(cross_encoder.hashlib, "file_digest", counted)
    first, files = judge.identity, count[0]
    assert (judge.identity, count[0]) == (first, files)
    assert files > 0


@pytest.mark.usefixtures("one_thread")
def test_labels_that_are_longer_than_all_that_is_read(folder):
    where, long = folder(1), " ".join(["dress"] * 40)
    judge = CrossEncoderJudge(where, max_length=17)
    texts = ["red dress", "", long]
    grades = Judgements(judge).grades(texts, [long] * 3)
    half = " ".join(["dress"] * 7)  # with three tokens between and around
    cut = 1 / (1 + np.exp(-logits(where, half, half)[0]))
    assert grades[2] == pytest.approx(cut, abs=1e-5)
    assert (grades > 0).all()


def test_no_such_model(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(JudgeError, match="cannot be opened"):
        next(CrossEncoderJudge(str(tmp_path)).answers(["a"], ["b"]))


def test_without_torch(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"megalabel\[neural\]"):
        next(CrossEncoderJudge("a-model").answers(["a"], ["b"]))
