"""What keeps requests within a limit: seats in flight, sends that are spaced, tokens reserved."""

from __future__ import annotations

import math
from collections import deque


class Seats:
    """Requests in flight: a semaphore whose cap may change.

    A cap that is lowered below what is in flight takes nothing back; none is granted until enough
    seats have returned.

    Attributes:
        in_flight: Seats taken now.
        peak: Most seats ever taken at once.
        cap: Seats allowed now, a whole number >= 1, infinity when unlimited.
    """

    def __init__(self, cap: float) -> None:
        self.cap = cap
        self.in_flight = 0
        self.peak = 0

    @property
    def is_full(self) -> bool:
        """Whether no seat is free."""
        return self.in_flight >= self.cap

    def take(self) -> None:
        """Take one seat.

        Raises:
            ValueError: When none is free.
        """
        if self.in_flight >= self.cap:
            raise ValueError(f"all {self.cap:g} seats are taken")
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)

    def give_back(self) -> None:
        """Return one seat.

        Raises:
            ValueError: When none was taken.
        """
        if self.in_flight == 0:
            raise ValueError("no seat is taken")
        self.in_flight -= 1


UNRATED_SEND_BY_S = 60.0
"""A lease may be used so long after its grant where no rate is on the path: a late send harms
nobody there; this catches a client that slept."""


class Pacer:
    """Spaces sends by `window_s / rate`: the generic cell rate algorithm (GCRA) with burst 1.

    Guarantee: for a whole `rate`, any half-open window of `window_s` seconds holds at most `rate`
    sends, whatever the times asked for and whatever the clock's rounding. For a fractional rate the
    window that holds a whole number of sends counts (1.5 per second is 3 in any 2 s; 0.2 per second
    is one in any 5 s).

    Why spacing and not a log of the last `rate` sends: a log admits the whole quota in one burst,
    and two bursts on both sides of a window's edge arrive compressed at the receiver (connection
    set-up, retransmits, a late sender), which then counts up to twice the quota in one of its own
    windows. Spaced sends need a delay of a whole interval before the receiver sees even one call
    too many, and providers that judge a rate per minute by slices of a second (Azure does) see an
    even stream.

    A token taken is never given back: the broker cannot know that nothing reached the provider.

    Source: ITU-T I.371 annex A (GCRA, the virtual scheduling algorithm).
    """

    def __init__(self, rate: float, window_s: float) -> None:
        """Start with the first send allowed at once.

        Args:
            rate: Sends per window, > 0, fractions allowed.
            window_s: Length of the window in seconds, > 0, with what is spare.

        Raises:
            ValueError: When either is not a finite number above 0.
        """
        if not (math.isfinite(rate) and math.isfinite(window_s) and rate > 0 and window_s > 0):
            raise ValueError(
                f"rate and window_s must be finite and > 0 (got {rate!r} per {window_s!r} s)"
            )
        self.rate = rate
        self.ready_s = -math.inf
        self.stretch(window_s)

    def stretch(self, window_s: float) -> None:
        """Space the sends after the next one over another window."""
        # Rounded up, so that `rate` intervals never sum to less than the window (3 x the float
        # below 1/3 would).
        self.interval_s = math.nextafter(window_s / self.rate, math.inf)

    @property
    def per_s(self) -> float:
        """Sends per second."""
        return 1.0 / self.interval_s

    def ready_at_s(self, now_s: float) -> float:
        """The earliest time, not before `now_s`, at which a send is allowed."""
        return max(now_s, self.ready_s)

    def take(self, now_s: float, wake_s: float = 0.0) -> float:
        """Count one send at `now_s`.

        Args:
            now_s: The time.
            wake_s: So long after its time a send may be granted and still count as on time: timers
                wake late, by 1 ms on a quiet machine, and at 100 per second that would be a tenth
                of all sends.

        Returns:
            How long ago its time was, if it counts as on time; else 0.

        Raises:
            ValueError: When no send is allowed at `now_s`.
        """
        if now_s < self.ready_s:
            raise ValueError(f"a send at {now_s!r} s is {self.ready_s - now_s:.6f} s too early")
        since_s = self.ready_s if self.ready_s >= now_s - wake_s else now_s
        # The sum is rounded to nearest, so one step up is never below the true sum: at an uptime of
        # 100 days a step is 2 ns, and without it a long chain of sends drifts below the window.
        self.ready_s = math.nextafter(since_s + self.interval_s, math.inf)
        return now_s - since_s

    def postpone(self, by_s: float) -> None:
        """Allow the next send, and so all after it, that much later."""
        self.ready_s = math.nextafter(self.ready_s + by_s, math.inf)


