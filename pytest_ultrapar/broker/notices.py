"""Facts about keys, instances and lanes that one host learns and that apply to all hosts.

Only explicit statements of a provider become such facts, called *news*: it rejects a key, does not
know an instance, or asks for a pause. Failures and estimates are not shared with other
hosts, because the host's own network may be the cause.
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
"""A removal remains news for `HOLDS_S` seconds. A host repeats it every `REPEAT_S` seconds, unless
another host has done so. So hosts that join later also receive it. Once all hosts of a run have
ended, hosts that join later do not receive the old news: the keys may have been fixed."""


class LaneNotice(msgspec.Struct, frozen=True):
    """One fact that a host learned.

    Attributes:
        lane_id: The lane on which it was learned.
        removes: The part of the lane that is removed, such as its key; None if the lane pauses.
        reason: For a removal: one sentence for users.
        for_s: For a pause: how many seconds of it are left at the call of `NoticeBook.take`. For a
            removal: how many more seconds it remains news.
    """

    lane_id: LaneId
    removes: Scope | None = None
    reason: str = ""
    for_s: float = 0.0


class NoticeBook:
    """Collects the news of one broker, and applies the news of other hosts."""

    def __init__(self, table: LaneTable) -> None:
        self._table = table
        # When to report each removal (-infinity: now). This includes removals that other hosts
        # reported, in case these hosts end.
        self._removals: dict[LaneNotice, float] = {}
        self._until_s: dict[LaneId, float] = {}
        self._known: set[LaneNotice] = set()

    @property
    def is_fresh(self) -> bool:
        """Whether there is news that has not been taken yet."""
        return bool(self._until_s) or -math.inf in self._removals.values()

    def decided(self, lane: LaneState, verdict: Verdict, outcome: str, feedback: Feedback) -> None:
        """Record the verdict on a returned lease if it is news. Call this before it is applied."""
        lane_id = lane.lane.lane_id
        if isinstance(verdict, Removal):
            is_reported = outcome not in OF_HOST and CLASSES[outcome].removes is not None
            is_reported = is_reported or feedback.retry_after_s is not None
            if is_reported and not lane.is_removed:
                self._removals[LaneNotice(lane_id, verdict.scope, verdict.reason)] = -math.inf
            return
        is_asked = outcome in LIMITED and feedback.retry_after_s is not None
        if is_asked and isinstance(verdict, Pause) and verdict.cause == "rate":
            self._until_s[lane_id] = verdict.until_s

    def take(self, now_s: float) -> list[LaneNotice]:
        """Return the news since the last call, and removals that must be reported again."""
        found = []
        for one, due_s in self._removals.items():
            if due_s <= now_s:
                found.append(msgspec.structs.replace(one, for_s=HOLDS_S))
                self._removals[one] = now_s + REPEAT_S
        pauses = [
            LaneNotice(lane_id, for_s=until_s - now_s)
            for lane_id, until_s in self._until_s.items()
            if until_s > now_s
        ]
        self._until_s = {}
        # This host receives its own news again with the news of all hosts.
        self._known.update(pauses)
        return found + pauses

    def apply_notices(self, news: Iterable[LaneNotice], now_s: float) -> None:
        """Apply the news of other hosts."""
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
