"""The part of the limits of who has no cases: a gateway, which sends what its clients ask.

What a host of a run could use is known ahead, by the cases that nobody has claimed. A gateway knows
only what waits and what goes through. Between two requests of a client nothing does, and a want
that fell to nothing there would give its part away and wait for it again at the next request. So
what was in use a moment ago is wanted for a while longer.
"""

from __future__ import annotations

import math
import os
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pytest_ultrapar.cluster.host_shares import HostShares, SharingSettings
from pytest_ultrapar.pool.model import LaneId  # noqa: TC001 - read by msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.broker.host import BrokerHost
    from pytest_ultrapar.cluster.ledger import Renewal

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

    def __init__(self) -> None:
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

    def most(self, model: str) -> int:
        """The most of a model that was in use at once lately."""
        return max((seen.get(model, 0) for _, seen in self._seen), default=0)


class GatewaySettings(SharingSettings, frozen=True, kw_only=True):
    """As `SharingSettings`, without cases.

    Attributes:
        model_of: The model of each lane.
    """

    model_of: dict[LaneId, str]


def make_shares(host: BrokerHost, config: str) -> GatewayShares:
    """What shares limits beside a gateway's broker, by `GatewaySettings` as JSON.

    Raises:
        ConfigError: The server's URL is not there any more.
    """
    return GatewayShares(msgspec.json.decode(config, type=GatewaySettings), host, os.environ)


class GatewayShares(HostShares):
    """As `HostShares`; what is wanted ahead is what was in use lately."""

    def __init__(
        self, settings: GatewaySettings, host: BrokerHost, environ: Mapping[str, str]
    ) -> None:
        super().__init__(settings, host, environ)
        self._model_of = settings.model_of
        self._lately = Lately()

    def _next_call(self, *, leaving: bool = False) -> Renewal:
        broker, now_s = self._host.broker, self._host.now_s()
        asked: dict[str, int] = {}
        for lane, want in broker.wants(now_s, {}).lanes.items():
            # Of each lane of a model: all that its requests could use there.
            model = self._model_of[lane]
            asked[model] = max(asked.get(model, 0), want.requests)
        went: dict[str, Went] = {}
        for one in broker.status(now_s).lanes:
            granted, busy_s = went.get(self._model_of[one.lane], Went(0, 0.0))
            went[self._model_of[one.lane]] = Went(granted + one.granted, busy_s + one.busy_s)
        self._lately.note(now_s, asked, went)
        # As cases that could be claimed, which it has none of.
        self._claimable = [
            max(0, self._lately.most(line.model) - asked.get(line.model, 0))
            for line in self._settings.lines
        ]
        return super()._next_call(leaving=leaving)
