"""Parts of texts and their rests."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from megalabel.features.segments import segments

WORDS = ["whale", "sea", "ship", "tale", "of", "the", "red"]
PROSE = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), max_size=5).map(
    lambda sentences: " ".join(" ".join(words) + "." for words in sentences)
)


@settings(max_examples=60)
@given(st.lists(PROSE | st.text(max_size=20), max_size=4), st.integers(0, 99))
def test_parts_are_of_the_texts(texts, seed):
    numbers, parts, rests = segments(texts, seed)
    assert len(numbers) == len(parts) == len(rests)
    assert len(set(numbers.tolist())) == len(numbers)
    for number, part, rest in zip(numbers.tolist(), parts, rests, strict=True):
        words = texts[number].split()
        assert 1 <= len(part.split()) <= 32
        assert rest
        assert set(part.split()) | set(rest.split()) <= {*words, *_pieces(texts[number])}


def _pieces(text: str) -> set[str]:
    """Words that a cut within a run of letters and stops may leave."""
    return {text[i:j].strip() for i in range(len(text)) for j in range(i + 1, len(text) + 1)}


def test_the_same_for_the_same_seed_whatever_is_beside():
    texts = ["one two three four five six", "a b c d e f g h. i j k l m"]
    assert segments(texts, 3)[1:] != segments(texts, 4)[1:]
    whole = segments(texts, 3)
    assert segments(texts, 3)[1:] == whole[1:]
    assert segments([*texts, "more and more words come"], 3)[1][:2] == whole[1]


def test_short_texts_have_no_parts():
    numbers, parts, _ = segments(["", "a b c", "   "])
    assert not len(numbers)
    assert parts == []


def test_first_sentences_are_often_the_part():
    texts = ["A title here. The body of it is longer. And it ends."] * 200
    parts = segments(texts)[1]
    first = sum(part == "A title here." for part in parts) / len(parts)
    assert 0.4 < first < 0.9
