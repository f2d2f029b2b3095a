"""Concepts as JSON lines: all that is known of each, as `Concept.to_dict` gives it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from megalabel.data.concepts import Builder, Concept
from megalabel.data.formats.lines import read_blocks, split_lines
from megalabel.data.limits import USUAL, Limits
from megalabel.data.problems import Problems
from megalabel.data.vocabulary import Vocabulary
from megalabel.errors import DataError

_TEXTS = ("others", "hidden", "descriptions")
_LISTS = ("notations", "broader", "narrower", "related", "types", "collections")
_KEYS = ("id", "names", *_TEXTS, *_LISTS, "deprecated", "replaced_by")


def lines(vocabulary: Vocabulary) -> Iterator[str]:
    """A vocabulary as lines: what types and collections are called, then each concept."""
    for group in (*vocabulary.types, *vocabulary.collections):
        if group.names:
            yield json.dumps({"group": group.id, "names": group.names}, ensure_ascii=False) + "\n"
    for concept in vocabulary:
        yield json.dumps(concept.to_dict(), ensure_ascii=False) + "\n"


def read_jsonl(path: Path, builder: Builder, limits: Limits = USUAL) -> None:
    """Take the concepts of a file of JSON lines."""
    for block in read_blocks(path, limits=limits):
        for _, number, line in split_lines(block, path, Problems()):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"expected JSON: {error}", file=path, line=number) from None
            wrong = _wrong(found)
            if wrong:
                raise DataError(wrong, file=path, line=number)
            try:
                if "group" in found:
                    group = builder.numbers[found["group"]]
                    builder.group_names.setdefault(group, []).extend(found["names"])
                else:
                    builder.add(Concept(**found))
            except DataError as error:  # it is there twice
                raise DataError(error.message, file=path, line=number) from None


def _wrong(found: Any) -> str | None:
    """What is wrong with what a line holds, in words."""
    if not isinstance(found, dict):
        return f"expected a concept as an object, found {found!r:.80}"
    if "group" in found:
        sound = set(found) == {"group", "names"} and isinstance(found["group"], str)
        return None if sound and _strings(found["names"]) else "expected a group with its names"
    if not isinstance(found.get("id"), str) or not found["id"]:
        return "expected a concept with an id, a string"
    for key, value in found.items():
        if key not in _KEYS:
            return f"a concept has no {key!r}; it has {', '.join(_KEYS)}"
        if key in _LISTS and not _strings(value):
            return f"expected a list of strings as {key!r}, found {value!r:.80}"
        if key in _TEXTS and not (isinstance(value, dict) and all(map(_strings, value.values()))):
            return f"expected lists of strings by language as {key!r}, found {value!r:.80}"
        if key == "names" and not (isinstance(value, dict) and _strings(list(value.values()))):
            return f"expected strings by language as 'names', found {value!r:.80}"
        if key == "deprecated" and not isinstance(value, bool):
            return f"expected true or false as 'deprecated', found {value!r:.80}"
        if key == "replaced_by" and not isinstance(value, str):
            return f"expected an id as 'replaced_by', found {value!r:.80}"
    return None


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
