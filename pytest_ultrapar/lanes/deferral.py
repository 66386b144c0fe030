"""Limits that wait until the tokens of a certain request fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.lanes.lane_state import LaneState, LimitState
    from pytest_ultrapar.lanes.queueing import Waiting


class Deferral:
    """What waits for one request whose tokens do not fit yet.

    A smaller request behind it waits as well: else it would never fit on a limit that is much used.
    Guarantee: that is over when the request no longer stands in a line that is served, and when
    something changed for a lane of such a limit; all lanes of all its limits are then looked at.
    """

    __slots__ = ("_changed", "_limits")

    def __init__(self, changed: dict[LaneState, None]) -> None:
        """Defer nothing yet.

        Args:
            changed: Where to enter the lanes to look at again.
        """
        self._changed = changed
        self._limits: list[LimitState] = []

    def hold(self, limit: LimitState, until_s: float) -> None:
        """Let a limit serve nobody before `until_s`."""
        limit.deferral = self
        limit.deferred_until_s = until_s
        limit.reckon()
        self._limits.append(limit)

    def end(self) -> None:
        """Let its limits serve anybody; harmless when it holds none."""
        for limit in self._limits:
            # Its time may have come, and the limit wait for another request since.
            if limit.deferral is self:
                limit.let_go()
                self._changed.update(dict.fromkeys(limit.lanes))
        self._limits.clear()


def defers(waiting: Waiting, lane: LaneState, changed: dict[LaneState, None], now_s: float) -> bool:
    """Whether the tokens of the next request do not fit yet; the limits then wait until they do."""
    tokens = waiting.request.tokens
    late = False
    for limit in lane.metered:
        assert limit.tokens is not None
        ready_s = limit.tokens.ready_at_s(tokens, now_s)
        if ready_s > now_s:
            if waiting.deferral is None:
                waiting.deferral = Deferral(changed)
            waiting.deferral.hold(limit, ready_s)
            late = True
    return late


def decide_again(lanes: Iterable[LaneState]) -> None:
    """Let the limits of these lanes no longer wait for a certain request to fit."""
    found: list[Deferral] = []
    for lane in lanes:
        # Most lanes count no tokens.
        if lane.metered:
            found += [limit.deferral for limit in lane.metered if limit.deferral is not None]
    for deferral in found:
        deferral.end()
