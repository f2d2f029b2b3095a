"""Encoders: texts to vectors that are trained."""

from megalabel.neural.encoders.base import Encoder, EncoderModule, pooled
from megalabel.neural.encoders.pretrained import PretrainedEncoder

__all__ = ["Encoder", "EncoderModule", "PretrainedEncoder", "pooled"]
