"""What one host learns of keys, instances and lanes that holds on all hosts: removals and pauses.

Only what the provider said is news: a key that it does not take, a server that it does not know, a
time for which it wants to be left alone. Failures and searches are a host's own: its network may be
what is broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.apis.failure_classes import CLASSES, LIMITED, Scope
from pytest_ultrapar.broker.health import Pause, Removal
from pytest_ultrapar.pool.model import LaneId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.broker.health import Verdict
    from pytest_ultrapar.broker.lane_table import LaneTable
    from pytest_ultrapar.broker.lanes import LaneState
    from pytest_ultrapar.broker.protocol import Feedback


class News(msgspec.Struct, frozen=True):
    """One thing that a host learned.

    Attributes:
        lane_id: Where it was learned.
        removes: What of the lane is removed: its key, say; None: the lane pauses.
        reason: Of a removal: one sentence for people.
        for_s: Of a pause: how long the provider wants to be left alone, from when the news were
            taken.
    """

    lane_id: LaneId
    removes: Scope | None = None
    reason: str = ""
    for_s: float = 0.0


class NewsBook:
    """Notes the news of one broker, and carries out those of others."""

    def __init__(self, table: LaneTable) -> None:
        self._table = table
        self._removals: dict[News, None] = {}
        self._until_s: dict[LaneId, float] = {}
        self._known: set[News] = set()

    def decided(self, lane: LaneState, verdict: Verdict, said: str, feedback: Feedback) -> None:
        """A lease that came back has a verdict; to be said before that is carried out."""
        lane_id = lane.lane.lane_id
        if isinstance(verdict, Removal):
            is_told = CLASSES[said].removes is not None or feedback.retry_after_s is not None
            if is_told and not lane.is_removed:
                self._removals[News(lane_id, verdict.scope, verdict.reason)] = None
            return
        is_asked = said in LIMITED and feedback.retry_after_s is not None
        if is_asked and isinstance(verdict, Pause) and verdict.cause == "rate":
            self._until_s[lane_id] = verdict.until_s

    def take(self, now_s: float) -> list[News]:
        """The news since the last call."""
        found = list(self._removals)
        found += [
            News(lane_id, for_s=until_s - now_s)
            for lane_id, until_s in self._until_s.items()
            if until_s > now_s
        ]
        self._removals, self._until_s = {}, {}
        # They come back to us with all others'.
        self._known.update(found)
        return found

    def hear(self, news: Iterable[News], now_s: float) -> None:
        """Carry out what other hosts have learned."""
        for one in news:
            lane = self._table.lanes.get(one.lane_id)
            if one in self._known or lane is None:
                continue
            self._known.add(one)
            if one.removes is not None:
                self._table.apply(lane, Removal(one.removes, one.reason), now_s)
            elif one.for_s > 0 and not lane.is_removed:
                pause = lane.health.asked_elsewhere(now_s + one.for_s, now_s)
                if pause is not None:
                    self._table.apply(lane, pause, now_s)
