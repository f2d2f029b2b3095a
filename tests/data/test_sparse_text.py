import gzip
import os
import tempfile
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from megalabel import _native, get_threads, set_threads
from megalabel.data import Corpus
from megalabel.data.formats.sparse_text import (
    looks_like_svmlight,
    looks_like_xc,
    read_svmlight,
    read_xc,
    write_xc,
)
from megalabel.data.limits import FEW_LABELS
from megalabel.data.problems import Problems
from megalabel.errors import DataError

DATA = Path(os.environ.get("MEGALABEL_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.fixture
def file(tmp_path):
    """Writes bytes to a file and gives its path."""

    def write(content, name="corpus.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def same(a, b):
    """Whether two matrices are the same to the last bit, zeros that are stored included."""
    return a.shape == b.shape and all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("indptr", "indices", "data")
    )


def labels_of(corpus):
    return [row.indices.tolist() for row in corpus.targets]


def features_of(corpus):
    return [
        dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in corpus.features
    ]


# --- good files

XC = "3 4 5\n1,4 0:0.5 3:-2e-1\n 2:1\n0\n"


def check_xc(corpus):
    assert corpus.features.shape == (3, 4)
    assert corpus.features.dtype == np.float32
    assert corpus.targets.shape == (3, 5)
    assert labels_of(corpus) == [[1, 4], [], [0]]
    assert features_of(corpus) == [{0: 0.5, 3: np.float32(-0.2)}, {2: 1.0}, {}]
    assert corpus.labels.names.to_pylist() == ["0", "1", "2", "3", "4"]
    assert (corpus.targets.data == 1).all()


@pytest.mark.parametrize(
    "content",
    [
        XC,
        XC.rstrip("\n"),
        XC.replace("\n", "\r\n"),
        "\ufeff" + XC,
        "\ufeff" + XC.replace("\n", "\r\n"),
        XC.replace(" ", "\t"),
        XC.replace(" ", "  "),
        XC.replace("\n", "  \n"),
        XC.replace("\n", " \t\r\n"),
        XC + "\n\n",
        XC.replace("\n 2:1", "\n2:1"),
        XC.replace("0:0.5 3:-2e-1", "3:-.2 0:+0.50"),
        XC.replace("1,4", "4,1"),
        XC.replace("1,4", "4,1,4"),
        XC.replace("1,4", "1.0,4."),
        XC.replace("1,4", "+1,0004"),
    ],
)
def test_ways_to_write_the_same_corpus(file, content):
    check_xc(read_xc(file(content), Problems()))


def test_compressed_files_are_known_by_content(file):
    check_xc(read_xc(file(gzip.compress(XC.encode()), "a.txt.gz"), Problems()))
    check_xc(read_xc(file(gzip.compress(XC.encode()), "a.txt"), Problems()))
    halves = gzip.compress(XC[:9].encode()) + gzip.compress(XC[9:].encode())
    check_xc(read_xc(file(halves, "a.gz"), Problems()))
    packed = pa.compress(XC.encode(), codec="zstd", asbytes=True)
    check_xc(read_xc(file(packed, "a.txt.zst"), Problems()))


def test_empty_lines_are_rows_as_far_as_the_header_goes(file):
    corpus = read_xc(file("4 2 2\n\n0 1:1\n\n \n\n\n"), Problems())
    assert labels_of(corpus) == [[], [0], [], []]


def test_a_corpus_without_rows(file):
    assert read_xc(file("0 3 2\n"), Problems()).features.shape == (0, 3)
    assert read_xc(file("0 3 2"), Problems()).targets.shape == (0, 2)


def test_source_says_where_it_came_from(file):
    path = file(XC)
    assert read_xc(path, Problems()).source == {"path": str(path), "format": "xc"}


def test_svmlight(file):
    content = "# made by hand\n\n0,2 qid:3 1:0.5 3:1 # 9:9\n   \n 2:2\n1 \n#\n"
    corpus = read_svmlight(file(content), Problems())
    assert labels_of(corpus) == [[0, 2], [], [1]]
    assert features_of(corpus) == [{0: 0.5, 2: 1.0}, {1: 2.0}, {}]
    assert corpus.features.shape == (3, 3)
    assert len(corpus.labels) == 3
    assert corpus.features.indices.dtype == np.int32


def test_svmlight_features_count_from_zero_if_one_has_number_zero(file):
    corpus = read_svmlight(file("1 1:1 2:1\n1 0:1\n"), Problems())
    assert features_of(corpus) == [{1: 1.0, 2: 1.0}, {0: 1.0}]


def test_svmlight_without_features_or_labels(file):
    assert read_svmlight(file("1\n0\n"), Problems()).features.shape == (2, 0)
    assert len(read_svmlight(file(" 1:1\n"), Problems()).labels) == 0


def test_agrees_with_scikit_learn(file):
    from sklearn.datasets import dump_svmlight_file, load_svmlight_file

    random = np.random.default_rng(3)
    X = csr_matrix(random.normal(size=(50, 20)) * (random.random((50, 20)) < 0.3))
    Y = csr_matrix(random.random((50, 8)) < 0.3)
    for zero_based in (True, False):
        path = file("")
        dump_svmlight_file(X, Y, str(path), zero_based=zero_based, multilabel=True, comment="häh")
        corpus = read_svmlight(path, Problems())
        expected, labels = load_svmlight_file(str(path), multilabel=True, dtype=np.float32)
        assert same(corpus.features, expected)
        assert labels_of(corpus) == [sorted(map(int, row)) for row in labels]


def test_looks_like():
    assert looks_like_xc("15539 5000 3993\r\n")
    assert looks_like_xc("\ufeff1\t2\t3")
    for line in ("", "1 2", "1 2 3 4", "-1 2 3", "1,2 3:4", "1 2 3.0", '{"a": 1}', "a b c"):
        assert not looks_like_xc(line)
    for line in ("1,2 3:4", " 3:4", "3:4 5:6", "1 qid:2 3:4.5e-3 # x", "-1 1:nan\r\n", "1.0 2:3"):
        assert looks_like_svmlight(line)
    for line in (
        "",
        "1 2 3",
        "1,2",
        "title,text",
        '{"a": 1}',
        "__label__x 3:4",
        "see 3:4",
        "x 1:2",
    ):
        assert not looks_like_svmlight(line)
    assert not looks_like_svmlight("1" * 100_000 + "x")


# --- bad files


@pytest.mark.parametrize(
    ("row", "column", "message"),
    [
        ("1 0:1 2;5", 7, "expected feature:value, found '2;5'"),
        ("1 0:1 2", 7, "expected feature:value, found '2'"),
        ("1 0:1 :2", 7, "expected feature:value, found ':2'"),
        (" 1,2 0:1", 2, "expected feature:value, found '1,2'"),
        ("1 qid:1 0:1", 3, "expected feature:value, found 'qid:1'"),
        ("1 0:1 # no comments", 7, "expected feature:value, found '#'"),
        ("1 0:1\r2:1", 5, "expected a finite number, found '1\r2:1'"),
        ("1 0:", 5, "expected a finite number, found nothing"),
        ("1 0: 2:1", 5, "expected a finite number, found nothing"),
        ("1 0:x", 5, "expected a finite number, found 'x'"),
        ("1 0:1x", 5, "expected a finite number, found '1x'"),
        ("1 0:1:2", 5, "expected a finite number, found '1:2'"),
        ("1 0:0x10", 5, "expected a finite number, found '0x10'"),
        ("1 0:1e", 5, "expected a finite number, found '1e'"),
        ("1 0:.", 5, "expected a finite number, found '.'"),
        ("1 0:--1", 5, "expected a finite number, found '--1'"),
        ("1 0:nan", 5, "expected a finite number, found 'nan'"),
        ("1 0:-inf", 5, "expected a finite number, found '-inf'"),
        ("1 0:1e39", 5, "expected a finite number, found '1e39'"),
        ("1 0:1e999999999999999999999", 5, "expected a finite number, found '1e9999"),
        ("1 -1:1", 3, "expected a feature number from 0 to 3, found '-1:1'"),
        ("-1:1", 1, "expected a feature number from 0 to 3, found '-1:1'"),
        ("1 0:1 4:1", 7, "expected a feature number from 0 to 3, found '4'"),
        ("1 4294967296:1", 3, "expected a feature number from 0 to 3, found '4294967296'"),
        ("1 18446744073709551616:1", 3, "expected a feature number from 0 to 3, found '18446"),
        ("5 0:1", 1, "expected a label number from 0 to 4, found '5'"),
        ("-1 0:1", 1, "expected a label number from 0 to 4, found '-1'"),
        ("1,18446744073709551616 0:1", 3, "expected a label number from 0 to 4, found '184467"),
        ("1, 2 0:1", 3, "expected a label number from 0 to 4, found nothing"),
        ("1,,2 0:1", 3, "expected a label number from 0 to 4, found ',2'"),
        (",1 0:1", 1, "expected a label number from 0 to 4, found ',1'"),
        ("1.5 0:1", 1, "expected a label number from 0 to 4, found '1.5'"),
        ("cat 0:1", 1, "expected a label number from 0 to 4, found 'cat'"),
        ("\x00\x01", 1, "expected a label number from 0 to 4, found '\x00\x01'"),
        ("1 3:1 0:1 2:1 0:2", 15, "expected each feature once, found '0:2'"),
        ("3:1 3:1", 5, "expected each feature once, found '3:1'"),
        ("1 " + "x" * 50, 3, "expected feature:value, found '" + "x" * 40 + "…'"),
    ],
)
def test_a_bad_row_is_placed_and_described(file, row, column, message):
    path = file(f"3 4 5\r\n2 1:1\r\n{row}\r\n3 1:1\r\n")
    with pytest.raises(DataError) as error:
        read_xc(path, Problems())
    assert (error.value.file, error.value.line, error.value.column) == (path, 3, column)
    assert error.value.message.startswith(message)
    problems = Problems(skip=True)
    assert labels_of(read_xc(path, problems)) == [[2], [3]]
    assert problems.count == 1
    assert problems.kept[0].message == error.value.message


def test_bytes_that_are_no_text_are_shown_escaped(file):
    with pytest.raises(DataError, match=r"found '\\xff\\xfeé'"):
        read_xc(file(b"1 1 1\n\xff\xfe\xc3\xa9\n"), Problems())


@pytest.mark.parametrize("rows", ["0\n0\n0", "0", ""])
def test_a_header_that_lies_about_rows(file, rows):
    path = file(f"2 1 1\n{rows}")
    found = rows.count("0")
    with pytest.raises(DataError, match=f"line 1, column 1: the header says 2 rows, found {found}"):
        read_xc(path, Problems())
    problems = Problems(skip=True)
    assert len(read_xc(path, problems)) == found
    assert problems.count == 1


def test_a_header_that_leaves_no_room(file):
    with pytest.raises(DataError, match="expected no feature, found '0'"):
        read_xc(file("1 0 1\n0 0:1\n"), Problems())
    with pytest.raises(DataError, match="expected no label, found '0'"):
        read_xc(file("1 1 0\n0 0:1\n"), Problems())


@pytest.mark.parametrize(
    "header", ["", "1 2", "1,2 3:4", "1 2 3 4", "-1 2 3", "1.5 2 3", "\xff\n", "1 2 3" + " " * 300]
)
def test_a_bad_header(file, header):
    for skip in (False, True):
        with pytest.raises(DataError, match="line 1, column 1: expected a header with the numbers"):
            read_xc(file(f"{header}\n0 0:1\n"), Problems(skip=skip))


def test_a_header_too_large_to_be_true(file):
    with pytest.raises(DataError, match="at most 3000000 labels, found 999999999"):
        read_xc(file("1 1 999999999\n"), Problems())
    with pytest.raises(DataError, match="at most 2147483647 features, found 2147483648"):
        read_xc(file("1 2147483648 1\n"), Problems())


def test_an_empty_file(file):
    for content in (b"", gzip.compress(b"")):
        for read in (read_xc, read_svmlight):
            with pytest.raises(DataError, match=r"corpus\.txt.*(empty|found)"):
                read(file(content), Problems(skip=True))
    with pytest.raises(DataError, match="found none"):
        read_svmlight(file("# only a comment\n\n"), Problems())
    with pytest.raises(FileNotFoundError):
        read_xc("no such file", Problems())


def test_damaged_compressed_files_are_named(file):
    lines = "".join(f"{i % 7} {i}:{i}\n" for i in range(5000))
    packed = gzip.compress(f"5000 5000 7\n{lines}".encode())
    zst = pa.compress(lines.encode(), codec="zstd", asbytes=True)
    changed = packed[:-8] + bytes(8)
    for content in (packed[:-1], packed[:99], packed[:11], packed[:2], changed, zst[:-1], zst[:5]):
        for read in (read_xc, read_svmlight):
            with pytest.raises(DataError, match=r"corpus\.txt: the compressed file is"):
                read(file(content), Problems(skip=True))


def test_bad_svmlight_rows(file):
    for row, column, message in (
        ("1 qid:x 1:1", 3, "expected feature:value, found 'qid:x'"),
        ("1 1:1 qid:1", 7, "expected feature:value, found 'qid:1'"),
        ("-1 1:1", 1, f"expected a label number from 0 to {FEW_LABELS - 1}, found '-1'"),
        ("100000000 1:1", 1, f"expected a label number from 0 to {FEW_LABELS - 1}, found '1000"),
        ("1 2147483647:1", 3, "expected a feature number from 0 to 2147483646, found '21474"),
        ("1 1:1# 2\n1 1:# 2", 5, "expected a finite number, found nothing"),
    ):
        with pytest.raises(DataError) as error:
            read_svmlight(file(f"{row}\n"), Problems())
        assert error.value.message.startswith(message)
        assert error.value.column == column


def test_every_skipped_row_is_counted_and_the_first_are_kept(file):
    content = "".join("x\n" if i % 3 == 0 else f"{i % 5} 0:{i}\n" for i in range(999))
    problems = Problems(skip=True, keep=10)
    corpus = read_xc(file("999 1 5\n" + content), problems)
    assert len(corpus) == 666
    assert problems.count == 333
    assert [error.line for error in problems.kept] == list(range(2, 32, 3))


# --- numbers


def nearest_float32(text):
    """The float32 nearest to a decimal number, ties to even, by exact arithmetic."""
    exact = Fraction(text)
    if abs(exact) >= 2**128 - 2**103:  # would round to infinity
        return None
    with np.errstate(all="ignore"):
        guess = np.float32(float(exact))
        around = [np.nextafter(guess, np.float32(to)) for to in (-np.inf, guess, np.inf)]
    around = [x for x in around if np.isfinite(x)]
    return min(around, key=lambda x: (abs(Fraction(float(x)) - exact), x.view(np.uint32) & 1))


def read_number(text):
    raw = np.frombuffer(f" 0:{text}".encode(), np.uint8)
    values, bad = _native.parse_sparse_text(
        raw, svmlight=False, features=1, labels=1, first_line=1, keep=1
    )[4:6]
    return None if bad else values[0]


def check_number(text):
    expected, found = nearest_float32(text), read_number(text)
    assert (found is None) == (expected is None), text
    assert expected is None or found == expected, text


@given(st.from_regex(r"[+-]?(\d{1,25}\.?\d{0,25}|\.\d{1,25})([eE][+-]?\d{1,2})?", fullmatch=True))
@settings(max_examples=500)
def test_numbers_are_rounded_exactly(text):
    if text.isascii():
        check_number(text)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(-1, 1))
@settings(max_examples=500)
def test_numbers_near_the_middle_of_two_float32_are_rounded_exactly(value, offset):
    value = np.float32(value)
    middle = (Fraction(float(value)) + Fraction(float(np.nextafter(value, np.float32(0))))) / 2
    check_number(f"{float(middle):.15g}")
    power = middle.denominator.bit_length() - 1  # all of its decimal digits, then one more or less
    check_number(f"{middle.numerator * 5**power * 10 + offset}e{-power - 1}")


EDGES = """
    0 -0 0.0 00 1 16777217 16777219 33554433 33554435 1.00000017881393432617187500
    1.00000017881393432617187499 1.00000017881393432617187501 1e22 1e23 123456789012345e22
    9007199254740993 3.4028235e38 3.4028235677973366e38 3.4028235677973365e38 1e-45 7e-46
    7.006492321624085e-46 7.006492321624086e-46 1.1754943e-38 1e-99 1e-400 0e999 0.0e-999
"""


@pytest.mark.parametrize("text", EDGES.split())
def test_numbers_at_the_edges(text):
    check_number(text)


def test_numbers_beyond_all_edges():
    assert read_number("1e-99999999999999999999") == 0
    assert read_number("0." + "0" * 400 + "1") == 0
    assert read_number("1" + "0" * 400) is None
    assert read_number("0." + "0" * 400 + "1e401") == 1
    assert np.signbit(read_number("-1e-400"))


# --- writing


@st.composite
def corpora(draw):
    n, n_features, n_labels = (draw(st.integers(0, 6)) for _ in range(3))

    def matrix(width, values):
        rows = [
            sorted(draw(st.sets(st.integers(0, width - 1), max_size=5))) if width else []
            for _ in range(n)
        ]
        indices = [column for row in rows for column in row]
        data = np.array([draw(values) for _ in indices], np.float32)
        indptr = np.cumsum([0] + [len(row) for row in rows])
        return csr_matrix((data, indices, indptr), shape=(n, width))

    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    return Corpus(features=matrix(n_features, finite), targets=matrix(n_labels, st.just(1.0)))


@given(corpora(), st.sampled_from(["a.txt", "a.txt.gz", "a.txt.zst"]))
@settings(max_examples=150, deadline=None)
def test_writing_then_reading_is_identity(corpus, name):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        write_xc(corpus, path)
        back = read_xc(path, Problems())
    assert same(back.features, corpus.features)
    assert same(back.targets, corpus.targets)
    assert np.array_equal(np.signbit(back.features.data), np.signbit(corpus.features.data))


def test_writing_gives_the_shortest_numbers(tmp_path):
    values = np.array([[0.1, 1, 16777216, 1e-10, 0.084556, -2.5]], np.float32)
    write_xc(Corpus(features=values, targets=csr_matrix((1, 0))), tmp_path / "a.txt")
    numbers = "0:0.1 1:1 2:16777216 3:1e-10 4:0.084556 5:-2.5"
    assert (tmp_path / "a.txt").read_text() == f"1 6 0\n {numbers}\n"


def test_writing_in_blocks(tmp_path):
    wide = csr_matrix(np.ones((3, 3_000_000), np.float32))
    corpus = Corpus(features=wide, targets=csr_matrix((3, 1)))
    write_xc(corpus, tmp_path / "a.txt")
    assert same(read_xc(tmp_path / "a.txt", Problems()).features, wide)


def test_compressed_files_are_the_same_each_time(tmp_path):
    corpus = Corpus(features=[[1.0]], targets=[[1.0]])
    for name in ("a.txt.gz", "b.txt.gz"):
        write_xc(corpus, tmp_path / name)
    assert (tmp_path / "a.txt.gz").read_bytes() == (tmp_path / "b.txt.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.txt.gz").read_bytes()) == b"1 1 1\n0 0:1\n"


