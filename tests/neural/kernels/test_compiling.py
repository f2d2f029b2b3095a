"""The kernels compile for a Hopper GPU, without one: its matrix units, its copy engine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the neural room needs torch")
pytest.importorskip("triton", reason="kernels need Triton")

SCRIPT = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from megalabel.neural.kernels import scores, squares, update
from megalabel.neural.kernels.tuning import Tuning

def compiled(kernel, tile, types, fixed):
    names = kernel.arg_names
    fixed = dict(fixed, width=768, DESCRIPTORS=True, M=tile.m, N=tile.n, K=tile.k)
    signature = {n: "constexpr" if n in fixed else types[n] for n in names}
    values = {(names.index(n),): v for n, v in fixed.items()}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names)
               if signature[n].startswith("*") or n in ("stride", "first", "rows")}
    made = triton.compile(
        ASTSource(kernel, signature, values, aligned),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": tile.warps, "num_stages": tile.stages},
    )
    ptx = made.asm["ptx"]
    assert "wgmma.mma_async" in ptx, "not on Hopper's matrix units"
    assert "cp.async.bulk.tensor" in ptx, "not through the bulk copy engine"
    assert made.metadata.shared <= 227 * 1024, made.metadata.shared

def matrix(a, b):
    return f"tensordesc<bf16[{a},{b}]>"

counts = dict.fromkeys(("rows", "labels", "stride", "first", "seed"), "i32")
tuning = Tuning()
t = tuning.scores_tile
compiled(scores._scores, t,
    dict(counts, features=matrix(t.m, t.k), weights=matrix(t.n, t.k), out="*bf16", gamma="fp32"),
    dict(bias=None, scale=None, shift=None, partial=None, FORM=0, BIAS=False, SCALE=False,
         VALUE=False))
t = tuning.update_tile
compiled(update._update, t,
    dict(counts, gradient=matrix(t.k, t.m), features=matrix(t.k, t.n), weights="*bf16",
         settings="*fp32", counter="*i64"),
    dict(velocity=None, pace=None, slots=None, residual=None, VELOCITY=False, PACE=False,
         COMPENSATE=False))
compiled(squares._squares, t,
    dict(counts, gradient=matrix(t.k, t.m), features=matrix(t.k, t.n), sums="*fp32"), {})
print("compiled")
"""


def test_the_products_compile_for_hopper():
    plain = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    plain["PYTHONPATH"] = os.pathsep.join(sys.path)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], env=plain, capture_output=True, text=True
    )
    assert run.stdout.endswith("compiled\n"), run.stderr[-2000:]
