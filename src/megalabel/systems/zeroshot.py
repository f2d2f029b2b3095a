"""zeroshot: labels by their texts alone; no text of training carries any."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix

from megalabel.base import (
    Check,
    boolean,
    clone,
    instance,
    integer,
    number,
    one_of,
    unfitted,
)
from megalabel.checkpoints import folder_in_use
from megalabel.data import Corpus, LabelSet
from megalabel.data.hashes import known_hashes, text_hashes
from megalabel.data.matrix import as_dense, normalised_rows
from megalabel.data.strings import strings
from megalabel.decision import TopK
from megalabel.errors import DataError, MissingExtraError, ParameterError
from megalabel.features import Each
from megalabel.features.languages import LANGUAGES, language
from megalabel.features.segments import segments
from megalabel.judges import Cost, Judge, Judgements, LexicalJudge
from megalabel.judges import create as create_judge
from megalabel.machine import memory_available, memory_in_use
from megalabel.parts import Decision, Featurizer
from megalabel.preparing import Prepared
from megalabel.rankers import ByText
from megalabel.systems import System
from megalabel.systems.composed import Composed
from megalabel.systems.feedback import Feedback, Learned, Material, most_pairs
from megalabel.systems.label_texts import (
    Words,
    as_judged,
    encoder_features,
    mapped_features,
    material_of,
)
from megalabel.systems.neural_parts import neural
from megalabel.systems.planning import Plan, learned_bytes
from megalabel.tagger import Tagger

log = logging.getLogger(__name__)

ACTIVATION: str | None = None  # of the map
# settings that a judge alone has a use for
_OF_A_JUDGE = ("judge_options", "judgements", "judged_texts", "calls", "tokens")
_JUDGED = 5_000  # texts, by judges that cost something
_NEGATIVES = 3  # of a judge whose no can be relied on
_DIMENSIONS, _ROUND = 384, 2e-3  # of usual encoders; seconds that a text takes in a round
_SAMPLED = 200  # pairs that tell how many tokens one takes
_ENCODING = 5e-3  # seconds that a text takes on one core


class ZeroShot(Composed):
    """A tagger that knows labels by their texts alone, and texts without labels.

    Its answers are a mix of an encoder's cosines, words that texts and names share, and names that
    are found in texts (`rankers.ByText`). With a judge, a map over the encoder's vectors is trained
    on what it says of candidates. Labels that a corpus has are not looked at.

    Parameters
    ----------
    encoder : str, Featurizer or None
        A Hugging Face model by name or folder, or a folder of static vectors, which stays as it is;
        with or without "frozen:" before it. A featurizer that is fitted stays so, another one is
        fitted. None: words alone.
    max_length : int
        In tokens: longer texts are cut for the encoder.
    language : str or None
        Whose stems words are compared by; "auto": that of the labels' names where it is known,
        else none. None: words as they are.
    hubs : float
        How much is taken off a name's cosines of what it has with any text.
    definitions, words, matches : float
        As of `rankers.ByText`.
    texts : int
        At most so many texts are encoded to learn from; words are counted in all.
    segments : bool
        First train the map on parts of texts and their rests.
    judge : str, Judge or None
        As `judges.create` takes it; "auto": the lexical one where there are an encoder and torch.
        None: nothing is trained by feedback.
    judge_options : mapping, optional
        More parameters of a judge given by name, such as {"model": "a-model", "key": "MY_KEY"}.
    judgements : str, optional
        The folder where answers of the judge are kept; None: that of checkpoints, where there is
        one.
    judged_texts : int, optional
        At most so many texts are judged; None: 5,000, and all that are encoded by the lexical
        judge, which costs nothing.
    calls, tokens : int, optional
        The most that a judge may be asked, and that this may cost; what is kept of answers counts
        as if it was asked now.
    negatives : int, optional
        Labels judged not to fit that a text is compared with at a time; None: 3, and 0 for the
        lexical judge, which takes other words for the same thing for wrong.
    rounds, shortlist, own
        As of `systems.feedback.Feedback`.
    epochs, learning_rate, batch
        Of the training of a map, in each round.
    decision, seed
        As for `Tagger`.

    Examples
    --------
    >>> texts = ["a tale of whales", "the red summer dress", "blue dresses", "whales at sea"]
    >>> tagger = ZeroShot(language="en").fit(texts, labels=["whale", "dress", "sea"])
    >>> tagger.tag("two whales", k=1)[0].label
    'whale'
    """

    PARAMETERS: ClassVar[Mapping[str, Check]] = {
        **Composed.PARAMETERS,
        "encoder": instance(str) | instance(Featurizer) | one_of(None),
        "max_length": integer(2),
        "language": language(LANGUAGES) | one_of("auto", None),
        "hubs": number(0),
        "definitions": number(0, 1),
        "words": number(0),
        "matches": number(0),
        "texts": integer(1),
        "segments": boolean(),
        "judge": instance(str) | instance(Judge) | one_of(None),
        "judge_options": instance(dict) | one_of(None),
        "judgements": instance(str) | one_of(None),
        "judged_texts": integer(1) | one_of(None),
        "calls": integer(0) | one_of(None),
        "tokens": integer(0) | one_of(None),
        "rounds": integer(1),
        "shortlist": integer(1),
        "negatives": integer(0) | one_of(None),
        "own": number(0),
        "epochs": number(0),
        "learning_rate": number(0),
        "batch": integer(1),
    }

    name: ClassVar[str] = "zeroshot"

    def __init__(
        self,
        encoder: str | Featurizer | None = None,
        *,
        max_length: int = 128,
        language: str | None = "auto",
        hubs: float = 0.7,
        definitions: float = 0.2,
        words: float = 0.3,
        matches: float = 0.2,
        texts: int = 20_000,
        segments: bool = False,
        judge: str | Judge | None = "auto",
        judge_options: Mapping[str, Any] | None = None,
        judgements: str | None = None,
        judged_texts: int | None = None,
        calls: int | None = None,
        tokens: int | None = None,
        rounds: int = 2,
        shortlist: int = 15,
        negatives: int | None = None,
        own: float = 0.3,
        epochs: float = 3.0,
        learning_rate: float = 1e-4,
        batch: int = 128,
        calibration: None = None,
        decision: Decision | None = None,
        calibration_texts: int = 5_000,
        seed: int = 0,
    ) -> None:
        super().__init__(
            calibration=calibration,
            decision=decision,
            calibration_texts=calibration_texts,
            seed=seed,
        )
        self.classifier = ByText(definitions=definitions, words=words, matches=matches)
        self.encoder = encoder
        self.max_length = max_length
        self.language = language
        self.hubs = hubs
        self.definitions = definitions
        self.words = words
        self.matches = matches
        self.texts = texts
        self.segments = segments
        self.judge = judge
        self.judge_options = judge_options
        self.judgements = judgements
        self.judged_texts = judged_texts
        self.calls = calls
        self.tokens = tokens
        self.rounds = rounds
        self.shortlist = shortlist
        self.negatives = negatives
        self.own = own
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch = batch

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        labels: LabelSet | Any = None,
        prepared: Prepared | None = None,
    ) -> Self:
        """Learn from a corpus, or from texts X and labels; labels of texts are not looked at.

        Parameters
        ----------
        X : Corpus or sequence of str
        y : optional
            As for `Tagger.fit`: which labels there are is all that it says.
        labels : LabelSet or sequence of str, optional
            Of a corpus that brings none, or of texts.
        """
        if y is None and labels is not None and not isinstance(X, Corpus):
            X, labels = Corpus(X, labels=labels), None
        elif isinstance(X, Corpus) and labels is not None and not len(X.labels):
            X, labels = Corpus(X.texts, X.features, labels=labels, source=X.source), None
        if isinstance(X, Corpus) and len(X) and not len(X.labels):
            raise DataError(
                "there are no labels to choose from: give labels=…, a label file beside the "
                "corpus, or all concepts of a vocabulary (--vocabulary FILE --all-concepts)"
            )
        return super().fit(X, y, labels=labels, prepared=prepared)

    def foresee(self, corpus: Corpus) -> tuple[Cost, int]:
        """What the judge would cost: of the first round exactly, and the most pairs that all rounds
        can have. Texts are encoded, but the judge is asked nothing.

        Examples
        --------
        >>> from megalabel.features import Tfidf
        >>> texts = ["a tale of whales", "the red dress", "whales at sea", "the blue dress"] * 10
        >>> tagger = ZeroShot(Tfidf(), judge="lexical", shortlist=2)
        >>> cost, most = tagger.foresee(Corpus(texts, labels=["whale", "dress"]))
        >>> cost.pairs <= most
        True
        """
        self.check_parts()
        begun = self._begun(_without_targets(corpus))
        judge = self._judge(begun)
        if judge is None or begun.material is None:
            raise ParameterError("there is no judge, or no encoder to train by it")
        return self._feedback(judge).cost(
            begun.words.ranker, self._judged(begun.material, corpus.labels, judge)
        )

    def judging(self, corpus: Corpus) -> Cost | None:
        """What the judge would cost at most, at once: no text is encoded. The tokens of a pair are
        those of some texts and labels. None: no judge is asked, or one that costs nothing.

        Examples
        --------
        >>> from megalabel.features import Tfidf
        >>> texts, labels = ["a tale of whales", "the red dress"] * 100, ["whale", "dress"]
        >>> tagger = ZeroShot(Tfidf(), judge="http://localhost:8080/v1", shortlist=2)
        >>> print(tagger.judging(Corpus(texts, labels=labels)))
        600 pairs, 0 of them judged before: 600 calls, about 83,706 tokens
        """
        if self.encoder is None or self.judge in (None, "auto"):
            return None
        if corpus.texts is None or not len(corpus) or not len(corpus.labels):
            return None  # a fit says what is missing
        judge = create_judge(self.judge, **(self.judge_options or {}))
        if judge.free:
            return None
        texts = min(self.texts, len(corpus), self.judged_texts or _JUDGED)
        pairs = most_pairs(texts, self.rounds, min(self.shortlist, len(corpus.labels)))
        pairs = pairs if self.calls is None else min(pairs, self.calls)
        random = np.random.default_rng(self.seed)
        rows, names = (random.integers(0, n, _SAMPLED) for n in (len(corpus), len(corpus.labels)))
        labels = as_judged(corpus.labels.take(np.unique(names)), judge)
        some = corpus.texts.take(pa.array(rows)).to_pylist()
        tokens = judge.tokens(some, [labels[i % len(labels)] for i in range(len(some))])
        tokens = round(tokens / len(some) * pairs)
        tokens = tokens if self.tokens is None else min(tokens, self.tokens)
        return Cost(pairs, 0, tokens, judge.price(tokens))

    # ------------------------------------------------------------------ learning
    def _compose(self, corpus: Corpus) -> Tagger:
        if self.calibration is not None:
            raise ParameterError(
                "zeroshot has no labelled texts to learn probabilities from: fit it without "
                "calibration, and call calibrate with some"
            )
        if corpus.texts is None:
            raise DataError("zeroshot reads texts, but the corpus has vectors alone")
        if pc.all(pc.utf8_is_decimal(corpus.labels.names)).as_py():
            raise DataError("zeroshot reads names of labels, but these are known by number alone")
        if corpus.targets.nnz:
            log.info("the labels of %s texts are not looked at", f"{len(corpus):,}")
        corpus = _without_targets(corpus)
        begun = self._begun(corpus)
        judge, told = self._judge(begun), dict[str, Any]()
        features: list[Featurizer] = [begun.words.counts]
        ranker = begun.words.ranker
        if begun.material is not None and begun.vectors is not None:
            learned = Learned.of(ranker, begun.material, self.hubs)
            if judge is not None:
                judged = self._judged(begun.material, corpus.labels, judge)
                learned = self._learned(judge, ranker, judged)
                told |= {"judge": repr(judge), "rounds": learned.told()}
            ranker = learned.ranker
            features.insert(0, mapped_features(begun.vectors, learned.map, learned.activation))
        every = Each.of(features)
        made = Tagger(
            unfitted(ranker),
            unfitted(every),
            None,
            self.decision,
            calibration_texts=self.calibration_texts,
            seed=self.seed,
            system=self.name,
        )
        made.restore(
            {
                "features_": every,
                "classifier_": ranker,
                "calibration_": None,
                "decision_": clone(self.decision) if self.decision is not None else TopK(),
                "provenance_": {"zeroshot": told},
                "metrics_": {},
                "reliability_": {},
                "label_counts_": np.zeros(len(corpus.labels), np.int64),
                "n_texts_": len(corpus),
                "text_hashes_": known_hashes(text_hashes(strings(corpus.texts))),
            }
        )
        if made.decision_.learns:
            made.set_decision(self.decision, corpus[: self.calibration_texts])
        return made

    def _check_used(self) -> None:
        """Refuse settings that would do nothing."""
        if self.encoder is None and self.judge not in (None, "auto"):
            raise ParameterError(
                "a judge teaches a map over an encoder's vectors, and there is no encoder: give "
                "one (encoder='frozen:MODEL'), or leave out judge"
            )
        idle = [name for name in _OF_A_JUDGE if getattr(self, name) is not None]
        if self.encoder is None and (self.segments or idle):
            raise ParameterError(
                f"{'segments' if self.segments else idle[0]} does nothing where there is no "
                "encoder: give one (encoder='frozen:MODEL'), or leave it out"
            )
        if self.judge is None and idle:
            raise ParameterError(
                f"{idle[0]} does nothing where there is no judge: give one, or leave it out"
            )

    def _begun(self, corpus: Corpus) -> _Begun:
        self._check_used()
        texts = strings(corpus.texts)
        weights = {name: getattr(self, name) for name in ("definitions", "words", "matches")}
        words = Words.of(texts, corpus.labels, self.language, **weights)
        if self.encoder is None:
            return _Begun(texts, words)
        order = np.random.default_rng(self.seed).permutation(len(texts))[: self.texts]
        some = texts.take(pa.array(order))
        vectors = encoder_features(self.encoder, self.max_length)
        if not vectors.fitted:
            vectors = vectors.fit(some)
        if self.segments:
            arrays = self._map_of_segments(some.to_pylist(), vectors)
            vectors = mapped_features(vectors, arrays, ACTIVATION)
        material = material_of(some, corpus.labels, words.counts, vectors)
        return _Begun(texts, words, vectors, material)

    def _judged(self, material: Material, labels: LabelSet, judge: Judge) -> Material:
        """The texts that may be judged, and what is read of labels."""
        most = self.judged_texts or (len(material.texts) if judge.free else _JUDGED)
        some = material.at(np.arange(min(most, len(material.texts))))
        return replace(some, names=as_judged(labels, judge))

    def _judge(self, begun: _Begun) -> Judge | None:
        """The judge, which knows the texts; None: there is none."""
        given = self.judge
        if given is None or begun.material is None:
            return None
        if given == "auto":
            given = "lexical"
            try:
                neural()
            except MissingExtraError as error:
                log.info("vectors stay as they are: %s", error)
                return None
        return create_judge(given, **(self.judge_options or {})).learn(begun.texts)

    def _feedback(self, judge: Judge) -> Feedback:
        folder, checkpoints = self.judgements, folder_in_use()
        if folder is None and checkpoints is not None:
            folder = str(checkpoints / "judgements")
        return Feedback(
            Judgements(judge, folder, calls=self.calls, tokens=self.tokens),
            partial(self._train, negatives=self._negatives(judge)),
            activation=ACTIVATION,
            rounds=self.rounds,
            shortlist=self.shortlist,
            negatives=self._negatives(judge),
            hubs=self.hubs,
            own=self.own,
            seed=self.seed,
        )

    def _learned(self, judge: Judge, lexical: ByText, material: Material) -> Learned:
        """What is learned by the judge's feedback; what it costs is said first."""
        feedback = self._feedback(judge)
        if not judge.free:
            cost, most = feedback.cost(lexical, material)
            log.info(
                "%r is to judge %s in the first round; in all rounds at most %s pairs",
                *(judge, cost, f"{most:,}"),
            )
        learned = feedback.learn(lexical, material)
        if not judge.free:
            log.info("judged: %s", feedback.judgements.spent)
        return learned

    def _negatives(self, judge: Judge) -> int:
        if self.negatives is not None:
            return self.negatives
        return 0 if isinstance(judge, LexicalJudge) else _NEGATIVES

    def _train(
        self,
        X: np.ndarray,
        Z: np.ndarray,
        Y: csr_matrix,
        hard: np.ndarray,
        number: int,
        negatives: int,
    ) -> dict[str, np.ndarray]:
        """The map of a round."""
        return self._map(X, Z, Y, hard, negatives, f"round {number}")

    def _map(
        self,
        X: np.ndarray,
        Z: np.ndarray,
        Y: csr_matrix,
        hard: np.ndarray,
        negatives: int,
        name: str,
    ) -> dict[str, np.ndarray]:
        room = neural()
        trainer = room.Trainer(
            epochs=self.epochs,
            batch=min(self.batch, len(X)),
            learning_rate=self.learning_rate,
            weight_decay=0.0,
            device="cpu",
            seed=self.seed,
        )
        loss = room.losses.create("triplet").set_params(pick=1)
        made: dict[str, np.ndarray] = room.map_of_pairs(
            room.FrozenEncoder(activation=ACTIVATION),
            loss,
            trainer,
            X,
            Z,
            Y,
            hard,
            negatives=negatives,
            name=name,
        )
        return made

    def _map_of_segments(self, texts: list[str], vectors: Featurizer) -> dict[str, np.ndarray]:
        """A map learned from parts of texts and their rests."""
        _, short, rest = segments(texts, self.seed)
        if len(short) < 2:
            raise DataError(
                "segments=True learns from parts of texts, but hardly any text has four words"
            )
        X, Z = (np.asarray(normalised_rows(as_dense(vectors.transform(t)))) for t in (rest, short))
        every = np.arange(len(X))
        pairs = csr_matrix((np.ones(len(X), np.float32), (every, every)))
        return self._map(X, Z, pairs, np.zeros((len(X), 0), np.int32), 0, "segments")


