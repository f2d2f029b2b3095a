"""CrossEncoderJudge: a transformer that reads a text and a label together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from megalabel.base import check_argument, instance, integer, made_once, one_of
from megalabel.errors import JudgeError, MissingExtraError
from megalabel.judges.base import Answer, Judge

_AT_ONCE = 32  # pairs read together
_SORTED = 1024  # pairs that are put into the order of their lengths
_CUT = "longest_first"  # a label alone may be longer than all that is read
_HASHED = (".json", ".safetensors", ".bin", ".txt")  # files of a model


class CrossEncoderJudge(Judge):
    """Reads a text and a label together with a transformer; needs the extra `neural`.

    Parameters
    ----------
    source : str
        A Hugging Face model for sequence classification, by name or folder. Of a model with one
        output, a grade is the output's sigmoid; of several, the softmax of one of them.
    yes : int or str, optional
        Which of several outputs says that a label fits, by number or name; None: the one called
        "entailment", "relevant" or "yes", or the second of two.
    max_length : int
        In tokens, of a text and a label together: the longer of both is cut, so that a text is cut
        as long as its label has no more than half.
    template : str
        What is read of a label, which stands for {}.
    device : str
        "auto", "cpu", "cuda", …

    Examples
    --------
    >>> judge = CrossEncoderJudge("a-folder", template="This is about {}.")
    >>> judge
    CrossEncoderJudge('a-folder')
    """

    def __init__(
        self,
        source: str,
        *,
        yes: int | str | None = None,
        max_length: int = 256,
        template: str = "{}",
        device: str = "auto",
    ) -> None:
        for name, value, check in (
            ("source", source, instance(str)),
            ("yes", yes, integer(0) | instance(str) | one_of(None)),
            ("max_length", max_length, integer(4)),
            ("template", template, instance(str)),
            ("device", device, instance(str)),
        ):
            check_argument(name, value, check)
        self.source, self.yes, self.max_length = source, yes, max_length
        self.template, self.device = template, device
        self._opened: tuple[Any, Any, Any, int | None] | None = None
        self._digest: str | None = None

    @property
    def identity(self) -> str:
        """The model and how it is read; of a folder, what its files hold."""
        digest = made_once(self, "_digest", lambda: _digest_of(self.source))
        read = (self.yes, self.max_length, _CUT, self.template)
        return f"cross-encoder {digest} {read!r}"

    def __repr__(self) -> str:
        return f"CrossEncoderJudge({self.source!r})"

    def answers(self, texts: Sequence[str], labels: Sequence[str]) -> Iterator[Answer]:
        """An answer for each pair; pairs of like length are read together."""
        torch, model, tokenizer, yes = made_once(self, "_opened", self._open)
        shown = [self.template.replace("{}", label) for label in labels]
        for start in range(0, len(texts), _SORTED):
            lengths = [len(t) for t in texts[start : start + _SORTED]]
            order = start + np.argsort(lengths, kind="stable")
            for first in range(0, len(order), _AT_ONCE):
                some = order[first : first + _AT_ONCE].tolist()
                tokens = tokenizer(
                    [texts[i] for i in some],
                    [shown[i] for i in some],
                    truncation=_CUT,
                    max_length=self.max_length,
                    padding=True,
                    return_tensors="pt",
                )
                with torch.inference_mode():
                    logits = model(**tokens.to(model.device)).logits.float()
                grades = logits.sigmoid() if yes is None else logits.softmax(dim=1)
                for place, grade in zip(some, grades[:, yes or 0].tolist(), strict=True):
                    yield Answer(place, grade)

    def _open(self) -> tuple[Any, Any, Any, int | None]:
        try:
            import torch
            from transformers import AutoModelForSequenceClassification, AutoTokenizer
        except ModuleNotFoundError as error:
            raise MissingExtraError(error.name or "transformers", "neural") from error
        try:
            tokenizer = AutoTokenizer.from_pretrained(self.source)
            model = AutoModelForSequenceClassification.from_pretrained(self.source)
        except (OSError, ValueError) as error:
            raise JudgeError(f"the model {self.source!r} cannot be opened: {error}") from None
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        return torch, model.to(device).eval(), tokenizer, self._output(model.config)

    def _output(self, config: Any) -> int | None:
        """The number of the output that says yes; None: there is one alone."""
        if config.num_labels == 1:
            return None
        names = {str(name).lower(): int(at) for at, name in config.id2label.items()}
        if isinstance(self.yes, int):
            found: int | None = self.yes if self.yes < config.num_labels else None
        elif self.yes is not None:
            found = names.get(self.yes.lower())
        else:
            known = ("entailment", "relevant", "yes")
            found = next((names[name] for name in known if name in names), None)
            if found is None and config.num_labels == 2:
                found = 1
        if found is None:
            raise JudgeError(
                f"the outputs of {self.source!r} are {', '.join(names)}: say which of them means "
                "that a label fits (yes=…)"
            )
        return found


def _digest_of(source: str) -> str:
    """A hash of a model: of a folder, of its files and where they are in it."""
    folder, digest = Path(source), hashlib.sha256()
    if not folder.is_dir():
        return hashlib.sha256(source.encode()).hexdigest()
    places = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*")}
    for place, file in sorted(places.items()):
        if file.suffix in _HASHED and file.is_file():
            with open(file, "rb") as opened:
                own = hashlib.file_digest(opened, "sha256").digest()
            digest.update(len(place.encode()).to_bytes(8, "little") + place.encode() + own)
    return digest.hexdigest()
