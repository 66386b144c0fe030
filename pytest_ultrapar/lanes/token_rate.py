"""A bound on tokens per minute, kept by reserving them before a request is sent."""

from __future__ import annotations

import math
from collections import deque

MAX_CREDIT = 0.1
"""Share of the window that refunds may let sends follow each other without distance."""


class Reservation:
    """Tokens that one send counts for, on one limit.

    Attributes:
        tokens: Reserved; what was used once that is known.
        is_counted: Whether its window has not passed yet.
    """

    __slots__ = ("is_counted", "over_s", "tokens")

    def __init__(self, tokens: int, over_s: float) -> None:
        self.tokens = tokens
        self.over_s = over_s
        self.is_counted = True


class TokenLimiter:
    """Spaces sends by their tokens, and counts those of the last window.

    Guarantee: the tokens reserved in any half-open window of `window_s` seconds are never more than
    `limit`, whatever is asked for, reserved and corrected, as long as nothing turns out larger than
    its reservation. What does is paid for before the next send, for one window at most: what was
    sent before that, no provider counts any more.

    A log of the window alone would admit a whole window's tokens in one burst (why that is bad:
    `rate.RateLimiter`). Spacing alone, `tokens * window_s / limit` after each send, is not exact
    where sends differ in size: three of 400 in 48 s keep that distance at 1000 per minute. So a
    send must satisfy both.

    A reservation that was too large is free again, in the count and in the distance; what is left
    of the latter shortens later ones, else the rate of sends would be that of the estimates. Idle
    time is no credit.

    Source: ITU-T I.371 annex A (GCRA), with amounts; RELIABILITY 1.1 (sliding window log).
    """

    __slots__ = ("_counted", "_credit_s", "_log", "_token_s", "limit", "ready_s", "window_s")

    def __init__(self, limit: float, window_s: float) -> None:
        """Start with nothing sent.

        Args:
            limit: Tokens per window, >= 1.
            window_s: Length of the window in seconds, > 0.

        Raises:
            ValueError: When either is not a finite number in its bounds.
        """
        if not (math.isfinite(limit) and math.isfinite(window_s) and limit >= 1 and window_s > 0):
            msg = f"limit must be >= 1 and window_s > 0 (got {limit!r} per {window_s!r} s)"
            raise ValueError(msg)
        self.limit = limit
        self.window_s = window_s
        self.ready_s = -math.inf
        self._token_s = window_s / limit
        self._credit_s = 0.0
        self._counted = 0
        self._log: deque[Reservation] = deque()

    def ready_at_s(self, tokens: int, now_s: float) -> float:
        """The earliest time, not before `now_s`, at which a send of so many tokens is allowed.

        Infinity when it is larger than the limit.
        """
        if tokens > self.limit:
            return math.inf
        self._forget(now_s)
        at_s = max(now_s, self.ready_s)
        too_many = self._counted + tokens - self.limit
        for sent in self._log:
            if too_many <= 0:
                break
            too_many -= sent.tokens
            at_s = max(at_s, sent.over_s)
        return at_s

    def take(self, tokens: int, now_s: float) -> Reservation:
        """Count one send at `now_s`.

        Raises:
            ValueError: When no such send is allowed at `now_s`.
        """
        ready_s = self.ready_at_s(tokens, now_s)
        if ready_s > now_s:
            msg = f"a send of {tokens} tokens at {now_s!r} s is {ready_s - now_s:.6f} s too early"
            raise ValueError(msg)
        # Rounded up, as in `rate`.
        reservation = Reservation(tokens, math.nextafter(now_s + self.window_s, math.inf))
        self._log.append(reservation)
        self._counted += tokens
        distance_s = tokens * self._token_s
        credit_s = min(self._credit_s, distance_s)
        self._credit_s -= credit_s
        self.ready_s = now_s + (distance_s - credit_s)
        return reservation

    def correct(self, reservation: Reservation, tokens: int, now_s: float) -> None:
        """Say how many tokens a send took; may be said again."""
        more = tokens - reservation.tokens
        self._forget(now_s)
        reservation.tokens = tokens
        if reservation.is_counted:
            self._counted += more
        if more > 0:
            owed_s = max(0.0, self.ready_s - now_s) + more * self._token_s
            self.ready_s = now_s + min(owed_s, self.window_s)
        elif reservation.is_counted:
            free_s = -more * self._token_s
            nearer_s = min(free_s, max(0.0, self.ready_s - now_s))
            self.ready_s -= nearer_s
            most_s = MAX_CREDIT * self.window_s
            self._credit_s = min(most_s, self._credit_s + free_s - nearer_s)

    def _forget(self, now_s: float) -> None:
        log = self._log
        while log and log[0].over_s <= now_s:
            over = log.popleft()
            over.is_counted = False
            self._counted -= over.tokens
