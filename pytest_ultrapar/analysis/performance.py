"""How well a run used its pool: lower bound, efficiency, use of time, and limits.

All functions are pure.

The lower bound is the shortest time in which the same pool could have answered the same requests.
It is computed from the measured response times. So a comparison with the bound judges the schedule,
not the speed of the provider.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.attribution import Attribution, attribute
from pytest_ultrapar.analysis.requests import LimitAudit, audit, peak_in_flight
from pytest_ultrapar.analysis.slowdown import Slowdown, stretch
from pytest_ultrapar.analysis.statistics import Latency, latency_of, quantile
from pytest_ultrapar.records import EngineSpent, by_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ultrapar.analysis.plan.lower_bound import RequestClass
    from pytest_ultrapar.analysis.requests import RequestLog
    from pytest_ultrapar.pool.model import Limit
    from pytest_ultrapar.store.lower_bound import Bound
    from pytest_ultrapar.store.manifest import Manifest
    from pytest_ultrapar.store.timing import Span


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """The figures that describe a run as a whole, not its cases.

    Attributes:
        peak_in_flight: The largest number of requests in flight at the same time.
        bound_s: The lower bound on the makespan, computed after the run. It is None if nothing was
            measured, or if a gateway's clients decided when to send. It is also None if limits were
            estimated: the pool file then states only ceilings, and a bound from ceilings is
            meaningless. In all these cases, the next three attributes are also None, and
            `client_bound` is empty.
        binding: The limit with the largest share of the bound, such as `ideallab/key0 (qps)`; or
            `longest episode`.
        efficiency: bound_s / makespan, 0 to 1.
        attribution: The parts of the makespan.
        client_bound: How the client, and not the pool, limited the run; empty if the client did not
            limit it.
        audit: The highest load on each limit, as recorded by the run.
        first_token: The distribution of the seconds from sending to the first token, over all
            streams. None without streams.
        start_s: The seconds from the beginning of the run to its first send. Like the next two
            attributes, it is None unless the whole run is one session on one host.
        behind_s: The seconds from the end of the last episode to the end of the run. This time is
            spent on tests and on shutting down workers.
        tables_s: The seconds that it took to make the tables and all figures after the run.
        stalls: For how many seconds the suite's code blocked the event loops of episodes, by place
            in this code. The longest time comes first.
        stretch: How much longer answers took with more requests in flight; None if unknown.
    """

    peak_in_flight: int = 0
    bound_s: float | None = None
    binding: str | None = None
    efficiency: float | None = None
    attribution: Attribution | None = None
    client_bound: str = ""
    audit: tuple[LimitAudit, ...] = ()
    first_token: Latency | None = None
    stretch: Slowdown | None = None
    start_s: float | None = None
    behind_s: float | None = None
    tables_s: float | None = None
    stalls: dict[str, float] = {}

    @property
    def alone(self) -> float | None:
        """The same as `Slowdown.alone`; None if the client limited the run."""
        # If the client did not keep up, the times of the cases also include the client's delays.
        return None if self.stretch is None or self.client_bound else self.stretch.alone


def performance(
    log: RequestLog, manifest: Manifest, span: Span | None, engines: Sequence[EngineSpent]
) -> tuple[Performance, Bound | None]:
    """Compute the performance of a run, and its lower bound with the prices that prove this bound.

    Args:
        log: All requests in the run, on the manifest's lanes.
        manifest: The run's manifest, which contains the limits.
        span: The time from the first send in any measured episode to the end of the last one. None
            without episodes.
        engines: How busy each engine, the controller and the broker were.
    """
    error_s = None if manifest.merged is None else manifest.merged.clock_error_s
    stalls: Counter[str] = Counter()
    for engine in engines:
        stalls.update(engine.stalls)
    known = Performance(
        peak_in_flight=peak_in_flight(log),
        audit=audit(log, manifest.pool_limits, error_s=error_s or 0.0),
        first_token=latency_of(log.first_token_s),
        stretch=stretch(log),
        stalls=dict(stalls.most_common()),
    )
    is_one = (
        not (manifest.resumed or manifest.regraded or manifest.asked_by_others)
        and manifest.merged is None
    )
    if span is not None and manifest.ended_at is not None and is_one and len(log):
        columns = log.columns()
        first_s = float(columns.sent_at_s.min())
        last_s = first_s + span.end_s - float(columns.sent_s.min())
        known = msgspec.structs.replace(
            known,
            start_s=max(0.0, first_s - manifest.started_at.timestamp()),
            behind_s=max(0.0, manifest.ended_at.timestamp() - last_s),
        )
    if span is None or manifest.rate_mode != "fixed" or manifest.asked_by_others:
        return known, None
    start_s, end_s = span
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
    known = msgspec.structs.replace(
        known,
        bound_s=bound.seconds,
        binding=bound.binding,
        efficiency=bound.seconds / (end_s - start_s),
        attribution=attribution,
        client_bound=client_bound(attribution, engines, dispatch_p95_s(log)),
    )
    return known, bound


def run_bound(log: RequestLog, limits: Iterable[Limit]) -> Bound | None:
    """Return the shortest time in which the measured requests could have been answered.

    They are the requests that the makespan includes. A request's service time is the time from
    sending to the answer. So the bound increases if a provider is slower under load, or if the
    client reads answers late. Waits, back-off and rate-limited requests are not included.

    Args:
        log: All requests in the run.
        limits: The limits that apply to the log's lanes.

    Returns:
        The bound; None if no measured request was served.
    """
    # Do not import this at the top: code that prints a summary must be able to import `Performance`
    # without loading scipy.
    from pytest_ultrapar.analysis.plan.lower_bound import lower_bound  # noqa: PLC0415

    requests = demand(log)
    if not requests:
        return None
    return lower_bound(log.lanes, limits, requests, longest_s=_longest_episode_s(log))


def demand(log: RequestLog) -> tuple[RequestClass, ...]:
    """Return the measured requests that were served, grouped into classes."""
    from pytest_ultrapar.analysis.plan.lower_bound import request_classes  # noqa: PLC0415

    columns = log.columns()
    served = columns.of(columns.measured & columns.served)
    models = by_key((log.lanes[at].model, at) for at in dict.fromkeys(served.lane.tolist()))
    asked = {model: served.on(lanes) for model, lanes in models.items()}
    return request_classes({model: own.ended_s - own.sent_s for model, own in asked.items()})


def _longest_episode_s(log: RequestLog) -> float:
    """Return the longest service time of a measured episode (summed over its requests), in seconds.

    If requests in an episode overlap, it is unknown which of them depend on others. So only the
    longest request in such an episode counts. At least one episode is required.
    """
    import numpy as np  # noqa: PLC0415 - as above

    columns = log.columns()
    counts = columns.measured & columns.served
    episode = np.cumsum(columns.first)[counts]
    sent_s, ended_s = columns.sent_s[counts], columns.ended_s[counts]
    _, begins, of = np.unique(episode, return_index=True, return_inverse=True)
    sums_s = np.bincount(of, weights=ended_s - sent_s)
    longest_s = np.maximum.reduceat(ended_s - sent_s, begins)
    overlaps = (of[1:] == of[:-1]) & (sent_s[1:] < ended_s[:-1])
    sums_s[of[1:][overlaps]] = longest_s[of[1:][overlaps]]
    return float(sums_s.max())


CLIENT_SHARE = 0.1
"""If the client's own time is at least this share of the makespan, the run does not show the
provider's speed."""
LATE_S = 0.01
SLOW_DISPATCH_S = 0.05
BUSY = 0.9
"""If one of these three thresholds is reached, the client was overloaded, and the suite's own code
was not just waiting between two turns. Event loops that keep up wake 0.2 ms late on average.
Overloaded ones wake at least 15 ms late (measured with 3,000 cases of 200 ms on 300 seats and two
cores)."""


