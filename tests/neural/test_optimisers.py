"""Sparse steps: the optimiser, and that nothing is looked up out of range."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from megalabel.features import Tfidf
from megalabel.neural import (
    AttentionClassifier,
    BagEncoder,
    CascadeClassifier,
    PretrainedEncoder,
    RecurrentEncoder,
    RecursiveClassifier,
    StagedClassifier,
    Trainer,
    attention,
)
from megalabel.neural.heads import ShortlistModule
from megalabel.neural.heads import shortlist as shortlist_module
from megalabel.neural.losses import BCE
from megalabel.neural.optimisers import RowAdam
from megalabel.neural.targets import Targets

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
    ),
]


@pytest.mark.parametrize("device", DEVICES)
def test_as_torch_has_it(device):
    tables = [nn.Embedding(50, 3, sparse=True).to(device) for _ in range(2)]
    tables[1].load_state_dict(tables[0].state_dict())
    ours = RowAdam(tables[0].parameters(), lr=0.1)
    theirs = torch.optim.SparseAdam(tables[1].parameters(), lr=0.1)
    for step in range(6):
        at = torch.randint(50, (20,), generator=torch.Generator().manual_seed(step)).to(device)
        for table, optimiser in zip(tables, (ours, theirs), strict=True):
            optimiser.zero_grad()
            table(at).pow(2).sum().backward()
            optimiser.step()
    torch.testing.assert_close(tables[0].weight, tables[1].weight)


@pytest.mark.parametrize("device", DEVICES)
def test_many_labels(device):
    head = ShortlistModule(16, 250_000, BCE(reduction="mean")).to(device)
    before = head.weights.weight.detach().clone()
    optimiser = RowAdam(head.parameters(), lr=0.1)
    shortlist = torch.randint(1, 250_000, (32, 60), generator=torch.Generator().manual_seed(0))
    shortlist[:, 40:] = -1
    shortlist = shortlist.to(device)
    x = torch.ones((32, 16), device=device)
    targets = Targets(torch.arange(33), shortlist[:, 0].cpu(), torch.ones(32), head.labels).to(
        device
    )
    for _ in range(3):
        optimiser.zero_grad()
        head(x, targets, shortlist).backward()
        optimiser.step()
    moved = (head.weights.weight != before).any(1).nonzero()[:, 0]
    assert torch.equal(moved, shortlist[:, :40].unique())  # label 0 is not: it was no candidate


def trainer():
    return Trainer(steps=3, batch=16, device="cpu")


TREE = {"clustered_above": 3, "levels": 2, "arity": 2, "max_leaf": 2, "beam": 2}


@pytest.mark.parametrize("which", ["recursive", "cascade", "attention", "staged"])
def test_nothing_is_looked_up_out_of_range(which, tiny_model, corpus, views, monkeypatch):
    """The real trainings, each with sparse gradients where it has them."""
    looked_up = []
    embedding = functional.embedding

    def checked(input, weight, *more, **named):
        assert input.dtype == torch.int64
        if input.numel():
            assert int(input.min()) >= 0
            assert int(input.max()) < len(weight)
        looked_up.append((len(weight), named.get("sparse", len(more) > 4 and more[4])))
        return embedding(input, weight, *more, **named)

    monkeypatch.setattr(functional, "embedding", checked)
    monkeypatch.setattr(shortlist_module, "SPARSE", 1)
    monkeypatch.setattr(attention, "SPARSE", 1)
    monkeypatch.setattr(shortlist_module, "_DENSE", 0)
    encoder, Y = PretrainedEncoder(tiny_model), corpus.targets
    if which == "recursive":
        made = RecursiveClassifier(
            encoder, trainer(), arity=2, max_leaf=2, beam=2, min_clusters=2, max_active=3
        ).fit(views, Y)
    elif which == "cascade":
        made = CascadeClassifier(encoder, trainer(), "network", resolutions=[2, 4], beam=1)
        made.fit(views, Y)
    elif which == "attention":
        made = AttentionClassifier(RecurrentEncoder(token_width=8, size=4), trainer(), **TREE)
        made.fit(views.tokens, Y)
    else:
        made = StagedClassifier(BagEncoder(width=8), trainer(), shortlist=4)
        made.fit(Tfidf().fit_transform(corpus), Y)
    of_labels = [sparse for size, sparse in looked_up if size == Y.shape[1]]
    assert of_labels
    assert np.all(of_labels) or which == "cascade"
