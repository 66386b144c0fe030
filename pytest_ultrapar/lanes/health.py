"""Whether a lane can be used: what each outcome does to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_ultrapar.lanes.breaker import Breaker
from pytest_ultrapar.lanes.failure_classes import ANSWERED, CLASSES, NOBODY_LISTENS, Scope

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from pytest_ultrapar.lanes.failure_classes import BreakerRule
    from pytest_ultrapar.pool.model import Lane

MAX_RETRY_AFTER_S = 120.0
"""A lane always rests as long as this if it is asked to; for longer only while an episode may last.

Source: RELIABILITY 3 (the OpenAI SDK's own bound).
"""
RETRY_AFTER_JITTER = 0.1
"""A pause is up to this share longer than asked for, so that lanes do not return together."""
BACKOFF_BASE_S, BACKOFF_CAP_S = 1.0, 30.0
"""Full jitter U(0, min(cap, base * 2^n)) where no time is named. Source: RELIABILITY 3."""
UNREACHABLE_S = 120.0
"""A lane that once answered is out when nobody has listened there for so long."""
NEVER_REACHED_S, NEVER_ANSWERED_S = 2.0, 60.0
"""The same for a lane whose instance has never answered anything: a wrong address ends a run soon,
and so does a server of which nothing but failures ever came."""
PATIENCE_S = 900.0
"""How long an episode may last unless told otherwise."""
_LATE_S = 5.0
_HOPELESS_COUNT = 5
"""Fewer failures than that in a row may be the requests' own fault, however long they took."""

Cause = Literal["rate", "breaker"]


@dataclass(frozen=True, slots=True)
class Pause:
    """The lane rests until `until_s`; `reason` is one sentence for people."""

    until_s: float
    reason: str
    cause: Cause = "rate"


@dataclass(frozen=True, slots=True)
class Out:
    """The lane, or what of it `scope` says, is out for the rest of the run."""

    scope: Scope
    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """The lane's pause is over before its time: its probe came back."""


Verdict = Pause | Out | Resume


def _never() -> bool:
    return False


class LaneHealth:
    """Decides from the outcomes of a lane's leases when it pauses, or what of it is out.

    Pure: time and randomness are given. Outcomes of one burst count once: only a request granted
    after the last pause had ended says something new.

    Attributes:
        on_trial: Whether the lane's breaker is half-open: the next lease is its probe.
    """

    __slots__ = (
        "_breaker",
        "_failed_reason",
        "_failed_until_s",
        "_has_answered",
        "_lane",
        "_patience_s",
        "_rate_count",
        "_rate_reason",
        "_rate_since_s",
        "_rate_until_s",
        "_rng",
        "on_trial",
    )

    def __init__(
        self,
        lane: Lane,
        rng: random.Random,
        *,
        patience_s: float = PATIENCE_S,
        has_answered: Callable[[], bool] = _never,
    ) -> None:
        """Start healthy.

        Args:
            lane: For names in reasons.
            rng: Source of all jitter, seeded by the caller.
            patience_s: How long an episode may last, > 0 seconds. A lane that has answered nothing
                for so long is out: no case that was open when it fell silent is still waiting.
            has_answered: Whether the lane's instance has ever answered.
        """
        self._lane = lane
        self._rng = rng
        self._patience_s = patience_s
        self._has_answered = has_answered
        self._breaker = Breaker(rng)
        self._rate_until_s = self._failed_until_s = -math.inf
        self._rate_reason = self._failed_reason = ""
        self._rate_count = 0
        self._rate_since_s = 0.0
        self.on_trial = False

    @property
    def n_opened(self) -> int:
        """How often its breaker opened."""
        return self._breaker.n_opened

    def decide(
        self,
        outcome: str,
        retry_after_s: float | None,
        granted_s: float,
        now_s: float,
        pending: int = 0,
        *,
        rest_s: float | None = None,
    ) -> Verdict | None:
        """What the outcome of a lease does to the lane.

        Args:
            outcome: What became of the request: a `LeaseOutcome`, or `lost` with its holder.
            retry_after_s: Seconds the provider asked for; anything not finite and > 0 counts as not
                given.
            granted_s: When the lease was granted, monotonic seconds.
            now_s: Now, monotonic seconds.
            pending: Requests of the lane that are out beside it.
            rest_s: After a refusal that names no time to come back: how long the lane should rest,
                since its limit was lowered; None for a back-off.

        Returns:
            None when nothing changes. A `Pause` ends later than the one before it, except after a
            `Resume` or where it takes the place of one.
        """
        if outcome in ANSWERED:
            self._rate_count = 0
            return self._resume(now_s) if self._breaker.answered(granted_s, now_s) else None
        its_class = CLASSES.get(outcome)
        if its_class is None:
            # Not sent, given up or lost: it says nothing of the lane.
            return self._resume(now_s) if self._breaker.void(granted_s) else None
        if its_class.out is not None:
            return Out(its_class.out, self._farewell(outcome, retry_after_s))
        if its_class.breaker is not None:
            return self._failed(outcome, its_class.breaker, granted_s, now_s, pending)
        # A refusal for rate is an answer, too: whoever gives it is at work.
        is_back = self._breaker.answered(granted_s, now_s)
        if is_back:
            self._failed_until_s = -math.inf
        verdict = self._limited(retry_after_s, granted_s, now_s, rest_s=rest_s)
        # Another refusal may ask for longer than this one: then that is waited, not the probe.
        return self._resume(now_s) if is_back and verdict is None else verdict

    def wake(self, now_s: float) -> Pause | Out | None:
        """The time of the lane's pause has come.

        Returns:
            None when it may be used, at first by one request if `on_trial`; or that it is out since
            it has been silent for too long.
        """
        # Who comes much too late has slept, or the clock has jumped: that says nothing of the lane.
        is_in_time = now_s <= max(self._rate_until_s, self._failed_until_s) + _LATE_S
        out = self._given_up(now_s) if is_in_time else None
        if out is not None:
            return out
        breaker = self._breaker
        breaker.wake(now_s)
        if breaker.state == "open":
            # The pause was to end when the lane is given up, which it was not.
            self._failed_until_s = breaker.until_s
            return self._pause()
        self.on_trial = breaker.state == "half_open"
        return None

    def probe(self, granted_s: float, end_s: float) -> Pause:
        """The one request of a lane on trial is granted and ends by `end_s` at the latest."""
        self.on_trial = False
        self._breaker.probe(granted_s)
        lane = self._lane.lane_id
        self._failed_until_s = self._no_later_than_hopeless(end_s, granted_s)
        self._failed_reason = f"lane {lane} failed and waits for the answer to one request"
        return self._pause()

    def _resume(self, now_s: float) -> Pause | Resume:
        """The probe is back; what a refusal for rate asked for still holds."""
        self._failed_until_s = -math.inf
        if self._rate_until_s > now_s:
            return self._pause()
        self.on_trial = self._breaker.state == "half_open"
        return Resume()

    def _farewell(self, outcome: str, retry_after_s: float | None) -> str:
        lane = self._lane
        key = f"key {lane.provider}/{lane.key}"
        instance = f"instance {lane.provider}/{lane.instance}"
        back = ""
        if retry_after_s is not None and math.isfinite(retry_after_s) and retry_after_s > 0:
            back = f" (it asks to come back in {retry_after_s:,.0f} s)"
        said = {
            "auth": f"{key} was refused (401, or a 400 that rejects the key)",
            "forbidden": f"{key} may not use the model {lane.model} (403)",
            "quota": f"{key} has no quota left (402, or 429 that says so){back}",
            "daily_quota": f"{key} has used up its quota of the day for {lane.model}{back}",
            "not_found": f"{instance} was not found (404)",
            "tls": (
                f"{instance} showed a certificate that does not verify "
                "(a private CA goes into ca_file)"
            ),
        }[outcome]
        return f"{said}: out for the rest of the run"

    def _limited(
        self, retry_after_s: float | None, granted_s: float, now_s: float, *, rest_s: float | None
    ) -> Pause | Out | None:
        if retry_after_s is not None and not (math.isfinite(retry_after_s) and retry_after_s > 0):
            retry_after_s = None
        if rest_s is not None and retry_after_s is None:
            # The lower limit is the cure; it may need a moment to show.
            said = f"and lowered: paused {rest_s:.2f} s"
            return self._rest(now_s + rest_s, said) if rest_s > 0 else None
        is_new = granted_s >= self._rate_until_s
        if is_new:
            if self._rate_count == 0:
                self._rate_since_s = min(granted_s, now_s)
            self._rate_count += 1
        lane = self._lane.lane_id
        longest_s = max(MAX_RETRY_AFTER_S, self._patience_s)
        refused_s = now_s - self._rate_since_s
        if self._rate_count > _HOPELESS_COUNT and refused_s >= longest_s:
            return Out(
                "lane",
                f"lane {lane} has answered nothing but refusals for {refused_s:.0f} s: "
                "out for the rest of the run",
            )
        if retry_after_s is not None:
            if retry_after_s > longest_s:
                return Out(
                    "lane",
                    f"lane {lane} was rate limited and asked for {retry_after_s:,.0f} s, longer "
                    f"than the {longest_s:g} s that a case may wait: out for the rest of the run",
                )
            pause_s = retry_after_s * (1 + self._rng.uniform(0, RETRY_AFTER_JITTER))
            said = f"and asked for {retry_after_s:g} s"
            return self._rest(now_s + pause_s, f"{said}: paused {pause_s:.2f} s")
        if not is_new:
            # One draw per burst: the largest of fifty draws would be no jitter at all.
            return None
        # The exponent is bounded because 2.0**1024 overflows, not because the cap needs it.
        ceiling_s = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(self._rate_count - 1, 16))
        pause_s = self._rng.uniform(0, ceiling_s)
        said = f"without a time to wait ({self._rate_count} in a row)"
        return self._rest(now_s + pause_s, f"{said}: paused {pause_s:.2f} s")

    def _rest(self, until_s: float, said: str) -> Pause | None:
        # The longest wait that was asked for counts: answers of one burst overtake each other.
        if until_s <= self._rate_until_s:
            return None
        self._rate_until_s = until_s
        self._rate_reason = f"lane {self._lane.lane_id} was rate limited {said}"
        return self._pause()

    def _failed(
        self, outcome: str, rule: BreakerRule, granted_s: float, now_s: float, pending: int
    ) -> Pause | Out | None:
        breaker = self._breaker
        if not breaker.failed(rule, granted_s, now_s, pending=pending):
            return None
        out = self._given_up(now_s)
        if out is not None:
            return out
        n = breaker.n_in_row
        how = f"{n} times in a row" if n > 1 else "once"
        if rule is NOBODY_LISTENS:
            what = f"could not be connected to {how}"
        elif n >= rule.after:
            what = f"failed {how} ({outcome})"
        else:
            what = f"failed more often than not ({outcome})"
        self._failed_until_s = self._no_later_than_hopeless(breaker.until_s, now_s)
        rest_s = self._failed_until_s - now_s
        self._failed_reason = f"lane {self._lane.lane_id} {what}: paused {rest_s:.2f} s"
        return self._pause()

    def _given_up(self, now_s: float) -> Out | None:
        """Out, when it has been silent for as long as its failures allow."""
        breaker = self._breaker
        since_s = breaker.silent_since_s
        if since_s is None or breaker.n_in_row < _HOPELESS_COUNT:
            return None
        # As `_no_later_than_hopeless` has it, to the last bit.
        if now_s < since_s + self._bound_s():
            return None
        what = (
            "could not be connected to"
            if breaker.rule is NOBODY_LISTENS
            else "failed and answered nothing"
        )
        return Out(
            "lane",
            f"lane {self._lane.lane_id} {what} {breaker.n_in_row} times in a row over "
            f"{now_s - since_s:.1f} s: out for the rest of the run",
        )

    def _bound_s(self) -> float:
        has_answered = self._has_answered()
        if self._breaker.rule is NOBODY_LISTENS:
            bound_s = UNREACHABLE_S if has_answered else NEVER_REACHED_S
        else:
            bound_s = math.inf if has_answered else NEVER_ANSWERED_S
        return min(self._patience_s, bound_s)

    def _no_later_than_hopeless(self, until_s: float, now_s: float) -> float:
        breaker = self._breaker
        if breaker.silent_since_s is None or breaker.n_in_row < _HOPELESS_COUNT:
            return until_s
        hopeless_s = breaker.silent_since_s + self._bound_s()
        # It lies behind us where a jump of the clock was forgiven: then this probe decides.
        return min(until_s, hopeless_s) if hopeless_s > now_s else until_s

    def _pause(self) -> Pause:
        if self._rate_until_s >= self._failed_until_s:
            return Pause(self._rate_until_s, self._rate_reason, "rate")
        return Pause(self._failed_until_s, self._failed_reason, "breaker")
