"""Judge: what every judge is, and how one is made by a name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from megalabel.errors import ParameterError

YES = 0.5  # grades from here on say that a label fits


class Answer(NamedTuple):
    """What a judge says of one pair."""

    place: int
    """Which of the pairs."""
    grade: float
    """How sure it is that the label fits, from 0 to 1; NaN: that could not be read in the answer,
    or no answer came."""
    tokens: int = 0
    """How many it cost."""
    lost: str = ""
    """Why no answer came, after all attempts; empty: one came."""


class Judge(ABC):
    """Grades pairs of a text and a label.

    A judge is asked through `Judgements`, which keeps its answers and holds it to a budget.
    """

    free: ClassVar[bool] = False
    """Whether it costs so little that its answers need not be kept."""
    reads_definitions: ClassVar[bool] = True
    """Whether what is said of a label is shown to it behind the label's name."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """All that a grade depends on besides the text and the label, such as a model's name and
        the wording of a question: answers are kept under it."""

    @abstractmethod
    def answers(self, texts: Sequence[str], labels: Sequence[str]) -> Iterator[Answer]:
        """An answer for each pair of a text and a label, in whatever order they come.

        Whoever stops to read leaves the rest unasked.
        """

    def learn(self, texts: Any) -> Self:
        """What a judge can learn from texts alone, such as which words are rare; by default
        nothing."""
        return self

    def tokens(self, texts: Sequence[str], labels: Sequence[str]) -> int:
        """About how many tokens the pairs will cost; 0: it is not paid by tokens."""
        return 0

    def price(self, tokens: int) -> float:
        """What so many tokens cost, in the currency of the judge's price; 0: no price is known."""
        return 0.0


def create(name: str | Judge, **parameters: Any) -> Judge:
    """A judge by name.

    Parameters
    ----------
    name : str or Judge
        "lexical"; "cross-encoder:" and a Hugging Face model by name or folder; or the address of a
        service with the API of OpenAI, such as "http://localhost:8080/v1". A judge is given back;
        it has its parameters already.
    **parameters
        The judge's own; those that are None are left to it.

    Examples
    --------
    >>> create("lexical", threshold=0.7)
    LexicalJudge(threshold=0.7)
    >>> create("http://localhost:8080/v1", model="a-model").url
    'http://localhost:8080/v1'
    """
    from megalabel.judges.chat import ChatJudge
    from megalabel.judges.cross_encoder import CrossEncoderJudge
    from megalabel.judges.lexical import LexicalJudge

    given: dict[str, Any] = {k: value for k, value in parameters.items() if value is not None}
    if isinstance(name, Judge):
        if given:
            raise ParameterError(
                f"{name!r} has its parameters already: give it {', '.join(given)} where it is made"
            )
        return name
    kind, _, rest = name.partition(":")
    made: type[Judge]
    if name == "lexical":
        made = LexicalJudge
    elif kind == "cross-encoder" and rest:
        made, given = CrossEncoderJudge, given | {"source": rest}
    elif kind in ("http", "https"):
        made, given = ChatJudge, given | {"url": name}
    else:
        raise ParameterError(
            f"unknown judge {name!r}: there are 'lexical', 'cross-encoder:MODEL', and the address "
            "of a service with the API of OpenAI, such as 'http://localhost:8080/v1'"
        )
    try:
        return made(**given)
    except TypeError as error:
        raise ParameterError(f"judge {name!r}: {error}") from None
