"""The runner of hostile trials finds what it is for."""

import os
import signal
import time

import pytest
from tests.hostile.runner import MIB, Trial, run


def make(content):
    def write(folder):
        path = folder / "file"
        path.write_bytes(content)
        return path

    return write


def read(path):
    content = path.read_bytes()
    if content == b"refused":
        raise ValueError("as expected")
    if content == b"wrong":
        raise KeyError("not as expected")
    if content == b"crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if content == b"hang":
        time.sleep(60)
    if content == b"memory":
        return b"x" * (200 * MIB)
    return None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("good", None),
        ("refused", None),
        ("wrong", "KeyError: 'not as expected'"),
        ("crash", "ended the process with SIGKILL"),
        ("hang", "took more than 0.2 s"),
        ("memory", "MiB of memory, expected at most 64 MiB"),
    ],
)
def test_what_goes_wrong_is_said_and_the_rest_goes_on(content, reason):
    kinds = ["good", content, "good", "wrong"]
    trials = [Trial(f"{i} {kind}", make(kind.encode())) for i, kind in enumerate(kinds)]
    failures = run(trials, read, (ValueError,), seconds=0.2 if content == "hang" else 5)
    assert [f.name for f in failures] == [f"1 {content}"] * (reason is not None) + ["3 wrong"]
    assert reason is None or reason in failures[0].reason


def test_a_large_file_may_take_its_share():
    trials = [Trial("large", make(b"x" * (40 * MIB)))]
    for times, failures in ((2, 0), (8, 1)):
        found = run(trials, lambda path, n=times: path.read_bytes() * n, (), extra_bytes=16 * MIB)
        assert len(found) == failures
