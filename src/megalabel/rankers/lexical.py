"""LexicalMatcher: labels whose names are found in a text, ranked by how they are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.base import (
    Check,
    Learned,
    array,
    boolean,
    check_not_negative,
    clone,
    instance,
    integer,
    list_of,
    number,
    one_of,
    optional,
    part,
    unfitted,
    value,
    with_learned,
)
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.labelset import COLLECTION
from megalabel.data.matrix import check_width, clamped, picked_rows
from megalabel.errors import DataError, ParameterError, ShapeError
from megalabel.features.stemmed import NameRows
from megalabel.features.words import WordRows
from megalabel.parts import Classifier
from megalabel.rankers.boosting import BoostedTrees

AT_ONCE = 2048  # texts matched at a time
FEWEST = 10  # pairs of each kind that trees are grown from
FIRM = 5.0  # how firmly a share is held to that of all labels: as so many pairs would
FLOOR, DEEP = -16.0, 16.0  # logits of labels that are not named: of the first, and how far on
TIE = 1e-3  # how much a plain score counts where margins are equal
LINKS = ("broader", "narrower", "related")

COLUMN = {one.name: place for place, one in enumerate(_native.LexicalFeature)}
HISTORY = ("texts", "matched", "matched_share", "word_matched", "word_share")
FEATURES = (*COLUMN, *HISTORY)


class Found(NamedTuple):
    """The labels that texts name, text by text, and what is known of how."""

    starts: np.ndarray
    """Where those of each text start."""
    labels: np.ndarray
    names: np.ndarray
    """The best name of each."""
    rarest: np.ndarray
    """The rarest word of it that the text has."""
    features: np.ndarray
    """float32 (pairs, native features)."""

    @property
    def rows(self) -> np.ndarray:
        """The text of each pair."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @property
    def whole(self) -> np.ndarray:
        """Whether all of the name is there: 1 or 0."""
        return np.asarray(self.features[:, COLUMN["words_missing"]] == 0).astype(np.int64)


