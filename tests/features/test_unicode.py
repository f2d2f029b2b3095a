"""The native core's knowledge of characters is Python's."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalabel import _native
from megalabel.data.strings import encoded, from_arrays
from megalabel.features import Tfidf

TOOL = Path(__file__).parents[2] / "tools" / "make_unicode_tables.py"
SAME_UNICODE = unicodedata.unidata_version == _native.UNICODE_VERSION
needs_same = pytest.mark.skipif(
    not SAME_UNICODE,
    reason=f"this Python has Unicode {unicodedata.unidata_version}, the tables"
    f" {_native.UNICODE_VERSION}",
)

EVERY = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
# known to all versions, in all of which their normal forms are the same
KNOWN = EVERY
if not SAME_UNICODE:
    KNOWN = [c for c in EVERY if unicodedata.ucd_3_2_0.category(c) != "Cn"]
FORMS = ["NFC", "NFKC", "NFD", "NFKD"]
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


def test_a_sigma_beside_any_character_is_as_in_python() -> None:
    text = " ".join(f"AΣ{c} AΣ{c}B {c}Σ" for c in KNOWN if not c.isspace())
    how = Tfidf(analyzer="char", case="lower", normalise=None)._settings()
    _, found = _native.analyse(encoded([text]), how)
    assert found.tobytes().decode() == text.lower()


@given(st.text(st.sampled_from("aΣσςΑ.'·\u0301 ͺ1İ\u00ad😀_"), max_size=12))
def test_a_sigma_at_the_end_of_a_word_is_final(text: str) -> None:
    assert "".join(CHARACTERS["lower"].analyse(text)) == re.sub(r"\s\s+", " ", text.lower())


def how(form: str) -> dict[str, bool]:
    return {"compose": form[-1] == "C", "compatible": "K" in form}


def normalised(texts: list[str], form: str) -> list[str]:
    changed = _native.normalise_texts(encoded(texts), **how(form))
    return texts if changed is None else from_arrays(*changed).to_pylist()


@pytest.mark.parametrize("form", FORMS)
def test_every_character_has_the_normal_form_of_python(form: str) -> None:
    marks = [c for c in KNOWN if unicodedata.combining(c)]
    texts = [*KNOWN, *(f"e{c}\u0323\u0345" for c in marks), "".join(KNOWN), "".join(KNOWN[::-1])]
    assert normalised(texts, form) == [unicodedata.normalize(form, text) for text in texts]


@pytest.mark.parametrize("form", FORMS)
def test_every_pair_that_becomes_one_is_that_of_python(form: str) -> None:
    apart = [unicodedata.normalize("NFD", c) for c in KNOWN]
    texts = [
        first + last
        for text in apart
        if text[1:]
        for first in ("", "x", "é")
        for last in (text, text[::-1], text + "\u0301")
    ]
    assert normalised(texts, form) == [unicodedata.normalize(form, text) for text in texts]


CHANGING = [c for c in KNOWN if unicodedata.combining(c) or unicodedata.decomposition(c)]
HANGUL = "가각힣각ᇂᅵᄒ\u11a7\u1176"


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=200)
@given(st.text(st.one_of(st.sampled_from(CHANGING), st.sampled_from(f"aeo \U0001d15e{HANGUL}"))))
def test_normal_forms_are_those_of_python(form: str, text: str) -> None:
    assert normalised([text], form) == [unicodedata.normalize(form, text)]


@pytest.mark.parametrize("form", FORMS)
def test_the_same_normal_forms_for_any_threads_and_place(form: str, threads) -> None:
    texts = ["plain", "cafe\u0301 ﬁn", "", "é", "Ａ" * 9_000, "한국어"] * 50
    expected = [unicodedata.normalize(form, text) for text in texts]
    for count in (1, 3):
        threads(count)
        assert normalised(texts, form) == expected
    offsets, data = encoded(texts)
    part = _native.normalise_texts((offsets[3:8], data), **how(form))
    assert from_arrays(*part).to_pylist() == expected[3:7]


def test_texts_in_normal_form_are_not_copied() -> None:
    assert _native.normalise_texts(encoded(["plain", "café 한국"]), **how("NFKC")) is None


@pytest.mark.parametrize("raw", [b"e\xcc\x81\xff", b"\xff\xcc\x81e", b"\xcc\xcc\x81", b"\xcc"])
def test_bytes_that_are_no_text_are_replaced(raw: bytes) -> None:
    arrays = np.array([0, len(raw)]), np.frombuffer(raw, np.uint8)
    changed = _native.normalise_texts(arrays, **how("NFC")) or arrays
    expected = unicodedata.normalize("NFC", raw.decode(errors="replace"))
    assert changed[1].tobytes().decode(errors="replace") == expected


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
