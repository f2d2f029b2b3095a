"""The head of a few candidates a row."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the neural room needs torch")

from megalabel.neural.heads import ShortlistModule  # noqa: E402
from megalabel.neural.targets import Targets  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
from losses_here import Bce  # noqa: E402

X = torch.randn((3, 8), generator=torch.Generator().manual_seed(0))
TARGETS = Targets(torch.tensor([0, 1, 1, 3]), torch.tensor([4, 0, 7]), torch.ones(3), 20)
SHORTLIST = torch.tensor([[4, 9, -1], [3, -1, -1], [7, 0, 19]])


@pytest.mark.parametrize("sparse", [True, False])
def test_the_loss_is_of_the_real_candidates(sparse):
    head = ShortlistModule(8, 20, Bce(), sparse=sparse)
    with torch.no_grad():
        head.bias.weight.copy_(torch.linspace(-1, 1, 20)[:, None])
    x = X.clone().requires_grad_()
    value = head(x, TARGETS, SHORTLIST)
    value.backward()
    scores = (X @ head.weights.weight.T + head.bias.weight[:, 0]).detach()
    whole = TARGETS.dense(0, 20)
    expected = 0.0
    for i, row in enumerate(SHORTLIST.tolist()):
        for label in row:
            if label >= 0:
                side = 1.0 if whole[i, label] else -1.0
                expected += float(torch.nn.functional.softplus(-side * scores[i, label])) / 3
    assert abs(value.item() - expected) < 1e-5
    gradient = head.weights.weight.grad
    assert gradient.is_sparse == sparse
    used = set((gradient.to_dense().abs().sum(1) > 0).nonzero()[:, 0].tolist())
    assert used == {4, 9, 3, 7, 0, 19}
    assert x.grad.abs().sum() > 0


def test_a_score_of_zero_is_not_padding():
    head = ShortlistModule(8, 20, Bce())
    torch.nn.init.zeros_(head.weights.weight)
    value = head(X, TARGETS, SHORTLIST)
    assert abs(value.item() - 6 * 0.6931472 / 3) < 1e-5


def test_top_k_of_candidates_and_of_all():
    head = ShortlistModule(8, 20, None)
    scores, ids = head.top_k(X, 3, torch.tensor([[4, 9, 4], [3, -1, -1], [7, 0, 19]]))
    whole = X @ head.weights.weight.T + head.bias.weight[:, 0]
    assert sorted(ids[0, :2].tolist()) == [4, 9]
    assert ids[0, 2] == -1  # the same label twice is one candidate
    assert ids[1].tolist() == [3, -1, -1]
    assert scores[1, 1] == -torch.inf
    torch.testing.assert_close(scores[2], whole[2, ids[2]])
    best, labels = head.top_k(X, 4)
    assert torch.equal(labels, whole.topk(4).indices)
    torch.testing.assert_close(best, whole.topk(4).values)


def test_what_cannot_be():
    head = ShortlistModule(8, 20, Bce())
    with pytest.raises(ValueError, match="give a shortlist"):
        head(X, TARGETS)
    with pytest.raises(ValueError, match="3 rows"):
        head(X, TARGETS, SHORTLIST[:2])
