"""Languages by name or code, as far as words of theirs are known: stemmers and stop words."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from megalabel.base import Check
from megalabel.errors import MissingExtraError, ParameterError
from megalabel.features.stop_words import STOP_WORDS

CODES = {
    "ar": "arabic",
    "ca": "catalan",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "es": "spanish",
    "eu": "basque",
    "fi": "finnish",
    "fr": "french",
    "ga": "irish",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "nb": "norwegian",
    "ne": "nepali",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}
"""The languages with a stemmer in every version of it that is taken, by their ISO 639-1 codes."""

LANGUAGES = frozenset(CODES.values())


def language_name(name: str) -> str:
    """The English name of a language given by that or by its code; as it is if it is not known.

    Examples
    --------
    >>> language_name("en"), language_name("Finnish"), language_name("pt-BR")
    ('english', 'finnish', 'portuguese')
    """
    plain = name.strip().lower()
    return CODES.get(plain.replace("_", "-").split("-")[0], plain)


def language(known: Iterable[str]) -> Check:
    """A parameter that names one of some languages."""
    names = frozenset(known)
    shown = ", ".join(sorted(names))
    return Check(
        lambda v: isinstance(v, str) and language_name(v) in names,
        f"a language by name or code ({shown})",
    )


def stop_words(name: str) -> list[str]:
    """The stop words of a language, in the order of the alphabet.

    Examples
    --------
    >>> stop_words("en")[:4]
    ['a', 'about', 'above', 'after']
    """
    plain = language_name(name)
    if plain not in STOP_WORDS:
        raise ParameterError(
            f"no stop words are known of {name!r}; give a list of them, or one of "
            f"{', '.join(sorted(STOP_WORDS))}"
        )
    return sorted(set(STOP_WORDS[plain].split()))


def stemmer(name: str) -> Callable[[list[str]], list[str]]:
    """What gives the Snowball stems of words in lower case, one for each."""
    plain = language_name(name)
    if plain not in LANGUAGES:
        near = difflib.get_close_matches(plain, LANGUAGES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(LANGUAGES))}"
        raise ParameterError(f"no stemmer is known of {name!r}; {hint}")
    try:
        import snowballstemmer
    except ImportError:
        raise MissingExtraError("snowballstemmer", "stemming") from None
    made: Any = snowballstemmer.stemmer(plain)
    return lambda words: list(made.stemWords(words))
