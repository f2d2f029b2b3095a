"""Corpora of all formats, damaged in all ways that come to mind: by chance, and on purpose."""

from __future__ import annotations

import ast
import contextlib
import csv
import gzip
import importlib.util
import io
import itertools
import json
import pickle
import re
import tempfile
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from scipy.sparse import csr_matrix, save_npz
from tests.hostile.runner import Trial, size_on_disk

from megalabel.data import read, splits_of, statistics, stream
from megalabel.data.limits import FEW_BYTES
from megalabel.errors import DataError

TEXTS = ["a red dress", "blue jeans", "a red hat, naïve", "a “quoted”; text", "", "two\twords 日本"]
NAMES = [["dress", "red"], ["jeans"], ["hat", "red"], ["jeans"], [], ["hat"]]
NUMBERS = [[0, 3], [2], [1, 3], [2], [], [1]]
LABELS = ["dress", "hat", "jeans", "red"]
PACKED = (".gz", ".zst", ".npz", ".parquet", ".arrow", ".feather", ".xlsx")
_HAS_EXCEL = all(map(importlib.util.find_spec, ("openpyxl", "python_calamine")))
# Written by a pickle that is loaded, which must never happen.
LOADED = str(Path(tempfile.gettempdir()) / "megalabel-hostile-pickle-was-loaded")


def read_all(path: Path) -> None:
    """Read a corpus as the library and `info` do: whole, with bad lines skipped, and streamed.

    Raises the first DataError once all ways have been tried.
    """
    errors: list[DataError] = []
    parts: list[str | None] = [None]
    if path.is_dir():
        try:
            parts = [*splits_of(path)] or [None]
        except DataError as error:
            errors.append(error)
    for part in parts:
        try:
            statistics(read(path, part)).to_dict()
        except DataError as error:
            errors.append(error)
            with contextlib.suppress(DataError):
                statistics(read(path, part, skip_bad=True)).to_dict()
        with contextlib.suppress(DataError):  # the same, or that it cannot be streamed
            deque(itertools.islice(stream(path, part, 1000, skip_bad=True), 10), maxlen=0)
    if Path(LOADED).exists():
        raise AssertionError("a pickle was loaded")
    if errors:
        raise errors[0]


def unpacked_size(path: Path) -> int:
    """The bytes of a corpus, and those that packed files may unpack to whatever their size."""
    folder = path if path.is_dir() else path.parent
    packed = any(file.suffix in PACKED for file in folder.iterdir())
    return size_on_disk(folder) + (FEW_BYTES if packed else 0)


def read_valid() -> None:
    """Read all corpora undamaged, which also loads all code that reading needs."""
    for _, files, whole in bases():
        with tempfile.TemporaryDirectory() as folder:
            read_all(_maker(files, whole)(Path(folder)))


def trials(seed: int, count: int, first: int = 0) -> Iterator[Trial]:
    """Damaged corpora; each depends on the seed and its number alone."""
    for number in range(first, first + count):
        random = Random(f"{seed} {number}")
        name, files, whole = random.choice(bases())
        files = dict(files)
        done = []
        for _ in range(random.choice([1, 1, 1, 2, 3])):
            file = random.choice(sorted(files)) if files else None
            if file is None or random.random() < 0.05:
                done.append(_change_folder(random, files))
            else:
                how, files[file] = _change(random, file, files[file])
                done.append(f"{file} {how}")
        yield Trial(
            f"--seed {seed} --first {number}: {name}, {', '.join(done)}", _maker(files, whole)
        )


def _maker(files: dict[str, bytes], whole: bool) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return folder if whole or not files else folder / next(iter(files))

    return make


