"""A breaker per lane: whether a lane that fails may be tried, and by how many at a time."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import random

    from pytest_ultrapar.lanes.failure_classes import BreakerRule

RECENT_S = 30.0
RECENT_LEAST = 10
"""More failures than answers among this many or more of the last `RECENT_S` seconds open, too.

Source: RELIABILITY 3.
"""
JITTER = 0.1
"""An opening is up to this share longer, so that lanes do not return together."""

State = Literal["closed", "open", "half_open", "probing"]


class Breaker:
    """Closed lets all through, open none, half-open one at a time until that one is answered.

    Pure: time and randomness are given; a time before the last one counts as the last one. What was
    granted before the last opening says nothing new and changes nothing.

    Attributes:
        state: `probing` is half-open with its one request out.
        until_s: While open: when it becomes half-open.
        n_opened: How often it went from closed to open.
        silent_since_s: Since when nothing was answered, None after an answer: when the first
            request that failed was granted, or the last answer came, whichever is later.
        n_in_row: Failures that counted since the last answer.
        rule: Of the failure that opened it last; None after an answer.
    """

    __slots__ = (
        "_answer_s",
        "_exponent",
        "_fresh_s",
        "_now_s",
        "_recent",
        "_rng",
        "n_in_row",
        "n_opened",
        "rule",
        "silent_since_s",
        "state",
        "until_s",
    )

    def __init__(self, rng: random.Random) -> None:
        """Start closed.

        Args:
            rng: Source of the jitter.
        """
        self._rng = rng
        self._recent = _Recent()
        self._now_s = self._answer_s = self._fresh_s = -math.inf
        self._exponent = 0
        self.rule: BreakerRule | None = None
        self.state: State = "closed"
        self.until_s = -math.inf
        self.n_in_row = self.n_opened = 0
        self.silent_since_s: float | None = None

    def answered(self, granted_s: float, now_s: float) -> bool:
        """A request was answered.

        Returns:
            Whether the breaker closed by it: the answer was the probe's.
        """
        # No calls down to the return: this is on the way of every lease.
        if now_s > self._now_s:  # noqa: PLR1730
            self._now_s = now_s
        if self.state == "closed":
            self._answer_s = self._now_s
            recent = self._recent
            if self._now_s >= recent.until_s:
                recent.turn(self._now_s)
            recent.n_now += 1
            if self.n_in_row:
                self.n_in_row = 0
                self.silent_since_s = None
            return False
        if not self._is_probe(granted_s):
            return False
        self.state = "closed"
        self._answer_s = self._now_s
        self._exponent = self.n_in_row = 0
        self.silent_since_s = self.rule = None
        self._recent = _Recent()
        return True

    def failed(
        self, rule: BreakerRule, granted_s: float, now_s: float, *, pending: int = 0
    ) -> bool:
        """A request failed in a way that counts.

        Failures often come back at once and answers after seconds. So a few failures in a row are
        no news while many more requests are out: of 100 sent together to a provider that fails one
        in twenty, the five failures are the first to come back.

        Args:
            rule: When this kind of failure opens, and for how long.
            granted_s: When the request was granted.
            now_s: When it failed.
            pending: Requests of the lane that are out beside it.

        Returns:
            Whether the breaker opened by it, until `until_s`.
        """
        self._now_s = now_s = max(now_s, self._now_s)
        if self.state == "closed":
            if granted_s < self._fresh_s:
                return False
        elif not self._is_probe(granted_s):
            return False
        self.n_in_row += 1
        if self.silent_since_s is None:
            self.silent_since_s = min(now_s, max(self._answer_s, granted_s))
        if self.state == "closed":
            recent = self._recent
            if now_s >= recent.until_s:
                recent.turn(now_s)
            recent.n_now += 1
            recent.n_failed_now += 1
            in_row = self.n_in_row >= rule.after and _tells(self.n_in_row, pending)
            if not in_row and not recent.is_mostly_failed(pending):
                return False
            self.n_opened += 1
        if rule is not self.rule:
            self.rule, self._exponent = rule, 0
        # The exponent is bounded because 2.0**1024 overflows, not because the cap needs it.
        open_s = min(rule.cap_s, rule.base_s * 2.0 ** min(self._exponent, 32))
        self._exponent += 1
        self.state = "open"
        self.until_s = now_s + open_s * (1 + self._rng.uniform(0, JITTER))
        return True

    def void(self, granted_s: float) -> bool:
        """A request came back without news: not sent, given up, or lost with its holder.

        Returns:
            Whether it was the probe, so that the next request may be one.
        """
        if self.state != "probing" or granted_s < self._fresh_s:
            return False
        self.state = "half_open"
        return True

    def wake(self, now_s: float) -> None:
        """A pause of the lane is over: let one through, also when a probe never came back."""
        self._now_s = now_s = max(now_s, self._now_s)
        if self.state == "probing" or (self.state == "open" and now_s >= self.until_s):
            self.state = "half_open"

    def probe(self, granted_s: float) -> None:
        """The one request of a half-open breaker is granted.

        Raises:
            ValueError: It is not half-open.
        """
        if self.state != "half_open":
            msg = f"no probe may be sent while the breaker is {self.state}"
            raise ValueError(msg)
        self.state = "probing"
        self._fresh_s = granted_s

    def _is_probe(self, granted_s: float) -> bool:
        return self.state == "probing" and granted_s >= self._fresh_s


class _Recent:
    """How many requests of the last `RECENT_S` seconds came back, and how many of them failed.

    Counted by seconds: a lane of 300 requests a second would fill a list of 9,000.

    Attributes:
        n_now: Requests of the second that ends at `until_s`, `n_failed_now` of which failed.
    """

    __slots__ = ("_n", "_n_failed", "_seconds", "n_failed_now", "n_now", "until_s")

    def __init__(self) -> None:
        self._seconds: deque[tuple[float, int, int]] = deque()
        self._n = self._n_failed = 0
        self.n_now = self.n_failed_now = 0
        self.until_s = -math.inf

    def turn(self, now_s: float) -> None:
        """A new second begins."""
        seconds = self._seconds
        seconds.append((self.until_s, self.n_now, self.n_failed_now))
        self._n += self.n_now
        self._n_failed += self.n_failed_now
        while seconds and seconds[0][0] <= now_s - RECENT_S:
            _, n, n_failed = seconds.popleft()
            self._n -= n
            self._n_failed -= n_failed
        self.n_now = self.n_failed_now = 0
        self.until_s = now_s + 1.0

    def is_mostly_failed(self, pending: int) -> bool:
        """Whether more failed than did not, of enough to tell."""
        n = self._n + self.n_now
        n_failed = self._n_failed + self.n_failed_now
        return n >= RECENT_LEAST and 2 * n_failed > n and _tells(n_failed, pending)


def _tells(n_failed: int, pending: int) -> bool:
    """Whether so many failures say something beside so many requests without an end yet."""
    return 2 * n_failed >= pending
