"""Two processes, each with its rows and its labels, learn what one learns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed

from megalabel.neural.trainer import pick_device

TOY = Path(__file__).parent / "heads"
RUN = """
import os
import sys
import numpy as np
import torch
from torch import distributed
torch.set_num_threads(1)
from scipy.sparse import csr_matrix
from megalabel import checkpoints
from megalabel.neural import (
    BagEncoder, FullClassifier, PretrainedEncoder, StagedClassifier, Tokenizer, Trainer
)
model, out, rank, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sys.path.insert(0, sys.argv[5])
import toy_head  # a head with parameters, which the trainer's optimiser moves
if ranks > 1:
    meet = f"file://{out}/meet"
    distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=ranks)
random = np.random.default_rng(0)
words = "red blue green dress jeans shoes kettle lamp chair".split()
texts = [" ".join(random.choice(words, 3)) for _ in range(21)]
tokens = Tokenizer(model, max_length=8).fit_transform(texts)
bags = csr_matrix((random.random((17, 9)) < 0.4).astype(np.float32))  # the last batch is one row
Y = csr_matrix((random.random((21, 5)) < 0.4).astype(np.float32))
shared = {"epochs": 3, "batch": 8, "head_learning_rate": 0.5, "device": "cpu"}

def full():
    trainer = Trainer(learning_rate=1e-3, log=f"{out}/full", **shared)
    made = FullClassifier(PretrainedEncoder(model), trainer, dropout=0.0, validation=0.2)
    made.fit(tokens, Y)
    return {"head": made.weights_, "bias": made.bias_, **made.encoder_.weights_}

def staged():
    trainer = Trainer(learning_rate=1e-2, log=f"{out}/staged", **shared)
    encoder = BagEncoder(width=4, dropout=0.0, residual=None)
    made = StagedClassifier(encoder, trainer, clusters=4, dropout=0.0).fit(bags, Y[:17])
    return {
        "centroids": made.centroids_, "head": made.weights_, "bias": made.bias_,
        **made.encoder_.weights_, **made.block_,
    }

def parameters():
    trainer = Trainer(learning_rate=1e-2, log=f"{out}/parameters", accumulate=2, **shared)
    encoder = BagEncoder(width=4, dropout=0.0)
    made = FullClassifier(encoder, trainer, head="pruned", dropout=0.0, validation=0.2)
    made.fit(bags, Y[:17])
    return {"head": made.table_, **made.encoder_.weights_}

fits = {"full": full, "staged": staged, "parameters": parameters}
with checkpoints.kept_in(f"{out}/steps"):
    for name, fit in fits.items():
        learned = fit()
        np.savez(f"{out}/{name}-{rank}.npz", **learned)
        if ranks > 1:  # all of it is taken up, each process its own labels
            again = fit()
            assert all(np.array_equal(again[part], learned[part]) for part in learned)
# gloo's threads outlive destroy_process_group, and one that lets a tensor go while Python is
# ending aborts the process
os._exit(0)
"""


@pytest.fixture(scope="module")
def calm_model(tiny_model, tmp_path_factory):
    """The model without dropout, which each process would draw for itself."""
    from transformers import AutoModel, AutoTokenizer

    folder = tmp_path_factory.mktemp("calm")
    model = AutoModel.from_pretrained(tiny_model)
    model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.0
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def folders(calm_model, tmp_path_factory):
    """What one process and what two have written."""
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    made = {}
    for ranks in (1, 2):
        made[ranks] = tmp_path_factory.mktemp(f"of-{ranks}")
        processes = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    RUN,
                    calm_model,
                    str(made[ranks]),
                    *map(str, (rank, ranks, TOY)),
                ],
                env=environment,
            )
            for rank in range(ranks)
        ]
        assert [process.wait(120) for process in processes] == [0] * ranks
    return made


@pytest.mark.parametrize("name", ["full", "staged", "parameters"])
def test_two_processes_learn_what_one_learns(folders, name):
    one, first = (np.load(folders[ranks] / f"{name}-0.npz") for ranks in (1, 2))
    second = np.load(folders[2] / f"{name}-1.npz")
    assert one.files == first.files == second.files
    for part in one.files:
        np.testing.assert_array_equal(first[part], second[part], err_msg=part)
        np.testing.assert_allclose(one[part], first[part], rtol=1e-2, atol=1e-3, err_msg=part)


@pytest.mark.parametrize(("name", "trainings"), [("full", 1), ("staged", 2), ("parameters", 1)])
def test_two_processes_write_down_what_one_writes_down(folders, name, trainings):
    curves = []
    for folder in folders.values():
        lines = (folder / name / "metrics.jsonl").read_text().splitlines()
        curves.append([json.loads(line) for line in lines])
    one, two = ([(line["training"], line["step"]) for line in curve] for curve in curves)
    assert one == two
    assert len(one) == 3 * trainings
    for what in {"loss", "value"} & curves[0][0].keys():
        values = ([line[what] for line in curve] for curve in curves)
        np.testing.assert_allclose(*values, rtol=1e-3)


def test_each_process_takes_its_own_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert pick_device() == torch.device("cuda")  # without a process group it is the user's matter
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    assert pick_device() == pick_device("cuda") == torch.device("cuda", 3)
    assert pick_device("cuda:1") == torch.device("cuda", 1)
    assert pick_device("cpu") == torch.device("cpu")
