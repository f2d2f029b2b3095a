"""Tokens: texts as rows of token numbers; and Tokenizer, the featurizer that makes them."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from megalabel.base import boolean, instance, integer, one_of, value
from megalabel.data.matrix import picked_rows
from megalabel.data.strings import from_arrays
from megalabel.errors import DataError
from megalabel.features.inputs import text_batches
from megalabel.features.onnx import known_texts
from megalabel.features.static_folder import is_static, read_words
from megalabel.neural.hub import from_hub
from megalabel.outputs import filling_folder
from megalabel.parts import Featurizer

log = logging.getLogger(__name__)

_AT_ONCE = 16_384  # texts tokenised in one call
_GAP = 1 << 20  # numbers that no token has, as some tokenizers leave
_MARKS = ("##", "Ġ", "▁")  # of WordPiece, byte-level and SentencePiece tokenizers
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class TokenBatch:
    """Texts of a batch on the device, padded to the longest."""

    ids: Tensor
    """(rows, length) int64."""
    mask: Tensor
    """(rows, length) bool: where a token is."""


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device; a GPU takes it while the host goes on."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class Tokens:
    """Rows of token numbers, of any lengths; rows are picked as those of a matrix are.

    Parameters
    ----------
    ids : int32 array
        The tokens of all rows in a row; it may be mapped from disk.
    indptr : int64 array (rows + 1,)
        Where each row starts.
    vocabulary : int
        How many tokens there are.
    pad : int
        The token that stands for none.
    special : mapping, optional
        The numbers of tokens that are no part of a text: "cls", "sep", "mask", "unk", …
    continues : bool array (vocabulary,), optional
        Which tokens go on with a word; None: each is a word.
    names : sequence of str, optional
        The tokens as they are written.

    Examples
    --------
    >>> tokens = Tokens(np.array([5, 6, 7], np.int32), np.array([0, 1, 3]), vocabulary=9)
    >>> tokens[[1]].ids, tokens.shape
    (array([6, 7], dtype=int32), (2, 9))
    """

    def __init__(
        self,
        ids: np.ndarray,
        indptr: np.ndarray,
        vocabulary: int,
        pad: int = 0,
        special: Mapping[str, int] | None = None,
        continues: np.ndarray | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.ids, self.indptr, self.vocabulary, self.pad = ids, indptr, vocabulary, pad
        self.special = {} if special is None else special
        self.continues, self.names = continues, names

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and the number of different tokens."""
        return len(self), self.vocabulary

    @property
    def arrays(self) -> list[np.ndarray]:
        """What tells these rows from others."""
        return [self.ids, self.indptr]

    @property
    def lengths(self) -> np.ndarray:
        """How many tokens each row has."""
        return np.diff(self.indptr)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, rows: Any) -> Tokens:
        at, indptr = self.places(rows)
        return self.like(np.asarray(self.ids[at]), indptr)

    def places(self, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        """Where the tokens of some rows are in `ids`, and where each of these rows starts there."""
        return picked_rows(self.indptr, np.arange(len(self))[rows])

    def stacked(self, more: Tokens) -> Tokens:
        """These rows and, below them, more of the same vocabulary."""
        ends = more.indptr[1:] - more.indptr[0] + self.indptr[-1]
        ids = np.concatenate([self.ids[: self.indptr[-1]], more.ids[more.indptr[0] :]])
        return self.like(ids, np.concatenate([self.indptr, ends]))

    def like(self, ids: np.ndarray, indptr: np.ndarray) -> Tokens:
        """Other rows of the same vocabulary."""
        more = (self.special, self.continues, self.names)
        return Tokens(ids, indptr, self.vocabulary, self.pad, *more)

    @property
    def apart(self) -> list[int]:
        """The special tokens that are no part of a text's words."""
        return [number for name, number in self.special.items() if name != "unk"]

    def word_starts(self) -> np.ndarray:
        """Where words begin in `ids`: never at a special token, except the unknown one."""
        ordinary = ~np.isin(self.ids, self.apart)
        if self.continues is None:
            return np.flatnonzero(ordinary)
        alone = np.ones(len(self.ids), bool)  # nothing before it that it could go on with
        alone[1:] = ~ordinary[:-1]
        alone[self.indptr[:-1][self.lengths > 0]] = True
        return np.flatnonzero(ordinary & (alone | ~self.continues[self.ids]))

    def batch(self, rows: np.ndarray, device: torch.device) -> TokenBatch:
        """Some rows, padded, on the device; a row without tokens gets one of padding."""
        starts = self.indptr[rows]
        lengths = self.indptr[rows + 1] - starts
        place = np.arange(max(1, int(lengths.max(initial=1))))
        mask = place < lengths[:, None]
        ids = np.full(mask.shape, self.pad, np.int64)
        ids[mask] = self.ids[(starts[:, None] + place)[mask]]
        mask[:, 0] = True
        moved = (on_device(torch.from_numpy(array), device) for array in (ids, mask))
        return TokenBatch(*moved)


class Tokenizer(Featurizer):
    """Texts to tokens: by the tokenizer of a pre-trained model, or by the words of the corpus.

    One that has learned belongs to the encoder that was trained on its tokens: a tagger that is
    given it keeps its tokens as they are.

    Parameters
    ----------
    source : str, optional
        A Hugging Face model, by name or folder, whose tokenizer is taken. None: the most frequent
        words of the corpus, a word not among them falling into its characters.
    max_length : int
        Longer texts are cut.
    vocabulary : int
        At most so many tokens are learned, where there is no source.
    lowercase : bool
        Whether case is ignored, where there is no source.
    cache : str, optional
        A folder that keeps the tokens of corpora; they are mapped from there, and a corpus seen
        before is not tokenised again.

    Examples
    --------
    >>> tokens = Tokenizer().fit_transform(["red dress", "blue jeans"])
    >>> tokens.lengths
    array([4, 4])
    """

    PARAMETERS = {  # noqa: RUF012
        "source": instance(str) | one_of(None),
        "max_length": integer(2),
        "vocabulary": integer(len(SPECIAL) + 1),
        "lowercase": boolean(),
        "cache": instance(str) | one_of(None),
    }
    INCIDENTAL: ClassVar[frozenset[str]] = frozenset({"cache"})

    LEARNED = {  # noqa: RUF012
        "definition_": value(instance(str)),
        "special_": value(instance(dict)),
    }

    definition_: str
    special_: dict[str, int]

    _keeps = False
    _learned_by: tuple[Any, ...] = ()

    def __init__(
        self,
        source: str | None = None,
        *,
        max_length: int = 128,
        vocabulary: int = 30_000,
        lowercase: bool = True,
        cache: str | None = None,
    ) -> None:
        self.source = source
        self.max_length = max_length
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.cache = cache

    def fit(self, inputs: Any, y: Any = None) -> Self:
        """Take the source's tokenizer, or learn the words of a corpus or of texts; the copy of a
        tokenizer that has learned stays as it is, unless a parameter asks for other tokens."""
        self.check_parameters()
        if self.source is not None:
            learned = _taken(self.source)
        elif self._keeps and self._learned_by == self._chosen():
            learned = self.learned()
        else:
            learned = self._learn(inputs)
        self.restore(learned)
        return self

    def __sklearn_clone__(self) -> Self:
        # its tokens are what an encoder may have been trained on: as much a choice as a parameter
        made = copy.copy(self)
        made._keeps = self.fitted
        return made

    def transform(self, inputs: Any) -> Tokens:
        """The tokens of each text, those that begin and end a text among them."""
        self.check_fitted()
        if self.cache is None:
            return self._tokenised(inputs)
        parts = list(text_batches(inputs))
        digest = hashlib.sha256(f"{self.definition_}\0{self.max_length}".encode())
        for array in (array for part in parts for array in part):
            digest.update(np.ascontiguousarray(array).data)
        folder = Path(self.cache) / digest.hexdigest()[:20]
        made = _cached(folder, lambda: self._tokenised([from_arrays(*part) for part in parts]))
        return self._tokens(*made)

    def words(self, inputs: Any) -> list[list[str]]:
        """The words of each text that are read as tokens: what a tagger of words is to be given.

        Examples
        --------
        >>> Tokenizer(vocabulary=20).fit(["red dress"]).words(["Red dress!"])
        [['red', 'dress', '[UNK]']]
        """
        tokens = self.transform(inputs)
        starts = tokens.word_starts()
        special = np.flatnonzero(np.isin(tokens.ids, tokens.apart))
        ends = np.sort(np.concatenate([starts, special, [len(tokens.ids)]]))
        pieces = [tokens.ids[a : ends[np.searchsorted(ends, a, "right")]].tolist() for a in starts]
        found = [word.strip() for word in self._tokenizer.decode_batch(pieces, False)]
        row = np.searchsorted(starts, tokens.indptr)
        return [found[a:b] for a, b in pairwise(row)]

    def as_json(self) -> str:
        """What `tokenizer.json` says: all that makes tokens of texts, where they are cut too."""
        self.check_fitted()
        return str(self._tokenizer.to_str(pretty=True))

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write `tokenizer.json` and what is said about it: a folder that `source` can name."""
        self.check_fitted()
        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        (where / "tokenizer.json").write_text(self.as_json(), encoding="utf-8")
        names = {
            f"{name}_token": self._tokenizer.id_to_token(number)
            for name, number in self.special_.items()
        }
        about = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
        (where / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")

    def known(self, inputs: Any, vectors: Any) -> np.ndarray:
        """Which texts hold a known token."""
        return known_texts(self._tokenizer, inputs)

    @property
    def n_features(self) -> int:
        """The number of different tokens."""
        self.check_fitted()
        return int(self._tokenizer.get_vocab_size())

    def check_learned(self) -> None:
        """Make the tokenizer of its definition."""
        from tokenizers import Tokenizer as Backend

        try:
            self._tokenizer = Backend.from_str(self.definition_)
        except Exception as error:  # the library raises nothing more specific
            raise ValueError(f"definition_ of Tokenizer cannot be read: {error}") from None
        pieces = self._tokenizer.get_vocab()
        if max(pieces.values(), default=0) > 16 * len(pieces) + _GAP:
            raise ValueError("definition_ of Tokenizer has numbers far beyond its tokens")
        if not isinstance(self.special_.get("pad"), int):
            raise ValueError("special_ of Tokenizer must hold the padding token")
        self._continues = _continuing(self._tokenizer)
        self._names = sorted(pieces, key=pieces.__getitem__)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_length)
        self._learned_by = self._chosen()

    def _chosen(self) -> tuple[Any, ...]:
        """The parameters that say which tokens there are."""
        return self.source, self.vocabulary, self.lowercase

    def _tokenised(self, inputs: Any) -> Tokens:
        parts: list[np.ndarray] = []
        lengths: list[int] = []
        for texts in (from_arrays(*arrays) for arrays in text_batches(inputs)):
            for start in range(0, len(texts), _AT_ONCE):
                batch = texts[start : start + _AT_ONCE].to_pylist()
                found = [made.ids for made in self._tokenizer.encode_batch_fast(batch)]
                lengths += map(len, found)
                parts.append(np.fromiter((i for ids in found for i in ids), np.int32))
        indptr = np.append(0, np.cumsum(np.array(lengths, np.int64)))
        ids = np.concatenate(parts) if parts else np.empty(0, np.int32)
        return self._tokens(ids, indptr)

    def _tokens(self, ids: np.ndarray, indptr: np.ndarray) -> Tokens:
        pad = self.special_["pad"]
        more = (self.special_, self._continues, self._names)
        return Tokens(ids, indptr, self.n_features, pad, *more)

    def _learn(self, inputs: Any) -> dict[str, Any]:
        from tokenizers import Tokenizer as Backend
        from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

        forms: list[Any] = [normalizers.NFKC()]
        if self.lowercase:
            forms += [normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]
        normalise, split = normalizers.Sequence(forms), pre_tokenizers.BertPreTokenizer()
        words: dict[str, int] = {}
        characters: dict[str, int] = {}
        for texts in (from_arrays(*arrays) for arrays in text_batches(inputs)):
            for text in texts.to_pylist():
                for word, _ in split.pre_tokenize_str(normalise.normalize_str(text)):
                    words[word] = words.get(word, 0) + 1
        for word, count in words.items():
            for piece in [word[0], *(f"##{c}" for c in word[1:])]:
                characters[piece] = characters.get(piece, 0) + count
        known = dict.fromkeys(SPECIAL)
        # characters first: with them every word can be spelled, but they never take half the room
        for counts, room in ((characters, self.vocabulary // 2), (words, self.vocabulary)):
            for piece in sorted(counts, key=lambda p: (-counts[p], p)):
                if len(known) >= room:
                    break
                known.setdefault(piece)
        vocabulary = {piece: i for i, piece in enumerate(known)}
        made = Backend(
            models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100)
        )
        made.normalizer, made.pre_tokenizer = normalise, split
        made.decoder = decoders.WordPiece(cleanup=False)
        ends = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
        made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, ends)
        names = {piece.strip("[]").lower(): vocabulary[piece] for piece in SPECIAL}
        return {"definition_": made.to_str(), "special_": names}


def _taken(source: str) -> dict[str, Any]:
    """The tokenizer of a pre-trained model."""
    if is_static(source):
        words = read_words(source)
        return {"definition_": words.tokenizer, "special_": words.special}
    from transformers import AutoTokenizer

    made = from_hub(AutoTokenizer, source)
    backend = getattr(made, "backend_tokenizer", None)
    if backend is None:
        raise DataError(f"the tokenizer of {source} has no fast form (tokenizer.json)")
    names = ("pad", "unk", "cls", "sep", "mask")
    special = {name: getattr(made, f"{name}_token_id", None) for name in names}
    special = {name: number for name, number in special.items() if number is not None}
    special.setdefault("pad", 0)
    return {"definition_": backend.to_str(), "special_": special}


def _continuing(tokenizer: Any) -> np.ndarray:
    """Which tokens go on with a word, by the mark that this kind of tokenizer gives pieces."""
    pieces = tokenizer.get_vocab()
    found = np.zeros(max(pieces.values(), default=-1) + 1, bool)
    marks = {mark: [i for piece, i in pieces.items() if piece.startswith(mark)] for mark in _MARKS}
    mark = max(marks, key=lambda m: len(marks[m]))
    if marks[mark]:
        found[marks[mark]] = True
        if mark != "##":  # the others mark pieces that begin a word
            np.logical_not(found, out=found)
    return found


def _cached(folder: Path, make: Callable[[], Tokens]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens kept in a folder, mapped; made and kept where they are not there yet."""
    ids, indptr = folder / "ids.npy", folder / "indptr.npy"
    if not (ids.exists() and indptr.exists()):
        made = make()
        with filling_folder(folder) as fresh:
            np.save(fresh / ids.name, made.ids)
            np.save(fresh / indptr.name, made.indptr)
    return np.load(ids, mmap_mode="r"), np.load(indptr)
