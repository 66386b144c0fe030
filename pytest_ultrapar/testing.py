"""Help for your tests: check a client's claims against the log of the simulated provider.

    log = read_server_log(run_directory / "server.log")
    assert log.count(429) == 0
    assert log.max_in_flight(key="key0") <= 5
    assert log.max_in_window(1.0, key="key0") <= 10 + 1

The log of the simulated provider's server shows when each request arrived and when it was answered.
All times come from one clock, even if there are several clients. The log is complete, even if
clients failed.

`BrokerPlay` runs the broker in virtual time. Use it to test behaviour that would take too long to
observe with a server.
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
    """A request in the server's log. Names are None if the request failed before they were known.

    Attributes:
        request_id: The number of the request in order of arrival, counted from 1.
        t_arrival_s: When the request had arrived completely, in seconds on the machine's monotonic
            clock.
        t_end_s: When the answer had been sent or the client had left, on the same clock. None if
            the server was stopped before that.
        status: The HTTP status of the answer; None if there was no answer.
        provider: The name of the provider in the request's path.
        key: The name of the key whose secret the request contained.
        model: The name of the model in the pool.
        instance: The name of the instance in the request.
        disconnected: Whether the client left before it got the answer.
        admitted: Whether the request held a seat. A request that was refused (with 429 or 401, for
            example) never held one.
        fault: The entry in the faults file that affected the request: its name, or its kind and
            number, such as `error 1`. None if there was no fault.
        tokens_in: The number of tokens in the prompt, as counted by the server; None if no model
            answered.
        tokens_out: The number of tokens in the answers, including unfinished answers; None if no
            model answered.
        t_since_s: If the server had no CPU time just before `t_arrival_s`: the earliest time at
            which the request may have arrived. Otherwise None.
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

    Some methods take names (`provider`, `key`, `model` or `instance`). Such a method counts only
    the requests that match all given names. If no name is given, it counts all requests.

    Attributes:
        requests: The requests, in order of arrival.
        limits: The limits that the server enforced.
    """

    requests: tuple[ServerRequest, ...]
    limits: tuple[Limit, ...] = ()

    def max_in_flight(self, **names: str | None) -> int:
        """Return the largest number of requests that held a seat at the same time.

        The value is exact.

        If one request ends at the moment when another arrives, the end counts first. A request
        without an end holds its seat until the end of the log. Refused requests are not included,
        so also check that `count(429) == 0`.
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
        """Return the largest number of requests that arrived in any window of this length.

        Refused requests are included. A window includes its beginning, but not its end. So two
        arrivals that are exactly `window_s` apart are never in the same window. If a request
        arrived while the server had no CPU time, it is counted only in windows that contain all of
        that time. Only these windows certainly contain the moment at which the request arrived.
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
        """The seconds between the first arrival and the last answer; 0 if there was no answer."""
        answered_s = [
            row.t_end_s for row in self.requests if row.t_end_s is not None and not row.disconnected
        ]
        return max(answered_s) - self.requests[0].t_arrival_s if answered_s else 0.0

    def count(self, status: int) -> int:
        """Return how many requests were answered with this HTTP status."""
        return sum(row.status == status for row in self.requests)

    def _where(self, names: Mapping[str, str | None]) -> list[ServerRequest]:
        if unknown := names.keys() - _NAMES:
            raise TypeError(f"unknown name {min(unknown)!r}; use {', '.join(_NAMES)}")
        wanted = [(name, own) for name, own in names.items() if own is not None]
        return [row for row in self.requests if all(getattr(row, n) == own for n, own in wanted)]


def read_server_log(path: Path) -> ServerLog:
    """Read the log of a simulated provider's server, even if the server is still running.

    If the last line is incomplete, it is skipped.

    Raises:
        ResultsError: The file cannot be read or is not such a log. This error is also raised if the
            server has not yet written the first line.
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
        raise ResultsError(f"{path} is not a server's log: {error}") from None
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
