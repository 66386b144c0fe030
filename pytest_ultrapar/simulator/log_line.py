"""The server's own log as text: one JSON document per line, keys by name, never a token."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_ultrapar.pool.model import Limit

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMAT = 1

Event = Literal["arrival", "end", "disconnect", "refused"]


class LogHeader(msgspec.Struct, frozen=True):
    """The first line of a log: who wrote it, and what was judged.

    Attributes:
        format: Version of this format, 1.
        version: Version of this package.
        t: When the server started, monotonic seconds of the host, as all times of the log.
    """

    format: int
    version: str
    pid: int
    t: float
    limits: list[Limit]


class LogLine(msgspec.Struct, frozen=True):
    """One event.

    Attributes:
        t: Monotonic seconds of the host; never falls from line to line.
        event: `arrival`: the whole request is here. `end`: the answer is sent, or broken off by the
            server. `disconnect`: the client left before that. `refused`: answered at once with a
            status other than 200, never held a seat.
        id: Number of the request, from 1.
        status: HTTP status of `end` and `refused`; None for an `end` without an answer.
        fault: What took the request, by the faults file's name for it.
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


def encode_header(limits: Iterable[Limit], now_s: float) -> bytes:
    """The first line."""
    header = LogHeader(FORMAT, version("pytest-ultrapar"), os.getpid(), now_s, list(limits))
    return msgspec.json.encode(header) + b"\n"


def encode_names(
    provider: str | None = None,
    model: str | None = None,
    instance: str | None = None,
    key: str | None = None,
) -> bytes:
    """The part of a line that is the same for all requests of a lane; made once."""
    names = {"provider": provider, "model": model, "instance": instance, "key": key}
    return msgspec.json.encode(names)[1:-1]


def with_fault(names: bytes, label: str) -> bytes:
    """The names of a lane with the fault that took a request on it."""
    return names + b',"fault":' + msgspec.json.encode(label)


def encode_line(
    now_s: float, event: Event, request_id: int, names: bytes, status: int | None = None
) -> bytes:
    """One line, as `LogLine` reads it.

    Nine digits, since a rounded time could put an end before the arrival that it followed by less.
    """
    known = b"null" if status is None else b"%d" % status
    return b'{"t":%.9f,"event":"%b","id":%d,%b,"status":%b}\n' % (
        now_s,
        event.encode(),
        request_id,
        names,
        known,
    )
