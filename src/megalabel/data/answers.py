"""`write_answers`: the labels of texts to a file, as CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from megalabel.data.corpus import Corpus
from megalabel.data.labelset import LabelSet
from megalabel.data.ranking import Ranking
from megalabel.errors import ParameterError
from megalabel.outputs import check_file, replacing_file

FORMATS = ("csv", "jsonl", "parquet")
_ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_Write = Callable[[Corpus, Ranking], None]


def check_answers(path: str | os.PathLike[str], format: str | None = None) -> str:
    """The format of a file of answers; an error, before any work is done, if none can be there."""
    found = format or _ENDINGS.get(Path(path).suffix.lower())
    if found not in FORMATS:
        known = ", ".join(FORMATS)
        raise ParameterError(f"cannot tell the format of {path}; give one of {known}")
    check_file(path)
    return found


def write_answers(
    answers: Iterable[tuple[Corpus, Ranking]],
    path: str | os.PathLike[str],
    format: str | None = None,
) -> int:
    """Write texts and their labels, a row a text; returns how many.

    The file is put in place whole. In a cell of CSV, labels, identifiers, notations and
    probabilities are separated by `; `; Parquet has lists, JSON lines what `Ranking.rows` gives.

    Parameters
    ----------
    answers : iterable of (Corpus, Ranking)
        Some texts at a time, with what a tagger answers.
    path : path
    format : "csv", "jsonl" or "parquet", optional
        Known by the ending of the path where not given.

    Examples
    --------
    >>> import tempfile
    >>> from megalabel.data import LabelSet
    >>> file = Path(tempfile.mkdtemp()) / "answers.csv"
    >>> ranking = Ranking([[1, 0]], [[0.9, 0.2]], LabelSet(["cat", "dog"]))
    >>> write_answers([(Corpus(["It barks."], ids=["7"]), ranking)], file)
    1
    >>> print(file.read_text().strip())
    uid,text,labels,probabilities
    7,It barks.,dog; cat,0.9; 0.2
    """
    form = check_answers(path, format)
    done = 0
    with replacing_file(path) as fresh, _OPENED[form](fresh) as write:
        for corpus, ranking in answers:
            write(corpus, ranking)
            done += len(corpus)
    return done


@contextmanager
def _csv(path: Path) -> Iterator[_Write]:
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")

        def write(corpus: Corpus, ranking: Ranking) -> None:
            columns = _columns(ranking.labels)
            if file.tell() == 0:
                lines.writerow(["uid", "text", *columns])
            for row in ranking.rows(corpus):
                tags = row["labels"]
                cells = [[str(tag.get(key, "")) for tag in tags] for key in columns.values()]
                lines.writerow([row.get("uid", ""), row["text"], *map("; ".join, cells)])

        yield write


def _columns(labels: LabelSet) -> dict[str, str]:
    """The columns of a table of answers, each with the key of its values in a row of JSON."""
    columns = {"labels": "label"}
    if labels.identified:
        columns["label_ids"] = "id"
    if labels.notations is not None:
        columns["label_notations"] = "notation"
    return columns | {"probabilities": "probability"}


@contextmanager
def _json_lines(path: Path) -> Iterator[_Write]:
    with path.open("w", encoding="utf-8") as file:

        def write(corpus: Corpus, ranking: Ranking) -> None:
            rows = ranking.rows(corpus)
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

        yield write


@contextmanager
def _parquet(path: Path) -> Iterator[_Write]:
    from pyarrow import parquet

    writers: list[Any] = []

    def write(corpus: Corpus, ranking: Ranking) -> None:
        none = pa.nulls(len(corpus), pa.large_string())
        columns = {
            "uid": none if corpus.ids is None else corpus.ids,
            "text": none if corpus.texts is None else corpus.texts,
        }
        found = ranking.to_arrow()
        columns |= {name: found[name] for name in found.column_names if name != "scores"}
        table = pa.table(columns | {"probabilities": found["scores"]})
        if not writers:
            writers.append(parquet.ParquetWriter(path, table.schema, compression="zstd"))
        writers[0].write_table(table)

    try:
        yield write
        if not writers:
            raise ParameterError("there are no texts to answer, so nothing is written")
    finally:
        for writer in writers:
            writer.close()


_OPENED = {"csv": _csv, "jsonl": _json_lines, "parquet": _parquet}
