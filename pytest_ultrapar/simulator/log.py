"""The server's log: one JSON document per line. It contains the names of keys, but no tokens."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.system.files import cannot

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


FORMAT = 1
Event = Literal["arrival", "end", "disconnect", "refused"]


class LogHeader(msgspec.Struct, frozen=True):
    """The first line of a log: the server and its limits.

    Attributes:
        format: The version of this format, 1.
        version: The version of this package.
        t: When the server started, in seconds on the host's monotonic clock, like all times in the
            log.
    """

    format: int
    version: str
    pid: int
    t: float
    limits: list[Limit]


class LogLine(msgspec.Struct, frozen=True):
    """One event.

    Attributes:
        t: The time, in seconds on the host's monotonic clock; never decreases from line to line.
        event: `arrival`: the whole request has arrived. `end`: the server sent the answer or broke
            it off. `disconnect`: the client left before that. `refused`: the server answered
            immediately with a status other than 200, and the request took no seat.
        id: The number of the request, from 1.
        status: The HTTP status of `end` and `refused`; None for an `end` without an answer.
        fault: The label of the fault that affected the request, if any.
        tokens_in: Prompt tokens, if a persona answered the request.
        tokens_out: Answer tokens, even if the answer was broken off.
        since: The earliest possible arrival time, if the request may have arrived while the server
            had no CPU.
    """

    t: float
    event: Event
    id: int
    provider: str | None = None
    model: str | None = None
    instance: str | None = None
    key: str | None = None
    status: int | None = None
    fault: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    since: float | None = None


def encode_header(limits: Iterable[Limit], now_s: float) -> bytes:
    """Write the first line."""
    header = LogHeader(FORMAT, version("pytest-ultrapar"), os.getpid(), now_s, list(limits))
    return msgspec.json.encode(header) + b"\n"


def encode_names(
    provider: str | None = None,
    model: str | None = None,
    instance: str | None = None,
    key: str | None = None,
) -> bytes:
    """Write the part of a line that all requests on a lane share. Called once per lane."""
    names = {"provider": provider, "model": model, "instance": instance, "key": key}
    return msgspec.json.encode(names)[1:-1]


def with_more(names: bytes, **more: float | str) -> bytes:
    """Append more fields of `LogLine` to the names of a lane."""
    return names + b"," + msgspec.json.encode(more)[1:-1]


def encode_line(
    now_s: float, event: Event, request_id: int, names: bytes, status: int | None = None
) -> bytes:
    """Write one line in the form of `LogLine`.

    Times have nine decimals: with fewer, rounding could put a request's `end` before its `arrival`.
    """
    known = b"null" if status is None else b"%d" % status
    return b'{"t":%.9f,"event":"%b","id":%d,%b,"status":%b}\n' % (
        now_s,
        event.encode(),
        request_id,
        names,
        known,
    )


class LogFile:
    """Collects lines, and writes them on `flush`.

    The server calls `flush` regularly in its own process, so that no line is lost if a client dies.
    """

    def __init__(self, path: Path, limits: Iterable[Limit], now_s: float) -> None:
        """Create or empty the file. Only its owner can read it.

        Raises:
            OSError: The file cannot be created.
            ResultsError: The file cannot be written.
        """
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._lines: list[bytes] = [encode_header(limits, now_s)]
        self.flush()

    def write(
        self, now_s: float, event: Event, request_id: int, names: bytes, status: int | None = None
    ) -> None:
        """Add one event. The next `flush` writes it to the file."""
        self._lines.append(encode_line(now_s, event, request_id, names, status))

    def flush(self) -> None:
        """Write all lines that have been collected so far.

        Raises:
            ResultsError: The disk is full, or the write failed. Lost lines are an error,
                because tests need a complete log.
        """
        if not self._lines:
            return
        rest = memoryview(b"".join(self._lines))
        self._lines.clear()
        with cannot(f"write the server's log {self._path}"):
            while rest:
                rest = rest[os.write(self._fd, rest) :]
