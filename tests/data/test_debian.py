"""Corpora from Debian package lists."""

from __future__ import annotations

import bz2
import gzip
import logging
import lzma
from pathlib import Path

import pyarrow as pa
import pytest

from megalabel.data import Corpus, debian
from megalabel.data.debian import read_debian, version_key
from megalabel.data.problems import Problems
from megalabel.errors import DataError, ParameterError

PACKAGES = """\
Package: alpha
Version: 1.0-1
Architecture: amd64
Depends: libbeta1 (>= 1.2), gamma:any | delta [amd64], mail-transport-agent
Recommends: zeta
Pre-Depends: ignored
Description: first letter
Description-md5: aaa
Tag: implemented-in::{c,c++}, role::program,
 use::editing
Homepage: https://example.org/a:b

Package: libbeta1
Version: 2:0.9
Description: second letter, shared library
 It has a long description
 of its own.
 .
  - and a list
Depends: libbeta1
Tag: role::shared-lib

Package: gamma
Version: 1.0~rc1
Description: third letter, candidate

Package: gamma
Version: 1.0
Description: third letter
Depends: libbeta1, libbeta1 (<< 3)

Package: delta
Version: 1
Description: fourth letter
"""

TRANSLATION = """\
Package: alpha
Description-md5: aaa
Description-en: first letter
 The long story
 of alpha.
 .
 With a second paragraph.

Package: alpha
Description-md5: other
Description-en: wrong letter
 Of another version.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "archive_main_binary-amd64_Packages").write_text(PACKAGES)
    (tmp_path / "archive_main_i18n_Translation-en").write_text(TRANSLATION)
    (tmp_path / "archive_InRelease").write_text("not a list")
    return tmp_path


def rows(corpus: Corpus) -> dict[str, tuple[str, list[str]]]:
    """Texts and label names by id."""
    names = corpus.labels.names.to_pylist()
    return {
        uid: (text, [names[j] for j in corpus.targets[i].indices])
        for i, (uid, text) in enumerate(
            zip(corpus.ids.to_pylist(), corpus.texts.to_pylist(), strict=True)
        )
    }


def test_tags(folder: Path) -> None:
    corpus = read_debian("tags", lists=folder)
    assert rows(corpus) == {
        "alpha": (
            "first letter\nThe long story of alpha. With a second paragraph.",
            ["implemented-in::c", "implemented-in::c++", "role::program", "use::editing"],
        ),
        "libbeta1": (
            "second letter, shared library\nIt has a long description of its own. - and a list",
            ["role::shared-lib"],
        ),
    }
    assert corpus.labels.texts[0].as_py() == "implemented in: c"
    assert corpus.source["packages"] == 4
    assert corpus.source["without labels"] == 2
    assert len(corpus.source["files"]) == 2


def test_depends(folder: Path) -> None:
    corpus = read_debian("depends", lists=folder)
    # all alternatives count; virtual packages, those not in the lists and itself do not
    assert rows(corpus) == {
        "alpha": ("alpha : first letter", ["delta", "gamma", "libbeta1"]),
        "gamma": ("gamma : third letter", ["libbeta1"]),
    }
    assert corpus.labels.texts.to_pylist() == [
        "delta : fourth letter",
        "gamma : third letter",
        "libbeta1 : second letter, shared library",
    ]
    assert set(corpus.targets.data) == {1.0}
    assert corpus.source["virtual packages dropped"] == 2


def test_the_newest_version_wins_in_any_order(tmp_path: Path) -> None:
    entry = "Package: a\nVersion: {}\nDescription: version {}\nTag: v::{}\n\n"
    for order in (["1.9", "1:0.1", "1.10"], ["1:0.1", "1.10", "1.9"]):
        file = tmp_path / "x_Packages"
        file.write_text("".join(entry.format(v, v, v.replace(":", "-")) for v in order))
        assert rows(read_debian(lists=file)) == {"a": ("version 1:0.1", ["v::1-0.1"])}


def test_tags_of_an_older_version_serve_where_the_newest_has_none(tmp_path: Path) -> None:
    main, update = tmp_path / "main_Packages", tmp_path / "update_Packages"
    main.write_text("Package: a\nVersion: 1\nDescription: old\nTag: t::u\n")
    update.write_text("Package: a\nVersion: 1+deb12u1\nDescription: new\n")
    assert rows(read_debian(lists=tmp_path)) == {"a": ("new", ["t::u"])}


def test_versions_sort_as_dpkg_sorts_them() -> None:
    rising = "1.0~~ 1.0~~a 1.0~ 1.0 1.0-0.1 1.0-1 1.0a 1.0+b1 1.0.1 1.2 1.10 1:0 10:0"
    for lower, higher in zip(rising.split(), rising.split()[1:], strict=False):
        assert version_key(lower) < version_key(higher), (lower, higher)
    assert version_key("1.0") == version_key("0:1.0") == version_key("1.00")


@pytest.mark.parametrize("suffix", ["lz4", "gz", "xz", "bz2", "zst"])
def test_compressed_lists(tmp_path: Path, suffix: str) -> None:
    data = PACKAGES.encode()
    arrow = {"lz4": "lz4", "zst": "zstd"}
    if suffix in arrow:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, arrow[suffix]) as stream:
            stream.write(data)
        packed = sink.getvalue().to_pybytes()
    else:
        packed = {"gz": gzip, "xz": lzma, "bz2": bz2}[suffix].compress(data)
    file = tmp_path / f"archive_Packages.{suffix}"
    file.write_bytes(packed)
    assert len(read_debian("depends", lists=tmp_path)) == 2
    file.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match=f"Packages.{suffix}: cannot be read"):
        read_debian("depends", lists=tmp_path)
    # a plain copy beside it is the same list, and needs no unpacking
    (tmp_path / "archive_Packages").write_text(PACKAGES)
    assert read_debian("depends", lists=tmp_path).source["files"] == [
        str(tmp_path / "archive_Packages")
    ]


BROKEN = """\
Package: good
Version: 1
Description: fine
Tag: a::b

