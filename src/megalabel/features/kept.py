"""Vectors of texts that are costly to make, kept in a folder: no text is encoded a second time.

The folder has a file for each few thousand texts: a hash and a vector a text. A file is written
once its texts are encoded, so what a killed process had finished is there for the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from megalabel.checkpoints import folder_in_use
from megalabel.data.hashes import text_hashes
from megalabel.data.strings import from_arrays, strings, to_arrays
from megalabel.features.inputs import text_batches
from megalabel.outputs import replacing_file
from megalabel.progress import progress

TEXTS = 4096  # in a file: some seconds of work


def kept_vectors(
    inputs: Any,
    cache: str | None,
    model: Callable[[], str],
    encode: Callable[[Any], np.ndarray],
) -> np.ndarray:
    """What `encode` makes of texts, float32; those that a folder keeps are not encoded again.

    Parameters
    ----------
    inputs : corpus, texts or a stream of them
    cache : str, optional
        The folder; None: that of checkpoints, where there is one, or else none.
    model : callable
        Gives a fingerprint of all that a vector depends on besides its text.
    encode : callable
        Texts to vectors (texts, width); it is given distinct texts of about the same length.
    """
    checkpoints = folder_in_use()
    where = Path(cache) if cache is not None else checkpoints and checkpoints / "vectors"
    if where is None:
        return encode(inputs)
    parts = [from_arrays(*arrays) for arrays in text_batches(inputs)]
    column = pa.concat_arrays(parts or [strings([])])
    # each distinct text, and which of them the rows have
    hashes, first, places = np.unique(text_hashes(column), return_index=True, return_inverse=True)
    folder = where / model()[:20]
    vectors, there = _read(folder, hashes)
    missing = np.flatnonzero(~there)
    # long ones first: texts of a file are of like length
    lengths = np.diff(to_arrays(column)[0])[first]
    missing = missing[np.argsort(-lengths[missing], kind="stable")]
    with progress("encoding texts", len(missing)) as bar:
        for start in range(0, len(missing), TEXTS):
            some = missing[start : start + TEXTS]
            made = encode(column.take(pa.array(first[some])))
            _write(folder, hashes[some], made)
            if vectors is None:
                vectors = np.empty((len(hashes), made.shape[1]), np.float32)
            vectors[some] = made
            bar.advance(len(some))
    return encode(column) if vectors is None else vectors[places]


def _read(folder: Path, hashes: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """The vectors of texts by their hashes, sorted, and which of them are kept; damaged files are
    passed over."""
    vectors, there = None, np.zeros(len(hashes), bool)
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, "numpy") as opened:
                found, made = opened.get_tensor("hashes"), opened.get_tensor("vectors")
        except (SafetensorError, OSError):
            continue
        if made.ndim != 2 or found.shape != made.shape[:1] or made.dtype != np.float32:
            continue
        if vectors is None:
            vectors = np.empty((len(hashes), made.shape[1]), np.float32)
        at = np.minimum(np.searchsorted(hashes, found), max(0, len(hashes) - 1))
        same = hashes[at] == found if len(hashes) else np.zeros(len(found), bool)
        if made.shape[1] == vectors.shape[1]:
            vectors[at[same]], there[at[same]] = made[same], True
    return vectors, there


def _write(folder: Path, hashes: np.ndarray, vectors: np.ndarray) -> None:
    """Keep the vectors of some texts, in a file that is named after them."""
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(hashes.tobytes()).hexdigest()[:16]
    with replacing_file(folder / f"{name}.safetensors") as fresh:
        save_file({"hashes": hashes, "vectors": np.ascontiguousarray(vectors, np.float32)}, fresh)
