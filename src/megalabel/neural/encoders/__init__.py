"""Encoders: texts to vectors that are trained."""

from megalabel.neural.encoders.assembled import AssembledEncoder
from megalabel.neural.encoders.bag import BagEncoder
from megalabel.neural.encoders.base import Encoder, EncoderModule, pooled
from megalabel.neural.encoders.convolutional import ConvolutionalEncoder
from megalabel.neural.encoders.frozen import FrozenEncoder
from megalabel.neural.encoders.pretrained import PretrainedEncoder
from megalabel.neural.encoders.recurrent import RecurrentEncoder
from megalabel.neural.encoders.static import StaticEncoder
from megalabel.neural.encoders.vectors import read_vectors

__all__ = [
    "AssembledEncoder",
    "BagEncoder",
    "ConvolutionalEncoder",
    "Encoder",
    "EncoderModule",
    "FrozenEncoder",
    "PretrainedEncoder",
    "RecurrentEncoder",
    "StaticEncoder",
    "pooled",
    "read_vectors",
]
