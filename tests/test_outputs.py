"""Files that are written whole or not at all, and errors that name them as they were given."""

from __future__ import annotations

import errno
import os
import pickle

import pytest

from megalabel.errors import OutputError
from megalabel.outputs import check_file, check_folder, filling_folder, naming, replacing_file


def cut_short(file, error):
    with replacing_file(file) as fresh:
        fresh.write_text("half")
        raise error


def test_a_file_is_replaced_whole_or_stays(tmp_path):
    file = tmp_path / "labels.txt"
    file.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        cut_short(file, KeyboardInterrupt())
    assert file.read_text() == "old"
    with replacing_file(file) as fresh:
        fresh.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path):
    link = tmp_path / "link.txt"
    link.symlink_to(tmp_path / "file.txt")
    with replacing_file(link) as fresh:
        fresh.write_text("new")
    assert link.is_symlink()
    assert (tmp_path / "file.txt").read_text() == "new"
    with replacing_file("/dev/null") as same:
        same.write_text("gone")
    assert not os.path.isfile("/dev/null")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EROFS, errno.EACCES])
def test_an_error_names_what_was_given(tmp_path, number):
    file = tmp_path / "labels.txt"
    with pytest.raises(OutputError, match=r"labels\.txt was not written: ") as raised:
        cut_short(file, OSError(number, os.strerror(number), str(tmp_path / ".writing-1")))
    assert raised.value.errno == number
    assert "writing-" not in str(raised.value)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_what_was_named_inside_is_not_named_anew():
    message = r"^inner was not written: the disk is full$"
    with pytest.raises(OutputError, match=message), naming("outer"), naming("inner"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_folder_gets_whole_files(tmp_path):
    folder = tmp_path / "a" / "b"
    with filling_folder(folder) as fresh:
        (fresh / "one").write_text("1")
    with pytest.raises(OutputError, match="a/b was not written"), filling_folder(folder) as fresh:
        os.write(os.open(fresh / "one", os.O_CREAT), b"half")  # not open for writing
    assert [(file.name, file.read_text()) for file in folder.iterdir()] == [("one", "1")]


def test_places_are_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="it is a folder"):
        check_file(tmp_path)
    with pytest.raises(OutputError, match=r"nowhere/x was not written: the folder .* not exist"):
        check_file(tmp_path / "nowhere" / "x")
    with pytest.raises(OutputError, match="is a file, not a folder"):
        check_folder(tmp_path / "file" / "model")
    check_file(tmp_path / "file")
    check_folder(tmp_path / "nowhere" / "model")


def test_a_file_keeps_its_mode(tmp_path):
    file = tmp_path / "secret.csv"
    file.write_text("old")
    file.chmod(0o600)
    with replacing_file(file) as fresh:
        fresh.write_text("new")
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600
