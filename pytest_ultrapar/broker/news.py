"""What one host learns of keys, instances and lanes that holds on all hosts: removals and pauses.

Only what the provider said is news: a key that it does not take, a server that it does not know, a
time for which it wants to be left alone. Failures and searches are a host's own: its network may be
what is broken.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.apis.failure_classes import CLASSES, LIMITED, OF_HOST, Scope
from pytest_ultrapar.broker.health import Pause, Removal
from pytest_ultrapar.pool.model import LaneId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.broker.health import Verdict
    from pytest_ultrapar.broker.lane_table import LaneTable
    from pytest_ultrapar.broker.lanes import LaneState
    from pytest_ultrapar.broker.protocol import Feedback


HOLDS_S, REPEAT_S = 60.0, 20.0
"""A removal is news for so long, and is said again by whoever has not heard it for so long: hosts
that join later hear it, and a run that is joined again when all its hosts have ended does not. Its
keys may have been mended."""


class News(msgspec.Struct, frozen=True):
    """One thing that a host learned.

    Attributes:
        lane_id: Where it was learned.
        removes: What of the lane is removed: its key, say; None: the lane pauses.
        reason: Of a removal: one sentence for people.
        for_s: Of a pause: how long the provider wants to be left alone, from when the news were
            taken. Of a removal: how long they are news.
    """

    lane_id: LaneId
    removes: Scope | None = None
    reason: str = ""
    for_s: float = 0.0


class NewsBook:
    """Notes the news of one broker, and carries out those of others."""

    def __init__(self, table: LaneTable) -> None:
        self._table = table
        # When they are to be said, -infinity for at once: those of others, too, should these end.
        self._removals: dict[News, float] = {}
        self._until_s: dict[LaneId, float] = {}
        self._known: set[News] = set()

    @property
    def is_fresh(self) -> bool:
        """Whether there are news that nobody was told."""
        return bool(self._until_s) or -math.inf in self._removals.values()

    def decided(self, lane: LaneState, verdict: Verdict, said: str, feedback: Feedback) -> None:
        """A lease that came back has a verdict; to be said before that is carried out."""
        lane_id = lane.lane.lane_id
        if isinstance(verdict, Removal):
            is_told = said not in OF_HOST and CLASSES[said].removes is not None
            is_told = is_told or feedback.retry_after_s is not None
            if is_told and not lane.is_removed:
                self._removals[News(lane_id, verdict.scope, verdict.reason)] = -math.inf
            return
        is_asked = said in LIMITED and feedback.retry_after_s is not None
        if is_asked and isinstance(verdict, Pause) and verdict.cause == "rate":
            self._until_s[lane_id] = verdict.until_s

    def take(self, now_s: float) -> list[News]:
        """The news since the last call, and removals that were not heard of for a while."""
        found = []
        for one, due_s in self._removals.items():
            if due_s <= now_s:
                found.append(msgspec.structs.replace(one, for_s=HOLDS_S))
                self._removals[one] = now_s + REPEAT_S
        pauses = [
            News(lane_id, for_s=until_s - now_s)
            for lane_id, until_s in self._until_s.items()
            if until_s > now_s
        ]
        self._until_s = {}
        # They come back to us with all others'.
        self._known.update(pauses)
        return found + pauses

    def hear(self, news: Iterable[News], now_s: float) -> None:
        """Carry out what other hosts have learned."""
        for one in news:
            lane = self._table.lanes.get(one.lane_id)
            if lane is None:
                continue
            if one.removes is not None:
                self._table.apply(lane, Removal(one.removes, one.reason), now_s)
                self._removals[msgspec.structs.replace(one, for_s=0.0)] = now_s + REPEAT_S
            elif one not in self._known and one.for_s > 0 and not lane.is_removed:
                self._known.add(one)
                pause = lane.health.asked_elsewhere(now_s + one.for_s, now_s)
                if pause is not None:
                    self._table.apply(lane, pause, now_s)
