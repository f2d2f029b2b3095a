"""Two ranks with half of the labels and some of the rows each: the same as one head."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the neural room needs torch")

from megalabel.neural import heads, losses  # noqa: E402
from megalabel.neural.heads import DenseModule, HeadModule  # noqa: E402
from megalabel.neural.losses import BCE  # noqa: E402
from megalabel.neural.targets import Targets  # noqa: E402

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from losses_here import Bce, Softmax  # noqa: E402
from toy_head import PrunedModule  # noqa: E402

WIDTH, LABELS, CUT = 8, 21, 3  # the first rank has three rows, the second two


def dense(loss, shard=None, **options):
    return DenseModule(WIDTH, LABELS, loss, seed=1, shard=shard, **options)


def with_parameters(loss, shard=None):
    return PrunedModule(WIDTH, LABELS, loss, 0.0, 1, shard)


def grouped(loss, shard=None, **options):
    head = heads.create("grouped-fan-in", fan_in=3, precision="float32", **options)
    counts = np.arange(LABELS)
    return head.build(WIDTH, counts, LABELS, loss, device=torch.device("cpu"), seed=1, shard=shard)


CASES = [
    (dense, Bce(), {"dtype": torch.float32, "bias": True}),
    (dense, Bce(), {"dtype": torch.bfloat16, "momentum": 0.9, "dropout": 0.4}),
    (dense, Softmax(), {"dtype": torch.float32}),
    (with_parameters, Bce(), {}),
    (grouped, BCE(), {"group": 8}),
    (grouped, losses.create("softmax"), {"group": 32}),  # the first rank holds nothing
]


def data():
    source = torch.Generator().manual_seed(0)
    x = torch.randn((5, WIDTH), generator=source)
    indices = torch.randint(LABELS, (15,), generator=source)
    return x, indices


def part(indices, rows):
    own = indices.reshape(5, 3)[rows].reshape(-1)
    indptr = torch.arange(0, len(own) + 1, 3)
    return Targets(indptr, own, torch.ones(len(own)), LABELS)


def rank_run(rank: int, folder: str) -> None:
    """What each rank does; called in a process of its own."""
    import torch.distributed as dist

    from megalabel.neural.heads.sharded import ShardedModule, shard_of

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    x, indices = data()
    rows = slice(0, CUT) if rank == 0 else slice(CUT, 5)
    results = []
    for build, loss, options in CASES:
        head = ShardedModule(build(loss, shard_of(LABELS), **options))
        for module in head.local.modules():
            if isinstance(module, HeadModule):
                module.before_update(0.2)
        for _ in range(2):
            own = x[rows].clone().requires_grad_()
            value = head(own, part(indices, rows))
            value.backward()
        head.eval()
        results.append(
            {
                "value": value.detach(),
                "gradient": own.grad / 2,  # ranks' gradients are averaged
                "kept": head.tensors(),
                "moves": [p.grad for p in head.parameters()],
                "top": head.top_k(x[rows], 15),
                "scores": head.scores(x[rows], torch.tensor([[0, 20, 11]] * len(own))),
                "seen": head(x[rows], part(indices, rows)),
            }
        )
    torch.save(results, f"{folder}/{rank}.pt")
    os._exit(0)  # gloo's threads, which outlive the group, may abort a process that ends slowly


def test_two_ranks_are_one_head(tmp_path):
    script = f"import sys; sys.path.insert(0, {str(HERE)!r}); import test_sharded as t; "
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", f"{script}t.rank_run({rank}, {str(tmp_path)!r})"],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    x, indices = data()
    for case, (build, loss, options) in enumerate(CASES):
        head = build(loss, **options)
        for module in head.modules():
            if isinstance(module, HeadModule):
                module.before_update(0.2)
        for _ in range(2):
            leaf = x.clone().requires_grad_()
            value = head(leaf, part(indices, slice(0, 5)))
            value.backward()
        head.eval()
        first, second = (rank[case] for rank in found)

        def joined(name, first=first, second=second):
            return torch.cat([first[name], second[name]])

        assert torch.equal(first["value"], second["value"])
        torch.testing.assert_close(first["value"], value.detach(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(joined("gradient"), leaf.grad, rtol=1e-4, atol=1e-6)
        for rank in (first, second):
            assert rank["kept"].keys() == head.tensors().keys()
            for name, wanted in head.tensors().items():
                torch.testing.assert_close(rank["kept"][name], wanted, rtol=1e-5, atol=1e-6)
        for i, parameter in enumerate(head.parameters()):
            moves = torch.cat([first["moves"][i], second["moves"][i]])
            torch.testing.assert_close(moves, parameter.grad, rtol=1e-5, atol=1e-6)
        scores, labels = head.top_k(x, 15)
        assert torch.equal(torch.cat([first["top"][1], second["top"][1]]), labels)
        torch.testing.assert_close(torch.cat([first["top"][0], second["top"][0]]), scores)
        shortlist = torch.tensor([[0, 20, 11]] * 5)
        torch.testing.assert_close(joined("scores"), head.scores(x, shortlist))
        seen = head(x, part(indices, slice(0, 5)))
        torch.testing.assert_close(first["seen"], seen, rtol=1e-5, atol=1e-5)
