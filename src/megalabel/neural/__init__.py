"""Neural classifiers: encoders, heads and losses, and the loop that trains them. Needs torch."""

from megalabel.errors import MissingExtraError

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError(str(error.name), "neural") from None

from megalabel.neural.attention import AttentionClassifier
from megalabel.neural.cascade import CascadeClassifier
from megalabel.neural.dual import DualClassifier, StagedDualClassifier, map_of_pairs
from megalabel.neural.embedding import Embedding, encoder_of
from megalabel.neural.encoders import (
    AssembledEncoder,
    BagEncoder,
    ConvolutionalEncoder,
    Encoder,
    FrozenEncoder,
    PretrainedEncoder,
    RecurrentEncoder,
    StaticEncoder,
)
from megalabel.neural.export import export_onnx
from megalabel.neural.footprints import gpu_bytes
from megalabel.neural.full import FullClassifier
from megalabel.neural.heads import DenseHead, Head, Rewiring
from megalabel.neural.losses import (
    BCE,
    CosineLikelihood,
    DecoupledSoftmax,
    Focal,
    Loss,
    Softmax,
    SquaredHinge,
    SupervisedContrastive,
    Triplet,
)
from megalabel.neural.memory import MemoryWatch
from megalabel.neural.pretraining import pretrain
from megalabel.neural.products import gpu
from megalabel.neural.recursive import RecursiveClassifier
from megalabel.neural.staged import StagedClassifier
from megalabel.neural.states import EncoderStates
from megalabel.neural.stopwatch import Stopwatch
from megalabel.neural.tokens import Tokenizer, Tokens
from megalabel.neural.trainer import Trainer
from megalabel.neural.views import TextViews, Views
from megalabel.rankers.dense import accelerate

__all__ = [
    "BCE",
    "AssembledEncoder",
    "AttentionClassifier",
    "BagEncoder",
    "CascadeClassifier",
    "ConvolutionalEncoder",
    "CosineLikelihood",
    "DecoupledSoftmax",
    "DenseHead",
    "DualClassifier",
    "Embedding",
    "Encoder",
    "EncoderStates",
    "Focal",
    "FrozenEncoder",
    "FullClassifier",
    "Head",
    "Loss",
    "MemoryWatch",
    "PretrainedEncoder",
    "RecurrentEncoder",
    "RecursiveClassifier",
    "Rewiring",
    "Softmax",
    "SquaredHinge",
    "StagedClassifier",
    "StagedDualClassifier",
    "StaticEncoder",
    "Stopwatch",
    "SupervisedContrastive",
    "TextViews",
    "Tokenizer",
    "Tokens",
    "Trainer",
    "Triplet",
    "Views",
    "encoder_of",
    "export_onnx",
    "gpu_bytes",
    "map_of_pairs",
    "pretrain",
]

accelerate(gpu)