class LexicalMatcher(Classifier):
    """Labels that a text names, whole or in part, scored by boosted trees on how it names them.

    A name is found where the text has words of at least half of its mass, the sum of the idf of its
    different words, in any order. All names of a label count (`LabelSet.all_names`), and labels
    that no text of training carries are found too. What is learned is how much a match is worth:
    by its words, where they stand, what else the text names, linked labels among that, and how
    often the label was assigned where it was found. Without labels to learn from, matches are
    scored by BM25.

    Its rows are those of `features.StemmedWords`.

    Parameters
    ----------
    share : float
        The share of a name's mass that a text must have.
    candidates : int
        At most so many labels of a text are scored.
    looked_at : int
        At most so many names are looked at for a text, those of rare words first.
    trees : BoostedTrees, optional
        What scores matches; by default 60 trees of 8 leaves.
    texts : int
        At most so many texts are learned from by the trees; counts are of all.
    folds : int
        Parts that texts of training are split into, to score each by trees that have not seen it.
    others : bool
        Whether labels that a text does not name come after those that it does, by frequency; else
        it has fewer labels than are asked for.
    seed : int
        Of which texts are learned from, and of the folds.

    Attributes
    ----------
    name_starts_, word_starts_ : int64 arrays
        Where the names of each label start, and where the words of each name start.
    name_words_ : int32 array
        The words of all names in a row.
    shared_ : int32 array (names,)
        How many labels have a name of the same words.
    posting_starts_, postings_ : int64 and int32 arrays
        For each word, the names to look at.
    idf_ : float32 array (words,)
    met_ : int, optional
        How many of the words were there in training; the others came with names. None: all.
    link_starts_, links_ : lists of int64 and int32 arrays
        The broader, narrower and related labels of each label, and its collections; empty where
        there are none.
    label_counts_ : int64 array (labels,)
        Training texts of each label.
    matched_, hits_ : int32 arrays (labels, 2)
        In how many texts of training a label's name was found, in part and whole, and in how many
        of these it was assigned.
    word_matched_, word_hits_ : int32 arrays (words,)
        The same of pairs of a text and a label, by the rarest word found.
    trees_ : BoostedTrees or None
    usual_words_ : float
        Words of a text on average.
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "share": number(0.05, 1),
        "candidates": integer(1),
        "looked_at": integer(1),
        "trees": instance(BoostedTrees) | one_of(None),
        "texts": integer(1),
        "folds": integer(2),
        "others": boolean(),
        "seed": integer(0),
    }

    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "name_starts_": array(np.int64, "labels+1"),
        "word_starts_": array(np.int64, "names+1"),
        "name_words_": array(np.int32, "words of names"),
        "shared_": array(np.int32, "names"),
        "posting_starts_": array(np.int64, "words+1"),
        "postings_": array(np.int32, "postings"),
        "idf_": array(np.float32, "words"),
        "met_": optional(value(integer(0))),
        "link_starts_": list_of(array(np.int64, "starts")),
        "links_": list_of(array(np.int32, "links")),
        "label_counts_": array(np.int64, "labels"),
        "matched_": array(np.int32, "labels", 2),
        "hits_": array(np.int32, "labels", 2),
        "word_matched_": array(np.int32, "words"),
        "word_hits_": array(np.int32, "words"),
        "trees_": optional(part(BoostedTrees)),
        "usual_words_": value(number(1e-6)),
    }

    name_starts_: np.ndarray
    word_starts_: np.ndarray
    name_words_: np.ndarray
    shared_: np.ndarray
    posting_starts_: np.ndarray
    postings_: np.ndarray
    idf_: np.ndarray
    met_: int | None = None
    link_starts_: list[np.ndarray]
    links_: list[np.ndarray]
    label_counts_: np.ndarray
    matched_: np.ndarray
    hits_: np.ndarray
    word_matched_: np.ndarray
    word_hits_: np.ndarray
    trees_: BoostedTrees | None = None
    usual_words_: float

    # of the texts that it was fitted on, for a ranking of them
    _targets: csr_matrix | None = None
    _excluded: csr_matrix | None = None

    def __init__(
        self,
        *,
        share: float = 0.5,
        candidates: int = 200,
        looked_at: int = 20_000,
        trees: BoostedTrees | None = None,
        texts: int = 5_000,
        folds: int = 3,
        others: bool = True,
        seed: int = 0,
    ) -> None:
        self.share = share
        self.candidates = candidates
        self.looked_at = looked_at
        self.trees = trees
        self.texts = texts
        self.folds = folds
        self.others = others
        self.seed = seed

    @property
    def reads_texts(self) -> bool:
        """True: names are looked for in texts."""
        return True

    @property
    def finds_unseen(self) -> bool:
        """True: names are there without texts."""
        return True

    @property
    def ranks_held_out(self) -> bool:
        """True: texts of training are scored by trees that have not seen them."""
        return True

    # --- learning

    def _fit(self, examples: Examples) -> None:
        rows, names = examples.rows, examples.label_rows
        if not isinstance(rows, WordRows) or not isinstance(names, NameRows):
            raise ParameterError(
                "LexicalMatcher looks for names in texts: its features must be StemmedWords"
            )
        labels, words = len(examples.labels), len(names.idf)
        learned: dict[str, Any] = {
            "labels_": examples.labels,
            "idf_": names.idf,
            **self._indexed(np.ascontiguousarray(names.starts, np.int64), names.words, names.idf),
            **_linked(examples.labels),
            "label_counts_": examples.label_counts,
            "matched_": np.zeros((labels, 2), np.int32),
            "hits_": np.zeros((labels, 2), np.int32),
            "word_matched_": np.zeros(words, np.int32),
            "word_hits_": np.zeros(words, np.int32),
            "usual_words_": float(names.usual_words),
        }
        self.restore(learned)
        chosen = np.zeros(len(examples), bool)
        chosen[np.random.default_rng(self.seed).permutation(len(examples))[: self.texts]] = True
        kept: list[tuple[Found, np.ndarray]] = []
        for start, found in self._found(rows):
            some = slice(start, start + len(found.starts) - 1)
            found = self._taught(found, examples.excluded, some)
            hits = self._hits(found, examples.targets[some])
            self._count(found, hits)
            here = chosen[some][found.rows]
            kept.append((_only(found, here), hits[here]))
        features, hits = self._learnable([self._tellable(*pairs) for pairs in kept])
        trees = self._grown(features, hits)
        if trees is not None:
            self.restore(self.learned() | {"trees_": trees})
        self._targets, self._excluded = examples.targets, examples.excluded

    def _taught(self, found: Found, excluded: csr_matrix | None, rows: Any) -> Found:
        """What is found in texts of training, but for the cells of which nothing is learned."""
        return found if excluded is None else _only(found, ~self._hits(found, excluded[rows]))

    def _tellable(self, found: Found, hits: np.ndarray) -> tuple[Found, np.ndarray]:
        """Pairs of texts of training, and which are right, without those that are so for certain.

        Where labels are those that some text carries, one that no other text carries is known by
        this text alone. Of a vocabulary that is there beforehand, most such labels are in no text.
        """
        counts = self.label_counts_
        if (counts == 0).sum() >= (counts == 1).sum():
            return found, hits
        there = ~(hits & (counts[found.labels] == 1))
        return _only(found, there), hits[there]

    def add_labels(self, labels: LabelSet, names: NameRows) -> Self:
        """A copy that knows more labels, after its own, by their names; what it has learned of
        matches stays.

        No text of training is counted for them. Words of `names` are numbered as those known here,
        with further ones at the end (`StemmedWords.with_names`).
        """
        self.check_fitted()
        known, words, more = len(self.labels_), len(self.idf_), len(names.idf) - len(self.idf_)
        if more < 0:
            raise ShapeError(
                f"names are in {len(names.idf)} words, of which {words} are known here"
            )
        every = self.labels_.extended(labels)
        nothing = np.zeros((len(every) - known, 2), np.int32)
        starts = np.append(self.name_starts_, self.name_starts_[-1] + names.starts[1:])
        ends = self.word_starts_[-1] + names.words.indptr[1:]
        rows = WordRows(
            np.append(self.name_words_, names.words.ids),
            np.append(self.word_starts_, ends),
            len(names.idf),
        )
        learned = self.learned() | {
            "labels_": every,
            "idf_": names.idf,
            "met_": words if self.met_ is None else self.met_,
            **self._indexed(starts, rows, names.idf),
            **_linked(every),
            "label_counts_": np.append(self.label_counts_, nothing[:, 0].astype(np.int64)),
            "matched_": np.append(self.matched_, nothing, axis=0),
            "hits_": np.append(self.hits_, nothing, axis=0),
            "word_matched_": np.append(self.word_matched_, np.zeros(more, np.int32)),
            "word_hits_": np.append(self.word_hits_, np.zeros(more, np.int32)),
        }
        return with_learned(unfitted(self), **learned)

    def _indexed(self, starts: np.ndarray, names: WordRows, idf: np.ndarray) -> dict[str, Any]:
        """Where the names of each label start, their words, and the index of them."""
        posting_starts, postings, shared = _native.index_names(
            names.native(), owners=_owners(starts), idf=idf, share=self.share
        )
        return {
            "name_starts_": starts,
            "word_starts_": names.indptr,
            "name_words_": names.ids,
            "shared_": shared,
            "posting_starts_": posting_starts,
            "postings_": postings,
        }

    def _count(self, found: Found, hits: np.ndarray) -> None:
        """Take note of how often labels are found, and assigned then."""
        for where, column, kept in (
            ((found.labels, found.whole), self.matched_, None),
            ((found.labels, found.whole), self.hits_, hits),
            ((found.rarest,), self.word_matched_, None),
            ((found.rarest,), self.word_hits_, hits),
        ):
            np.add.at(column, where if kept is None else tuple(w[kept] for w in where), 1)

    def _learnable(self, kept: list[tuple[Found, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
        """The features of pairs, each as if its text had not been counted, and which are right."""
        parts = [(self._features(found, hits), hits) for found, hits in kept]
        features = np.concatenate([part for part, _ in parts])
        return features, np.concatenate([hits for _, hits in parts])

    def _grown(self, features: np.ndarray, hits: np.ndarray) -> BoostedTrees | None:
        """Trees that score pairs; None: there are too few to learn from."""
        if min(int(hits.sum()), int((~hits).sum())) < FEWEST:
            return None
        trees = self.trees
        if trees is None:
            trees = BoostedTrees(
                trees=60, max_leaves=8, learning_rate=0.15, feature_share=0.3, seed=self.seed
            )
        grown: BoostedTrees = clone(trees).fit(features, hits)
        return grown

    @staticmethod
    def _hits(found: Found, targets: csr_matrix) -> np.ndarray:
        """Which pairs are among the cells of a matrix."""
        if not len(found.labels):
            return np.zeros(0, bool)
        width = targets.shape[1]
        cells = np.repeat(np.arange(targets.shape[0]), np.diff(targets.indptr)) * width
        own = np.sort(cells + targets.indices)
        wanted = found.rows * width + found.labels
        at = np.minimum(np.searchsorted(own, wanted), max(0, len(own) - 1))
        return own[at] == wanted if len(own) else np.zeros(len(wanted), bool)

    # --- using what was learned

    def check_learned(self) -> None:
        """Names must be those of labels; gets the index ready."""
        self._targets = self._excluded = None
        check_not_negative("LexicalMatcher", "idf_", self.idf_)
        names = len(self.word_starts_) - 1
        starts = self.name_starts_
        if starts[0] != 0 or starts[-1] != names or (np.diff(starts) < 0).any():
            raise ValueError(f"name_starts_ of LexicalMatcher must rise from 0 to {names}")
        if not len(self.link_starts_) == len(self.links_) == len(LINKS) + 1:
            raise ValueError("LexicalMatcher must have links of four kinds")
        if self.trees_ is not None and len(self.trees_.gains_) != len(FEATURES):
            raise ValueError(f"trees_ of LexicalMatcher must be of {len(FEATURES)} features")
        idf = self.idf_
        if self.met_ is not None:  # words of names that have gone again count as unknown
            words = np.arange(len(idf))
            there = (words < self.met_) | np.isin(words, self.name_words_)
            idf = np.where(there, idf, np.float32(0))
        pairs = zip(self.link_starts_, self.links_, strict=True)
        rows = [_native.RowsOfNumbers(starts=starts, items=items) for starts, items in pairs]
        broader, narrower, related, collections = rows
        self._index = _native.NameIndex(
            names=_native.RowsOfNumbers(starts=starts, items=np.arange(names, dtype=np.int32)),
            words=_native.RowsOfNumbers(starts=self.word_starts_, items=self.name_words_),
            owners=_owners(starts),
            shared=self.shared_,
            postings=_native.RowsOfNumbers(starts=self.posting_starts_, items=self.postings_),
            idf=idf,
            broader=broader,
            narrower=narrower,
            related=related,
            collections=collections,
            usual_words=self.usual_words_,
            share=self.share,
            looked_at=self.looked_at,
            candidates=self.candidates,
        )
        order = np.argsort(-self.label_counts_, kind="stable").astype(np.int32)
        self._others = order if self.others else order[:0]
        places = np.arange(len(self._others)) / max(1, len(order))
        self._other_scores = (FLOOR - DEEP * places).astype(np.float32)

    def match(self, X: WordRows) -> Found:
        """The labels that texts name."""
        self.check_fitted()
        check_width(self, X, len(self.idf_))
        return Found(*_native.find_names(self._index, X.native()))

    def _found(self, X: WordRows) -> Iterator[tuple[int, Found]]:
        """The labels that texts name, some texts at a time, and the first of these."""
        for start in range(0, len(X), AT_ONCE):
            some = X if len(X) <= AT_ONCE else X[start : start + AT_ONCE]
            yield start, self.match(some)

    def _features(self, found: Found, own: np.ndarray | None = None) -> np.ndarray:
        """All features of pairs; of texts of training, with which pairs are right, each as if its
        text had not been counted."""
        labels, whole, rarest = found.labels, found.whole, found.rarest
        matched, hits = self.matched_[labels, whole], self.hits_[labels, whole]
        words, word_hits = self.word_matched_[rarest], self.word_hits_[rarest]
        counts = self.label_counts_[labels]
        rates = (self.hits_.sum(0) + 0.5) / (self.matched_.sum(0) + 10.0)
        if own is not None:
            counts, matched, hits = counts - own, matched - 1, hits - own
            cells = found.rows * np.int64(len(self.idf_)) + rarest
            _, place = np.unique(cells, return_inverse=True)
            words = words - np.bincount(place)[place]
            word_hits = word_hits - np.bincount(place, own)[place]
        usual = rates[whole]
        columns = (
            np.log1p(counts),
            np.log1p(matched),
            (hits + FIRM * usual) / (matched + FIRM),
            np.log1p(words),
            (word_hits + FIRM * usual) / (words + FIRM),
        )
        return np.column_stack([found.features, *columns]).astype(np.float32)

    def _margins(
        self, found: Found, features: np.ndarray, trees: BoostedTrees | None
    ) -> np.ndarray:
        """The logit of each pair."""
        plain = found.features[:, COLUMN["bm25"]] * found.features[:, COLUMN["share"]]
        if trees is None:
            return np.asarray(np.log(np.maximum(plain, 1e-6)))
        margins = trees.margins(features) if len(features) else np.zeros(0, np.float32)
        untied = np.maximum(margins + TIE * plain / (1 + plain), FLOOR + 1)
        return np.asarray(untied, np.float32)

    def rank(self, X: Any, k: int) -> Ranking:
        """The k best labels that each text names; then, unless `others` is off, the most frequent
        of all others."""
        self.check_fitted()
        k = clamped(k, max(1, len(self.labels_)))
        parts = []
        for _, found in self._found(_words(X)):
            margins = self._margins(found, self._features(found), self.trees_)
            parts.append(self._order(found, margins, k))
        return self._joined(parts, k)

    def explain(self, X: WordRows, label: int) -> tuple[np.ndarray, np.ndarray] | None:
        """How a single text names a label: the numbers of those words of the best name that the
        text has, in the name's order, and the idf of each; None: it does not name it."""
        found = self.match(X)
        at = np.flatnonzero(found.labels == label)
        if not len(at):
            return None
        name = int(found.names[at[0]])
        words = self.name_words_[self.word_starts_[name] : self.word_starts_[name + 1]]
        there = np.array(list(dict.fromkeys(words[np.isin(words, X.ids)].tolist())), np.int32)
        return there, self.idf_[there]

    def rank_held_out(self, X: Any, rows: np.ndarray, k: int) -> Ranking:
        """Rank some texts of training, each by trees that have not seen it and as if it had not
        been counted."""
        self.check_fitted()
        targets = self._targets
        if targets is None:
            raise ParameterError("texts of training are ranked as if not seen right after a fit")
        k = clamped(k, max(1, len(self.labels_)))
        found = self._taught(self.match(_words(X)), self._excluded, rows)
        found, hits = self._tellable(found, self._hits(found, targets[rows]))
        features = self._features(found, hits)
        folds = np.random.default_rng(self.seed).permutation(len(rows)) % self.folds
        of_pairs = folds[found.rows]
        margins = np.zeros(len(features), np.float32)
        for fold in range(self.folds):
            inside = of_pairs == fold
            grown = self.trees_ is not None
            trees = self._grown(features[~inside], hits[~inside]) if grown else None
            margins[inside] = self._margins(_only(found, inside), features[inside], trees)
        return self._joined([self._order(found, margins, k)], k)

    def _rank_allowed(self, X: Any, k: int, allowed: np.ndarray) -> Ranking:
        parts = []
        for _, found in self._found(_words(X)):
            margins = self._margins(found, self._features(found), self.trees_)
            parts.append(self._order(found, margins, k, allowed))
        return self._joined(parts, k)

    def _order(
        self, found: Found, margins: np.ndarray, k: int, allowed: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best labels of each text by margins, then others, with probabilities."""
        starts, labels = found.starts, found.labels
        others, other_scores = self._others, self._other_scores
        if allowed is not None:
            kept, left = allowed[labels], allowed[others]
            starts = np.append(0, np.cumsum(kept))[starts]
            labels, margins = labels[kept], margins[kept]
            others, other_scores = others[left], other_scores[left]
        ids, scores = _native.ranked_names(
            _native.RowsOfNumbers(starts=starts, items=labels),
            scores=margins,
            others=others,
            other_scores=other_scores,
            labels=len(self.labels_),
            k=k,
        )
        with np.errstate(over="ignore"):
            return ids, np.where(np.isfinite(scores), 1 / (1 + np.exp(-scores)), scores)

    def _joined(self, parts: list[tuple[np.ndarray, np.ndarray]], k: int) -> Ranking:
        if not parts:
            empty = np.zeros((0, k))
            return Ranking(empty.astype(np.int32), empty.astype(np.float32), self.labels_)
        if len(parts) == 1:
            return Ranking(*parts[0], self.labels_)
        ids, scores = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return Ranking(ids, scores, self.labels_)

    def _taken(self, numbers: np.ndarray) -> dict[str, Any]:
        names, name_starts = picked_rows(self.name_starts_, numbers)
        words, word_starts = picked_rows(self.word_starts_, names)
        rows = WordRows(self.name_words_[words], word_starts, len(self.idf_))
        place = np.full(len(self.labels_), -1, np.int32)
        place[numbers] = np.arange(len(numbers))
        link_starts, links = [], []
        for kind, (starts, items) in enumerate(zip(self.link_starts_, self.links_, strict=True)):
            if len(starts):
                at, starts = picked_rows(starts, numbers)
                items = items[at]
                if kind < len(LINKS):
                    there = place[items] >= 0
                    starts = np.append(0, np.cumsum(there))[starts]
                    items = place[items[there]]
            link_starts.append(starts)
            links.append(items)
        by_label = ("label_counts_", "matched_", "hits_")
        return self.learned() | {
            "labels_": self.labels_.take(numbers),
            **self._indexed(name_starts, rows, self.idf_),
            "link_starts_": link_starts,
            "links_": links,
            **{name: getattr(self, name)[numbers] for name in by_label},
        }


def _linked(labels: LabelSet) -> dict[str, Any]:
    """The links of all kinds."""
    links = [links_of(labels, kind) for kind in (*LINKS, COLLECTION)]
    return {
        "link_starts_": [starts for starts, _ in links],
        "links_": [numbers for _, numbers in links],
    }


def links_of(labels: LabelSet, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Where the links of each label start, and their numbers: labels, or collections. Both are
    empty where there are none."""
    linked = labels.collected() if kind == COLLECTION else labels.links(kind)
    if not linked.nnz:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    return linked.indptr.astype(np.int64), linked.indices.astype(np.int32)


def _owners(starts: np.ndarray) -> np.ndarray:
    """The label of each name."""
    return np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))


def _words(X: Any) -> WordRows:
    if not isinstance(X, WordRows):
        raise DataError(f"LexicalMatcher ranks the words of texts, not a {type(X).__name__}")
    return X


def _only(found: Found, kept: np.ndarray) -> Found:
    """Some of the pairs, of the same texts."""
    if kept.all():
        return found
    starts = np.append(0, np.cumsum(kept))[found.starts]
    return Found(starts, *(part[kept] for part in found[1:]))
