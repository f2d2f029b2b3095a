"""The model folder: atomic, memory-mapped, checksummed, never pickle."""
