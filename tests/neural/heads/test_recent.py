"""The rows that a head has learned from last are kept, and are part of its state."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from megalabel.neural.heads.recent import RecentRows  # noqa: E402
from megalabel.neural.heads.rewiring import Rewiring  # noqa: E402
from megalabel.neural.heads.sparse import SparseModule  # noqa: E402
from megalabel.neural.losses import BCE, Softmax  # noqa: E402
from megalabel.neural.targets import Targets  # noqa: E402


def batch(rows, seed, labels=9):
    source = torch.Generator().manual_seed(seed)
    dense = (torch.rand((rows, labels), generator=source) < 0.3).float()
    row, label = dense.nonzero(as_tuple=True)
    counts = torch.bincount(row, minlength=rows)
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    targets = Targets(starts, label, torch.rand(len(label), generator=source), labels)
    return torch.randn((rows, 4), generator=source), targets


@pytest.mark.parametrize("resumed", [None, 1, 3])
def test_the_last_rows_are_kept(resumed):
    recent, batches = RecentRows(most=7), [batch(rows, rows) for rows in (3, 2, 4, 1)]
    assert recent.rows() is None
    for number, (features, targets) in enumerate(batches):
        if number == resumed:
            state, recent = recent.state_dict(), RecentRows(most=7)
            recent.load_state_dict(state)
        recent.add(features, targets)
        features.fill_(7.0)  # its memory is used again
    features, targets = recent.rows()
    wanted = [batch(rows, rows) for rows in (3, 2, 4, 1)]
    assert torch.equal(features, torch.cat([x for x, _ in wanted])[-7:])
    dense = torch.cat([y.dense(0, 9) for _, y in wanted])[-7:]
    assert torch.equal(targets.dense(0, 9), dense)
    recent.clear()
    assert recent.rows() is None
    assert not recent.state_dict()


def test_a_label_grows_what_an_earlier_batch_speaks_for():
    """The last batch has no text of it."""
    rewiring = Rewiring(every=2, fraction=0.5, scope="group", growth="gradient", until=1.0)
    head = SparseModule(6, 1, BCE(), fan_in=2, rewiring=rewiring, dropout=0.0).train()
    head.indices.copy_(torch.tensor([[0, 1]]))
    for step, (feature, value) in enumerate([(4, 1.0), (3, 0.0)], 1):
        x = torch.zeros((8, 6))
        x[:, feature] = 1.0 if value else 0.1
        targets = Targets(torch.arange(9), torch.zeros(8), torch.full((8,), value), 1)
        head(x.requires_grad_(), targets)
        head.after_update(step, 10)
    assert 4 in head.indices[0].tolist()
    assert head.recent.rows() is None


def test_nothing_is_kept_that_rewiring_does_not_ask_for():
    for growth, until, kept in [
        ("gradient", 0.5, 12),
        ("gradient", 0.1, None),
        ("random", 1, None),
    ]:
        head = SparseModule(4, 9, BCE(), fan_in=2, rewiring=Rewiring(growth=growth, until=until))
        for step in (2, 3, 4):
            x, targets = batch(4, step)
            head.train()(x.requires_grad_(), targets)
            head.after_update(step, 10)
        assert (head.recent.rows() is None) == (kept is None)
        assert kept is None or len(head.recent.rows()[0]) == kept


def test_denominators_of_a_softmax_are_of_the_last_batch():
    """What other parts of a layer add to them is known of no other rows."""
    rewiring = Rewiring(every=3, growth="gradient", fraction=0.5, until=1.0)
    head = SparseModule(4, 9, Softmax(), fan_in=2, rewiring=rewiring).train()
    for step in (1, 2, 3):
        x, targets = batch(5, step)
        whole = torch.ones(5)
        head.merge_normaliser = lambda own, whole=whole: own + whole
        head(x.requires_grad_(), targets)
        head.after_update(step, 10)
    assert head.recent.rows() is None