def test_what_cannot_be_written_is_said(tmp_path):
    with pytest.raises(DataError, match="with features"):
        write_xc(Corpus(["a text"]), tmp_path / "a.txt")
    graded = Corpus(features=[[1.0], [2.0]], targets=np.array([[1, 0], [0, 0.5]]))
    with pytest.raises(DataError, match=r"relevance 0\.5 of row 1"):
        write_xc(graded, tmp_path / "a.txt")


def test_the_writer_checks_its_arrays():
    indptr, indices = np.array([0, 1]), np.zeros(1, np.int32)
    values = np.ones(1, np.float32)
    good = {
        "target_indptr": indptr,
        "target_indices": indices,
        "feature_indptr": indptr,
        "feature_indices": indices,
        "values": values,
    }
    assert _native.format_sparse_text(**good, begin=0, end=1) == b"0 0:1\n"
    for changed in (
        {"target_indptr": np.array([0, 2])},
        {"feature_indptr": np.array([-1, 1])},
        {"values": values[:0]},
    ):
        with pytest.raises(ValueError, match=r"(within|outside of) the matri"):
            _native.format_sparse_text(**(good | changed), begin=0, end=1)
    for begin, end in ((0, 2), (1, 0), (5, 5)):
        with pytest.raises(ValueError, match="outside of the matrices"):
            _native.format_sparse_text(**good, begin=begin, end=end)


