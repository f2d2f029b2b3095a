"""Kernels run on the GPU where there is one, and else in Triton's interpreter."""

from __future__ import annotations

import os

import pytest

try:
    import torch

    DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
except ImportError:  # the tests say that they need it
    DEVICE = "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # Triton looks at it when it is imported


@pytest.fixture(scope="session")
def device() -> str:
    """Where kernels run."""
    return DEVICE


@pytest.fixture(autouse=True)
def products_of_bfloat16(monkeypatch):
    """The interpreter multiplies bfloat16 matrices as the integers it keeps them in: widen them."""
    if DEVICE != "cpu":
        return
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    dot = interpreter.InterpreterBuilder.create_dot

    def widened(handle):
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        data = (handle.data.astype(np.uint32) << 16).view(np.float32)
        return interpreter.TensorHandle(data, tl.float32)

    def create_dot(self, a, b, *rest):
        return dot(self, widened(a), widened(b), *rest)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)
