"""A hundred damaged model folders; `python -m tests.hostile` uses many more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.hostile import folders, vocabularies
from tests.hostile.runner import Trial, run

from megalabel.errors import StoreError
from megalabel.files import VOCABULARY


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    out = tmp_path_factory.mktemp("models")
    folders.write_models(out, folders.FEW)
    return out


@pytest.mark.filterwarnings("ignore")
def test_damaged_folders_are_used_or_refused(models):
    trials = folders.trials(models, seed=0, count=100)
    assert run(trials, folders.guarded_use, (StoreError,)) == []


@pytest.mark.filterwarnings("ignore")
def test_damaged_vocabularies_are_used_or_refused(tmp_path):
    vocabularies.write(tmp_path)
    trials = folders.trials(tmp_path, seed=0, count=100, manifest=VOCABULARY)
    assert run(trials, vocabularies.use, (StoreError,)) == []


@pytest.mark.parametrize(
    "act",
    [
        lambda folder: os.system("true"),
        lambda folder: Path("~/elsewhere").expanduser().write_text("mine"),
        lambda folder: __import__("socket").create_connection(("127.0.0.1", 9)),
        lambda folder: input(),
    ],
    ids=["program", "file", "connection", "question"],
)
def test_the_guard_sees_what_a_folder_must_not_do(act):
    def read(folder):
        folders.guard()
        act(folder)

    [failure] = run([Trial("it", lambda place: place)], read, (Exception,))
    assert failure.reason == "ended the process with 99"
