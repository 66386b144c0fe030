"""What requests cost that took another lane than the cheapest, by the prices of a bound; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.plan.bound import Price
    from pytest_ultrapar.results.request_log import RequestLog

_Offer = tuple[float, float]
"""What a second of a lane costs, and what a send costs."""


def detours_s(log: RequestLog, prices: Iterable[Price]) -> float:
    """Seconds of the makespan that the measured requests would have left to others, >= 0.

    A lane that only one model may use is cheap where that model has little to do; who takes a dear
    lane all the same makes those wait that have no other.
    """
    seconds: dict[str, float] = {}
    sends: dict[str, float] = {}
    for price in prices:
        kind = seconds if price.kind == "workers" else sends
        kind[price.limit] = kind.get(price.limit, 0.0) + price.price
    paid: list[_Offer] = [
        (
            sum(seconds.get(name, 0.0) for name in lane.limits),
            sum(sends.get(name, 0.0) for name in lane.limits),
        )
        for lane in log.lanes
    ]
    offers: dict[str, set[_Offer]] = {}
    for lane, offer in zip(log.lanes, paid, strict=True):
        offers.setdefault(lane.model, set()).add(offer)
    total_s = 0.0
    for request in log:
        if request.measured and request.served:
            service_s = request.ended_s - request.sent_s
            second, send = paid[request.lane]
            least = min(a * service_s + b for a, b in offers[log.lanes[request.lane].model])
            total_s += second * service_s + send - least
    return total_s