# --- pieces and garbage

# fmt: off
TOKENS = st.sampled_from([
    "1", "0", "2,3", "0:1", "1:0.5", "3:1e9", "2:nan", ":", ",", " ", "  ", "\t", "\n", "\r\n", "-",
    "1.0", "qid:3", "#", "\ufeff", "é", "\0", "3:", "5:1", "e5", "99999999999999999999",
])
# fmt: on


@given(st.lists(TOKENS, max_size=60), st.booleans(), st.integers(1, 40))
@settings(max_examples=300)
def test_pieces_and_threads_do_not_change_the_result(tokens, svmlight, piece_bytes):
    text = np.frombuffer("".join(tokens).encode(), np.uint8)
    before, results = get_threads(), []
    for threads, size in ((1, 1 << 20), (1, piece_bytes), (2, piece_bytes)):
        set_threads(threads)
        results.append(
            _native.parse_sparse_text(
                text,
                svmlight=svmlight,
                features=4,
                labels=4,
                first_line=1,
                keep=5,
                piece_bytes=size,
            )
        )
    set_threads(before)
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0][:5], other[:5], strict=True))
        assert results[0][5:] == other[5:]


def never_crashes(content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "corpus.txt")
        path.write_bytes(content)
        for read in (read_xc, read_svmlight):
            for skip in (False, True):
                with suppress(DataError):
                    corpus = read(path, Problems(skip=skip))
                    corpus.features.check_format(full_check=True)
                    corpus.targets.check_format(full_check=True)


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_random_bytes_never_crash(content):
    never_crashes(content)


