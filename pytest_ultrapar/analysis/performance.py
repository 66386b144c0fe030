"""What a run made of its pool: bound, efficiency, where the time went, limits held or not; pure.

The bound is that of what was measured: how long the requests that were answered would have taken
on this pool at best. So it says how good the schedule was, and not whether the provider was slow.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.attribution import Attribution, attribute
from pytest_ultrapar.analysis.requests import LimitAudit, audit, peak_in_flight
from pytest_ultrapar.analysis.statistics import Latency, latency_of, quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_ultrapar.analysis.requests import Request, RequestLog
    from pytest_ultrapar.plan.bound import Bound, RequestClass
    from pytest_ultrapar.pool.model import Limit
    from pytest_ultrapar.records import EngineSpent
    from pytest_ultrapar.store.manifest import Manifest
    from pytest_ultrapar.store.timing import Span


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run beyond its cases.

    Attributes:
        peak_in_flight: Most requests in flight at once.
        bound_s: Lower bound of the makespan in hindsight. None where nothing was measured, and
            where limits were estimated: what a pool file then says are ceilings, and a bound by
            those tells nothing. So for the four below.
        binding: The limit that bounds most, such as `ideallab/key0 (qps)`.
        efficiency: bound_s / makespan, 0 to 1.
        attribution: Where the makespan went.
        client_bound: Why the client and not the pool was what held the run up; empty if it was not.
        audit: What fell on each limit at most, by our own records.
        first_token: Seconds from sending to the first token, over all streams; None without any.
    """

    peak_in_flight: int = 0
    bound_s: float | None = None
    binding: str | None = None
    efficiency: float | None = None
    attribution: Attribution | None = None
    client_bound: str = ""
    audit: tuple[LimitAudit, ...] = ()
    first_token: Latency | None = None


def performance(
    log: RequestLog, manifest: Manifest, spans: Sequence[Span], engines: Sequence[EngineSpent]
) -> tuple[Performance, Bound | None]:
    """The performance of a run, and the bound with the prices that prove it.

    Args:
        log: All requests of the run, on the manifest's lanes.
        manifest: For the limits.
        spans: Of the measured episodes.
        engines: How busy each engine was.
    """
    known = Performance(
        peak_in_flight=peak_in_flight(log),
        audit=audit(log, manifest.pool_limits),
        first_token=latency_of(log.first_token_s),
    )
    if not spans or manifest.rate_mode != "fixed":
        return known, None
    start_s = min(span.first_send_s for span in spans)
    end_s = max(span.end_s for span in spans)
    bound = run_bound(log, manifest.pool_limits)
    if bound is None or end_s <= start_s:
        return known, None
    attribution = attribute(
        log,
        manifest.pool_limits,
        bound,
        start_s=start_s,
        end_s=end_s,
        restricted=manifest.restricted,
    )
    whole = msgspec.structs.replace(
        known,
        bound_s=bound.seconds,
        binding=bound.binding,
        efficiency=bound.seconds / (end_s - start_s),
        attribution=attribution,
        client_bound=client_bound(attribution, engines, dispatch_p95_s(log)),
    )
    return whole, bound


def run_bound(log: RequestLog, limits: Iterable[Limit]) -> Bound | None:
    """How fast the measured episodes could have been answered at best.

    A request's service is from its sending to its answer, so a provider that is slower under load
    makes the bound larger, and so does a client that is late to read. Waiting and back-off are left
    out, and so are requests that were refused for their rate.

    Args:
        log: All requests of the run.
        limits: Those of the log's lanes.

    Returns:
        None when no measured request was served.
    """
    # Not at the top: whoever prints a run's summary reads `Performance` from here, without scipy.
    from pytest_ultrapar.plan.lower_bound import lower_bound  # noqa: PLC0415

    requests = demand(log)
    if not requests:
        return None
    longest_s = max(_episodes_s(log), default=0.0)
    return lower_bound(log.lanes, limits, requests, longest_s=longest_s)


def demand(log: RequestLog) -> tuple[RequestClass, ...]:
    """The measured requests that were served, in classes."""
    from pytest_ultrapar.plan.lower_bound import request_classes  # noqa: PLC0415

    services: dict[str, list[float]] = defaultdict(list)
    for request in log:
        if request.measured and request.served:
            services[log.lanes[request.lane].model].append(request.ended_s - request.sent_s)
    return request_classes(services)


def _episodes_s(log: RequestLog) -> Iterator[float]:
    """By measured episode, the seconds of its requests, which follow one another."""
    episode: list[Request] = []
    for request in log:
        if request.first:
            yield _in_turn_s(episode)
            episode = []
        if request.measured and request.served:
            episode.append(request)
    yield _in_turn_s(episode)


def _in_turn_s(episode: list[Request]) -> float:
    """Of requests that overlapped nobody knows which one had to wait for which: the longest."""
    services_s = [request.ended_s - request.sent_s for request in episode]
    overlap = any(late.sent_s < early.ended_s for early, late in itertools.pairwise(episode))
    return max(services_s, default=0.0) if overlap else sum(services_s)


LEAST_SHARE = 0.1
"""Of the makespan: what the client itself may cost before its run says little of a provider."""
LATE_S = 0.01
SLOW_DISPATCH_S = 0.05
BUSY = 0.9
"""Any of these is a sign that the client had too much to do, and not that a suite's own code waited
between two turns. Loops that keep up are late by 0.2 ms on the mean, loops at their end by 15 ms
and more (3,000 cases of 200 ms on 300 seats, two cores)."""


def dispatch_p95_s(log: RequestLog) -> float:
    """Seconds from a lease to the sending of its request, 95 % are faster; 0 for no request."""
    delays_s = sorted(one.sent_s - one.granted_s for one in log if one.measured)
    return quantile(delays_s, 0.95) if delays_s else 0.0


def client_bound(
    attribution: Attribution, engines: Sequence[EngineSpent], dispatch_s: float
) -> str:
    """One sentence if the client held the run up, else empty.

    Args:
        attribution: Of the run.
        engines: How busy each was; those of workers that died are missing.
        dispatch_s: From `dispatch_p95_s`.
    """
    share = attribution.run.client_s / attribution.makespan_s
    late_s = max((one.late_s / one.n_beats for one in engines if one.n_beats), default=0.0)
    busy = max((one.cpu_s / one.wall_s for one in engines if one.wall_s > 0), default=0.0)
    overloaded = late_s >= LATE_S or dispatch_s >= SLOW_DISPATCH_S or busy >= BUSY
    if share < LEAST_SHARE or not overloaded:
        return ""
    return (
        f"{share:.0%} of the makespan was the client's own time: its loop woke "
        f"{late_s * 1e3:.1f} ms late on average, 5 % of the requests were sent more than "
        f"{dispatch_s * 1e3:.0f} ms after their lease, the busiest process took {busy:.0%} CPU"
    )
