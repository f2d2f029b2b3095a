"""ChatJudge: a language model behind any service with the API of OpenAI."""

from __future__ import annotations

import http.client
import ipaddress
import json
import logging
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from megalabel.base import boolean, check_argument, instance, integer, number, one_of
from megalabel.errors import JudgeError, ParameterError
from megalabel.judges import prompts
from megalabel.judges.base import Answer, Judge

log = logging.getLogger(__name__)

_LONGEST_WAIT = 60.0  # seconds between two attempts
_LETTERS = 3  # of a token, or more
_OWN_TOKENS = 8  # of a message, besides its words
_MOST_BYTES = 1 << 20  # of an answer
_SHOWN = 200  # characters of a service's error
_SOFT = 10  # tokens whose probabilities are asked for
_MOST_TOKENS = 10**12  # of an answer: more is no count of them
_DEFAULT = "default"  # the name of a model that says nothing of which one it is
_AGAIN = (408, 409, 425, 429)  # what is asked again, as is all from 500 on
_OF_THE_PAIR = (400, 413, 422)  # refused for what it holds, or how long it is: others may do


class ChatJudge(Judge):
    """Asks a language model one question a pair, over HTTP.

    Any service with `POST {url}/chat/completions` will do, such as llama.cpp, vLLM and Ollama.
    The text is data between markers that no text can hold, and the answer is read, never followed.
    What answers 429 or 5xx, not in time, or with something else than a model's answer, is asked
    again, ever later.

    Parameters
    ----------
    url : str
        The service, such as "http://localhost:8080/v1".
    model : str
        The name that it knows the model by; "default": that of the service, whatever it is.
    key : str, optional
        The name of an environment variable that holds a key, which is read when it is needed and
        kept nowhere.
    kind : str
        What labels are called in the question: "category", "subject" ….
    soft : bool
        Take the probability of yes for the grade where the service tells it (`logprobs`).
    text_length, label_length : int
        Characters of a text and of a label that are shown; more are cut off.
    concurrency : int
        Questions under way at a time.
    retries : int
        How often a question is asked again.
    timeout : float
        Seconds that an answer may take.
    price : float
        Of a million tokens, in any currency, to say what pairs will cost.
    options : mapping, optional
        More fields of each request, such as {"seed": 1}; None as a value leaves a field out.

    Examples
    --------
    >>> judge = ChatJudge("http://localhost:8080/v1", "a-model", key="LOCAL_KEY", price=0.5)
    >>> tokens = judge.tokens(["a tale of whales"], ["whale"])
    >>> tokens, judge.price(tokens)
    (140, 7e-05)
    """

    def __init__(
        self,
        url: str,
        model: str = _DEFAULT,
        *,
        key: str | None = None,
        kind: str = "label",
        soft: bool = False,
        text_length: int = 1800,
        label_length: int = 200,
        concurrency: int = 4,
        retries: int = 5,
        timeout: float = 60.0,
        price: float = 0.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value, check in (
            ("url", url, instance(str)),
            ("model", model, instance(str)),
            ("key", key, instance(str) | one_of(None)),
            ("kind", kind, instance(str)),
            ("soft", soft, boolean()),
            ("text_length", text_length, integer(1)),
            ("label_length", label_length, integer(1)),
            ("concurrency", concurrency, integer(1, 256)),
            ("retries", retries, integer(0)),
            ("timeout", timeout, number(0.001)),
            ("price", price, number(0)),
        ):
            check_argument(name, value, check)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ParameterError(f"url must be like http://localhost:8080/v1, not {url!r}")
        if parts.username or parts.password:
            raise ParameterError("url must hold no key: put it into a variable, and name that: key")
        self.url, self.model, self.key, self.kind, self.soft = url, model, key, kind, soft
        self.text_length, self.label_length = text_length, label_length
        self.concurrency, self.retries, self.timeout = concurrency, retries, timeout
        self.per_million, self.options = price, dict(options or {})

    @property
    def identity(self) -> str:
        """The model and the wording; where it is served only if the model has no name."""
        asked: list[Any] = [self.model, prompts.VERSION, self.kind, self.soft]
        asked += [self.text_length, self.label_length, self.options]
        if self.model == _DEFAULT:
            asked.append(self.url.rstrip("/"))
        return json.dumps(asked, sort_keys=True)

    def __repr__(self) -> str:
        return f"ChatJudge({self.url!r}, {self.model!r})"

    def tokens(self, texts: Sequence[str], labels: Sequence[str]) -> int:
        """About how many tokens the pairs will cost, by their letters."""
        own = sum(len(one["content"]) for one in prompts.messages("", "", self.kind))
        letters = sum(min(len(text), self.text_length) for text in texts)
        letters += sum(min(len(label), self.label_length) for label in labels)
        return (letters + own * len(texts)) // _LETTERS + _OWN_TOKENS * len(texts)

    def price(self, tokens: int) -> float:
        """What so many tokens cost."""
        return tokens * self.per_million / 1e6

    def answers(self, texts: Sequence[str], labels: Sequence[str]) -> Iterator[Answer]:
        """An answer for each pair, as they come."""
        headers = self._headers()  # a missing key is said before anything is asked
        given_up = threading.Event()
        pool = ThreadPoolExecutor(self.concurrency, "judge")
        pending: set[Future[Answer]] = set()
        try:
            for place, (text, label) in enumerate(zip(texts, labels, strict=True)):
                pending.add(pool.submit(self._answer, place, text, label, headers, given_up))
                while len(pending) >= self.concurrency:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from _results(done)
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from _results(done)
        finally:
            given_up.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _answer(
        self,
        place: int,
        text: str,
        label: str,
        headers: Mapping[str, str],
        given_up: threading.Event,
    ) -> Answer:
        """The answer to one question, after as many attempts as it takes."""
        body = json.dumps(self._body(text, label)).encode()
        why = ""
        for attempt in range(self.retries + 1):
            seconds = 0.5 * 2.0**attempt
            try:
                return Answer(place, *self._read(self._asked(body, headers)))
            except _NoAnswerError as error:
                why = f"{self.url} answers no yes or no, but {error}"
            except HTTPError as error:
                why = self._refusal(error)
                if error.code in _OF_THE_PAIR:
                    break
                if error.code not in _AGAIN and error.code < 500:
                    raise JudgeError(why) from None
                seconds = _asked_to_wait(error.headers.get("Retry-After"), seconds)
            except (OSError, http.client.HTTPException) as error:  # no connection, or a time-out
                why = f"{self.url}: {type(error).__name__}: {error}"
            if attempt < self.retries and _waited(min(seconds, _LONGEST_WAIT), given_up):
                break
        return Answer(place, math.nan, 0, why or "it was given up")

    def _body(self, text: str, label: str) -> dict[str, Any]:
        asked = prompts.messages(text[: self.text_length], label[: self.label_length], self.kind)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": asked,
            "temperature": 0,
            "max_tokens": 4,
        }
        if self.soft:
            body |= {"logprobs": True, "top_logprobs": _SOFT}
        return {k: v for k, v in (body | self.options).items() if v is not None}

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": "megalabel"}
        if self.key is not None:
            secret = os.environ.get(self.key, "")
            if not secret:
                raise JudgeError(
                    f"the environment variable {self.key} holds no key for {self.url}: set it"
                )
            parts = urlsplit(self.url)
            if parts.scheme == "http" and not _is_near(parts.hostname or ""):
                raise JudgeError(f"{self.url} would get the key unencrypted: take https")
            headers["Authorization"] = f"Bearer {secret}"
        return headers

    def _asked(self, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        """What the service answers, as JSON with some choice in it."""
        url = self.url.rstrip("/") + "/chat/completions"
        request = Request(url, body, dict(headers), method="POST")
        with _OPENER.open(request, timeout=self.timeout) as response:
            said = response.read(_MOST_BYTES)
        try:
            told = json.loads(said)
        except (ValueError, RecursionError):
            told = None
        choices = told.get("choices") if isinstance(told, dict) else None
        if not isinstance(told, dict) or not isinstance(choices, list) or not choices:
            raise _NoAnswerError(repr(_beginning(said)))
        return told

    def _refusal(self, error: HTTPError) -> str:
        try:
            said = _beginning(error.read(4 * _SHOWN))
        except (OSError, http.client.HTTPException):
            said = ""
        told = f"{self.url} answers {error.code} {error.reason}"
        return f"{told}: {said}" if said else told

    def _read(self, told: Mapping[str, Any]) -> tuple[float, int]:
        """The grade and the tokens of an answer; NaN where there is no yes or no in it."""
        try:
            tokens = int(told["usage"]["total_tokens"])
        except (KeyError, TypeError, ValueError, OverflowError):
            tokens = 0
        tokens = tokens if 0 <= tokens <= _MOST_TOKENS else 0
        choice = told["choices"][0]
        try:
            said = choice["message"]["content"]
        except (KeyError, TypeError):
            said = None
        grade = prompts.grade_of(said if isinstance(said, str) else "")
        if self.soft:
            try:
                first = choice["logprobs"]["content"][0]["top_logprobs"]
                soft = prompts.soft_grade(first)
            except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
                soft = math.nan
            grade = grade if math.isnan(soft) else soft
        return grade, tokens


class _NoAnswerError(Exception):
    """What came is no answer of a model, such as a page of a proxy; says how it begins."""


class _NoRedirects(HTTPRedirectHandler):
    """Redirects are errors: a key is for one service alone."""

    def redirect_request(self, *args: Any) -> None:
        return None


_OPENER = build_opener(_NoRedirects)


def _results(done: set[Future[Answer]]) -> Iterator[Answer]:
    """The answers among what is done, and then an error, if there is one."""
    for one in sorted(done, key=lambda one: one.exception() is not None):
        yield one.result()


def _beginning(said: bytes) -> str:
    """The beginning of what a service says, in one line."""
    return " ".join(said[: 4 * _SHOWN].decode(errors="replace").split())[:_SHOWN]


def _waited(seconds: float, given_up: threading.Event) -> bool:
    """Wait, unless nobody wants an answer any more: then True."""
    return given_up.wait(seconds)


def _asked_to_wait(told: str | None, seconds: float) -> float:
    """The seconds that a service asks for, where it does."""
    try:
        return max(0.0, float(told)) if told is not None else seconds
    except ValueError:  # a date
        return seconds


def _is_near(host: str) -> bool:
    """Whether a host is this machine, or of a private network."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host
    return address.is_loopback or address.is_private