# ---------------------------------------------------------------- the corpora
@cache
def bases() -> list[tuple[str, dict[str, bytes], bool]]:
    """Name and files of small valid corpora, and whether the folder is read or the first file."""
    rows = [{"uid": str(i), "title": t, "labels": n} for i, (t, n) in enumerate(zip(TEXTS, NAMES))]  # noqa: B905
    numbered = [
        {"uid": i, "title": t, "content": "more", "target_ind": n, "target_rel": [1.5] * len(n)}
        for i, (t, n) in enumerate(zip(TEXTS, NUMBERS, strict=True))
    ]
    label_file = _lines({"uid": f"Q{i}", "title": name} for i, name in enumerate(LABELS))
    plain = [text.replace("\t", " ") for text in TEXTS]
    fasttext = "".join(
        "".join(f"__label__{n} " for n in names) + text + "\n"
        for text, names in zip(plain, NAMES, strict=True)
    ).encode()
    annif = "".join(
        f"{text}\t{' '.join(f'<u:{n}>' for n in names)}\n"
        for text, names in zip(plain, NAMES, strict=True)
    ).encode()
    svmlight = b"0,3 1:0.5 3:1  # a comment\n2 qid:7 2:2e-1\n1,3 1:-1\n2 1:3.25 7:1\n 2:1\n1\n"
    xc = b"6 8 4\n0,3 1:0.5 3:1\n2 2:2e-1\n1,3 1:-1\n2 1:3.25 7:1\n 2:1\n1\n"
    cells = "".join(
        f'"{text}",{";".join(names)}\n' for text, names in zip(TEXTS, NAMES, strict=True)
    )
    named = pa.table({"text": TEXTS, "labels": NAMES, "id": list(range(6))})
    by_number = pa.table({"title": TEXTS, "target_ind": NUMBERS, "other": [0.5] * 6})
    found: list[tuple[str, dict[str, bytes], bool]] = [
        ("jsonl", {"train.jsonl": _lines(rows)}, False),
        ("jsonl with labels", {"trn.jsonl": _lines(numbered), "lbl.jsonl": label_file}, True),
        ("jsonl of numbers", {"a.jsonl": _lines(numbered)}, False),
        ("array", {"train.json": json.dumps(rows, indent=1).encode()}, False),
        (
            "label features",
            {
                "trn.json.gz": gzip.compress(_lines(numbered), mtime=0),
                "tst.json.gz": gzip.compress(_lines(numbered[:3]), mtime=0),
                "lbl.json.gz": gzip.compress(label_file, mtime=0),
                "filter_labels_test.txt": b"0 0\n2 3\n",
                "filter_labels_train.txt": b"0 1\n5 2\n",
            },
            True,
        ),
        ("jsonl zst", {"a.jsonl.zst": pa.compress(_lines(rows), "zstd", asbytes=True)}, False),
        ("csv", {"a.csv": f"text,labels\n{cells}".encode()}, False),
        ("csv of numbers", {"a.csv": b"id,Title,target_ind\n7,x,0;3\n8,y,1\n9,,\n"}, False),
        ("tsv", {"a.tsv": b"text\tlabels\nx\ta;b\ny\tc\n"}, False),
        ("csv gz", {"a.csv.gz": gzip.compress(f"text,labels\n{cells}".encode(), mtime=0)}, False),
        ("parquet", {"a.parquet": _parquet(named)}, False),
        ("parquet of numbers", {"train.parquet": _parquet(by_number, compression="zstd")}, True),
        ("parquet plain", {"a.parquet": _parquet(named, use_dictionary=False)}, False),
        ("arrow", {"a.arrow": _arrow(named, pa.ipc.new_file)}, False),
        ("arrow stream", {"a.arrow": _arrow(by_number, pa.ipc.new_stream)}, False),
        ("arrow zstd", {"a.feather": _arrow(named, pa.ipc.new_file, "zstd")}, False),
        ("fasttext", {"a.txt": fasttext}, False),
        ("fasttext gz", {"train.txt.gz": gzip.compress(fasttext, mtime=0)}, True),
        ("annif", {"a.tsv": annif, "v.tsv": _vocabulary("<u:{}>\t{}\n")}, False),
        (
            "annif csv",
            {"train.tsv": annif, "v.csv": b"uri,label_en\n" + _vocabulary("u:{},{}\n")},
            True,
        ),
        (
            "annif uris",
            {
                "train.csv": b"text,subject_uris\na hat,<u:hat> <u:red>\njeans,<u:jeans>\n",
                "v.tsv": _vocabulary("<u:{}>\t{}\n"),
            },
            True,
        ),
        (
            "annif folder",
            {
                "a.txt": b"a red hat\n",
                "a.key": b"hat\nred\n",
                "b.txt": b"x",
                "b.tsv": b"<u:a>\ta\n",
            },
            True,
        ),
        ("lists in cells", {"a.csv": b"text,labels\nx,\"['a', 'b']\"\ny,[]\n"}, False),
        *([("excel", {"a.xlsx": _xlsx(["text", "labels"], cells)}, False)] if _HAS_EXCEL else []),
        ("svmlight", {"a.svm": svmlight}, False),
        ("svmlight gz", {"a.svm.gz": gzip.compress(svmlight, mtime=0)}, False),
        ("xc", {"train.txt": xc, "test.txt": xc}, True),
        ("xc with labels", {"train.txt": xc, "lbl.jsonl": label_file}, False),
        ("xc zst", {"a.txt.zst": pa.compress(xc, "zstd", asbytes=True)}, False),
    ]
    cells_of = csr_matrix(np.eye(6, 4, dtype=np.float32))
    for compressed in (True, False):
        found.append(
            (
                "pecos" if compressed else "pecos stored",
                {
                    "Y.trn.npz": _npz(cells_of, compressed),
                    "X.trn.npz": _npz(cells_of, compressed),
                    "X.trn.txt": "\n".join(plain).encode() + b"\n",
                    "output-items.txt": "\n".join(LABELS).encode() + b"\n",
                },
                True,
            )
        )
    return found