MAX_CREDIT = 0.1
"""Share of the window that refunds may let sends follow each other without distance."""


class Reservation:
    """Tokens that one send counts for, on one limit.

    Attributes:
        units: Tokens reserved; what was used once that is known.
        is_counted: Whether its window has not passed yet.
    """

    __slots__ = ("is_counted", "over_s", "units")

    def __init__(self, units: int, over_s: float) -> None:
        self.units = units
        self.over_s = over_s
        self.is_counted = True


class TokenPacer:
    """A token bucket with reserve and settle: spaces sends by what they may take, and counts that.

    Guarantee: the tokens reserved in any half-open window of `window_s` seconds are never more than
    `limit`, whatever is asked for, reserved and corrected, as long as nothing turns out larger than
    its reservation. What does is paid for before the next send, for one window at most: what was
    sent before that, no provider counts any more.

    A log of the window alone would admit a whole window's tokens in one burst (why that is bad:
    `Pacer`). Spacing alone, `tokens * window_s / limit` after each send, is not exact
    where sends differ in size: three of 400 in 48 s keep that distance at 1000 per minute. So a
    send must satisfy both.

    A reservation that was too large is free again, in the count and in the distance; what is left
    of the latter shortens later ones, else the rate of sends would be that of the estimates. Idle
    time is no credit.

    Source: ITU-T I.371 annex A (GCRA), with amounts, and a log of the sends in the window.
    """

    def __init__(self, limit: float, window_s: float) -> None:
        """Start with nothing sent.

        Args:
            limit: Tokens per window, >= 1.
            window_s: Length of the window in seconds, > 0, with what is spare.

        Raises:
            ValueError: When either is not a finite number in its bounds.
        """
        if not (math.isfinite(limit) and math.isfinite(window_s) and limit >= 1 and window_s > 0):
            raise ValueError(
                f"limit must be >= 1 and window_s > 0 (got {limit!r} per {window_s!r} s)"
            )
        self.limit = limit
        self.ready_s = -math.inf
        self.stretch(window_s)
        self._credit_s = 0.0
        self._counted = 0
        self._log: deque[Reservation] = deque()

    def stretch(self, window_s: float) -> None:
        """Count sends from now on over another window."""
        self.window_s = window_s
        self._token_s = window_s / self.limit

    def ready_at_s(self, tokens: int, now_s: float) -> float:
        """The earliest time, not before `now_s`, at which a send of so many tokens is allowed.

        Infinity when it is larger than the limit.
        """
        if tokens > self.limit:
            return math.inf
        self._forget(now_s)
        at_s = max(now_s, self.ready_s)
        # The oldest leave the window first: so many of them must have gone before this one fits.
        too_many = self._counted + tokens - self.limit
        for sent in self._log:
            if too_many <= 0:
                break
            too_many -= sent.units
            at_s = max(at_s, sent.over_s)
        return at_s

    def reserve(self, tokens: int, now_s: float) -> Reservation:
        """Count one send at `now_s` with what it may take.

        Raises:
            ValueError: When no such send is allowed at `now_s`.
        """
        ready_s = self.ready_at_s(tokens, now_s)
        if ready_s > now_s:
            raise ValueError(
                f"a send of {tokens} tokens at {now_s!r} s is {ready_s - now_s:.6f} s too early"
            )
        # Rounded up, as in `Pacer`.
        reservation = Reservation(tokens, math.nextafter(now_s + self.window_s, math.inf))
        self._log.append(reservation)
        self._counted += tokens
        distance_s = tokens * self._token_s
        credit_s = min(self._credit_s, distance_s)
        self._credit_s -= credit_s
        self.ready_s = now_s + (distance_s - credit_s)
        return reservation

    def settle(self, reservation: Reservation, tokens: int, now_s: float) -> None:
        """Say how many tokens a send took; may be said again."""
        more = tokens - reservation.units
        self._forget(now_s)
        reservation.units = tokens
        if reservation.is_counted:
            self._counted += more
        if more > 0:
            owed_s = max(0.0, self.ready_s - now_s) + more * self._token_s
            self.ready_s = now_s + min(owed_s, self.window_s)
        elif reservation.is_counted:
            # Afterwards a refund is late: the window that it was taken from has passed.
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
            self._counted -= over.units
