"""How a dense head's kernels are cut into tiles."""

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
    scores_tile, update_tile
        Tiles (rows by labels, labels by width) of the products that are kernels; the update's width
        is at most 256. The features' gradient is the library's product.
    descriptors
        Read tiles through tensor descriptors (the bulk copy engine of Hopper and later).
    chunk
        Labels at a time; None: so many that the chunk's gradient takes some 128 MB, as the time to
        launch kernels must not count.
    """

    scores_tile: Tile = Tile(128, 128, 64, warps=4, stages=3, resident=2)
    update_tile: Tile = Tile(128, 256, 64, warps=8, stages=3, resident=1)
    descriptors: bool = True
    chunk: int | None = None


@dataclass(frozen=True)
class GroupTuning:
    """The choices that change the speed of the kernels of groups, and how sums of gradients round.

    Parameters
    ----------
    area
        How many numbers of a tile (inputs of a group by rows of the batch) a program works on.
    warps, stages
        Warps of a program, and how many tiles ahead it reads.
    resident, registers
        Programs on a multiprocessor that go through all groups, and the most registers of a thread
        (0: as many as the compiler likes). None: by the size of groups.
    sums
        What the features' gradient is summed in. "float32": the last bits depend on who comes
        first; "float16": half of what goes through the cache, in several copies that are added up
        in float32; "fixed": 64-bit fixed point (units of 2^-32), so that a seed gives the same
        bits every time, which takes several times as long as all else.
    search_warps, search_resident, search_stages
        The same of the search for the best labels, and how many groups ahead it reads. None: by
        how many rows and labels of a group come together.
    """

    area: int = 64 * 128
    warps: int = 4
    stages: int = 2
    resident: int | None = None
    registers: int | None = None
    sums: str = "float32"
    search_warps: int | None = None
    search_resident: int | None = None
    search_stages: int = 3