_OF_WORKERS = "; add workers (-n) to share its work"
_OF_ALL = "; all workers share it: use more hosts or shards (--ultrapar-shard), as each has its own"
_FEW_CORES = "; there are too few cores: reduce workers (-n) or grader jobs to leave it more CPU"


def dispatch_p95_s(log: RequestLog) -> float:
    """Return the 95th percentile of the seconds between lease and sending; 0 without requests."""
    columns = log.columns()
    delays_s = (columns.sent_s - columns.granted_s)[columns.measured].tolist()
    return quantile(sorted(delays_s), 0.95) if delays_s else 0.0


def client_bound(
    attribution: Attribution, engines: Sequence[EngineSpent], dispatch_s: float
) -> str:
    """Return a sentence that says how the client limited the run, or "" if it did not.

    One check is separate: the client limited the run if the suite's code blocked an event loop for
    at least a tenth of the makespan. The client's share of the makespan does not include that time,
    because answers that cannot be read in the meantime look like slow answers.

    Args:
        attribution: The run's attribution.
        engines: How busy each engine, the controller and the broker were; workers that died are
            missing.
        dispatch_s: The result of `dispatch_p95_s`.
    """
    stalls = max((one.stalls for one in engines), key=lambda own: sum(own.values()), default={})
    stood_s = sum(stalls.values())
    least_s = CLIENT_SHARE * attribution.makespan_s
    if stood_s >= least_s:
        return (
            f"code in the suite blocked the event loop of a worker's episodes for {stood_s:.1f} s, "
            f"mostly in {max(stalls, key=stalls.__getitem__)}: use await llm.run(function) there"
        )
    share = attribution.run.client_s / attribution.makespan_s
    late_s = max((one.late_s / one.n_beats for one in engines if one.n_beats), default=0.0)
    # If there are too few cores, even a nearly idle process waits at each step. So look at the
    # process that used the most CPU.
    all_of_run = [one for one in engines if one.wall_s > least_s]
    used = ((one.cpu_s / one.wall_s, one.waited_s / one.wall_s, one.worker) for one in all_of_run)
    cpu, waits, name = max(used, default=(0.0, 0.0, "unknown"))
    # Keep the wait between 0 and the rest of the time. Several threads may wait at the same time,
    # and the waits of ended threads are unknown.
    waits = max(0.0, min(waits, 1.0 - cpu))
    is_full = cpu + waits >= BUSY
    overloaded = late_s >= LATE_S or dispatch_s >= SLOW_DISPATCH_S or is_full
    if share < CLIENT_SHARE or not overloaded:
        return ""
    cure = _FEW_CORES if waits > cpu else _OF_WORKERS
    if name in {"controller", "broker"}:
        cure = _OF_ALL
    kept_waiting = f" and waited for a CPU {waits:.0%} of the time" if waits >= CLIENT_SHARE else ""
    return (
        f"{share:.0%} of the makespan was spent in the client. Its event loop woke "
        f"{late_s * 1e3:.1f} ms late on average, and 5 % of the requests were sent more than "
        f"{dispatch_s * 1e3:.0f} ms after their lease was granted. The busiest process ({name}) "
        f"used {cpu:.0%} CPU{kept_waiting}{cure if is_full else ''}"
    )
