"""The shares of a gateway, which has no cases and sends the requests of its clients.

A host of a run knows its future requests from the cases that no host has claimed. A gateway knows
only the requests that wait or are in flight, and between two requests of a client these are 0. If
the gateway then wanted nothing, it would give its share away and wait for it at the next request.
Therefore it wants recently used units for a while longer.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_ultrapar.broker.broker import LaneBroker
    from pytest_ultrapar.pool.model import LaneId

LATELY_S = 5.0
"""Units are wanted this long after their last use. Clients that send one request after another,
with short pauses, keep their share. The share of clients that are gone blocks no host for longer.
"""


class Traffic(NamedTuple):
    """The traffic since a broker began.

    Attributes:
        granted: Number of requests.
        busy_s: Sum of their durations in seconds.
    """

    granted: int
    busy_s: float


class RecentUse:
    """The recent use by model: pure."""

    def __init__(self, model_of: Mapping[LaneId, str]) -> None:
        """Start without any use; `model_of` has the model of each lane."""
        self._model_of = model_of
        self._seen: deque[tuple[float, Mapping[str, int]]] = deque()
        self._went: Mapping[str, Traffic] = {}
        self._before_s = -math.inf

    def note(self, now_s: float, asked: Mapping[str, int], went: Mapping[str, Traffic]) -> None:
        """Record the present use; called at every renewal, with increasing times.

        Args:
            now_s: The time.
            asked: By model, requests that are in flight or wait.
            went: By model, the traffic so far.
        """
        most = dict(asked)
        for model, (granted, busy_s) in went.items():
            before = self._went.get(model, Traffic(0, 0.0))
            if granted > before.granted:
                # Short requests end between renewals; this is their average number in flight.
                used = math.ceil((busy_s - before.busy_s) / (now_s - self._before_s))
                most[model] = max(1, used, most.get(model, 0))
        self._went, self._before_s = went, now_s
        self._seen.append((now_s, most))
        while self._seen[0][0] < now_s - LATELY_S:
            self._seen.popleft()

    def claimable(self, broker: LaneBroker, now_s: float, models: Iterable[str]) -> list[int]:
        """Additional requests wanted of each model, counted like claimable cases."""
        asked: dict[str, int] = {}
        for lane, want in broker.wants(now_s, {}).lanes.items():
            # The maximum over the lanes of a model: all its requests could use that lane.
            model = self._model_of[lane]
            asked[model] = max(asked.get(model, 0), want.requests)
        went: dict[str, Traffic] = {}
        for one in broker.status(now_s).lanes:
            granted, busy_s = went.get(self._model_of[one.lane], Traffic(0, 0.0))
            went[self._model_of[one.lane]] = Traffic(granted + one.granted, busy_s + one.busy_s)
        self.note(now_s, asked, went)
        return [max(0, self.most(model) - asked.get(model, 0)) for model in models]

    def most(self, model: str) -> int:
        """The recent maximum of a model's requests in use at the same time."""
        return max((seen.get(model, 0) for _, seen in self._seen), default=0)
