"""What a model folder may say of a transformer: a folder chooses no code, no download, no hang."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from megalabel import store
from megalabel.errors import DataError, ParameterError, StoreError
from megalabel.neural import AssembledEncoder, PretrainedEncoder, RecurrentEncoder, Tokenizer
from megalabel.neural.encoders.known_models import MODEL_TYPES, configured, described
from megalabel.neural.encoders.pretrained import _Transformer
from megalabel.neural.tokens import TokenBatch, Tokens

SIZES = {
    "vocab_size": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
}
OTHER_SIZES = {
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40},
}
MORE_SIZES = {
    "mobilebert": {"embedding_size": 16, "intra_bottleneck_size": 8},
    "albert": {"embedding_size": 16},
    "electra": {"embedding_size": 16},
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 16},
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "conv_kernel_size": 3,
        "conv_act": "gelu",
    },
}
HEADS = {"num_key_value_heads": 2, "head_dim": 8}
GROUPED = {"gemma", "gemma2", "gemma3_text", "llama", "mistral", "qwen2", "qwen3", "eurobert"}
ALWAYS = {"bert", "deberta-v2", "modernbert", "qwen3"}


def small_config(kind):
    sizes = SIZES if kind not in OTHER_SIZES else {"vocab_size": 64, **OTHER_SIZES[kind]}
    grouped = HEADS if kind in GROUPED else {}
    return transformers.AutoConfig.for_model(kind, **sizes, **MORE_SIZES.get(kind, {}), **grouped)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in ALWAYS else pytest.mark.slow)
        for kind in sorted(MODEL_TYPES)
    ],
)
def test_each_type_is_made_again_from_what_is_kept(kind):
    first = transformers.AutoModel.from_config(small_config(kind))
    kept = json.loads(json.dumps(described(first.config)))
    second = transformers.AutoModel.from_config(configured(kept))
    second.load_state_dict(first.state_dict())
    ids = torch.tensor([[3, 4, 5, 6], [7, 8, 1, 1]])
    batch = TokenBatch(ids, ids != 1)
    with torch.no_grad():
        vectors = [_Transformer(m, "mean", [-1]).eval()(batch) for m in (first, second)]
    assert torch.isfinite(vectors[0]).all()
    assert torch.equal(*vectors)


def test_what_could_not_be_opened_again_is_refused_before_training():
    config = small_config("bert")
    config.an_option_of_tomorrow = 3
    with pytest.raises(ParameterError, match="an_option_of_tomorrow=3"):
        described(config)
    with pytest.raises(ParameterError, match="no model of type 't5'"):
        described(transformers.AutoConfig.for_model("t5"))


@pytest.fixture
def encoder(tiny_model):
    made = PretrainedEncoder(tiny_model)
    tokens = Tokenizer(tiny_model).fit_transform(["red dress"])
    return made.keep(made.begin(tokens, seed=0))


def saved(encoder, folder: Path, **changes) -> Path:
    """A folder whose configuration was tampered with, sealed again."""
    encoder.about_ = {**encoder.about_, "config": {**encoder.about_["config"], **changes}}
    store.save(encoder, folder)
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {"auto_map": {"AutoModel": "evil.Model"}},
        {"model_type": "encoder-decoder", "auto_map": {"AutoModel": "evil.Model"}},
        {"model_type": "timm_backbone", "backbone": "stranger/model"},
        {"attn_implementation": "stranger/kernels"},
        {"_attn_implementation": "stranger/kernels"},
        {"quantization_config": {"quant_method": "awq"}},
        {"model_type": ["bert"]},
        {"model_type": None},
        {"hidden_act": "../../evil"},
        {"rope_scaling": {"rope_type": {"x": "/etc/passwd"}}},
        {"num_hidden_layers": 100_000},
        {"num_hidden_layers": 2**62},
        {"num_hidden_layers": 4000, "n_layer": 0},
        {"num_hidden_layers": 4000, "n_layer": -1},
        {"attention_window": [20_000_000]},
        {"rope_parameters": {"original_max_position_embeddings": 2**40}},
        {"layer_types": ["full_attention"] * 10_000},
        {"max_position_embeddings": 2**40},
        {"vocab_size": 2**40},
        {"num_labels": 10**9},
    ],
    ids=str,
)
def test_a_folder_chooses_no_code_and_no_size(encoder, tmp_path, monkeypatch, changes):
    def asked(*_):
        raise AssertionError("transformers asked on standard input")

    monkeypatch.setattr("builtins.input", asked)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))
    started = time.perf_counter()
    with pytest.raises(StoreError):
        store.load(saved(encoder, tmp_path / "m", **changes))
    assert time.perf_counter() - started < 5


def test_many_layers_of_an_assembled_encoder_are_refused(tmp_path):
    tokens = Tokenizer().fit_transform(["red dress"])
    for made in (
        AssembledEncoder(width=4, heads=1, layers=1, pretrain_epochs=0),
        RecurrentEncoder(token_width=4, size=4, layers=1),
    ):
        made.keep(made.begin(tokens, seed=0))
        made.layers = 100_000
        store.save(made, tmp_path / type(made).__name__)
        with pytest.raises(StoreError, match="100000 layers"):
            store.load(tmp_path / type(made).__name__)


CODE = """
import pathlib
pathlib.Path({marker!r}).write_text("run")
from transformers import BertConfig, BertModel

class OwnConfig(BertConfig):
    model_type = "own"

class OwnModel(BertModel):
    config_class = OwnConfig
"""


@pytest.fixture
def model_with_code(tmp_path, monkeypatch):
    """A model that brings code of its own, and the file that this code writes."""
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "x"))
    folder, marker = tmp_path / "own", tmp_path / "marker"
    model = transformers.AutoModel.from_config(small_config("bert"))
    model.save_pretrained(folder)
    (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "own",
        "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder, marker


def tokens_of(words=12):
    ids = np.arange(4, words, dtype=np.int32)
    return Tokens(ids, np.array([0, len(ids)]), vocabulary=64)


def test_code_of_a_model_is_run_only_where_training_says_so(model_with_code, tmp_path, caplog):
    folder, marker = model_with_code
    with pytest.raises(DataError, match="trust_remote_code"):
        PretrainedEncoder(str(folder)).begin(tokens_of(), seed=0)
    assert not marker.exists()

    trusted = PretrainedEncoder(str(folder), trust_remote_code=True)
    module = trusted.begin(tokens_of(), seed=0)
    assert marker.exists()
    assert "will not be opened" in caplog.text
    trusted.keep(module).module()  # answers in the same process

    marker.unlink()
    store.save(trusted, tmp_path / "m")
    with pytest.raises(StoreError, match="trust_remote_code"):
        store.load(tmp_path / "m")
    assert not marker.exists()


def test_a_tokenizer_with_code_is_refused_without_a_question(model_with_code, monkeypatch):
    folder, marker = model_with_code
    about = {"auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}, "tokenizer_class": "Own"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))
    with pytest.raises(DataError):
        Tokenizer(str(folder)).fit(["red dress"])
    assert not marker.exists()