@dataclass(frozen=True)
class _Begun:
    """What a fit begins with."""

    texts: pa.Array
    words: Words
    vectors: Featurizer | None = None
    material: Material | None = None


def _without_targets(corpus: Corpus) -> Corpus:
    """The texts and the labels of a corpus, and not which text has which."""
    return Corpus(corpus.texts, labels=corpus.labels, source=corpus.source)


def plan(tagger: Tagger, corpus: Corpus) -> Plan:
    """Words of all texts, and vectors of some. Of a judge that costs something the calls are said;
    the time leaves out how long it takes to answer."""
    assert isinstance(tagger, ZeroShot)
    labels = len(corpus.labels)
    letters = 0 if corpus.texts is None else corpus.texts.nbytes
    names = 24 * labels + learned_bytes(corpus.labels)
    memory, disk, seconds = 3 * letters + 6 * names, letters // 3 + 2 * names, 4e-8 * letters
    if tagger.encoder is not None:
        some = min(tagger.texts, len(corpus))
        memory += 4 * _DIMENSIONS * (3 * some + 4 * labels)
        disk += 4 * _DIMENSIONS * labels
        seconds += _ENCODING * (some + 2 * labels)
        if tagger.judge is not None:
            seconds += _ROUND * tagger.rounds * min(some, tagger.judged_texts or some)
    held, judging = int(memory_in_use() + memory), tagger.judging(corpus)
    return Plan(held, int(disk), seconds, memory_available(), judging=judging)


def zeroshot(
    *,
    encoder: Any = None,
    max_length: int = 128,
    language: str | None = "auto",
    hubs: float = 0.7,
    definitions: float = 0.2,
    words: float = 0.3,
    matches: float = 0.2,
    texts: int = 20_000,
    segments: bool = False,
    judge: Any = "auto",
    judge_options: Mapping[str, Any] | None = None,
    judgements: str | None = None,
    judged_texts: int | None = None,
    calls: int | None = None,
    tokens: int | None = None,
    rounds: int = 2,
    shortlist: int = 15,
    negatives: int | None = None,
    own: float = 0.3,
    epochs: float = 3.0,
    learning_rate: float = 1e-4,
    batch: int = 128,
    seed: int = 0,
) -> Tagger:
    """As of `systems.zeroshot.ZeroShot`."""
    return ZeroShot(**locals())


SYSTEM = System(
    name="zeroshot",
    summary="labels by their names and definitions alone: no labelled text is needed, or looked at",
    paper="Xiong et al. 2022 (MACLR); Zhang et al. 2022 (RTS); Zhang et al. 2024 (LMTX)",
    cost="O(words of all texts) + an encoder's pass over some texts and all labels",
    build=zeroshot,
    plan=plan,
    unlabelled=True,
)
