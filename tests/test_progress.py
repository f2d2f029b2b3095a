import io
import time

import pytest

from megalabel import progress as module
from megalabel.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stderr, monkeypatch, patience, total=3, seconds=0.5):
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr(module, "PATIENCE", patience)
    with progress("ranking", total) as bar:
        bar.advance()
        time.sleep(seconds)
        bar.advance()
    return "" if stderr is None else stderr.getvalue()


@pytest.mark.parametrize("total", [3, None])
def test_a_terminal_sees_what_takes_long(monkeypatch, total):
    monkeypatch.setenv("TERM", "xterm")
    assert "ranking" in shown(Terminal(), monkeypatch, patience=0, total=total)
    assert shown(Terminal(), monkeypatch, patience=60) == ""


@pytest.mark.parametrize("stderr", [io.StringIO(), None])
def test_nothing_elsewhere(monkeypatch, stderr):
    assert shown(stderr, monkeypatch, patience=0) == ""


def test_a_bar_that_is_due_after_the_end_stays_away(monkeypatch):
    monkeypatch.setattr("sys.stderr", stderr := Terminal())
    with progress("ranking", total=3) as bar:
        pass
    bar._show()
    assert stderr.getvalue() == ""
