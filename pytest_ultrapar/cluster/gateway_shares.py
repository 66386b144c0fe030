"""The shares of a gateway. A gateway has no cases; it sends the requests of its clients.

A host in a run can predict its requests from the cases that no host has claimed. A gateway knows
only how many requests are waiting or in flight. If a single client sends one request after another,
both numbers are 0 in between. If the gateway wanted no units of the limits at such a time, it would
lose its share. The next request would then have to wait until the gateway has a share again.
Therefore it still wants units for a while after it last used them.
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
"""How many seconds a gateway still wants units after it last used them. So it keeps its share while
a client sends one request after another, with short pauses. When the clients are gone, the share is
withheld from other hosts for no longer than this."""


class Traffic(NamedTuple):
    """The traffic of one model since the broker started.

    Attributes:
        granted: The number of requests.
        busy_s: The sum of their durations, in seconds.
    """

    granted: int
    busy_s: float


class RecentUse:
    """Records the recent use of each model. Does no I/O."""

    def __init__(self, model_of: Mapping[LaneId, str]) -> None:
        """Start without any recorded use; `model_of` maps each lane to its model."""
        self._model_of = model_of
        self._seen: deque[tuple[float, Mapping[str, int]]] = deque()
        self._went: Mapping[str, Traffic] = {}
        self._before_s = -math.inf

    def note(self, now_s: float, asked: Mapping[str, int], went: Mapping[str, Traffic]) -> None:
        """Record the present use. Call this at each renewal, with increasing times.

        Args:
            now_s: The time.
            asked: For each model, how many requests are in flight or waiting now.
            went: For each model, the traffic so far.
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
        """Return how many more requests of each model are wanted.

        A gateway uses these numbers in place of the numbers of claimable cases.
        """
        asked: dict[str, int] = {}
        for lane, want in broker.wants(now_s, {}).lanes.items():
            # Use the maximum over the lanes of a model: all its requests could use that lane.
            model = self._model_of[lane]
            asked[model] = max(asked.get(model, 0), want.requests)
        went: dict[str, Traffic] = {}
        for one in broker.status(now_s).lanes:
            granted, busy_s = went.get(self._model_of[one.lane], Traffic(0, 0.0))
            went[self._model_of[one.lane]] = Traffic(granted + one.granted, busy_s + one.busy_s)
        self.note(now_s, asked, went)
        return [max(0, self.most(model) - asked.get(model, 0)) for model in models]

    def most(self, model: str) -> int:
        """Return the maximum number of a model's requests in progress at the same time recently."""
        return max((seen.get(model, 0) for _, seen in self._seen), default=0)
