"""Judges for tests: an oracle that errs now and then, a script, one that is faulty; a service."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from megalabel.judges import Answer, Judge


class Oracle(Judge):
    """Says the truth, but for a share of pairs that a hash picks: whatever their order."""

    def __init__(self, truth: set[tuple[str, str]], rate: float = 0.0, seed: int = 0) -> None:
        self.truth, self.rate, self.seed = truth, rate, seed
        self.asked: list[tuple[str, str]] = []

    @property
    def identity(self) -> str:
        return f"oracle {self.rate} {self.seed}"

    def answers(self, texts: Sequence[str], labels: Sequence[str]) -> Iterator[Answer]:
        for place, pair in enumerate(zip(texts, labels, strict=True)):
            self.asked.append(pair)
            drawn = hashlib.sha256(repr((*pair, self.seed)).encode()).digest()[:8]
            flipped = int.from_bytes(drawn, "little") / 2**64 < self.rate
            yield Answer(place, float((pair in self.truth) != flipped), tokens=10)


class Scripted(Judge):
    """Answers from a dictionary, and fails for a pair that is not in it."""

    def __init__(self, script: Mapping[tuple[str, str], float], name: str = "script") -> None:
        self.script, self.name = dict(script), name
        self.asked: list[tuple[str, str]] = []

    @property
    def identity(self) -> str:
        return self.name

    def tokens(self, texts: Sequence[str], labels: Sequence[str]) -> int:
        return 10 * len(texts)

    def answers(self, texts: Sequence[str], labels: Sequence[str]) -> Iterator[Answer]:
        for place, pair in enumerate(zip(texts, labels, strict=True)):
            self.asked.append(pair)
            yield Answer(place, self.script[pair], tokens=10)


class Faulty(Judge):
    """Every third answer cannot be read, every fifth never comes."""

    identity = "faulty"

    def __init__(self) -> None:
        self.count = 0

    def answers(self, texts: Sequence[str], labels: Sequence[str]) -> Iterator[Answer]:
        for place in range(len(texts)):
            self.count += 1
            if self.count % 5 == 0:
                yield Answer(place, math.nan, lost="it timed out")
            else:
                yield Answer(place, math.nan if self.count % 3 == 0 else 1.0)


Reply = tuple[int, Any] | tuple[int, Any, dict[str, str]]


@contextmanager
def service(reply: Callable[[dict[str, Any], int], Reply]) -> Iterator[tuple[str, list[Any]]]:
    """A service on this machine: its address, and the requests that it gets.

    `reply` is given the body of a request and its number; it gives a status and a body.
    """
    requests: list[Any] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(requests)
                requests.append({"path": self.path, "headers": dict(self.headers), "body": body})
            status, said, *more = reply(body, number)
            data = said if isinstance(said, bytes) else json.dumps(said).encode()
            try:
                self.send_response(status)
                for name, value in (more[0] if more else {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                pass  # whoever asked has gone

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def said(content: str, **more: Any) -> dict[str, Any]:
    """What a service answers when its model has said something."""
    return {"choices": [{"message": {"content": content}, **more}], "usage": {"total_tokens": 50}}
