"""A scripted server's own record of every request, to check the records of a client."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from pytest_ultrapar.testing import ServerLog, ServerRequest


class Seen(msgspec.Struct):
    """One request, as the server received it.

    Attributes:
        number: Its number from 1, in order of arrival.
        connection: The number of its connection, from 1.
        key: The name of the key with its token, or the token if no key has it.
        t_s: The time at which it was complete, in monotonic seconds of the machine.
        end_s: The time at which its answer was complete, or its client was found gone.
        status: The HTTP status of the answer, if one was begun.
        left: Whether the client left before the answer was complete.
    """

    number: int
    connection: int
    prompt: str
    key: str
    model: str
    t_s: float
    end_s: float | None = None
    status: int | None = None
    left: bool = False


@dataclass
class Work:
    """Requests in progress: now, and at most; including requests of clients that left."""

    now: int = 0
    most: int = 0


class RequestLog:
    """Record requests in memory and, if a path is given, line by line in a file.

    The server's thread writes it; any thread reads it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.requests: list[Seen] = []
        self.work = Work()
        self._more = threading.Condition()
        self._file: IO[bytes] | None = None if path is None else path.open("ab", buffering=0)

    def arrived(self, connection: int, prompt: str, key: str, model: str) -> Seen:
        seen = Seen(len(self.requests) + 1, connection, prompt, key, model, time.monotonic())
        self.work.now += 1
        self.work.most = max(self.work.now, self.work.most)
        with self._more:
            self.requests.append(seen)
            self._more.notify_all()
        self._write(seen)
        return seen

    def ended(self, seen: Seen, *, status: int | None, left: bool) -> None:
        """Record the end of a request; only the first call counts."""
        if seen.end_s is None:
            seen.status, seen.left, seen.end_s = status, left, time.monotonic()
            self._write(seen)

    def wait_for(self, n: int, timeout_s: float = 120) -> bool:
        """Wait until n requests have come; return False after the timeout."""
        return self.wait_until(lambda: len(self.requests) >= n, timeout_s)

    def wait_until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until the condition holds for the requests; return False after the timeout."""
        with self._more:
            return self._more.wait_for(is_so, timeout_s)

    def _write(self, seen: Seen) -> None:
        if self._file is not None:
            self._file.write(msgspec.json.encode(seen) + b"\n")

    def __len__(self) -> int:
        return len(self.requests)

    def of(self, prompt: str) -> list[Seen]:
        """All requests with that prompt, in order of arrival."""
        return [seen for seen in self.requests if seen.prompt == prompt]

    def counts(self) -> Counter[str]:
        """The number of requests of each prompt."""
        return Counter(seen.prompt for seen in self.requests)

    def judge(self) -> ServerLog:
        """The same requests as a `ServerLog`; each held a seat."""
        return ServerLog(tuple(_as_request(seen) for seen in self.requests))


def read_request_log(path: Path) -> RequestLog:
    """The log of a server in another process, as far as it is written."""
    log = RequestLog()
    lines = path.read_bytes()
    latest: dict[int, Seen] = {}
    for seen in msgspec.json.Decoder(Seen).decode_lines(lines[: lines.rfind(b"\n") + 1]):
        latest[seen.number] = seen
    log.requests = [latest[number] for number in sorted(latest)]
    return log


def _as_request(seen: Seen) -> ServerRequest:
    return ServerRequest(
        request_id=seen.number,
        t_arrival_s=seen.t_s,
        t_end_s=seen.end_s,
        status=seen.status,
        provider="p",
        key=seen.key,
        model=seen.model,
        instance=seen.model,
        disconnected=seen.left,
        admitted=True,
    )
