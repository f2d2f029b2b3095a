"""The built-in corpus: readable shop items whose label probabilities and propensities are known."""

from megalabel.data.synthetic.corpus import Synthetic, generate, stream

__all__ = ["Synthetic", "generate", "stream"]
