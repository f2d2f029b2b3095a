"""Who says whether a label fits a text: words, a cross-encoder, a language model behind a service.

What judges say is kept (`Judgements`), so that no pair is ever asked about twice. They are asked in
training alone, never for an answer.
"""

from megalabel.judges.base import Answer, Judge, create
from megalabel.judges.chat import ChatJudge
from megalabel.judges.cross_encoder import CrossEncoderJudge
from megalabel.judges.judgements import Cost, Judgements, Spent
from megalabel.judges.lexical import LexicalJudge

__all__ = [
    "Answer",
    "ChatJudge",
    "Cost",
    "CrossEncoderJudge",
    "Judge",
    "Judgements",
    "LexicalJudge",
    "Spent",
    "create",
]
