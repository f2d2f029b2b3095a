"""Two processes, each with its rows and its labels, learn what one learns."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

RUN = """
import os
import sys
import numpy as np
import torch
from torch import distributed
torch.set_num_threads(1)
from scipy.sparse import csr_matrix
from megalabel import checkpoints
from megalabel.neural import FullClassifier, PretrainedEncoder, Tokenizer, Trainer
model, out, rank, ranks = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if ranks > 1:
    meet = f"file://{out}-meet"
    distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=ranks)
random = np.random.default_rng(0)
words = "red blue green dress jeans shoes kettle lamp chair".split()
texts = [" ".join(random.choice(words, 3)) for _ in range(21)]
X = Tokenizer(model, max_length=8).fit_transform(texts)
Y = csr_matrix((random.random((21, 5)) < 0.4).astype(np.float32))
trainer = Trainer(epochs=3, batch=8, learning_rate=1e-3, head_learning_rate=0.5, device="cpu")
classifier = FullClassifier(PretrainedEncoder(model), trainer, dropout=0.0)
with checkpoints.kept_in(out + "-steps"):
    classifier.fit(X, Y)
    if ranks > 1:  # all of it is taken up, each process its own labels
        again = FullClassifier(PretrainedEncoder(model), trainer, dropout=0.0).fit(X, Y)
        assert np.array_equal(again.weights_, classifier.weights_)
if rank == 0:
    weights = {k: v for k, v in classifier.encoder_.weights_.items()}
    np.savez(out, head=classifier.weights_, bias=classifier.bias_, **weights)
# gloo's threads outlive destroy_process_group, and one that lets a tensor go while Python is
# ending aborts the process
os._exit(0)
"""


@pytest.fixture
def calm_model(tiny_model, tmp_path):
    """The model without dropout, which each process would draw for itself."""
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(tiny_model)
    model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.0
    model.save_pretrained(tmp_path / "calm")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "calm")
    return str(tmp_path / "calm")


def learned(model, out, ranks):
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, model, str(out), str(rank), str(ranks)], env=environment
        )
        for rank in range(ranks)
    ]
    assert [process.wait(120) for process in processes] == [0] * ranks
    return np.load(out)


def test_two_processes_learn_what_one_learns(calm_model, tmp_path):
    one = learned(calm_model, tmp_path / "one.npz", 1)
    two = learned(calm_model, tmp_path / "two.npz", 2)
    assert one.files == two.files
    for name in one.files:
        np.testing.assert_allclose(one[name], two[name], rtol=1e-2, atol=2e-4, err_msg=name)