Package: bad
this line has no field
Version: 1

 a continued line with nothing before it

Version: 1
Description: who is it

Package: versionless
Description: no version

Package: also-good
Version: 2
Description: fine too
Tag: a::b
"""


def test_broken_entries_say_where_they_are(tmp_path: Path) -> None:
    file = tmp_path / "x_Packages"
    file.write_text(BROKEN)
    with pytest.raises(
        DataError, match=r"x_Packages, line 7: expected 'Field: value', found 'this"
    ):
        read_debian(lists=file)


def test_broken_entries_can_be_skipped_and_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "x_Packages"
    file.write_text(BROKEN)
    problems = Problems(skip=True)
    corpus = read_debian(lists=file, problems=problems)
    assert corpus.ids.to_pylist() == ["also-good", "good"]
    assert [(e.line, e.message) for e in problems.kept] == [
        (7, "expected 'Field: value', found 'this line has no field'"),
        (10, "expected a field before a continued line"),
        (12, "expected an entry with a Package field"),
        (15, "package 'versionless' has no version"),
    ]
    assert corpus.source["skipped"] == 4
    assert "4 broken entries left out" in caplog.text
    assert len(read_debian(lists=file, skip_bad=True)) == 2


def test_windows_line_ends_and_missing_last_line_end(tmp_path: Path) -> None:
    file = tmp_path / "x_Packages"
    file.write_bytes(PACKAGES.strip().replace("\n", "\r\n").encode())
    assert len(read_debian("depends", lists=file)) == 2


def test_a_byte_that_is_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / "x_Packages"
    file.write_bytes(PACKAGES.encode().replace(b"second", b"sec\xffnd"))
    with pytest.raises(DataError, match=r"line 15: expected UTF-8, found the byte 0xff"):
        read_debian("depends", lists=file)
    assert read_debian("depends", lists=file, skip_bad=True).source["skipped"] == 1


def test_status_leaves_out_what_is_not_installed(tmp_path: Path) -> None:
    file = tmp_path / "status"
    file.write_text(
        "Package: a\nStatus: install ok installed\nVersion: 1\nDescription: one\nDepends: b, c\n\n"
        "Package: b\nStatus: hold ok installed\nVersion: 1\nDescription: two\n\n"
        "Package: c\nStatus: deinstall ok config-files\nVersion: 1\nDescription: three\n\n"
        "Package: d\nStatus: purge ok not-installed\nPriority: optional\n"
    )
    assert rows(read_debian("depends", status=file)) == {"a": ("a : one", ["b"])}
    with pytest.raises(DataError, match=r"none of the 2 packages has tags.*apt-get update"):
        read_debian("tags", status=file)


def test_without_lists_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataError, match=r"no package lists \(\*_Packages\): run `apt-get update`"):
        read_debian(lists=tmp_path)
    with pytest.raises(DataError, match="no such file or folder"):
        read_debian(lists=tmp_path / "nowhere")
    with pytest.raises(DataError, match="no package list among"):
        read_debian(lists=[])
    monkeypatch.setattr(debian, "LISTS", tmp_path)
    monkeypatch.setattr(debian, "STATUS", tmp_path / "status")
    with pytest.raises(DataError, match="run `apt-get update`"):
        read_debian()
    (tmp_path / "status").write_text(PACKAGES)
    with caplog.at_level(logging.WARNING):
        assert len(read_debian("depends")) == 2
    assert "using the installed packages alone" in caplog.text


def test_lists_by_name(folder: Path) -> None:
    files = sorted(folder.glob("*main*"))
    assert rows(read_debian(lists=files)) == rows(read_debian(lists=folder))


def test_unknown_kind() -> None:
    with pytest.raises(ParameterError, match="must be 'tags' or 'depends', not 'sections'"):
        read_debian("sections")  # type: ignore[arg-type]


@pytest.mark.skipif(not debian.STATUS.is_file(), reason="this machine has no dpkg status file")
def test_the_machine_itself() -> None:
    corpus = read_debian("depends", status=debian.STATUS)
    assert len(corpus) > 10
    assert corpus.label_counts.min() > 0
    assert all(" : " in text for text in corpus.texts.to_pylist())
