"""The report: everything that was measured of a model on a corpus, on one page."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from megalabel import decision, store
from megalabel.data import Corpus
from megalabel.errors import DataError, ParameterError
from megalabel.outputs import check_file, replacing_file
from megalabel.report import labels, sections
from megalabel.report.cards import corpus_card, model_card
from megalabel.report.labels import label_table
from megalabel.report.lead import lead
from megalabel.report.mistakes import mistakes
from megalabel.report.page import contents, document, paragraph, section
from megalabel.report.tree import label_trees
from megalabel.tagger import Tagger

SAMPLE = 10_000  # texts that are ranked again, for scores before calibration and other choices
CANDIDATES = 50  # labels of a text to choose from on the Pareto curve


def write(
    model: Tagger | str | Path,
    corpus: Corpus,
    path: str | Path = "report.html",
    *,
    k: int | Sequence[int] = (1, 3, 5),
    seed: int = 0,
    language: str | None = None,
) -> Path:
    """Measure a model on a corpus and write one HTML page about it, that needs nothing else.

    Parameters
    ----------
    model : Tagger or path of a model folder
    corpus : Corpus
        Texts or vectors with their true labels, that the model has not learned from.
    path : str or Path
        The file to write; one that is there is replaced.
    k : int or several
        Cutoffs.
    seed : int
        Draws the test sets of the confidence intervals.
    language : str, optional
        The language of the names of labels, where these have a vocabulary.

    Returns
    -------
    Path
        That of the file.

    Examples
    --------
    >>> import tempfile
    >>> from megalabel import systems
    >>> corpus = Corpus(["red dress", "blue jeans"], targets=[["dress"], ["jeans"]])
    >>> tagger = systems.create("knn").fit(corpus)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(tagger, corpus, f"{folder}/report.html", k=1).name
    'report.html'
    """
    path = check_path(path)
    page = render(model, corpus, k=k, seed=seed, language=language)
    with replacing_file(path) as fresh:
        fresh.write_text(page, encoding="utf-8")
    return path


def check_path(path: str | Path) -> Path:
    """The path of a report to write; a ParameterError or OutputError where there can be none."""
    path = Path(path)
    if path.is_dir():
        raise ParameterError(f"a report is a file, and {path} is a folder")
    if not path.absolute().parent.is_dir():
        raise ParameterError(f"there is no folder {path.absolute().parent} to write a report to")
    check_file(path)
    return path


def render(
    model: Tagger | str | Path,
    corpus: Corpus,
    *,
    k: int | Sequence[int] = (1, 3, 5),
    seed: int = 0,
    language: str | None = None,
) -> str:
    """The page that `write` writes, as a string."""
    tagger = model if isinstance(model, Tagger) else Tagger.load(model)
    tagger = tagger.in_language(language)
    if not len(corpus):
        raise DataError("there are no texts to report on")
    corpus, most = corpus.aligned(tagger.labels), int(np.max(k))
    ranking = tagger.rank(corpus, most)
    evaluation = tagger.evaluate(corpus, k=k, ranking=ranking)
    bins = sections.frequency_bins(evaluation)
    calibrated = tagger.calibration_ is not None
    sample = corpus[np.linspace(0, len(corpus) - 1, min(SAMPLE, len(corpus))).astype(int)]
    raw = _uncalibrated(tagger).rank(sample, most)
    parts = {
        "quality": ("How good is it?", sections.headline(evaluation, seed)),
        "labels": ("Label by label", label_table(evaluation, ranking, calibrated)),
        "frequency": ("Frequent and rare labels", sections.frequency(bins)),
        "coverage": ("Coverage", sections.coverage(evaluation, bins)),
        "calibration": (
            "Do the probabilities hold?",
            sections.calibration(evaluation, raw, sample, calibrated),
        ),
        "pareto": ("Precision against the tail", _pareto(tagger, sample, most)),
        "mistakes": (
            "Mistakes",
            sections.mistaken(mistakes(ranking, corpus), most, calibrated),
        ),
    }
    trees = label_trees(tagger.classifier_)
    if trees:
        parts["tree"] = ("The label tree", sections.tree(trees, tagger.labels, evaluation))
    size = None
    if not isinstance(model, Tagger):
        size = store.folder_bytes(model)
    parts["model"] = ("The model", model_card(tagger, size))
    parts["corpus"] = ("The test corpus", corpus_card(corpus))
    name = corpus.source.get("path", "a corpus")
    title = f"{tagger.system or type(tagger.classifier_).__name__} on {name}"
    first = "".join(paragraph(said, "lead") for said in lead(tagger, corpus, evaluation, bins))
    links = contents({identifier: heading for identifier, (heading, _) in parts.items()})
    shown = [section(identifier, *content) for identifier, content in parts.items()]
    return document(title, [first, links, *shown], f"{sections.SCRIPT}\n{labels.SCRIPT}")


def _uncalibrated(tagger: Tagger) -> Tagger:
    """The same tagger that answers with its classifier's scores."""
    plain = copy.copy(tagger)
    plain.calibration_ = None
    return plain


def _pareto(tagger: Tagger, corpus: Corpus, k: int) -> str:
    if tagger.calibration_ is None:
        return paragraph("Choices between precision and a tail metric need a calibrated model.")
    candidates = min(max(CANDIDATES, k), len(tagger.labels))
    found = decision.pareto(tagger.rank(corpus, candidates), min(k, candidates), truth=corpus)
    return sections.pareto(found.points, found.metric, found.k, len(corpus), candidates)
