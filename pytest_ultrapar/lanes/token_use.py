"""Tokens of requests on the limits of a lane: when they fit, reserved, corrected."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.lanes.lane_state import LaneState, LimitState
    from pytest_ultrapar.lanes.protocol import LeaseOutcome, Told
    from pytest_ultrapar.lanes.token_rate import Reservation

Reserved = tuple[tuple["LimitState", "Reservation"], ...]
"""What one lease has reserved, on each limit of its lane that counts tokens."""

_NOTHING_SENT = ("unsent", "connect")


def defers(lane: LaneState, tokens: int, now_s: float) -> bool:
    """Whether the tokens of the next request do not fit yet; the limits then wait until they do.

    A smaller request behind it waits as well: else it would never fit on a limit that is much used.
    """
    late = False
    for limit in lane.metered:
        assert limit.tokens is not None
        ready_s = limit.tokens.ready_at_s(tokens, now_s)
        if ready_s > now_s:
            limit.ready_s = max(limit.ready_s, ready_s)
            limit.is_deferred = late = True
    return late


def decide_again(lanes: Iterable[LaneState]) -> None:
    """Let limits no longer wait for a certain request to fit."""
    for lane in lanes:
        for limit in lane.metered:
            if limit.is_deferred:
                limit.is_deferred = False
                limit.ready_s = limit.rate_ready_s()


def reserve(lane: LaneState, tokens: int, now_s: float) -> Reserved:
    """Take the tokens of a request; they must fit."""
    reserved = []
    for limit in lane.metered:
        assert limit.tokens is not None
        reserved.append((limit, limit.tokens.take(tokens, now_s)))
        limit.ready_s = max(limit.ready_s, limit.tokens.ready_s)
    return tuple(reserved)


def settle(reserved: Reserved, outcome: LeaseOutcome, told: Told, now_s: float) -> list[LaneState]:
    """Put what a request took in place of what was reserved for it; all stays where nobody knows.

    Returns:
        Lanes that may serve at another time than it seemed.
    """
    tokens = 0 if outcome in _NOTHING_SENT else told.tokens
    if tokens is None:
        return []
    lanes: list[LaneState] = []
    for limit, reservation in reserved:
        assert limit.tokens is not None
        limit.tokens.correct(reservation, tokens, now_s)
        limit.is_deferred = False
        limit.ready_s = limit.rate_ready_s()
        lanes += limit.lanes
    return lanes
