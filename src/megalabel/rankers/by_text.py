"""ByText: labels ranked by what they are called, and by what is said of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel.base import (
    Check,
    Learned,
    array,
    check_not_negative,
    integer,
    number,
    optional,
    part,
    unfitted,
    value,
    with_learned,
)
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import (
    as_dense,
    check_width,
    checked_csr,
    clamped,
    normalised_rows,
    picked_rows,
    products,
    row_numbers,
    with_values,
)
from megalabel.errors import ParameterError, ShapeError
from megalabel.parts import Classifier
from megalabel.rankers.dense import best, log_sigmoid

_CELLS = 1 << 22  # scores of texts and labels held at a time
_HALF = 0.5  # of a name's idf must be in a text


class ByText(Classifier):
    """What is known of labels from their texts alone: no text of training carries any.

    A label's score is the sum of

    - the cosine of an encoder's vectors of the text and of the label's name, less `hubs_`: what the
      name has with any text; where a label has a definition too, the mean of both, in which the
      definition counts `definitions`
    - `words` times the cosine of the words of the text and of the name, by tf-idf
    - `matches` times share * found / (2 * rarest), where at least half of a name, by idf, is in the
      text: `found` is the idf of its words that are, `share` that by the idf of all of them, and
      `rarest` the idf of a word that no text has

    Of several names of a label the one that fits best counts. The answer is
    sigmoid(scale * score + bias): a number from 0 to 1, but no frequency, until the tagger is
    calibrated.

    It is a part of a trained tagger and learns nothing by itself. What it ranks is a list: the
    vectors of texts, where there is an encoder, and the counts of their words (`features.Each`).

    Parameters
    ----------
    definitions, words, matches, scale, bias : float

    Attributes
    ----------
    idf_ : float32 array (columns,)
        Of words, by the texts that were there.
    rarest_ : float
    name_starts_, word_starts_ : int64 arrays
        Where the names of each label start, and where the words of each name start.
    name_words_ : int32 array
        The words of all names in a row, each once a name, in order.
    vectors_, definitions_ : float16 arrays (labels, width), optional
        An encoder's vectors of names and of definitions, of length one; zeros where there is none.
    hubs_, definition_hubs_ : float32 arrays (labels,), optional
        What is taken off their cosines.
    middle_ : float32 array (width,), optional
        The products of which with vectors are the hubs.
    met_ : int, optional
        How many of the columns were there in training; the others came with names. None: all.
    labels_ : LabelSet

    Examples
    --------
    >>> words = ["whale", "red", "dress"]
    >>> model = ByText.of(
    ...     LabelSet(["whale", "red dress"]), csr_matrix([[1, 0, 0], [0, 1, 1]]), np.ones(3), 2.0
    ... )
    >>> model.rank([csr_matrix([[0.0, 1, 0]])], k=1).tags()[0][0].label
    'red dress'
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "definitions": number(0, 1),
        "words": number(0),
        "matches": number(0),
        "scale": number(0),
        "bias": number(),
    }

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "idf_": array(np.float32, "columns"),
        "rarest_": value(number(0)),
        "name_starts_": array(np.int64, "labels+1"),
        "word_starts_": array(np.int64, "names+1"),
        "name_words_": array(np.int32, "words of names"),
        "vectors_": optional(array(np.float16, "labels", "width")),
        "hubs_": optional(array(np.float32, "labels")),
        "definitions_": optional(array(np.float16, "labels", "width")),
        "definition_hubs_": optional(array(np.float32, "labels")),
        "middle_": optional(array(np.float32, "width")),
        "met_": optional(value(integer(0))),
    }

    idf_: np.ndarray
    rarest_: float
    name_starts_: np.ndarray
    word_starts_: np.ndarray
    name_words_: np.ndarray
    vectors_: np.ndarray | None = None
    hubs_: np.ndarray | None = None
    definitions_: np.ndarray | None = None
    definition_hubs_: np.ndarray | None = None
    middle_: np.ndarray | None = None
    met_: int | None = None

    def __init__(
        self,
        *,
        definitions: float = 0.2,
        words: float = 0.3,
        matches: float = 0.2,
        scale: float = 5.0,
        bias: float = -3.0,
    ) -> None:
        self.definitions = definitions
        self.words = words
        self.matches = matches
        self.scale = scale
        self.bias = bias

    @classmethod
    def of(
        cls,
        labels: LabelSet,
        names: csr_matrix,
        idf: np.ndarray,
        rarest: float,
        *,
        name_starts: np.ndarray | None = None,
        **parameters: Any,
    ) -> ByText:
        """One of the words of names, a row each, and how rare words are; without vectors."""
        rows = csr_matrix(names, copy=True)
        rows.sum_duplicates()
        made = cls(**parameters)
        one_each = np.arange(len(labels) + 1)
        learned: dict[str, Any] = {
            "labels_": labels,
            "idf_": np.asarray(idf, np.float32),
            "rarest_": float(rarest),
            "name_starts_": np.asarray(one_each if name_starts is None else name_starts, np.int64),
            "word_starts_": rows.indptr.astype(np.int64),
            "name_words_": rows.indices.astype(np.int32),
        }
        made.restore(learned)
        return made

    def with_vectors(
        self, vectors: np.ndarray, middle: np.ndarray, definitions: np.ndarray | None = None
    ) -> ByText:
        """The same with an encoder's vectors of names, and of definitions, in place of any.

        `middle` is what texts have in common, such as a share of the mean of their vectors: its
        product with a vector is taken off the cosines of that.
        """
        made = type(self)(**self.get_params(deep=False))
        names, hubs = _with_hubs(vectors, middle)
        learned = self.learned() | {
            "vectors_": names,
            "hubs_": hubs,
            "middle_": np.asarray(middle, np.float32),
            "definitions_": None,
            "definition_hubs_": None,
        }
        if definitions is not None:
            learned["definitions_"], learned["definition_hubs_"] = _with_hubs(definitions, middle)
        made.restore(learned)
        return made

    def add_labels(
        self,
        labels: LabelSet,
        names: csr_matrix,
        *,
        name_starts: np.ndarray | None = None,
        vectors: np.ndarray | None = None,
        definitions: np.ndarray | None = None,
    ) -> Self:
        """A copy that knows more labels, after its own.

        Parameters
        ----------
        labels : LabelSet
        names : CSR matrix (names, columns)
            The words of their names, in the columns that are known here and further ones, which no
            text has had.
        name_starts : int array (labels + 1,), optional
            Where the names of each label start; by default each has one.
        vectors, definitions : array (labels, width), optional
            An encoder's vectors of names, where there are vectors here, and of definitions, rows of
            zeros where there is none.

        Examples
        --------
        >>> names = csr_matrix([[1.0, 0], [0, 1]])
        >>> model = ByText.of(LabelSet(["whale", "dress"]), names, np.ones(2), 2.0)
        >>> more = model.add_labels(LabelSet(["whaling ship"]), csr_matrix([[1.0, 0, 1]]))
        >>> more.rank([csr_matrix([[1.0, 0, 2]])], k=1).tags()[0][0].label
        'whaling ship'
        """
        self.check_fitted()
        rows, columns = csr_matrix(names, copy=True), len(self.idf_)
        rows.sum_duplicates()
        if rows.shape[1] < columns:
            raise ShapeError(f"names are {rows.shape}, but {columns} words are known here")
        starts = np.arange(len(labels) + 1) if name_starts is None else np.asarray(name_starts)
        unmet = np.full(rows.shape[1] - columns, self.rarest_, np.float32)
        learned = self.learned() | {
            "labels_": self.labels_.extended(labels),
            "idf_": np.append(self.idf_, unmet),
            "met_": columns if self.met_ is None else self.met_,
            "name_starts_": np.append(self.name_starts_, self.name_starts_[-1] + starts[1:]),
            "word_starts_": np.append(self.word_starts_, self.word_starts_[-1] + rows.indptr[1:]),
            "name_words_": np.append(self.name_words_, rows.indices.astype(np.int32)),
        }
        if self.vectors_ is not None:
            if vectors is None:
                raise ParameterError("the labels here have vectors: give vectors of the new ones")
            learned |= self._more("vectors_", "hubs_", vectors)
            if definitions is not None or self.definitions_ is not None:
                nothing = np.zeros_like(vectors)
                said = nothing if definitions is None else definitions
                learned |= self._more("definitions_", "definition_hubs_", said)
        return with_learned(unfitted(self), **learned)

    def _more(self, name: str, hub: str, vectors: np.ndarray) -> dict[str, np.ndarray]:
        """The vectors of more labels after those there, and what is taken off their cosines."""
        assert self.hubs_ is not None
        check_width(self, vectors, self._width)
        known, hubs = getattr(self, name), getattr(self, hub)
        if known is None:  # no label has had a definition
            known = np.zeros((len(self.labels_), self._width), np.float16)
            hubs = np.zeros(len(known), np.float32)
        if self.middle_ is not None:
            made, own = _with_hubs(vectors, self.middle_)
        else:  # of a folder that does not know it
            made, own = _with_hubs(vectors, np.zeros(self._width))
            own[np.any(made, axis=1)] = hubs.mean()
        return {name: np.concatenate([known, made]), hub: np.append(hubs, own)}

    @property
    def _width(self) -> int:
        """Of an encoder's vectors."""
        assert self.vectors_ is not None
        return int(self.vectors_.shape[1])

    def _fit(self, examples: Examples) -> None:
        """Not possible: what it knows comes from a trained tagger."""
        raise ParameterError("ByText is a part of a trained tagger: fit the system that made it")

    @property
    def reads_texts(self) -> bool:
        """True: labels are known by their texts, which vectors made elsewhere do not have."""
        return True

    # ------------------------------------------------------------------ answering
    def rank(self, X: Any, k: int) -> Ranking:
        """The k best labels of each text; X is a list of their vectors and their words."""
        self.check_fitted()
        return self._ranked(X, clamped(k, max(1, len(self.labels_))), None)

    def _rank_allowed(self, X: Any, k: int, allowed: np.ndarray) -> Ranking:
        return self._ranked(X, k, allowed)

    def _ranked(self, X: Any, k: int, allowed: np.ndarray | None) -> Ranking:
        vectors, words = self._rows(X)
        ids = np.empty((words.shape[0], k), np.int32)
        scores = np.empty(ids.shape, np.float32)
        numbers = np.arange(len(self.labels_))[None]
        size = max(1, _CELLS // max(1, len(self.labels_)))
        for start in range(0, len(ids), size):
            some = slice(start, start + size)
            made = self._cosines(None if vectors is None else vectors[some], words[some])
            row, label, lexical = self.lexical(words[some])
            made[row, label] += lexical
            if allowed is not None:
                made[:, ~allowed] = -np.inf
            scores[some], ids[some] = best(made, numbers, k)
        there = scores > -np.inf
        logits = np.float32(self.scale) * scores[there] + np.float32(self.bias)
        scores[there] = np.exp(log_sigmoid(logits))
        return Ranking(np.where(there, ids, len(self.labels_)), scores, self.labels_)

    def _rows(self, X: Any) -> tuple[np.ndarray | None, csr_matrix]:
        """The vectors of texts, where they count, and the counts of their words."""
        *dense, words = X
        check_width(self, words, len(self.idf_))
        if self.vectors_ is None:
            return None, csr_matrix(words)
        check_width(self, dense[0], self.vectors_.shape[1])
        return np.asarray(normalised_rows(as_dense(dense[0]))), csr_matrix(words)

    def _cosines(self, vectors: np.ndarray | None, words: csr_matrix) -> np.ndarray:
        """What an encoder says of some texts and all labels."""
        if vectors is None or self.vectors_ is None:
            return np.zeros((words.shape[0], len(self.labels_)), np.float32)
        made = products(vectors, self.vectors_) - self.hubs_
        if self.definitions_ is not None:
            assert self.definition_hubs_ is not None
            known, definitions = self._defined
            more = products(vectors, definitions) - self.definition_hubs_[known]
            share = np.float32(self.definitions)
            made[:, known] = (1 - share) * made[:, known] + share * more
        return np.asarray(made, np.float32)

    def lexical(self, words: csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What words say of texts: the rows, the labels, and their scores without a cosine of
        vectors; cells that are not named have 0."""
        binary, unit, names, weighed = self._lexicon
        own = csr_matrix(words, copy=True)
        own.data = (1 + np.log(np.maximum(own.data, 1))).astype(np.float32)
        own.data *= self.idf_[own.indices]
        cosines = self._word_cosines(own, unit)
        ones = csr_matrix(
            (np.ones(words.nnz, np.float32), words.indices, words.indptr), words.shape
        )
        found = (ones @ weighed).tocsr()
        cosines.sort_indices()
        found.sort_indices()  # both have the same cells
        share = found.data / names[found.indices]
        strong = np.where(share >= _HALF, share * found.data, 0) / np.float32(2 * self.rarest_)
        made = np.float32(self.words) * cosines.data + np.float32(self.matches) * strong
        rows, labels = row_numbers(found), binary[found.indices]
        if len(binary) == len(self.labels_):
            return rows, labels, made
        # of several names of a label the best one
        order = np.lexsort((-made, labels, rows))
        rows, labels, made = rows[order], labels[order], made[order]
        first = np.ones(len(rows), bool)
        first[1:] = (np.diff(rows) != 0) | (np.diff(labels) != 0)
        return rows[first], labels[first], made[first]

    def _word_cosines(self, words: csr_matrix, unit: csr_matrix) -> csr_matrix:
        """The cosines of the weighed words of texts with those of names.

        Words that came with names count in the length of a text for names that have such words
        alone, so that others stay as they are.
        """
        if self.met_ is None:
            return (csr_matrix(normalised_rows(words)) @ unit).tocsr()
        late, rows = words.indices >= self.met_, row_numbers(words)
        met = with_values(words, np.where(late, 0, words.data).astype(np.float32))
        squares = (np.square(one.data, dtype=np.float64) for one in (met, words))
        lengths, whole = (
            np.bincount(rows, one, minlength=words.shape[0]) ** 0.5 for one in squares
        )
        lengths[lengths == 0] = 1
        own = normalised_rows(met)
        own.data[late] = words.data[late] / lengths[rows[late]]
        cosines = (own @ unit).tocsr()
        cells = self._late[cosines.indices]
        at = row_numbers(cosines)[cells]
        cosines.data[cells] *= (lengths[at] / whole[at]).astype(np.float32)
        return cosines

    # ------------------------------------------------------------------ keeping
    def check_learned(self) -> None:
        """Names must be those of labels, and their words columns; gets the lexicon ready."""
        names, columns = len(self.word_starts_) - 1, len(self.idf_)
        for name, starts, inner in (
            ("name_starts_", self.name_starts_, names),
            ("word_starts_", self.word_starts_, len(self.name_words_)),
        ):
            if starts[0] != 0 or starts[-1] != inner or (np.diff(starts) < 0).any():
                raise ValueError(f"{name} of ByText must rise from 0 to {inner}")
        rows = checked_csr(
            np.ones(len(self.name_words_), np.float32),
            self.name_words_,
            self.word_starts_,
            (names, columns),
        )
        check_not_negative("ByText", "idf_", self.idf_)
        vectors = (self.vectors_, self.hubs_), (self.definitions_, self.definition_hubs_)
        if any((one is None) != (hubs is None) for one, hubs in vectors):
            raise ValueError("ByText must have hubs_ of its vectors_, and only of those")
        if self.vectors_ is None and self.definitions_ is not None:
            raise ValueError("definitions_ of ByText must come with vectors_ of names")
        rows.data = np.asarray(self.idf_)[rows.indices]
        mass = np.maximum(np.asarray(rows.sum(axis=1), np.float32).ravel(), np.float32(1e-6))
        owners = np.repeat(np.arange(len(self.labels_)), np.diff(self.name_starts_))
        unit = csr_matrix(normalised_rows(rows)).T.tocsr()
        self._lexicon = owners, unit, mass, rows.T.tocsr()
        met = columns if self.met_ is None else self.met_
        self._late = np.zeros(names, bool)
        self._late[row_numbers(rows)[rows.indices >= met]] = True
        if self.definitions_ is not None:
            there = np.any(self.definitions_, axis=1)
            rows = self.definitions_ if there.all() else self.definitions_[there]
            self._defined = np.flatnonzero(there), rows

    def _taken(self, numbers: np.ndarray) -> dict[str, Any]:
        taken, name_starts = picked_rows(self.name_starts_, numbers)
        words, word_starts = picked_rows(self.word_starts_, taken)
        return super()._taken(numbers) | {
            "name_starts_": name_starts,
            "word_starts_": word_starts,
            "name_words_": self.name_words_[words],
        }


def _with_hubs(vectors: np.ndarray, middle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors as they are kept, and what is taken off their cosines."""
    unit = normalised_rows(vectors)
    return np.asarray(unit, np.float16), np.asarray(unit @ middle, np.float32)


def definitions_of(labels: LabelSet) -> list[str] | None:
    """What is said of each label besides its name; empty where nothing is, None if of no label.

    Examples
    --------
    >>> texts = ["cat: a small beast", "dog", "article of a treaty"]
    >>> definitions_of(LabelSet(["a", "b", "c"], ["cat", "dog", "art"], texts))
    ['a small beast', '', 'article of a treaty']
    """
    if labels.texts is None:
        return None
    made = [
        # a text may begin with another word that begins as the name does
        re.sub(rf"\A{re.escape(name)}(?!\w)", "", text).strip(" .:,;-–—\n\t")
        for text, name in zip(labels.texts.to_pylist(), labels.names.to_pylist(), strict=True)
    ]
    return made if any(made) else None


def definition_vectors(labels: LabelSet, seen: Callable[[Any], np.ndarray]) -> np.ndarray | None:
    """What `seen` makes of each label's definition; zeros where it has none, None if no label has
    one."""
    texts = definitions_of(labels)
    if texts is None:
        return None
    made = seen([text for text in texts if text])
    vectors = np.zeros((len(texts), made.shape[1]), np.float32)
    vectors[np.array([bool(text) for text in texts])] = made
    return vectors
