"""What only a GPU can show of the kernels of labels in groups: streams, and very large layers."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="the neural room needs torch")
pytest.importorskip("triton", reason="kernels need Triton")

from megalabel.neural.heads.sparse import SparseModule  # noqa: E402
from megalabel.neural.kernels.tuning import GroupTuning  # noqa: E402
from megalabel.neural.losses import BCE, SquaredHinge  # noqa: E402
from megalabel.neural.targets import Targets  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def batch(rows, width, labels):
    source = torch.Generator("cuda").manual_seed(rows)
    x = torch.randn((rows, width), generator=source, device="cuda")
    indices = torch.randint(labels, (5 * rows,), generator=source, device="cuda")
    indptr = torch.arange(0, 5 * rows + 1, 5, device="cuda")
    return x, Targets(indptr, indices, torch.ones(5 * rows, device="cuda"), labels)


@pytest.mark.parametrize("group", [1, 16, 32, 64, 256])
@pytest.mark.parametrize("fan_in", [20, 76, 128, 300])
@pytest.mark.parametrize("loss", [BCE(), SquaredHinge()])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_step_of_any_shape_is_that_of_plain_torch(group, fan_in, loss, dtype):
    heads = [
        SparseModule(
            768, 5003, loss, fan_in=fan_in, group=group, dtype=dtype, device="cuda", value_every=1
        )
        for _ in range(2)
    ]
    heads[1].step_of_kernels = lambda _: None
    x, targets = batch(300, 768, 5003)
    before = heads[0].weights.double()
    (value, gradient), (twin, by_twin) = (head.learn(x, targets) for head in heads)
    rough = 1e-2 if dtype == torch.bfloat16 else 1e-4
    torch.testing.assert_close(value, twin, rtol=rough, atol=rough)
    assert (gradient - by_twin).norm() <= rough * by_twin.norm()
    moves = [head.weights.double() - before for head in heads]
    assert (moves[0] - moves[1]).norm() <= (0.3 if rough > 1e-3 else 1e-3) * moves[1].norm()


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_a_step_is_the_same_every_time_and_on_any_stream():
    weights, gradients = [], []
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            head = SparseModule(
                256, 50_000, BCE(), fan_in=32, group=32, dtype=torch.bfloat16, device="cuda"
            )
            x, targets = batch(512, 256, 50_000)
            for _ in range(3):
                gradient = head.learn(x, targets)[1]
        stream.synchronize()
        weights.append(head.weights)
        gradients.append(gradient)
    for other in (1, 2):
        assert torch.equal(weights[0], weights[other])
        assert torch.equal(gradients[0], gradients[other])


def test_a_layer_of_more_than_two_to_the_31_weights():
    labels = 17_000_064
    head = SparseModule(
        256, labels, BCE(), fan_in=128, group=64, dtype=torch.bfloat16, device="cuda", bias=False
    )
    assert head.weights.numel() > 2**31
    head.weights[-1] += 1  # the last group's labels are the best of rows of ones
    x = torch.ones((2, 256), device="cuda")
    scores, ids = head.top_k(x, 64)
    assert (ids >= labels - 64).all()
    exact = head.weights[-1].float().sum(0).sort(descending=True).values
    torch.testing.assert_close(scores[0], exact, rtol=1e-3, atol=1e-2)
    last = head.weights[-1].float()
    targets = Targets(torch.tensor([0, 1, 2]), torch.tensor([0, labels - 1]), torch.ones(2), labels)
    head.learning_rate = 0.1
    head.learn(x, targets.to("cuda"))
    moved = head.weights[-1].float() - last
    by_label = torch.sigmoid(last.sum(0))
    by_label[-1] -= 0.5
    assert (moved + 0.1 * by_label).abs().max() < 0.05


def test_a_search_that_is_recorded_is_of_the_rows_and_weights_of_its_call():
    head = SparseModule(96, 2003, BCE(), fan_in=24, group=32, device="cuda")
    for _ in range(5):
        x = torch.randn(7, 96, device="cuda")
        head.bias.normal_()
        scores = torch.cat([part for part, _ in head.chunk_scores(x)], 1)
        found, ids = head.top_k(x, 10)
        torch.testing.assert_close(found, scores.topk(10).values, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(scores.gather(1, ids), found, rtol=1e-4, atol=1e-4)
    assert torch.equal(copy.deepcopy(head).top_k(x, 10)[1], ids)


def test_memory_of_a_step_is_that_of_the_weights():
    head = SparseModule(
        768, 500_000, BCE(), fan_in=128, group=32, dtype=torch.bfloat16, device="cuda",
        tuning=GroupTuning(sums="float32"),
    )  # fmt: skip
    x, targets = batch(512, 768, 500_000)
    head.learn(x, targets)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    head.learn(x, targets)
    torch.cuda.synchronize()
    # scores of a batch would take 512 MB
    assert torch.cuda.max_memory_allocated() - before < 64 << 20