@given(st.lists(TOKENS, max_size=40))
@settings(max_examples=150, deadline=None)
def test_random_tokens_never_crash(tokens):
    never_crashes(("3 4 4\n" + "".join(tokens)).encode())


@given(st.integers(0, 10**6), st.binary(max_size=4), st.booleans())
@settings(max_examples=100, deadline=None)
def test_changed_bytes_never_crash(position, patch, packed):
    content = "".join(f"{i % 4},{i % 3} {i % 5}:{i / 7}\n" for i in range(40))
    content = f"40 5 4\n{content}".encode()
    content = gzip.compress(content) if packed else content
    position %= len(content)
    never_crashes(content[:position] + patch + content[position + len(patch) :])


# --- public corpora


@pytest.mark.parametrize(
    ("name", "rows", "features", "labels", "entries"),
    [
        ("eurlex-4k", 3809, 5000, 3993, 903035),
        ("bibtex", 2515, 1836, 159, 173496),
        ("delicious", 3185, 500, 983, 55065),
        ("mediamill", 12914, 120, 101, 1549680),
    ],
)
def test_public_corpora(tmp_path, name, rows, features, labels, entries):
    path = DATA / name / "test.txt.gz"
    if not path.is_file():
        pytest.skip(f"{name} is not there: set MEGALABEL_DATA to a folder that holds it")
    corpus = read_xc(path, Problems())
    assert corpus.features.shape == (rows, features)
    assert corpus.targets.shape == (rows, labels)
    assert corpus.features.nnz == entries
    with gzip.open(path, "rt") as file:
        next(file)
        for row, line in zip(range(200), file, strict=False):
            pairs = [token.split(":") for token in line.split() if ":" in token]
            assert corpus.features[row].indices.tolist() == [int(i) for i, _ in pairs]
            assert corpus.features[row].data.tolist() == [np.float32(float(v)) for _, v in pairs]
    write_xc(corpus, tmp_path / "copy.txt")
    copy = read_xc(tmp_path / "copy.txt", Problems())
    assert same(copy.features, corpus.features)
    assert same(copy.targets, corpus.targets)
