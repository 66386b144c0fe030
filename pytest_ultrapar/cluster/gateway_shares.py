"""The part of the limits of who has no cases: a gateway, which sends what its clients ask.

What a host of a run could use is known ahead, by the cases that nobody has claimed. A gateway knows
only what waits and what goes through. Between two requests of a client nothing does, and a want
that fell to nothing there would give its part away and wait for it again at the next request. So
what was in use a moment ago is wanted for a while longer.
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
"""What was in use so long ago is still wanted: clients that ask one after another, and think for a
moment in between, keep their part; those that are gone keep nobody waiting for longer."""


class Went(NamedTuple):
    """What went through since a broker began.

    Attributes:
        granted: Requests.
        busy_s: Seconds that they took, all of them together.
    """

    granted: int
    busy_s: float


class Lately:
    """What was in use over the last moments, by model: pure."""

    def __init__(self, model_of: Mapping[LaneId, str]) -> None:
        """Know nothing; `model_of` has the model of each lane."""
        self._model_of = model_of
        self._seen: deque[tuple[float, Mapping[str, int]]] = deque()
        self._went: Mapping[str, Went] = {}
        self._before_s = -math.inf

    def note(self, now_s: float, asked: Mapping[str, int], went: Mapping[str, Went]) -> None:
        """How much it is now; called at every renewal, at a later time each.

        Args:
            now_s: The time.
            asked: By model, requests that are in flight or wait.
            went: By model, what went through so far.
        """
        most = dict(asked)
        for model, (granted, busy_s) in went.items():
            before = self._went.get(model, Went(0, 0.0))
            if granted > before.granted:
                # Short requests are there at no renewal: so many were, on average.
                used = math.ceil((busy_s - before.busy_s) / (now_s - self._before_s))
                most[model] = max(1, used, most.get(model, 0))
        self._went, self._before_s = went, now_s
        self._seen.append((now_s, most))
        while self._seen[0][0] < now_s - LATELY_S:
            self._seen.popleft()

    def claimable(self, broker: LaneBroker, now_s: float, models: Iterable[str]) -> list[int]:
        """What is wanted of each model beside what waits, as of cases that could be claimed."""
        asked: dict[str, int] = {}
        for lane, want in broker.wants(now_s, {}).lanes.items():
            # Of each lane of a model: all that its requests could use there.
            model = self._model_of[lane]
            asked[model] = max(asked.get(model, 0), want.requests)
        went: dict[str, Went] = {}
        for one in broker.status(now_s).lanes:
            granted, busy_s = went.get(self._model_of[one.lane], Went(0, 0.0))
            went[self._model_of[one.lane]] = Went(granted + one.granted, busy_s + one.busy_s)
        self.note(now_s, asked, went)
        return [max(0, self.most(model) - asked.get(model, 0)) for model in models]

    def most(self, model: str) -> int:
        """The most of a model that was in use at once lately."""
        return max((seen.get(model, 0) for _, seen in self._seen), default=0)
