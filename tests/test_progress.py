import io

import pytest

from megalabel import progress as module
from megalabel.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stderr, monkeypatch, patience):
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr(module, "PATIENCE", patience)
    with progress("ranking", total=3) as bar:
        for _ in range(3):
            bar.advance()
    return "" if stderr is None else stderr.getvalue()


def test_a_terminal_sees_what_takes_long(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert "ranking" in shown(Terminal(), monkeypatch, patience=-1)
    assert shown(Terminal(), monkeypatch, patience=60) == ""


@pytest.mark.parametrize("stderr", [io.StringIO(), None])
def test_nothing_elsewhere(monkeypatch, stderr):
    assert shown(stderr, monkeypatch, patience=-1) == ""
