"""Writes native/unicode_tables.hpp from Python's own knowledge of Unicode.

    python tools/make_unicode_tables.py [--check]

The tables are kept in the repository rather than read from the running Python, so that a model
gives the same vectors whichever Python it is used from. With --check nothing is written, and the
exit status says whether the file is what this Python would write.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

HEADER = Path(__file__).parent.parent / "native" / "unicode_tables.hpp"
CHARACTERS = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c <= 0xDFFF]


def is_case_ignorable(c: str) -> bool:
    # str.lower looks past case-ignorable characters to tell whether a sigma ends its word
    return f"AΣ{c}".lower()[1] == "ς" and f"AΣ{c}B".lower()[1] == "σ"


def is_cased(c: str) -> bool:
    return f"AΣ{c}".lower()[1] == "σ"


def composing() -> set[str]:
    """Characters that may join with the one before them under NFC."""
    return {d for c in CHARACTERS for d in unicodedata.normalize("NFD", c)[1:]}


COMPOSING = composing()


def is_stable(c: str) -> bool:
    """Whether a text of only such characters is its own NFC and NFKC form."""
    return (
        not unicodedata.combining(c)
        and c not in COMPOSING
        and unicodedata.normalize("NFKC", c) == c
    )


def is_syllable(c: str) -> bool:
    """Whether a character is a Korean syllable, whose letters follow from its number."""
    return "\uac00" <= c <= "\ud7a3"


def decompositions(form: str, beyond: str | None = None) -> list[tuple[int, ...]]:
    """(character, its letters and marks in a normal form), where these are not what it is in the
    form beyond which only the rest is asked for."""
    found = []
    for c in CHARACTERS:
        parts = unicodedata.normalize(form, c)
        if not is_syllable(c) and parts != (unicodedata.normalize(beyond, c) if beyond else c):
            found.append((ord(c), *map(ord, parts)))
    return found


def compositions() -> list[tuple[int, int, int]]:
    """(first, second, the one character that both become), sorted."""
    found = []
    for c in CHARACTERS:
        pair = unicodedata.decomposition(c).split()
        if len(pair) == 2 and "<" not in pair[0] and unicodedata.normalize("NFC", c) == c:
            found.append((int(pair[0], 16), int(pair[1], 16), ord(c)))
    return sorted(found)


def combining_classes() -> list[tuple[int, int, int]]:
    """Runs (first, last, canonical combining class)."""
    found: list[tuple[int, int, int]] = []
    for c in CHARACTERS:
        code, number = ord(c), unicodedata.combining(c)
        if found and found[-1][1:] == (code - 1, number):
            found[-1] = (found[-1][0], code, number)
        elif number:
            found.append((code, code, number))
    return found


def flat(entries: list[tuple[int, ...]]) -> tuple[list[tuple[int, ...]], list[int]]:
    """Entries (character, where its results begin, how many they are), and all results."""
    results: list[int] = []
    places = []
    for code, *parts in entries:
        places.append((code, len(results), len(parts)))
        results += parts
    return places, results


def ranges(property_of: Callable[[str], bool]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for code in (ord(c) for c in CHARACTERS if property_of(c)):
        if found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return found


def mappings(
    changed: Callable[[str], str],
) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, ...]]]:
    """Runs (first, last, step, difference), and (character, up to three results) where several."""
    runs: list[tuple[int, int, int, int]] = []
    several: list[tuple[int, ...]] = []
    for c in CHARACTERS:
        code, result = ord(c), [ord(r) for r in changed(c)]
        if len(result) != 1:
            several.append((code, *result, *[0] * (3 - len(result))))
        elif result[0] != code:
            difference = result[0] - code
            first, last, step, previous = runs[-1] if runs else (0, -9, 0, 0)
            if difference == previous and code - last in ((1, 2) if step == 0 else (step,)):
                runs[-1] = (first, code, code - last, difference)
            else:
                runs.append((code, code, 0, difference))
    return [(a, b, max(step, 1), d) for a, b, step, d in runs], several


def table(kind: str, name: str, comment: str, rows: Iterable[tuple[int, ...] | int]) -> str:
    cells = ", ".join(
        str(row) if isinstance(row, int) else "{" + ",".join(map(str, row)) + "}" for row in rows
    )
    body = textwrap.fill(
        cells, 98, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
    )
    return f"// {comment}\ninline constexpr {kind} {name}[] = {{\n{body}}};\n"


def header() -> str:
    lower, lower_several = mappings(str.lower)
    fold, fold_several = mappings(str.casefold)
    canonical, canonical_results = flat(decompositions("NFD"))
    compatible, compatible_results = flat(decompositions("NFKD", beyond="NFD"))
    tables = [
        table("Range", "kWord", r"What \w matches.", ranges(lambda c: c.isalnum() or c == "_")),
        table("Range", "kSpace", r"What \s matches.", ranges(str.isspace)),
        table("Range", "kCased", "Cased and not case-ignorable.", ranges(is_cased)),
        table("Range", "kCaseIgnorable", "Case-ignorable.", ranges(is_case_ignorable)),
        table(
            "Range",
            "kMark",
            "With a canonical combining class.",
            ranges(lambda c: unicodedata.combining(c) != 0),
        ),
        table("Range", "kStable", "Left alone by NFC and NFKC in any context.", ranges(is_stable)),
        table("Run", "kLower", "Lower case of one character.", lower),
        table("Several", "kLowerSeveral", "Lower case of several characters.", lower_several),
        table("Run", "kFold", "Case folding to one character.", fold),
        table("Several", "kFoldSeveral", "Case folding to several characters.", fold_several),
        table("Class", "kClasses", "Canonical combining classes but 0.", combining_classes()),
        table("Parts", "kCanonical", "Canonical decompositions, to the end.", canonical),
        table("std::uint32_t", "kCanonicalParts", "Their results.", canonical_results),
        table("Parts", "kCompatible", "Those of compatibility, where others.", compatible),
        table("std::uint32_t", "kCompatibleParts", "Their results.", compatible_results),
        table("Pair", "kComposed", "Canonical compositions.", compositions()),
    ]
    return "\n".join(
        [
            "// Made by tools/make_unicode_tables.py; change that, not this.",
            "// clang-format off",
            "#pragma once",
            "",
            "#include <cstdint>",
            "",
            "namespace megalabel::unicode {",
            "",
            f'inline constexpr char kVersion[] = "{unicodedata.unidata_version}";',
            "",
            "struct Range {",
            "    std::uint32_t first, last;",
            "};",
            "// Every step-th character from first to last becomes itself plus difference.",
            "struct Run {",
            "    std::uint32_t first, last, step;",
            "    std::int32_t difference;",
            "};",
            "// A character and the two or three that it becomes; 0 ends them.",
            "struct Several {",
            "    std::uint32_t character, results[3];",
            "};",
            "// Characters of one canonical combining class.",
            "struct Class {",
            "    std::uint32_t first, last;",
            "    std::uint8_t number;",
            "};",
            "// A character and where in a list those that it becomes begin.",
            "struct Parts {",
            "    std::uint32_t character;",
            "    std::uint16_t begin;",
            "    std::uint8_t count;",
            "};",
            "// Two characters and the one that they become.",
            "struct Pair {",
            "    std::uint32_t first, second, composed;",
            "};",
            "",
            *tables,
            "}  // namespace megalabel::unicode",
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="compare with the file; write nothing")
    if parser.parse_args().check:
        return int(HEADER.read_text(encoding="utf-8") != header())
    HEADER.write_text(header(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
