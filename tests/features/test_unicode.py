"""The native core's knowledge of characters is Python's."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megalabel import _native
from megalabel.features import Tfidf

TOOL = Path(__file__).parents[2] / "tools" / "make_unicode_tables.py"
SAME_UNICODE = unicodedata.unidata_version == _native.UNICODE_VERSION
needs_same = pytest.mark.skipif(
    not SAME_UNICODE,
    reason=f"this Python has Unicode {unicodedata.unidata_version}, the tables"
    f" {_native.UNICODE_VERSION}",
)

EVERY = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
WORDS = Tfidf(case=None, normalise=None, min_word_length=1)
CHARACTERS = {
    case: Tfidf(analyzer="char", case=case, normalise=None) for case in (None, "lower", "fold")
}


@needs_same
def test_the_committed_tables_are_what_the_tool_writes() -> None:
    assert subprocess.run([sys.executable, str(TOOL), "--check"], check=False).returncode == 0


@needs_same
def test_word_characters_are_those_of_the_regular_expressions() -> None:
    text = " ".join(EVERY)
    assert WORDS.analyse(text) == re.findall(r"\w+", text)


@needs_same
@pytest.mark.parametrize("case", ["lower", "fold"])
def test_every_character_changes_case_as_in_python(case: str) -> None:
    change = str.lower if case == "lower" else str.casefold
    text = "x".join(c for c in EVERY if not c.isspace())
    assert "".join(CHARACTERS[case].analyse(text)) == change(text)


@needs_same
def test_spaces_are_those_of_the_regular_expressions() -> None:
    text = "".join(f"x{c}{c}" for c in EVERY)
    assert "".join(CHARACTERS[None].analyse(text)) == re.sub(r"\s\s+", " ", text)


@given(st.text(st.sampled_from("aΣσςΑ.'·\u0301 ͺ1İ\u00ad😀"), max_size=12))
def test_a_sigma_at_the_end_of_a_word_is_final(text: str) -> None:
    assert "".join(CHARACTERS["lower"].analyse(text)) == re.sub(r"\s\s+", " ", text.lower())


@pytest.mark.parametrize("form", ["NFC", "NFKC", "NFD", "NFKD"])
@given(text=st.text(st.characters(max_codepoint=0x3FFF, exclude_categories=["Cs", "Cn"])))
def test_normal_forms_are_those_of_python(form: str, text: str) -> None:
    characters = Tfidf(analyzer="char", case=None, normalise=form)
    expected = re.sub(r"\s\s+", " ", unicodedata.normalize(form, text))
    assert "".join(characters.analyse(text)) == expected


def test_accents_are_stripped() -> None:
    assert Tfidf(strip_accents=True).analyse("Crème BRÛLÉE žluťoučký") == [
        "creme",
        "brulee",
        "zlutoucky",
    ]


def test_folding_joins_what_looks_the_same() -> None:
    tfidf = Tfidf()
    assert tfidf.analyse("Straße") == tfidf.analyse("STRASSE") == ["strasse"]
    assert tfidf.analyse("ﬁsh Ｆｉｓｈ") == ["fish", "fish"]
    assert tfidf.analyse("cafe\u0301") == tfidf.analyse("CAFÉ")
