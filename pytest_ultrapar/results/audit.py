"""Whether the limits were held, worked out from our own records of what was sent; pure."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pytest_ultrapar.pool.model import Limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_ultrapar.results.request_log import RequestLog

_MINUTE_S = 60.0


class LimitAudit(msgspec.Struct, frozen=True):
    """What fell on one limit, at most.

    A request counts as in flight from the moment before it is sent to the moment after its answer
    was read, so the provider never saw more than this.

    Attributes:
        limit: Its name.
        n: Requests on all lanes of the limit.
        in_flight: Most at once.
        workers: What is allowed, None for any number; so for the next two.
        sends_1s: Most sends in any 1 s, both ends included.
        sends_60s: Most sends in any 60 s.
        passed: The numbers that were passed, among `workers`, `qps` and `rpm`, and `tpm`.
        tokens_60s: Most tokens, in and out, of requests sent in any 60 s, as far as the provider
            told; None where it told nothing or `tpm` is None.
        tpm: What of them is allowed; None for any number.
    """

    limit: str
    n: int
    in_flight: int
    workers: int | None
    sends_1s: int
    qps: float | None
    sends_60s: int
    rpm: float | None
    passed: tuple[str, ...]
    tokens_60s: int | None = None
    tpm: float | None = None


class _Peaks(NamedTuple):
    in_flight: int
    sends_1s: int
    sends_60s: int


def audit(log: RequestLog, limits: Iterable[Limit]) -> tuple[LimitAudit, ...]:
    """An audit of each limit on which any request fell, in the order given, and of each other key.

    A key that the pool lists more than once is one key.

    Requests of workers that died stand in no record of ours, so they are left out.

    Args:
        log: Every request of the run, whether it counts or not.
        limits: Those of the run's lanes.
    """
    sent = [array("d") for _ in log.lanes]
    tokens = [array("q") for _ in log.lanes]
    ended = [array("d") for _ in log.lanes]
    for request in log:
        sent[request.lane].append(request.sent_s)
        tokens[request.lane].append(request.tokens)
        ended[request.lane].append(request.ended_s)
    found = []
    for limit, on in _bound_lanes(log, limits):
        sends = sorted(time_s for at in on for time_s in sent[at])
        if sends:
            ends = sorted(time_s for at in on for time_s in ended[at])
            audited = _audited(limit, sends, ends)
            if limit.tpm is not None:
                pairs = (pair for at in on for pair in zip(sent[at], tokens[at], strict=True))
                audited = _with_tokens(audited, limit.tpm, sorted(pairs))
            found.append(audited)
    return tuple(found)


def _bound_lanes(log: RequestLog, limits: Iterable[Limit]) -> Iterator[tuple[Limit, list[int]]]:
    known = set()
    for limit in limits:
        known.add(limit.name)
        yield limit, [at for at, lane in enumerate(log.lanes) if limit.name in lane.limits]
    keys: dict[str, list[int]] = {}
    for at, lane in enumerate(log.lanes):
        keys.setdefault(lane.key_name, []).append(at)
    for name, on in keys.items():
        if name not in known:
            yield Limit(name, "key"), on


def peak_in_flight(log: RequestLog) -> int:
    """Most requests of the whole run in flight at once; 0 for none."""
    sends = sorted(request.sent_s for request in log)
    return _most_in_flight(sends, sorted(request.ended_s for request in log))


def _audited(limit: Limit, sends: Sequence[float], ends: Sequence[float]) -> LimitAudit:
    peaks = _Peaks(
        _most_in_flight(sends, ends), _most_within(sends, 1.0), _most_within(sends, _MINUTE_S)
    )
    allowed = (limit.workers, limit.qps, limit.rpm)
    passed = tuple(
        name
        for name, peak, most in zip(("workers", "qps", "rpm"), peaks, allowed, strict=True)
        # 2.5 per second is 5 in 2 s, of which 3 may fall into one; 0.2 lets one go at a time.
        if most is not None and peak > math.ceil(most)
    )
    return LimitAudit(
        limit.name,
        len(sends),
        peaks.in_flight,
        limit.workers,
        peaks.sends_1s,
        limit.qps,
        peaks.sends_60s,
        limit.rpm,
        passed,
    )


def _with_tokens(audited: LimitAudit, tpm: float, sends: Sequence[tuple[float, int]]) -> LimitAudit:
    """Add what the sends, sorted, took of a limit on tokens."""
    most = now = first = 0
    for sent_s, tokens in sends:
        now += tokens
        while sent_s - sends[first][0] > _MINUTE_S:
            now -= sends[first][1]
            first += 1
        most = max(most, now)
    passed = (*audited.passed, "tpm") if most > math.ceil(tpm) else audited.passed
    return msgspec.structs.replace(audited, tokens_60s=most or None, tpm=tpm, passed=passed)


def _most_in_flight(sends: Sequence[float], ends: Sequence[float]) -> int:
    most = at_end = 0
    for number, sent_s in enumerate(sends):
        while at_end < len(ends) and ends[at_end] <= sent_s:
            at_end += 1
        most = max(most, number + 1 - at_end)
    return most


def _most_within(sends: Sequence[float], window_s: float) -> int:
    """The most of these moments, sorted, in any window of this length."""
    most = first = 0
    for number, sent_s in enumerate(sends):
        while sent_s - sends[first] > window_s:
            first += 1
        most = max(most, number + 1 - first)
    return most
