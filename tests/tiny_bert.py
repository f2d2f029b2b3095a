"""A pre-trained encoder of the tests' own: very small, and with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write_bert(
    folder: Path, texts: Any, *, vocabulary: int, width: int, inner: int, length: int
) -> None:
    """Write a folder as of the hub: a BERT of three layers, and a tokenizer of the texts."""
    import torch
    import transformers

    from megalabel.neural import Tokenizer

    transformers.utils.logging.disable_progress_bar()
    tokenizer = Tokenizer(vocabulary=vocabulary, max_length=length).fit(texts)
    tokenizer.write(folder)
    config = transformers.BertConfig(
        vocab_size=tokenizer.n_features,
        hidden_size=width,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=inner,
        max_position_embeddings=length,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(folder)
