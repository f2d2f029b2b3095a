"""Folders of static word vectors of the tests' own, as model2vec and sentence-transformers do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

UNKNOWN, PADDING = "[UNK]", "[PAD]"


def write_tokenizer(file: Path, words: Sequence[str], *, special: Sequence[str]) -> None:
    """Write a tokenizer of whole words in lower case; it puts a word before each text, which
    readers are to leave out."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocabulary = {word: number for number, word in enumerate([*special, *words])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    first = (words[0], vocabulary[words[0]])
    made.post_processor = processors.TemplateProcessing(f"{words[0]} $A", None, [first])
    file.parent.mkdir(parents=True, exist_ok=True)
    made.save(str(file))


def write_model2vec(
    folder: Path,
    words: Sequence[str],
    arrays: dict[str, np.ndarray],
    *,
    special: Sequence[str] = (PADDING, UNKNOWN),
    normalize: bool = False,
) -> str:
    """Write a folder of model2vec: `embeddings`, and perhaps `weights` and `mapping`."""
    write_tokenizer(folder / "tokenizer.json", words, special=special)
    save_file(arrays, folder / "model.safetensors")
    write_json(folder / "config.json", {"model_type": "model2vec", "normalize": normalize})
    return str(folder)


def write_sentence_transformers(
    folder: Path,
    words: Sequence[str],
    table: np.ndarray,
    *,
    special: Sequence[str] = (UNKNOWN,),
    modules: Sequence[str] = ("StaticEmbedding",),
    inner: str = "0_StaticEmbedding",
) -> str:
    """Write a folder of sentence-transformers, by default without a padding token."""
    write_tokenizer(folder / inner / "tokenizer.json", words, special=special)
    save_file({"embedding.weight": table}, folder / inner / "model.safetensors")
    kinds = [f"sentence_transformers.models.{kind}" for kind in modules]
    places = [inner, *(f"{i}_{kind}" for i, kind in enumerate(modules[1:], 1))]
    said = [{"path": place, "type": kind} for place, kind in zip(places, kinds, strict=True)]
    write_json(folder / "modules.json", said)
    return str(folder)


def write_json(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))
