"""Files as people have them, each with one mistake, and what is said of it."""

from __future__ import annotations

from typing import NamedTuple

ROWS = [
    ("Rotes Kleid für den Abend mit langem Saum", "Kleid", "rot"),
    ("Blaue Hose aus Denim mit Nieten und Taschen", "Hose", "blau"),
    ("Roter Hut aus Stroh mit breitem Band", "Hut", "rot"),
    ("Blaues Kleid für den Sommer ohne Ärmel", "Kleid", "blau"),
]
NAMES = [sorted(row[1:]) for row in ROWS]


class OwnFile(NamedTuple):
    """A file, what is said of it, and the line to put above it if that is the advice."""

    content: bytes
    said: str
    header: str = ""


def _table(header, row, mark=",", encoding="utf-8"):
    lines = [header, *(mark.join(row(*cells)) for cells in ROWS)]
    return ("\n".join(line for line in lines if line) + "\n").encode(encoding)


FILES = {
    "semicolons-and-a-german-header": OwnFile(
        _table(
            "Nr;Beschreibung;Schlagworte",
            lambda text, *names: ("7", text, "|".join(names)),
            ";",
        ),
        "the columns are Nr, Beschreibung, Schlagworte; texts look to be in Beschreibung (long "
        "strings), labels in Schlagworte: give --text-column Beschreibung "
        "--label-column Schlagworte",
    ),
    "latin-1": OwnFile(
        _table("text,labels", lambda text, *names: (text, ";".join(names)), encoding="latin-1"),
        "line 2: column text: expected UTF-8 text, found the byte 0xfc, which is 'ü' in "
        "Windows-1252; if the file is in Windows-1252 or Latin-1, give encoding='cp1252' "
        "(--encoding cp1252)",
    ),
    "labels-with-commas": OwnFile(
        _table("text;labels", lambda text, *names: (text, ", ".join(names)), ";"),
        "every row has exactly one label and most hold ', ': give --label-separator ', '",
    ),
    "zeros-and-ones": OwnFile(
        _table(
            "text,Kleid,Hose,Hut,rot,blau",
            lambda text, *names: (
                text,
                *("01"[name in names] for name in ("Kleid", "Hose", "Hut", "rot", "blau")),
            ),
        ),
        "no labels were read; the columns are text, Kleid, Hose, Hut, rot, blau; labels look to be "
        "in the columns of 0 and 1 (Kleid, Hose, Hut, rot, blau): give --label-column '*'",
    ),
    "no-header": OwnFile(
        _table("", lambda text, *names: (text, ";".join(names))),
        "line 1: the first line looks like a row, not like a header: put the line 'text,labels' "
        "above it",
        header="text,labels\n",
    ),
    "an-empty-text-column": OwnFile(
        _table("text,notes,labels", lambda text, *names: ("", text, ";".join(names))),
        "all texts are empty; texts look to be in notes (long strings): give --text-column notes",
    ),
    "utf-16": OwnFile(
        _table("text,labels", lambda text, *names: (text, ";".join(names)), encoding="utf-16"),
        "expected UTF-8 text, found UTF-16: give encoding='utf-16' (--encoding utf-16)",
    ),
    "no-column-of-labels": OwnFile(
        _table("title,Kategorien", lambda text, *names: (text, ";".join(names))),
        "no labels were read; the columns are title, Kategorien; labels look to be in Kategorien: "
        "give --label-column Kategorien",
    ),
}
MARKED = b"\xef\xbb\xbf" + _table("text,labels", lambda text, *names: (text, ";".join(names)))
UNCLOSED = {
    'text,labels\n"Rotes Kleid,Kleid\nHose,Hose\n': (
        "line 2: expected 2 columns, found 1; a quote is opened here and never closed: close it, "
        "or remove it"
    ),
    'text,labels\nRotes Kleid,"Kleid\nHose,Hose\n': (
        "line 2: a quote is opened here and never closed: close it, or remove it"
    ),
    'text,labels\n"Rotes Kleid,Kleid\n"Eine Hose, blau",Hose\nHut,Hut\n': (
        "line 2: expected 2 columns, found 3; a quote is opened here and closed only on line 3: "
        "close it, or remove it"
    ),
}
