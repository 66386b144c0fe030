"""The bound of a makespan that prices of limits prove, without the code that finds them."""

from __future__ import annotations

from pytest_ultrapar.analysis.plan.load import resources
from pytest_ultrapar.analysis.plan.lower_bound import burst_allowance


def certify(lanes, limits, requests, prices):
    """The seconds that a price list proves, computed lane by lane without folding.

    Args:
        lanes: All lanes that the run may use.
        limits: The limits on the paths of the lanes; others are ignored.
        requests: The requests that need an answer.
        prices: Any prices >= 0. They are scaled down if they cost more than 1 together.
    """
    named = {name for lane in lanes for name in lane.limits}
    parts = resources(limit for limit in limits if limit.name in named)
    priced = {(one.limit, one.kind): one.price for one in prices}
    whole = sum(priced.get((part.limit, part.kind), 0.0) * part.per_s for part in parts)
    if whole <= 0:
        return 0.0
    proven = 0.0
    for own in requests:
        proven += own.n * min(
            sum(
                priced.get((part.limit, part.kind), 0.0) * (1.0 if part.is_rate else own.service_s)
                for part in parts
                if part.limit in lane.limits
            )
            for lane in lanes
            if lane.model == own.model
        )
    for part in parts:
        if part.is_rate:
            users = {lane.model for lane in lanes if part.limit in lane.limits}
            proven -= priced.get((part.limit, part.kind), 0.0) * burst_allowance(
                part, requests, users
            )
    return max(0.0, proven / whole)
