"""Whether a lane can be used: what each outcome does to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import random

    from pytest_ultrapar.lanes.protocol import LeaseOutcome
    from pytest_ultrapar.pool.model import Lane

MAX_RETRY_AFTER_S = 120.0
"""Longer waits asked for are cut to this. Source: RELIABILITY 3 (the OpenAI SDK's own bound)."""
RETRY_AFTER_JITTER = 0.1
"""A pause is up to this share longer than asked for, so that lanes do not return together."""
BACKOFF_BASE_S, BACKOFF_CAP_S = 1.0, 30.0
"""Full jitter U(0, min(cap, base * 2^n)) where no time is named. Source: RELIABILITY 3."""
CONNECT_BASE_S, CONNECT_CAP_S = 0.25, 2.0
"""Pause after a refused connection, doubling: a restarted server is found again within 2 s."""
CONNECT_OUT_COUNT, CONNECT_OUT_SPAN_S = 5, 2.0
"""So many refused connections in a row over at least so many seconds take a lane out."""

_ANSWERED: frozenset[LeaseOutcome] = frozenset(("ok", "refused", "bad_request"))
_LISTENING: frozenset[LeaseOutcome] = frozenset(("rate", "transport", "overload", "malformed"))


@dataclass(frozen=True, slots=True)
class Pause:
    """The lane rests until `until_s`; `reason` is one sentence for people."""

    until_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Out:
    """The lane, its instance's lanes or its key's lanes are out for the rest of the run."""

    scope: Literal["lane", "instance", "key"]
    reason: str


class LaneHealth:
    """Decides from the outcomes of a lane's leases when it pauses, or what of it is out.

    Pure: time and randomness are given. Outcomes of one burst count once: only a request granted
    after the last pause had ended says something new.
    """

    __slots__ = (
        "_connect_count",
        "_connect_first_s",
        "_lane",
        "_paused_until_s",
        "_rate_count",
        "_rng",
    )

    def __init__(self, lane: Lane, rng: random.Random) -> None:
        """Start healthy.

        Args:
            lane: For names in reasons.
            rng: Source of all jitter, seeded by the caller.
        """
        self._lane = lane
        self._rng = rng
        self._paused_until_s = -math.inf
        self._rate_count = 0
        self._connect_count = 0
        self._connect_first_s = 0.0

    def decide(
        self, outcome: LeaseOutcome, retry_after_s: float | None, granted_s: float, now_s: float
    ) -> Pause | Out | None:
        """What the outcome of a lease does to the lane.

        Args:
            outcome: What became of the request.
            retry_after_s: Seconds the provider asked for; anything not finite and > 0 counts as not
                given.
            granted_s: When the lease was granted, monotonic seconds.
            now_s: Now, monotonic seconds.

        Returns:
            None when nothing changes. A `Pause` always ends later than the one before it.
        """
        if outcome in _ANSWERED:
            self._rate_count = self._connect_count = 0
            return None
        if outcome in _LISTENING:
            self._connect_count = 0
        if outcome == "rate":
            return self._limited(retry_after_s, granted_s, now_s)
        if outcome == "connect":
            return self._unreachable(granted_s, now_s)
        return self._gone(outcome)

    def _gone(self, outcome: LeaseOutcome) -> Out | None:
        lane = self._lane
        ending = "out for the rest of the run"
        if outcome == "auth":
            return Out("key", f"key {lane.provider}/{lane.key} was refused (401 or 403): {ending}")
        if outcome == "quota":
            said = "402, or 429 with insufficient_quota"
            return Out(
                "key", f"key {lane.provider}/{lane.key} has no quota left ({said}): {ending}"
            )
        if outcome == "not_found":
            return Out(
                "instance",
                f"instance {lane.provider}/{lane.instance} was not found (404): {ending}",
            )
        return None

    def _limited(self, retry_after_s: float | None, granted_s: float, now_s: float) -> Pause | None:
        is_new = granted_s >= self._paused_until_s
        if is_new:
            self._rate_count += 1
        lane = self._lane.lane_id
        if retry_after_s is not None and math.isfinite(retry_after_s) and retry_after_s > 0:
            asked_s = min(retry_after_s, MAX_RETRY_AFTER_S)
            pause_s = asked_s * (1 + self._rng.uniform(0, RETRY_AFTER_JITTER))
            if retry_after_s > MAX_RETRY_AFTER_S:
                said = f"asked for {retry_after_s:g} s, cut to the {MAX_RETRY_AFTER_S:g} s allowed"
            else:
                said = f"asked for {retry_after_s:g} s"
            return self._pause(
                now_s + pause_s, f"lane {lane} was rate limited and {said}: paused {pause_s:.2f} s"
            )
        if not is_new:
            # One draw per burst: the largest of fifty draws would be no jitter at all.
            return None
        # The exponent is bounded because 2.0**1024 overflows, not because the cap needs it.
        ceiling_s = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(self._rate_count - 1, 16))
        pause_s = self._rng.uniform(0, ceiling_s)
        return self._pause(
            now_s + pause_s,
            f"lane {lane} was rate limited without a time to wait ({self._rate_count} in a row): "
            f"paused {pause_s:.2f} s",
        )

    def _unreachable(self, granted_s: float, now_s: float) -> Pause | Out | None:
        if granted_s < self._paused_until_s:
            return None
        if self._connect_count == 0:
            self._connect_first_s = now_s
        self._connect_count += 1
        lane = self._lane.lane_id
        span_s = now_s - self._connect_first_s
        if self._connect_count >= CONNECT_OUT_COUNT and span_s >= CONNECT_OUT_SPAN_S:
            return Out(
                "lane",
                f"lane {lane} could not be connected to {self._connect_count} times in a row over "
                f"{span_s:.1f} s: out for the rest of the run",
            )
        pause_s = min(CONNECT_CAP_S, CONNECT_BASE_S * 2.0 ** min(self._connect_count - 1, 16))
        return self._pause(
            now_s + pause_s, f"lane {lane} could not be connected to: paused {pause_s:.2f} s"
        )

    def _pause(self, until_s: float, reason: str) -> Pause | None:
        if until_s <= self._paused_until_s:
            return None
        self._paused_until_s = until_s
        return Pause(until_s, reason)
