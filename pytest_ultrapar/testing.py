"""For your tests: what the simulated provider saw, which is the judge of what a client claims.

    log = read_server_log(run_directory / "server.log")
    assert log.count(429) == 0
    assert log.max_in_flight(key="key0") <= 5
    assert log.max_in_window(1.0, key="key0") <= 10 + 1

The server's log says when each request arrived and when its answer was sent, by one clock for all
clients. It is complete whatever became of them.

`BrokerPlay` plays the broker itself in virtual time, for what a server would take too long to show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.broker.play import BrokerPlay
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.simulator.log import FORMAT, LogHeader, LogLine
from pytest_ultrapar.system.files import NOT_THAT_JSON, cannot, read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


__all__ = ["BrokerPlay", "ServerLog", "ServerRequest", "read_server_log"]

_lines = msgspec.json.Decoder(LogLine)
_NAMES = ("provider", "key", "model", "instance")


class ServerRequest(msgspec.Struct, frozen=True):
    """One request as the server saw it. Names are None as far as the request did not get.

    Attributes:
        request_id: From 1, in order of arrival.
        t_arrival_s: When it was complete at the server, monotonic seconds of the host.
        t_end_s: When its answer was sent or its client had left; None when neither was logged (the
            server was stopped first).
        status: HTTP status of the answer; None without one.
        provider: Whose path it came to.
        key: Name of the key whose token it carried.
        model: Name of the model as the pool has it.
        instance: Name of the instance that it asked for.
        disconnected: Whether the client left before the answer.
        admitted: Whether it held a seat. What was refused at once (429, 401, ...) never did.
        fault: What the faults file did to it, by the entry's name or kind and number (`error 1`);
            None for nothing.
        tokens_in: Of its prompt, as the server counts; None where no model answered.
        tokens_out: Of its answers, those begun and not ended as well.
        t_since_s: When it arrived at the earliest, where the server had no CPU then; None: at
            `t_arrival_s`.
    """

    request_id: int
    t_arrival_s: float
    t_end_s: float | None
    status: int | None
    provider: str | None
    key: str | None
    model: str | None
    instance: str | None
    disconnected: bool
    admitted: bool
    fault: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    t_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class ServerLog:
    """All requests that a server saw.

    Where a method takes names (of a `provider`, `key`, `model`, `instance`), it looks at the
    requests that have all of them; without any, at all.

    Attributes:
        requests: One row per arrival, in order of arrival.
        limits: What the server judged by.
    """

    requests: tuple[ServerRequest, ...]
    limits: tuple[Limit, ...] = ()

    def max_in_flight(self, **names: str | None) -> int:
        """The most requests that held a seat at one instant; exact, over all instants.

        An end at the time of an arrival counts as before it. Requests without an end count up to
        the end of the log. Refused requests are not counted: a client that keeps the limits has
        `count(429) == 0` too.
        """
        found = [
            row for row in self._where(names) if row.admitted and row.t_arrival_s != row.t_end_s
        ]
        ends_s = sorted(row.t_end_s for row in found if row.t_end_s is not None)
        most = n_ended = 0
        for n_arrived, now_s in enumerate(sorted(row.t_arrival_s for row in found), start=1):
            while n_ended < len(ends_s) and ends_s[n_ended] <= now_s:
                n_ended += 1
            most = max(most, n_arrived - n_ended)
        return most

    def max_in_window(self, window_s: float, **names: str | None) -> int:
        """The most arrivals in any window of that length, refused ones included.

        A window holds its beginning, not its end: arrivals `window_s` apart never share one. What
        arrived while the server had no CPU counts in windows that hold all of that time: no less
        was sent within them.
        """
        rows = sorted(self._where(names), key=lambda row: row.t_arrival_s)
        since_s = [row.t_arrival_s if row.t_since_s is None else row.t_since_s for row in rows]
        most = n_before = 0
        for n_arrived, row in enumerate(rows, start=1):
            while n_before < n_arrived and since_s[n_before] + window_s <= row.t_arrival_s:
                n_before += 1
            most = max(most, n_arrived - n_before)
        return most

    @property
    def phase_s(self) -> float:
        """Seconds from the first arrival to the last answer; 0 when nothing was answered."""
        answered_s = [
            row.t_end_s for row in self.requests if row.t_end_s is not None and not row.disconnected
        ]
        return max(answered_s) - self.requests[0].t_arrival_s if answered_s else 0.0

    def count(self, status: int) -> int:
        """How many requests were answered with that status."""
        return sum(row.status == status for row in self.requests)

    def _where(self, names: Mapping[str, str | None]) -> list[ServerRequest]:
        if unknown := names.keys() - _NAMES:
            raise TypeError(f"{min(unknown)} is none of {', '.join(_NAMES)}")
        wanted = [(name, own) for name, own in names.items() if own is not None]
        return [row for row in self.requests if all(getattr(row, n) == own for n, own in wanted)]


def read_server_log(path: Path) -> ServerLog:
    """The log that a server wrote, also while it is still at work.

    A last line that is not complete yet is left out.

    Raises:
        ResultsError: The file cannot be read or is no such log; it is none before the server has
            written its first line, either.
    """
    with cannot(f"read the server's log {path}"):
        content = read_file(path)
    first, _, rest = content.partition(b"\n")
    try:
        header = msgspec.json.decode(first, type=LogHeader)
        if header.format != FORMAT:
            raise ResultsError(
                f"{path} has format {header.format}; this version reads format {FORMAT}"
            )
        lines = _lines.decode_lines(rest[: rest.rfind(b"\n") + 1])
    except NOT_THAT_JSON as error:
        raise ResultsError(f"{path}: not a server's log: {error}") from None
    return ServerLog(tuple(_requests(lines)), tuple(header.limits))


def _requests(lines: list[LogLine]) -> Iterator[ServerRequest]:
    last = {line.id: line for line in lines if line.event != "arrival"}
    for line in lines:
        if line.event != "arrival":
            continue
        end = last.get(line.id)
        yield ServerRequest(
            request_id=line.id,
            t_arrival_s=line.t,
            t_end_s=None if end is None else end.t,
            status=None if end is None else end.status,
            provider=line.provider,
            key=line.key,
            model=line.model,
            instance=line.instance,
            disconnected=end is not None and end.event == "disconnect",
            admitted=end is None or end.event != "refused",
            fault=line.fault,
            tokens_in=line.tokens_in,
            tokens_out=line.tokens_out,
            t_since_s=line.since,
        )
