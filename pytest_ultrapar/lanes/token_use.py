"""Tokens of requests on the limits of a lane: reserved, corrected."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.lanes.lane_state import LaneState, LimitState
    from pytest_ultrapar.lanes.protocol import LeaseOutcome, Told
    from pytest_ultrapar.lanes.token_rate import Reservation

Reserved = tuple[tuple["LimitState", "Reservation"], ...]
"""What one lease has reserved, on each limit of its lane that counts tokens."""

_NOTHING_SENT = ("unsent", "connect")


def reserve(lane: LaneState, tokens: int, now_s: float) -> Reserved:
    """Take the tokens of a request; they must fit."""
    reserved = []
    for limit in lane.metered:
        assert limit.tokens is not None
        reserved.append((limit, limit.tokens.take(tokens, now_s)))
        limit.reckon()
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
        limit.reckon()
        lanes += limit.lanes
    return lanes
