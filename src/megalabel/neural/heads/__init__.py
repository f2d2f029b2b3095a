"""Heads: from features to labels, one file each."""

from megalabel.neural.heads.base import Head
from megalabel.neural.heads.dense import DenseHead
from megalabel.neural.heads.sharded import ShardedHead
from megalabel.neural.heads.shortlist import ShortlistHead

__all__ = ["DenseHead", "Head", "ShardedHead", "ShortlistHead"]
