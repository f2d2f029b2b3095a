"""Which transformers a model folder may hold, and what it may say of them.

A folder can come from a stranger, and a configuration of transformers can name code to run, kernels
and models to download. So only these model types are built, from these keys alone, and no number is
larger than the weights in the folder account for.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from megalabel.errors import ParameterError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MODEL_TYPES = _words(
    """
    albert bert camembert deberta deberta-v2 distilbert electra ernie eurobert gemma gemma2
    gemma3_text gpt2 jina_embeddings_v3 llama longformer megatron-bert mistral mobilebert
    modernbert mpnet nomic_bert qwen2 qwen3 rembert roberta roberta-prelayernorm xlm-roberta
    xlm-roberta-xl
    """
)

_LAYERS = _words(
    """
    inner_group_num n_layer n_layers num_feedforward_networks num_hidden_groups
    num_hidden_layers
    """
)
"""Each layer has arrays of its own, or is one of those that share them."""

_LENGTHS = _words("max_position_embeddings max_window_layers sliding_window")
"""Lengths of texts, which rotary positions and masks need no array for."""

_SIZES = _words(
    """
    attention_window conv_groups conv_kernel_size dim embedding_size global_attn_every_n_layers
    head_dim hidden_dim hidden_size input_embedding_size intermediate_size intra_bottleneck_size
    local_attention max_relative_positions n_embd n_head n_heads n_inner n_positions
    num_attention_heads num_key_value_heads pad_token_id pooler_hidden_size position_buckets
    relative_attention_num_buckets task_type_vocab_size true_hidden_size type_vocab_size
    vocab_size
    """
)

_CHOICES = _words(
    """
    activation activation_function attention_bias attention_dropout attention_probs_dropout_prob
    attn_logit_softcapping attn_pdrop conv_act dropout embd_pdrop embedding_dropout
    global_rope_theta hidden_act hidden_activation hidden_dropout_prob
    key_query_shared_bottleneck layer_norm_eps layer_norm_epsilon layer_types legacy
    local_rope_theta mlp_bias mlp_dropout norm_bias norm_eps norm_rel_ebd normalization_type
    pos_att_type position_biased_input position_embedding_type query_pre_attn_scalar
    relative_attention resid_pdrop rms_norm_eps rope_parameters rope_scaling rope_theta
    scale_attn_by_inverse_layer_idx scale_attn_weights share_att_key trigram_input
    use_bidirectional_attention use_bottleneck use_bottleneck_attention use_sliding_window
    use_task_id
    """
)

_NESTED = frozenset({"rope_parameters", "rope_scaling"})

KEYS = _LAYERS | _LENGTHS | _SIZES | _CHOICES

# what changes no vector that the model gives, and no weight that it has
_UNUSED = re.compile(
    r"_?(name_or_path|attn_implementation.*|commit_hash|sliding_window_pattern)|add_cross_attention"
    r"|architectures|(bos|eos|cls|sep|mask|unk)_token_id|chunk_size_feed_forward|classifier_.*"
    r"|decoder_bias|deterministic_flash_attn|(torch_)?dtype|final_logit_softcapping|gradient_.*"
    r"|id2label|label2id|num_labels|initializer_.*|is_decoder|is_encoder_decoder|onnx_export"
    r"|output_.*|pooler_(dropout|hidden_act)|pretraining_tp|problem_type|qa_dropout"
    r"|reorder_and_upcast_attn|reference_compile|repad_logits_with_grad|return_dict"
    r"|seq_classif_dropout|sparse_pred.*|summary_.*|task_specific_params|tie_word_embeddings"
    r"|transformers_version|use_cache"
)
_WORD = re.compile(r"[A-Za-z0-9_.|-]{0,64}")
_LONGEST = 1 << 24  # tokens of a text
_SMALL = 4096  # numbers up to this cost nothing


def described(config: Any) -> dict[str, Any]:
    """What of a configuration of transformers is kept, as plain data.

    A ParameterError where a model cannot be made again from that.
    """
    whole = json.loads(config.to_json_string(use_diff=False))
    kept = {k: v for k, v in whole.items() if k in KEYS and v is not None}
    kept["model_type"] = whole.get("model_type")
    known_type(kept)
    again = json.loads(configured(kept).to_json_string(use_diff=False))
    lost = [k for k in whole if whole[k] != again.get(k) and not _UNUSED.fullmatch(k)]
    if lost:
        raise ParameterError(
            f"a model of type {kept['model_type']!r} with {lost[0]}={whole[lost[0]]!r} is not one "
            "that a model folder can hold"
        )
    return kept


def known_type(config: Mapping[str, Any]) -> str:
    """The type of model of a configuration; a ParameterError unless it is on the list."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise ParameterError(
            f"a model folder holds no model of type {kind!r}, only {', '.join(sorted(MODEL_TYPES))}"
        )
    return kind


def configured(kept: Mapping[str, Any]) -> Any:
    """The configuration of transformers that `described` has described."""
    from transformers import AutoConfig

    kind = known_type(kept)
    for key, value in kept.items():
        if key != "model_type" and (key not in KEYS or not _plain(value, key in _NESTED)):
            raise ParameterError(f"a configuration in a model folder cannot hold {key}={value!r}")
    return AutoConfig.for_model(kind, **{k: v for k, v in kept.items() if k != "model_type"})


def check_sizes(config: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
    """Raise a ValueError where a configuration asks for more than its weights account for."""
    axes = [n for array in weights.values() if isinstance(array, np.ndarray) for n in array.shape]
    most = max([_SMALL, *axes])
    counts = [config[key] for key in _LAYERS if key in config]
    if not all(_is_integer(count) and count >= 1 for count in counts):
        raise ValueError("a number of layers must be an integer of at least 1")
    if math.prod(counts) > len(weights):
        raise ValueError(f"more layers than the {len(weights)} arrays of weights")
    for key, value in config.items():
        bound = _LONGEST if key in _LENGTHS or key in _NESTED else most
        if max(map(abs, _integers(value)), default=0) > bound:
            raise ValueError(f"{key} holds a number that no array of weights accounts for")
        if isinstance(value, list) and len(value) > len(weights):
            raise ValueError(f"{key} has {len(value)} values, but there are {len(weights)} arrays")


def _integers(value: Any) -> list[int]:
    """The integers of a value, those in lists and mappings among them."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for item in value for number in _integers(item)]
    return [value] if _is_integer(value) else []


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _plain(value: Any, nested: bool) -> bool:
    """Whether a value is a number, a word, or a list of them; `nested`: or a mapping of such."""
    if isinstance(value, dict):
        return nested and all(_plain(k, False) and _plain(v, nested) for k, v in value.items())
    if isinstance(value, list):
        return all(_plain(v, False) for v in value)
    if isinstance(value, str):
        return _WORD.fullmatch(value) is not None
    return value is None or isinstance(value, bool | int) or math.isfinite(value)
