"""Encoders as ONNX: the same vectors without torch."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("onnxruntime", reason="the extra onnx")
pytest.importorskip("onnxscript", reason="the extra onnx")

import megalabel
from megalabel import store
from megalabel.cli.app import app
from megalabel.errors import MissingExtraError, ParameterError
from megalabel.features import Concat, OnnxEmbedding
from megalabel.linear import OneVsAll
from megalabel.neural import (
    AssembledEncoder,
    BagEncoder,
    ConvolutionalEncoder,
    Embedding,
    PretrainedEncoder,
    RecurrentEncoder,
    Tokenizer,
    encoder_of,
    export_onnx,
)
from megalabel.tagger import Tagger

TEXTS = ["red dress", "blue jeans with rivets for everyone", "", "a kettle", "x " * 80]


@pytest.fixture(scope="module")
def tokenizer(corpus, tiny_model) -> Tokenizer:
    return Tokenizer(tiny_model, max_length=64).fit(corpus)


def begun(encoder, tokenizer):
    return encoder.keep(encoder.begin(tokenizer.transform(TEXTS), seed=0))


@pytest.mark.parametrize(
    "kind",
    [
        "rotary",
        "pretrained",
        pytest.param("convolutional", marks=pytest.mark.slow),
        pytest.param("recurrent", marks=pytest.mark.slow),
    ],
)
def test_an_exported_encoder_gives_the_same_vectors(kind, tokenizer, tiny_model, tmp_path):
    encoder = {
        "rotary": AssembledEncoder(width=16, layers=1, heads=2, rotary=True, pretrain_epochs=0),
        "convolutional": ConvolutionalEncoder(width=8, token_width=16, length=6),
        "recurrent": RecurrentEncoder(token_width=8, size=4),
        "pretrained": PretrainedEncoder(tiny_model, layers=[-1, 1]),
    }[kind]
    begun(encoder, tokenizer)
    about = export_onnx(encoder, tmp_path, tokenizer=tokenizer)
    assert about["difference"] < 1e-5
    assert about == json.loads((tmp_path / "config.json").read_text())
    assert b".py" not in (tmp_path / "model.onnx").read_bytes()  # nor any path of this machine
    found = OnnxEmbedding(str(tmp_path)).fit_transform(TEXTS)
    expected = Embedding.of(encoder, tokenizer).transform(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_of_a_tagger_and_read_without_torch(corpus, tokenizer, tmp_path):
    encoder = AssembledEncoder(encoder="gated-cnn", width=16, layers=1, pretrain_epochs=0)
    linear = Tagger(OneVsAll(), calibration=None).fit(corpus)
    with pytest.raises(ParameterError, match="Tfidf has no encoder"):
        encoder_of(linear)
    unit = Embedding.of(begun(encoder, tokenizer), tokenizer)
    with pytest.raises(ParameterError, match="2 encoders of tokens, expected one"):
        encoder_of(Tagger(OneVsAll(), Concat([unit, unit]), calibration=None).fit(corpus))
    Tagger(OneVsAll(), unit, calibration=None).fit(corpus).save(tmp_path / "model")
    out = tmp_path / "encoder"
    command = ["export", str(tmp_path / "model"), "--out", str(out), "--int8", "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0
    about = json.loads(done.stdout)
    assert about["int8"]
    assert 0.98 < about["cosine"] < 1
    features = OnnxEmbedding(str(out)).fit()
    store.save(features, tmp_path / "features")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"from megalabel import store; features = store.load({str(tmp_path / 'features')!r})\n"
        f"print(features.transform({TEXTS!r}).sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(float(features.transform(TEXTS).sum()), abs=1e-4)
    assert features.transform([]).shape == (0, 16)


def test_errors(tokenizer, tmp_path, monkeypatch):
    encoder = begun(AssembledEncoder(width=16, layers=1, heads=2, pretrain_epochs=0), tokenizer)
    with pytest.raises(ParameterError, match="give both"):
        export_onnx(encoder, tmp_path)
    with pytest.raises(ParameterError, match="BagEncoder reads words"):
        export_onnx(BagEncoder(), tmp_path, tokenizer=tokenizer)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingExtraError, match=r"megalabel\[onnx\]"):
        export_onnx(encoder, tmp_path, tokenizer=tokenizer)


@pytest.mark.slow
def test_a_real_encoder(mini_lm, shared_data, tmp_path):
    texts = megalabel.read(shared_data / "eurlex-titles", split="test").texts[:200]
    embedding = Embedding(mini_lm).fit([])
    encoder, tokenizer = embedding.encoder_, embedding.tokenizer_
    about = export_onnx(encoder, tmp_path / "float32", tokenizer=tokenizer, texts=texts)
    assert about["difference"] < 1e-3
    expected = embedding.transform(texts)
    found = OnnxEmbedding(str(tmp_path / "float32")).fit_transform(texts)
    np.testing.assert_allclose(found, expected, atol=1e-3)
    small = export_onnx(encoder, tmp_path / "int8", tokenizer=tokenizer, int8=True, texts=texts)
    assert small["cosine"] > 0.95
    sizes = [(tmp_path / name / "model.onnx").stat().st_size for name in ("float32", "int8")]
    assert sizes[1] < 0.35 * sizes[0]
