"""Triton kernels, one file an operation; imported only where Triton is installed."""
