"""Whether the client was what held a run up, and not the pool; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.results.statistics import quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.records import EngineSpent
    from pytest_ultrapar.results.attribution import Attribution
    from pytest_ultrapar.results.request_log import RequestLog

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
        f"{late_s * 1e3:.1f} ms late on the mean, 5 % of the requests were sent more than "
        f"{dispatch_s * 1e3:.0f} ms after their lease, the busiest process took {busy:.0%} CPU"
    )
