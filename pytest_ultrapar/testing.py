"""Help for your tests: read the simulated provider's log to check what a client claims.

    log = read_server_log(run_directory / "server.log")
    assert log.count(429) == 0
    assert log.max_in_flight(key="key0") <= 5
    assert log.max_in_window(1.0, key="key0") <= 10 + 1

The server's log contains the times at which each request arrived and was answered, measured with
one clock for all clients. The log is complete, even if clients failed.

`BrokerPlay` runs the broker in virtual time, for behaviour that would take too long to observe with
a server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.broker.virtual_time import BrokerPlay
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
    """One request in the server's log. Names are None if the request failed before they were known.

    Attributes:
        request_id: From 1, in order of arrival.
        t_arrival_s: When it had arrived completely, in monotonic seconds of the machine.
        t_end_s: When its answer was sent or its client had left; None if the server was stopped
            before that.
        status: HTTP status of the answer; None if there was no answer.
        provider: Name of the provider in the request's path.
        key: Name of the key whose token it carried.
        model: Name of the model in the pool.
        instance: Name of the instance in the request.
        disconnected: Whether the client left before the answer.
        admitted: Whether it held a seat. A request that was refused (429, 401, ...) never held a
            seat.
        fault: The fault from the faults file, by the entry's name or by kind and number
            (`error 1`); None without a fault.
        tokens_in: Tokens of its prompt, as the server counts; None if no model answered.
        tokens_out: Tokens of its answers, including unfinished ones.
        t_since_s: The earliest time at which it may have arrived, if the server had no CPU time
            before `t_arrival_s`; otherwise None.
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

    If a method takes names (of a `provider`, `key`, `model`, `instance`), it counts the requests
    that match all of them; without names, all requests.

    Attributes:
        requests: One row per arrival, in order of arrival.
        limits: The limits that the server enforced.
    """

    requests: tuple[ServerRequest, ...]
    limits: tuple[Limit, ...] = ()

    def max_in_flight(self, **names: str | None) -> int:
        """The largest number of requests that held a seat at the same time. The value is exact.

        If a request ends at the moment another arrives, the end counts first. A request without an
        end holds its seat until the end of the log. Refused requests are not included, so check
        `count(429) == 0`, too.
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
        """The largest number of arrivals in any window of that length, including refused requests.

        A window includes its beginning, but not its end: two arrivals that are `window_s` apart are
        never in the same window. A request that arrived while the server had no CPU time is counted
        only in windows that contain all of that time, because it was certainly sent within them.
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
        """Seconds from the first arrival to the last answer; 0 if nothing was answered."""
        answered_s = [
            row.t_end_s for row in self.requests if row.t_end_s is not None and not row.disconnected
        ]
        return max(answered_s) - self.requests[0].t_arrival_s if answered_s else 0.0

    def count(self, status: int) -> int:
        """The number of requests that were answered with that status."""
        return sum(row.status == status for row in self.requests)

    def _where(self, names: Mapping[str, str | None]) -> list[ServerRequest]:
        if unknown := names.keys() - _NAMES:
            raise TypeError(f"unknown name {min(unknown)!r}; use {', '.join(_NAMES)}")
        wanted = [(name, own) for name, own in names.items() if own is not None]
        return [row for row in self.requests if all(getattr(row, n) == own for n, own in wanted)]


def read_server_log(path: Path) -> ServerLog:
    """Read the log of a server, which may still be running.

    An incomplete last line is left out.

    Raises:
        ResultsError: The file cannot be read or is not such a log. A file to which the server has
            not written its first line is not a log either.
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
