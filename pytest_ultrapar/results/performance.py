"""What a run made of its pool: bound, efficiency, where the time went, limits held or not; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.results.attribution import Attribution, attribute
from pytest_ultrapar.results.audit import LimitAudit, audit, peak_in_flight
from pytest_ultrapar.results.hindsight import hindsight
from pytest_ultrapar.results.saturation import client_bound, dispatch_p95_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.plan.bound import Bound
    from pytest_ultrapar.records import EngineSpent
    from pytest_ultrapar.results.manifest import Manifest
    from pytest_ultrapar.results.request_log import RequestLog
    from pytest_ultrapar.results.service import Span


class Performance(NamedTuple):
    """What is known of a run beyond its tables.

    Attributes:
        bound: None where nothing was measured, and where limits were looked for: what a pool file
            then says are ceilings, and a bound by those tells nothing. So for all below.
        efficiency: The bound as a share of the makespan.
        client_bound: Why the client was what held the run up; empty if it was not.
    """

    peak_in_flight: int
    audit: tuple[LimitAudit, ...]
    bound: Bound | None = None
    efficiency: float | None = None
    attribution: Attribution | None = None
    client_bound: str = ""


def performance(
    log: RequestLog, manifest: Manifest, spans: Sequence[Span], engines: Sequence[EngineSpent]
) -> Performance:
    """The performance of a run.

    Args:
        log: All requests of the run, on the manifest's lanes.
        manifest: For the limits.
        spans: Of the measured episodes.
        engines: How busy each engine was.
    """
    peak, audited = peak_in_flight(log), audit(log, manifest.pool_limits)
    is_known = manifest.rate_mode == "fixed"
    bound = hindsight(log, manifest.pool_limits) if spans and is_known else None
    if bound is None:
        return Performance(peak, audited)
    start_s = min(span.first_send_s for span in spans)
    end_s = max(span.end_s for span in spans)
    if end_s <= start_s:
        return Performance(peak, audited)
    attribution = attribute(
        log,
        manifest.pool_limits,
        bound,
        start_s=start_s,
        end_s=end_s,
        restricted=manifest.restricted,
    )
    return Performance(
        peak,
        audited,
        bound,
        bound.seconds / (end_s - start_s),
        attribution,
        client_bound(attribution, engines, dispatch_p95_s(log)),
    )
