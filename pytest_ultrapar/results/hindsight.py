"""The lower bound of a run that is over, by what its requests took; pure."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_ultrapar.plan.bound import lower_bound
from pytest_ultrapar.plan.demand import request_classes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_ultrapar.plan.bound import Bound
    from pytest_ultrapar.plan.demand import RequestClass
    from pytest_ultrapar.pool.model import Limit
    from pytest_ultrapar.results.request_log import Request, RequestLog


def hindsight(log: RequestLog, limits: Iterable[Limit]) -> Bound | None:
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
    requests = demand(log)
    if not requests:
        return None
    longest_s = max(_episodes_s(log), default=0.0)
    return lower_bound(log.lanes, limits, requests, longest_s=longest_s)


def demand(log: RequestLog) -> tuple[RequestClass, ...]:
    """The measured requests that were served, in classes."""
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
