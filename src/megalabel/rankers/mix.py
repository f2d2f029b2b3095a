"""Mix: one answer of several unlike classifiers, each with its own rows and probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from megalabel import _native
from megalabel.base import (
    Check,
    Learned,
    array,
    instance,
    integer,
    list_of,
    made_once,
    optional,
    part,
    sequence_of,
    unfitted,
    with_learned,
)
from megalabel.data import LabelSet, Ranking
from megalabel.data.examples import Examples
from megalabel.data.matrix import clamped, some_rows
from megalabel.errors import ParameterError
from megalabel.features.match import NameWords
from megalabel.features.words import WordRows
from megalabel.parts import Calibrator, Classifier
from megalabel.rankers.combining import OF_MEMBER, Combiner

FUSED = 3  # the place, among the columns of all members together, of the mean of one over places
BEHIND = 0.01  # how far each label that was not judged is below the one before
TIE = _native.MIX_TIE  # how much that counts where scores are equal
NO_WORDS = WordRows(np.zeros(0, np.int32), np.zeros(1, np.int64), vocabulary=0)


class Candidates(NamedTuple):
    """The labels of each row that a mix looks at."""

    ids: np.ndarray
    """int32 (rows, listed), padded with the number of labels."""
    said: np.ndarray
    """float32 (rows x listed, columns): what members, and names, say of each."""
    others: np.ndarray
    """int32 (rows, rest): labels that members rank further down, in their order."""
    fused: np.ndarray
    """float32 (rows x listed): the mean over members of one over the place they give."""

    @classmethod
    def of(
        cls,
        rankings: Sequence[Ranking],
        label_counts: np.ndarray,
        shortlist: int,
        names: NameWords | None = None,
        texts: Any = None,
    ) -> Candidates:
        """Those that members rank, each with probabilities; of names, with the texts."""
        width = max(ranking.k for ranking in rankings)
        ids = np.full((len(rankings), len(rankings[0]), width), len(label_counts), np.int32)
        probabilities = np.zeros(ids.shape, np.float32)
        for number, ranking in enumerate(rankings):
            ids[number, :, : ranking.k] = ranking.ids
            probabilities[number, :, : ranking.k] = ranking.scores
        listed, said, others = _native.mix_candidates(
            ids=ids, probabilities=probabilities, counts=label_counts, shortlist=shortlist
        )
        fused = said[:, OF_MEMBER * len(rankings) + FUSED]
        if names is not None:
            matched = names.features(names.transform(texts), listed)
            said = np.hstack([said, matched.reshape(len(said), -1)])
        return cls(listed, said, others, fused)

    def ranked(self, margins: np.ndarray, k: int, labels: LabelSet) -> Ranking:
        """The k best labels by the margins of those listed, then the others.

        Where margins are equal, the members' places decide.
        """
        untied = np.asarray(margins + np.float32(TIE) * self.fused, dtype=np.float32)
        ids, scores = _native.mix_ordered(
            ids=self.ids,
            scores=untied.reshape(self.ids.shape),
            others=self.others,
            labels=len(labels),
            k=k,
        )
        return Ranking(ids, scores, labels)


class Mix(Classifier):
    """Several classifiers, and one score of what each says of the labels that any of them lists.

    It is made by `megalabel.mix` of fitted taggers.

    Parameters
    ----------
    members : list of Classifier
    combiner : Combiner
        Makes one score of what is said.
    shortlist : int
        How many labels of each member are judged. What members rank further down comes after.

    Attributes
    ----------
    members_ : list of Classifier
    calibrators_ : list of Calibrator
        What makes probabilities of the members' scores.
    sources_ : int64 array (members,)
        Which of the rows of each text a member sees.
    numbers_ : list of int32 arrays
        For each member, the numbers here of its labels; empty where they are the same.
    label_counts_ : int64 array (labels,)
        Training texts of each label.
    combiner_ : Combiner
    names_ : NameWords or None
        What is said of a label by the words of its name; the last of the rows are the texts then.
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        "members": sequence_of(instance(Classifier)),
        "combiner": instance(Combiner),
        "shortlist": integer(1),
    }
    LEARNED: ClassVar[Mapping[str, Learned]] = {
        "labels_": part(LabelSet, "labels"),
        "members_": list_of(part(Classifier), "members"),
        "calibrators_": list_of(part(Calibrator), "members"),
        "sources_": array(np.int64, "members"),
        "numbers_": list_of(array(np.int32, "own"), "members"),
        "label_counts_": array(np.int64, "labels"),
        "combiner_": part(Combiner),
        "names_": optional(part(NameWords)),
    }

    members_: list[Classifier]
    calibrators_: list[Calibrator]
    sources_: np.ndarray
    numbers_: list[np.ndarray]
    label_counts_: np.ndarray
    combiner_: Combiner
    names_: NameWords | None = None

    def __init__(
        self, members: Sequence[Classifier], combiner: Combiner, *, shortlist: int = 40
    ) -> None:
        self.members = members
        self.combiner = combiner
        self.shortlist = shortlist

    def _fit(self, examples: Examples) -> None:
        """Not possible: what it knows comes from trained taggers."""
        raise ParameterError("Mix is a part of a trained tagger: fit the system that made it")

    def rank(self, X: Any, k: int) -> Ranking:
        """The k best labels of all members together; X has the rows that each of them sees."""
        return self._ranked(X, k)

    def _rank_allowed(self, X: Any, k: int, allowed: np.ndarray) -> Ranking:
        """What members list of all labels is judged as in `rank`; where that leaves places over,
        the labels that they list of those allowed come after it, in the order of their margins."""
        wide = max(k, len(self.members_) * self.shortlist)
        whole = self._ranked(X, wide)
        found = whole.only(allowed).top(k)
        ids, scores = found.ids, found.scores
        lacking = np.flatnonzero(found.present.sum(axis=1) < min(k, int(allowed.sum())))
        if not len(lacking):
            return found
        more = self._ranked(some_rows(X, lacking), k, allowed)
        fresh = found[lacking].lacks(more)
        named = whole[lacking].present
        lowest = np.where(named, whole.scores[lacking], 0).min(axis=1, keepdims=True)
        below = lowest - np.float32(BEHIND) * np.cumsum(fresh, axis=1)
        rows, places = np.nonzero(fresh)
        at = found.present.sum(axis=1)[lacking][rows] + np.cumsum(fresh, axis=1)[rows, places] - 1
        fits = at < k
        rows, places, at = rows[fits], places[fits], at[fits]
        ids[lacking[rows], at] = more.ids[rows, places]
        scores[lacking[rows], at] = below[rows, places]
        return Ranking(ids, scores, self.labels_)

    def _ranked(self, X: Any, k: int, allowed: np.ndarray | None = None) -> Ranking:
        self.check_fitted()
        k = clamped(k, max(1, len(self.labels_)))
        depth = max(k, self.shortlist)
        rankings = []
        for calibrator, ranking in self._scored(X, depth, allowed):
            rankings.append(ranking if calibrator.native() else calibrator.apply(ranking))
        words = NO_WORDS if self.names_ is None else self.names_.transform(X[-1])
        ids, scores = _native.mix_rank(
            made_once(self, "_native", self._as_native),
            ids=[ranking.ids for ranking in rankings],
            scores=[ranking.scores for ranking in rankings],
            labels=[len(ranking.labels) for ranking in rankings],
            starts=words.indptr,
            words=words.ids,
            depth=depth,
            k=k,
        )
        return Ranking(ids, scores, self.labels_)

    def _as_native(self) -> _native.Mixing:
        """All that is known beside the members, as the native core takes it."""
        return _native.Mixing(
            counts=counts_for(self.members_, self.label_counts_),
            shortlist=self.shortlist,
            calibrations=[calibrator.native() for calibrator in self.calibrators_],
            numbers=self.numbers_,
            names=None if self.names_ is None else self.names_.native(),
            combiner=self.combiner_.native(),
        )

    def _scored(
        self, X: list[Any], k: int, allowed: np.ndarray | None = None
    ) -> Iterator[tuple[Calibrator, Ranking]]:
        """The calibrator of each member, and its scores of as many labels as that needs for k."""
        for member, calibrator, source, numbers in zip(
            self.members_, self.calibrators_, self.sources_, self.numbers_, strict=True
        ):
            wide = calibrator.shortlist(k)
            if allowed is None:
                yield calibrator, member.rank(X[source], wide)
            else:
                own = allowed[numbers] if len(numbers) else allowed
                yield calibrator, member.rank_allowed(X[source], wide, own)

    def rankings(self, X: list[Any], k: int) -> list[Ranking]:
        """The k best labels of each member, with its probabilities."""
        return [
            renumbered(calibrator.apply(ranking).top(k), numbers, self.labels_)
            for numbers, (calibrator, ranking) in zip(
                self.numbers_, self._scored(X, k), strict=True
            )
        ]

    def without_each(self, X: list[Any], label: int) -> tuple[float | None, list[float]]:
        """The margin of a label of a single text, and what it would be if each member in turn did
        not list it; at last, where names are looked for, if no word of its name were in the text.

        The margin is None where no member lists the label. A label that would not be listed has the
        lowest margin of those that are.
        """
        rankings = self.rankings(X, self.shortlist)

        def margin(rankings: Sequence[Ranking], texts: Any) -> tuple[bool, float]:
            counts = counts_for(self.members_, self.label_counts_)
            found = Candidates.of(rankings, counts, self.shortlist, self.names_, texts)
            margins, ids = self.combiner_.margins(found.said), found.ids[0]
            listed = ids == label
            some = margins[listed if listed.any() else ids < len(self.labels_)]
            return bool(listed.any()), float(some.min()) if len(some) else 0.0

        listed, whole = margin(rankings, X[-1])
        if not listed:
            return None, []
        cell = csr_matrix(([1.0], ([0], [label])), shape=(1, len(self.labels_)))
        without = []
        for number, ranking in enumerate(rankings):
            others = [*rankings[:number], ranking.without(cell), *rankings[number + 1 :]]
            without.append(margin(others, X[-1])[1])
        if self.names_ is not None:
            without.append(margin(rankings, [""])[1])
        return whole, without

    def onnx_twin(self, int8: bool) -> Classifier:
        """The same over members that need no torch."""
        return self.with_members([member.onnx_twin(int8) for member in self.members_])

    def with_members(self, members: Sequence[Classifier], **learned: Any) -> Mix:
        """The same over other members, which are fitted, and with whatever else is learned anew."""
        made = unfitted(self).set_params(members=[unfitted(member) for member in members])
        return with_learned(made, **(self.learned() | {"members_": list(members)} | learned))

    def check_learned(self) -> None:
        """Members must rank labels that are known here, and columns must be of members."""
        vars(self).pop("_native", None)  # that of other members
        for member, numbers in zip(self.members_, self.numbers_, strict=True):
            known = len(member.labels_) if not len(numbers) else len(numbers)
            if known != len(member.labels_) or (not len(numbers) and known != len(self.labels_)):
                raise ValueError("members_ of Mix must be classifiers of its labels")
            if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(self.labels_)):
                raise ValueError("numbers_ of Mix must be numbers of its labels")
        if not len(self.members_) or (self.sources_ < 0).any():
            raise ValueError("sources_ of Mix must be numbers of rows, of one member at least")


def counts_for(members: Sequence[Classifier], label_counts: np.ndarray) -> np.ndarray:
    """Training texts of each label as the native core takes them, which judges no label without
    any: with a member that finds such labels, they count as if they had one."""
    unseen = any(member.finds_unseen for member in members)
    return np.maximum(label_counts, 1) if unseen else label_counts


def renumbered(ranking: Ranking, numbers: np.ndarray, labels: LabelSet) -> Ranking:
    """A ranking whose labels have other numbers in a larger label set; none: the same numbers."""
    if not len(numbers):
        return ranking
    ids = np.append(numbers, np.int32(len(labels)))[np.minimum(ranking.ids, len(numbers))]
    return Ranking(ids, ranking.scores, labels)