def _lines(rows: object) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()  # type: ignore[attr-defined]


def _vocabulary(line: str) -> bytes:
    return "".join(line.format(name, name) for name in LABELS).encode()


def _xlsx(header: list[str], cells: str) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    for row in [header, *csv.reader(io.StringIO(cells))]:
        book.active.append(row)
    sink = io.BytesIO()
    book.save(sink)
    return sink.getvalue()


def _parquet(table: pa.Table, **how: object) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink, **how)
    return sink.getvalue()


def _arrow(table: pa.Table, writer: Callable, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with writer(sink, table.schema, options=options) as out:
        out.write_table(table)
    return sink.getvalue()


def _npz(matrix: csr_matrix, compressed: bool) -> bytes:
    sink = io.BytesIO()
    save_npz(sink, matrix, compressed=compressed)
    return sink.getvalue()


# ---------------------------------------------------------------- what is done to them
HUGE = [
    "99999999",
    "2999999",
    "3000001",
    "2147483647",
    "2147483648",
    "4294967296",
    "1e308",
    "1e999",
]
HUGE += [
    "9223372036854775807",
    "18446744073709551616",
    "9" * 400,
    "9" * 5000,
    "nan",
    "-1",
    "-0",
    "inf",
]


def _change(random: Random, name: str, content: bytes) -> tuple[str, bytes]:
    """A file with something wrong, and what; packed ones may be changed inside."""
    inside = random.random() < 0.7
    if name.endswith(".gz") and inside:
        how, changed = _change_text(random, _unpacked(content, "gzip"))
        return f"inside {how}", gzip.compress(changed, mtime=0)
    if name.endswith(".zst") and inside:
        how, changed = _change_text(random, _unpacked(content, "zstd"))
        return f"inside {how}", pa.compress(changed, "zstd", asbytes=True)
    if name.endswith(".npz") and inside:
        return _change_npz(random, content)
    if name.endswith(PACKED) and random.random() < 0.05:
        return "bomb", _bomb(random, name)
    return _change_text(random, content)


def _unpacked(content: bytes, codec: str) -> bytes:
    try:
        return bytes(pa.CompressedInputStream(pa.BufferReader(content), codec).read())
    except OSError:  # damaged by an earlier change
        return content


def _bomb(random: Random, name: str) -> bytes:
    piece = random.choice([b"\0", b"\n", b"[", b"9", b'{"text": "x"}\n'])
    content = piece * ((3 << 23) // len(piece))
    if name.endswith(".gz"):
        return gzip.compress(content, 1, mtime=0)
    if name.endswith((".arrow", ".feather", ".parquet")):
        length = random.choice([10, 1000, 100_000])
        rows = (3 << 23) // length
        text = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["x" * length])
        table = pa.table({"text": random.choice([text, text.dictionary_decode(), pa.nulls(rows)])})
        if name.endswith("parquet"):
            return _parquet(table)
        writer = random.choice([pa.ipc.new_file, pa.ipc.new_stream])
        return _arrow(table, writer, random.choice([None, "lz4", "zstd"]))
    if name.endswith(".zst"):
        return pa.compress(content, "zstd", asbytes=True)
    return _zipped(dict.fromkeys(("data.npy", "indices.npy", "indptr.npy"), content))


def _change_text(random: Random, content: bytes) -> tuple[str, bytes]:
    kind = random.choice(sorted(_CHANGES))
    return kind, _CHANGES[kind](random, content)


def _truncated(random: Random, content: bytes) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _flipped(random: Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice([1, 1, 2, 8]) if changed else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwritten(random: Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice([1, 4]) if changed else 0):
        changed[random.randrange(len(changed))] = random.choice([0, 255, 127, 128, 10, 13, 34, 91])
    return bytes(changed)


def _spliced(random: Random, content: bytes) -> bytes:
    start, stop = sorted(random.randrange(len(content) + 1) for _ in range(2))
    at = random.randrange(len(content) + 1)
    times = min(random.choice([1, 1, 3, 1000]), (1 << 20) // (stop - start + 1) + 1)
    return content[:at] + content[start:stop] * times + content[at:]


def _cut_out(random: Random, content: bytes) -> bytes:
    start, stop = sorted(random.randrange(len(content) + 1) for _ in range(2))
    return content[:start] + content[stop:]


def _inserted(*pieces: bytes) -> Callable[[Random, bytes], bytes]:
    def insert(random: Random, content: bytes) -> bytes:
        at = random.randrange(len(content) + 1)
        return content[:at] + random.choice(pieces) + content[at:]

    return insert


def _numbers(random: Random, content: bytes) -> bytes:
    places = list(re.finditer(rb"\d+", content))
    if not places:
        return content
    place = random.choice(places)
    return content[: place.start()] + random.choice(HUGE).encode() + content[place.end() :]


def _headers(random: Random, content: bytes) -> bytes:
    first, newline, rest = content.partition(b"\n")
    return random.choice(
        [
            first + newline + content,
            first + b"," + first + newline + rest,
            first.upper() + newline + rest,
            b" " + first.replace(b",", b" , ") + newline + rest,
            newline + content,
            rest,
            b"\xef\xbb\xbf" + content,
        ]
    )


def _line_ends(random: Random, content: bytes) -> bytes:
    places = [place.start() for place in re.finditer(rb"\n", content)]
    if not places or random.random() < 0.3:
        return content.replace(b"\n", random.choice([b"\r", b"\r\n", b"\n\r", b"\0"]))
    at = random.choice(places)
    return content[:at] + random.choice([b"\r", b"\r\r\n", b""]) + content[at + 1 :]


def _encoded(random: Random, content: bytes) -> bytes:
    text = content.decode(errors="replace")
    return text.encode(random.choice(["utf-16", "utf-16-le", "latin-1", "utf-32"]), "replace")


def _swapped(random: Random, content: bytes) -> bytes:
    return random.choice(list(random.choice(bases())[1].values()))


def _long_line(random: Random, content: bytes) -> bytes:
    at = random.randrange(len(content) + 1)
    return content[:at] + random.choice([b"x", b"[", b" ", b"1,", b'"']) * 300_000 + content[at:]


_CHANGES: dict[str, Callable[[Random, bytes], bytes]] = {
    "truncated": _truncated,
    "flipped": _flipped,
    "flipped too": _flipped,
    "overwritten": _overwritten,
    "spliced": _spliced,
    "cut out": _cut_out,
    "numbers": _numbers,
    "numbers too": _numbers,
    "negative": lambda random, content: re.sub(rb"\d", b"-1", content, count=random.randrange(9)),
    "NULs": _inserted(b"\0", b"\0" * 100),
    "not UTF-8": _inserted(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xe9", b"\xf4\x90\x80\x80"),
    "markup": _inserted(
        b'"', b"{", b"[", b"]", b",", b";", b"|", b"\t", b":", b"#", b"__label__", b"<"
    ),
    "JSON": _inserted(b"null", b'{"text": {}}', b'"\\ud800"', b"NaN", b"[[]]", b"{" * 2000),
    "header": _headers,
    "line ends": _line_ends,
    "encoding": _encoded,
    "another file": _swapped,
    "long line": _long_line,
    "empty": lambda random, content: random.choice([b"", b"\n", b" ", b"\xef\xbb\xbf"]),
}


def _change_folder(random: Random, files: dict[str, bytes]) -> str:
    kind = random.choice(["removed", "copied", "added"])
    if kind == "removed" and len(files) > 1:
        name = random.choice(sorted(files))
        del files[name]
    elif kind == "copied" and files:
        name = random.choice(["train.jsonl", "lbl.jsonl", "filter_labels_train.txt", "test.txt"])
        files[name] = random.choice([files[name] for name in sorted(files)])
    else:
        name = random.choice(["lbl.jsonl", "notes.txt", "v.tsv", "output-items.txt", "X.tst.npz"])
        files[name] = random.choice([b"", b"\xff\xfe", b"x", b"<u:a>\tb\n", b"{}\n", b"PK\x03\x04"])
    return f"{name} {kind}"


# ---------------------------------------------------------------- arrays
class _Loaded:
    def __reduce__(self) -> tuple[object, ...]:
        return (open, (LOADED, "w"))


def _change_npz(random: Random, content: bytes) -> tuple[str, bytes]:
    """An archive that is whole, but one of its arrays is not what it should be."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:  # damaged by an earlier change
        return _change_text(random, content)
    name = random.choice(sorted(members))
    kind = random.choice(
        ["bytes", "header", "header", "values", "pickle", "gone", "again", "format"]
    )
    if kind == "bytes":
        how, members[name] = _change_text(random, members[name])
        kind = f"bytes {how}"
    elif kind == "header":
        members[name] = _header(random, members[name])
    elif kind == "values":
        members[name] = _array(_values(random))
    elif kind == "pickle":
        sink = io.BytesIO()
        np.lib.format.write_array(sink, np.array([_Loaded()], object), allow_pickle=True)
        members[name] = random.choice([sink.getvalue(), pickle.dumps(_Loaded())])
    elif kind == "gone":
        del members[name]
    elif kind == "again":
        members[f"{name}.npy"] = members[name]
    else:
        kinds = [b"csc", b"coo", b"dia", b"bsr", b"xyz", "é".encode("utf-16"), b"csr"]
        members["format.npy"] = _array(np.array(random.choice(kinds)))
        members["shape.npy"] = _array(_values(random))
    return f"{name} {kind}", _zipped(members)


def _values(random: Random) -> np.ndarray:
    values = random.choice(
        [
            [0, 1],
            [6, 4],
            [6, 2**31],
            [6, 2**62],
            [2**31, 4],
            [-1, 4],
            [10**9, 10**9],
            [0.5, float("nan")],
            [],
            [[1, 2], [3, 4]],
            list(range(7)),
            [0, 1, 2, 3, 2, 1, 0],
            [0, 0, 0, 0, 0, 0, 2**31 - 1],
        ]
    )
    kind = random.choice(
        ["i8", "i4", "f4", "f8", "u1", "i8", "c8", "U3", "?", "f2", ">i4", "M8[s]"]
    )
    with np.errstate(all="ignore"):
        return np.array(values).astype("i8" if kind == "M8[s]" else "f8").astype(kind)


def _array(values: np.ndarray) -> bytes:
    sink = io.BytesIO()
    np.save(sink, values)
    return sink.getvalue()


def _header(random: Random, content: bytes) -> bytes:
    """The array with another dtype, shape or order in its header."""
    start = content.find(b"{")
    stop = content.find(b"\n", start)
    try:
        header = ast.literal_eval(content[start:stop].decode("latin-1"))
    except (SyntaxError, ValueError):
        return content
    shape = [(10**12,), (2**31, 2**31), (-1,), (0,), (2**62, 4), (3, 3), (), (10**8,), "x", (1.5,)]
    kinds = [
        "|O",
        "<f8",
        "<i8",
        ">i4",
        "|S1000000",
        "<U9",
        "|V8",
        "<c16",
        "|b1",
        "x",
        [("a", "<i4")],
    ]
    field = random.choice(["shape", "shape", "descr", "fortran_order"])
    header[field] = {"shape": random.choice(shape), "descr": random.choice(kinds)}.get(field, True)
    text = repr(header).encode("latin-1")
    return content[: start - 2] + len(text).to_bytes(2, "little") + text + content[stop:]


def _zipped(members: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return sink.getvalue()
