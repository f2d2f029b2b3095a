"""How a dense head's kernels are cut into tiles, and which products are left to the library."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """A program's part of a matrix product: `m` by `n` of the result, `k` summed at a time.

    With `resident` programs on each multiprocessor, every one goes through many tiles and reads
    ahead for the next while it ends one; 0: a program for each tile.
    """

    m: int
    n: int
    k: int
    warps: int
    stages: int
    resident: int = 0


@dataclass(frozen=True)
class Tuning:
    """The choices that change a fused step's speed and not its result.

    Parameters
    ----------
    scores
        "fused": scores and the gradient by them in one kernel, from float32 sums; "library": the
        library's product into a bfloat16 buffer, then one kernel over it in place.
    features
        "fused": the features' gradient by a kernel that splits the labels over programs and always
        adds in the same order; "library": the library's product, added to a float32 sum.
    scores_tile, features_tile, update_tile
        Tiles (rows by labels, rows by width, labels by width) of the three products.
    descriptors
        Read tiles through tensor descriptors (the bulk copy engine of Hopper and later).
    chunk
        Labels at a time; None: so many that the chunk's gradient takes some 128 MB, as the time to
        launch kernels must not count.
    graph
        Launch all kernels of a step at once, as a CUDA graph.
    """

    scores: str = "fused"
    features: str = "library"
    scores_tile: Tile = Tile(128, 128, 64, warps=4, stages=3, resident=2)
    features_tile: Tile = Tile(64, 256, 64, warps=4, stages=3)
    update_tile: Tile = Tile(128, 256, 64, warps=8, stages=3, resident=1)
    descriptors: bool = True
    chunk: int | None = None
    graph: bool = False

    def __post_init__(self) -> None:
        for name in ("scores", "features"):
            if getattr(self, name) not in ("fused", "library"):
                raise ValueError(
                    f'{name} of Tuning must be "fused" or "library", not {getattr(self, name)!r}'
                )
