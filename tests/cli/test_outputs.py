"""What commands write: whole or not at all, and refused in one line that names what was typed."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys

import pytest

from megalabel import cli, data, systems

DROP, DAC_OVERRIDE = 24, 1  # PR_CAPBSET_DROP; what lets root write anywhere


@pytest.fixture(scope="module")
def places(corpus, tmp_path_factory):
    """A corpus, a model of it, and a model that can be merged and pruned."""
    where = tmp_path_factory.mktemp("outputs")
    train, test = data.split(corpus, test=0.3)
    data.write(train, where / "things" / "trn.jsonl")
    data.write(test, where / "things" / "tst.jsonl")
    systems.create("knn").fit(train).save(where / "model")
    systems.create("dismec", calibrate=False).fit(train).save(where / "plain")
    return where


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a command in this process; gives its exit code and what it says on stderr."""

    def command(*args):
        monkeypatch.setattr(sys, "argv", ["megalabel", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            cli.run()
        return ended.value.code, capsys.readouterr().err

    return command


COMMANDS = {
    "train": ["train", "{things}", "--out", "{out}"],
    "merge": ["merge", "{plain}", "--out", "{out}"],
    "prune": ["prune", "{plain}", "--out", "{out}"],
    "calibrate": ["calibrate", "{model}", "{things}", "--out", "{out}"],
    "decide": ["decide", "{model}", "{things}", "--out", "{out}"],
    "decide --save": ["decide", "{model}", "{things}", "--save", "{out}"],
    "report": ["report", "{model}", "{things}", "--out", "{out}"],
    "evaluate --labels": ["evaluate", "{model}", "{things}", "--labels", "{out}.csv"],
    "evaluate --labels parquet": ["evaluate", "{model}", "{things}", "--labels", "{out}.parquet"],
    "convert": ["convert", "{things}", "{out}.jsonl", "--split", "train"],
    "convert parquet": ["convert", "{things}", "{out}.parquet", "--split", "train"],
    "split": ["split", "{things}/trn.jsonl", "{out}", "--seed", "1"],
    "propensities": ["propensities", "{things}", "--out", "{out}"],
    "propensities npy": ["propensities", "{things}", "--out", "{out}.npy"],
    "propensities --plot": ["propensities", "{things}", "--plot", "{out}"],
    "demo": ["demo", "--data", "{things}", "--out", "{out}"],
}


def arguments(name, places, out):
    where = {name: places / name for name in ("things", "model", "plain")}
    return [argument.format(out=out, **where) for argument in COMMANDS[name]]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_does_not_fit_is_said_and_not_left(name, places, tmp_path, run):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        code, said = run(*arguments(name, places, tmp_path / "out"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 5
    assert said.startswith(f"error: {tmp_path}/out")
    assert said.endswith(" was not written: the file would be larger than the system allows\n")
    assert ".writing-" not in said
    assert ".saving-" not in said
    assert [file for _, _, files in os.walk(tmp_path) for file in files] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_place_that_cannot_be_written_is_refused(name, places, tmp_path, run):
    (tmp_path / "file").write_text("mine")
    code, said = run(*arguments(name, places, tmp_path / "file" / "out"))
    assert code == 2
    assert str(tmp_path / "file") in said
    assert ".writing-" not in said
    assert ".saving-" not in said
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["train", "report", "convert"])
def test_a_folder_without_permission_is_named(name, places, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    done = subprocess.run(
        [sys.executable, "-m", "megalabel", *arguments(name, places, locked / "out")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: ctypes.CDLL(None).prctl(DROP, DAC_OVERRIDE),
    )
    if os.geteuid() == 0 and done.returncode == 0:
        pytest.skip("root could not give up its right to write anywhere")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {locked}/out")
    assert done.stderr.endswith("was not written: there is no permission to write there\n")


def test_a_full_disk_is_no_bad_model(places, tmp_path, run, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    for name in ("train", "report"):
        code, said = run(*arguments(name, places, tmp_path / "out"))
        assert (code, said) == (5, f"error: {tmp_path}/out was not written: the disk is full\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", [["tag", "{model}", "red"], ["evaluate", "{model}", "{things}"]]
)
def test_an_answer_that_does_not_fit_is_no_fault(command, places):
    args = [part.format(model=places / "model", things=places / "things") for part in command]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "megalabel", *args],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (5, "error: the disk is full\n")
