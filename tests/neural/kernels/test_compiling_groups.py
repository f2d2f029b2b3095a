"""The kernels of labels in groups compile for a Hopper GPU, without one, and fit what it has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the neural room needs torch")
pytest.importorskip("triton", reason="kernels need Triton")

SCRIPT = '''
import os, re, subprocess, tempfile
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from megalabel.neural.kernels import group_pairs, group_search, group_step, largest
from megalabel.neural.kernels.groups import Groups
from megalabel.neural.kernels.tuning import GroupTuning

def wide(code):
    """What goes on from the start of a large array does so by 64 bits."""
    bases = {"%" + n for n in ("weights", "velocity", "features", "labels", "indices", "keys")}
    for new, old in re.findall(r"(%[\\w]+) = tt.splat (%[\\w]+) :", code):
        if old in bases:
            bases.add(new)
    steps = re.findall(r"tt.addptr (%[\\w]+), %[\\w]+ : .*[, x](i[0-9]+)>? loc", code)
    offsets = [offset for base, offset in steps if base in bases]
    assert len(offsets) >= 4 and set(offsets) == {"i64"}, offsets

def compiled(name, kernel, fixed, types, warps, stages, registers=0):
    names = kernel.arg_names
    signature = {n: "constexpr" if n in fixed else types.get(n, "i32") for n in names}
    values = {(names.index(n),): v for n, v in fixed.items()}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names)
               if signature[n].startswith("*") or n in ("stride", "apart")}
    made = triton.compile(
        ASTSource(kernel, signature, values, aligned),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": warps, "num_stages": stages, "maxnreg": registers or None},
    )
    assert made.metadata.shared <= 227 * 1024, made.metadata.shared
    if kernel in (group_step._train, group_search._search):
        wide(made.asm["ttir"])
    tool = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin", "cuobjdump")
    used = ""
    if os.path.exists(tool):
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(made.asm["cubin"])
            file.flush()
            run = [tool, "--dump-resource-usage", file.name]
            said = subprocess.run(run, capture_output=True, text=True, check=True).stdout
        registers, stack = (int(re.search(w + r":(\\d+)", said)[1]) for w in ("REG", "STACK"))
        assert registers * 32 * warps <= 65536 and stack <= 512, (registers, stack)
        used = f", {registers} registers, {stack} bytes of stack"
    print(f"{name}: {made.metadata.shared} bytes shared{used}")
    return made.asm["ptx"]

half, whole = "*bf16", "*fp32"
pointers = dict(indices="*i16", labels="*i32", weights=half, features=half)

SUMS = dict(fixed=("*i64", "add.u64"), float32=(whole, "add.v4.f32"), float16=("*fp16", "v8.f16"))

def step(inputs, size, sums, form=0):
    tuning = GroupTuning(sums=sums)
    groups = Groups(None, torch.empty((1, inputs, size), dtype=torch.bfloat16), None)
    tiles = group_step.tiles_for(512, groups, tuning)
    added, instruction = SUMS[sums]
    types = dict(pointers, sums=added, sums_of_pairs=added if sums != "float16" else whole,
        starts="*i32", order="*i64", pair_place="*i64", pair_row="*i64", pair_score=whole,
        pair_gradient=whole, settings=whole, counter="*i64", lost="*i32", bias=whole,
        velocity=half, gamma="fp32", aside=half)
    fixed = dict(FAN=inputs, GROUP=size, FORM=form, BIAS=True, SCALE=False, VELOCITY=True,
        VALUE=False, UPDATE=True, PRECISION="tf32", WIDE=True, PAIRS=group_step.PAIRS,
        M=tiles.rows, N=tiles.labels, K=tiles.inputs, scale=None, partial=None)
    name = f"step of {size} labels by {inputs} inputs, {sums} sums"
    ptx = compiled(name, group_step._train, fixed, types, tuning.warps, tuning.stages,
        tiles.registers)
    assert "wgmma.mma_async" in ptx, "not on Hopper's matrix units"
    assert re.search("red.global.gpu.relaxed.[a-z.]*" + instruction, ptx)
    assert "cp.async.cg" in ptx  # the next tile is read while one is worked on

def search(size, rows):
    types = dict(pointers, bias=whole, keys="*i64", best="*i64", places="*i32")
    shared = dict(FAN=128, GROUP=size, EACH=1, BIAS=True, N=size, K=128)
    fixed = dict(shared, PRECISION="tf32", M=rows, STAGES=GroupTuning().search_stages)
    warps = group_search.cut(GroupTuning(), rows, size)[0]
    ptx = compiled(f"search of {rows} rows", group_search._search, fixed, types, warps, 3)
    assert "mma" in ptx, "not on the matrix units"
    compiled("again", group_search._again, dict(shared, width=768), types, 4, 3)

types = dict(pointers, bias=whole, row="*i64", place="*i64", out=whole)
fixed = dict(width=768, FAN=128, GROUP=32, BIAS=True, K=128)
compiled("pairs", group_pairs._pairs, fixed, types, 1, 3)
compiled("largest", largest._select, dict(BLOCK=4096), dict(keys="*i64", out="*i64"), 8, 3)
step(128, 32, "float32")
step(128, 64, "float16", form=1)
step(300, 64, "float32")
step(128, 64, "fixed")
search(32, 16)
search(64, 64)
print("compiled")
'''


def test_kernels_of_groups_compile_for_hopper():
    plain = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    plain["PYTHONPATH"] = os.pathsep.join(sys.path)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], env=plain, capture_output=True, text=True
    )
    assert run.stdout.endswith("compiled\n"), run.stderr[-2000:]
    print(run.stdout)
