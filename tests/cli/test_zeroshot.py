"""Texts without labels, and labels beside them, from the command line."""

from __future__ import annotations

import json

import pytest
from tests.cli.test_tagging import run

from megalabel.errors import DataError


def test_unlabelled_texts_and_a_label_file(tmp_path):
    texts = ["two whales and a ship at sea", "the red summer dress", "a ship full of whalers"]
    (tmp_path / "trn.jsonl").write_text("".join(json.dumps({"title": t}) + "\n" for t in texts))
    labels = {"L1": "whales", "L2": "dress"}
    lines = (json.dumps({"uid": uid, "title": name}) + "\n" for uid, name in labels.items())
    (tmp_path / "lbl.jsonl").write_text("".join(lines))
    model = str(tmp_path / "model")
    run("train", tmp_path, "--system", "zeroshot", "--out", model)
    assert json.loads(run("tag", model, "a tale of whales"))["labels"][0]["label"] == "whales"
    with pytest.raises(DataError, match="no labels"):
        run("train", tmp_path, "--system", "knn", "--out", tmp_path / "other")


def test_a_plan_says_how_often_a_judge_is_asked(tmp_path):
    lines = "".join(
        json.dumps({"title": f"whale {i}", "labels": ["sea"]}) + "\n" for i in range(20)
    )
    (tmp_path / "trn.jsonl").write_text(lines)
    settings = ["--set", "encoder=a-model", "--set", "judge=http://localhost:9/v1"]
    asked = ["plan", tmp_path, "--system", "zeroshot", *settings]
    assert "33 calls" in " ".join(run(*asked).split())
    assert json.loads(run(*asked, "--json"))["judging"]["calls"] == (9 + 18) * 1 + 2 * 3
