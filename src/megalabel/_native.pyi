from typing import Any

def get_threads() -> int:
    """The number of threads that native loops use."""

def set_threads(n: int) -> None:
    """Set the number of threads that native loops use."""

def __getattr__(name: str) -> Any: ...  # kernels: see native/bindings.cpp
