"""What is taken from Hugging Face: by name or folder, safetensors only, never code unless asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from megalabel.errors import DataError


def from_hub(kind: Any, source: str, **options: Any) -> Any:
    """`kind.from_pretrained(source)`, with an error that says what can be done."""
    if Path(source).exists() or source.startswith((".", "/")):
        if not Path(source).is_dir():
            raise DataError(f"{source} is not a folder with a model in it")
        options["local_files_only"] = True
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        return kind.from_pretrained(source, **options)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise DataError(
            f"the model {source!r} cannot be had: {first} Give the folder of a model (with "
            "safetensors weights), or leave `encoder` out to train one on your own texts."
        ) from error
