"""lexical: labels whose names a text holds. Learns from few texts, and needs none."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from megalabel.calibration import Joint
from megalabel.data import Corpus
from megalabel.decision import Threshold
from megalabel.features import NameWords, StemmedWords
from megalabel.rankers import LexicalMatcher
from megalabel.systems import System
from megalabel.systems.planning import Plan, Start, too_large, trial
from megalabel.tagger import Tagger


def lexical(
    *,
    stemmer: str | None = "auto",
    stop_words: Sequence[str] | str | None = None,
    share: float = 0.5,
    candidates: int = 200,
    others: bool = True,
    seed: int = 0,
) -> Tagger:
    """Names and other names of labels found as stemmed words in any order, whole or in part, and
    boosted trees on how they are found; answers with the labels above a threshold of its own."""
    features = StemmedWords(stemmer=stemmer, stop_words=stop_words)
    classifier = LexicalMatcher(share=share, candidates=candidates, others=others, seed=seed)
    return Tagger(classifier, features, Joint(), Threshold(), seed=seed, system="lexical")


def plan(tagger: Tagger, corpus: Corpus) -> Plan:
    """The words of texts and names, an index of names, and the matches that trees learn from."""
    start = Start.now()
    if (refusal := too_large(tagger, corpus)) is not None:
        return refusal
    made = trial(tagger, corpus)
    model = int(made.line(made.model))
    words = int(12 * made.nonzeros * len(corpus))
    matches = 4 * 2 * PAIRS * min(len(corpus), tagger.classifier.get_params()["texts"])
    kept = words + model
    memory = start.peak_with(tagger, len(corpus), kept + matches + model, kept + matches)
    calibrating = made.line(made.ranking) * min(len(corpus), tagger.calibration_texts)
    seconds = made.line(made.seconds)
    return Plan(memory, model, CALIBRATED * seconds + calibrating, start.available)


PAIRS = 40 * 35  # features of the labels that a text names, as a rule
CALIBRATED = 2.0  # times the seconds of a training: trees are grown for parts of the texts too


def suits(corpus: Corpus) -> bool:
    """Whether labels have names that a text may hold, and there is a stemmer for them."""
    named = corpus.texts is not None and NameWords.useful(corpus.labels)
    return named and importlib.util.find_spec("snowballstemmer") is not None


SYSTEM = System(
    name="lexical",
    summary="labels whose names are in the text, ranked by how; learns from few texts, needs none",
    paper="Medelyan 2009 (Maui); Friedman 2001 (boosted trees)",
    cost="O(words of all texts and names)",
    build=lexical,
    plan=plan,
    cost_class="cheap",
    family="names",
    race=({"stop_words": "english"}, {"share": 0.7}),
    suits=suits,
)
