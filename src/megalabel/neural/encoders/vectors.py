"""Word vectors from a file, as GloVe, fastText and word2vec write them."""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from megalabel.errors import DataError, ParameterError

log = logging.getLogger(__name__)

_MARKS = "Ġ▁"  # of a token that begins a word


def read_vectors(
    file: str | os.PathLike[str], words: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of some words, and which of them the file has.

    Parameters
    ----------
    file : path
        Text: a line a word, the word and its numbers with a space between; a first line that gives
        the number of words and of numbers is passed over. Or `.npy`: an array with a row a word,
        and beside it a `.txt` of the same name with a word a line.
    words : sequence of str

    Returns
    -------
    vectors : float32 array (words, width)
        Zeros for words that the file does not have.
    found : bool array (words,)

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".vec") as file:
    ...     _ = file.write(b"red 1 0\\nblue 0 2\\n"), file.flush()
    ...     read_vectors(file.name, ["blue", "green"])
    (array([[0., 2.],
           [0., 0.]], dtype=float32), array([ True, False]))
    """
    path = Path(file)
    if not path.is_file():
        raise DataError("there is no such file of word vectors", file=path)
    places: dict[bytes, list[int]] = {}
    for place, name in enumerate(words):
        places.setdefault(name.encode(), []).append(place)
    made: np.ndarray | None = None
    found = np.zeros(len(words), bool)
    lines = _binary(path) if path.suffix == ".npy" else _text(path, places)
    for number, word, vector in lines:
        if made is None:
            made = np.zeros((len(words), len(vector)), np.float32)
        at = places.get(word, [])
        if at and not np.isfinite(vector).all():
            raise DataError("a vector has numbers that are not finite", file=path, line=number)
        made[at], found[at] = vector, True
    if made is None:
        raise DataError("none of the words of the corpus has a vector here", file=path)
    return made, found


def _text(path: Path, wanted: Container[bytes]) -> Iterator[tuple[int, bytes, np.ndarray]]:
    """Line numbers, words and vectors of those words that are wanted."""
    width: int | None = None
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip()
            count = line.count(b" ")
            if width is None:
                if count == 1 and all(part.isdigit() for part in line.split()):
                    continue  # how many there are
                width = count
            if count < width or not count:
                raise DataError(
                    f"expected a word and {width or 'some'} numbers, found {count} numbers",
                    file=path,
                    line=number,
                )
            # some files have words with spaces in them
            parts = line.split(b" ", 1) if count == width else line.rsplit(b" ", width)
            if parts[0] in wanted:
                try:
                    vector = np.array(b" ".join(parts[1:]).split(b" "), np.float32)
                except ValueError as error:
                    raise DataError(str(error), file=path, line=number) from None
                yield number, parts[0], vector


def _binary(path: Path) -> Iterator[tuple[int, bytes, np.ndarray]]:
    """Numbers, words and vectors of an array and the words beside it."""
    beside = path.with_suffix(".txt")
    if not beside.is_file():
        raise DataError(f"the words of {path.name} are missing: a word a line", file=beside)
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    words = beside.read_bytes().splitlines()
    if array.ndim != 2 or len(array) != len(words):
        raise DataError(f"{len(words)} words for an array of shape {array.shape}", file=beside)
    for number, (word, vector) in enumerate(zip(words, array, strict=True), 1):
        yield number, word, vector


@torch.no_grad()
def put_vectors(table: Tensor, file: str, words: Sequence[str] | None) -> None:
    """Give a table (words, width) the vectors of a file; other words get random ones as long."""
    if words is None:
        raise ParameterError(
            f"vectors={file!r} are given to words by their names, and these rows have none: take "
            "a Tokenizer, or fit by a Tagger over Tfidf"
        )
    made, found = read_vectors(file, [word.lstrip(_MARKS) for word in words])
    if made.shape[1] != table.shape[1]:
        raise ParameterError(
            f"{file} has vectors of {made.shape[1]} numbers, the encoder of {table.shape[1]}"
        )
    log.info("%s has vectors of %d of %d words", file, found.sum(), len(found))
    there = torch.from_numpy(found)
    rows = torch.from_numpy(made)
    if found.any():
        table *= rows[there].std() / table.std()
    table[: len(rows)][there] = rows[there].to(table.dtype)
