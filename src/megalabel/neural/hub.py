"""What is taken from Hugging Face: by name or folder, safetensors only, never code unless asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from megalabel.errors import DataError


def from_hub(kind: Any, source: str, **options: Any) -> Any:
    """`kind.from_pretrained(source)`, with an error that says what can be done.

    Code that comes with a model is refused unless `trust_remote_code` is among the options: left
    open, transformers would ask on standard input.
    """
    if Path(source).exists() or source.startswith((".", "/")):
        if not Path(source).is_dir():
            raise DataError(f"{source} is not a folder with a model in it")
        options["local_files_only"] = True
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        return kind.from_pretrained(source, **{"trust_remote_code": False, **options})
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        if "trust_remote_code" in str(error):
            raise DataError(
                f"the model {source!r} brings Python code of its own, which is not run unasked: "
                "read it, and give PretrainedEncoder(…, trust_remote_code=True) if you trust it"
            ) from error
        raise DataError(
            f"the model {source!r} cannot be had: {first} Give the folder of a model (with "
            "safetensors weights), or leave `encoder` out to train one on your own texts."
        ) from error
