"""Throttles that keep requests within a limit: seats, spaced sends and reserved tokens."""

from __future__ import annotations

import math
from collections import deque


class Seats:
    """Requests in flight: a semaphore whose cap may change.

    A cap below the number in flight takes no seat back. No seat is granted until enough seats have
    returned.

    Attributes:
        in_flight: Seats taken now.
        peak: The most seats ever taken at the same time.
        cap: Seats allowed now, a whole number >= 0; infinity when unlimited.
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
            ValueError: No seat is free.
        """
        if self.in_flight >= self.cap:
            raise ValueError(f"all {self.cap:g} seats are taken")
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)

    def give_back(self) -> None:
        """Return one seat.

        Raises:
            ValueError: No seat was taken.
        """
        if self.in_flight == 0:
            raise ValueError("no seat is taken")
        self.in_flight -= 1


UNRATED_SEND_BY_S = 60.0
"""How long after its grant a lease may be used if its path has no limit on a rate. A late send then
does no harm; this catches a client that slept."""


class Pacer:
    """Spaces sends by `window_s / rate`: the generic cell rate algorithm (GCRA) with burst 1.

    Guarantee: for a whole `rate`, any half-open window of `window_s` seconds contains at most
    `rate` sends, at any requested times and with any rounding of the clock. For a fractional rate
    this holds for the window of a whole number of sends (1.5 per second is 3 in any 2 s; 0.2 per
    second is one in any 5 s).

    Spacing is safer than a log of the last `rate` sends. A log admits the whole quota in one burst.
    Connection set-up, retransmits or a late sender can push two bursts together, so that the
    receiver counts up to twice the quota in one of its windows. With spacing, only a delay of a
    whole interval makes the receiver see one call too many. Providers that count a rate per minute
    by slices of a second (as Azure does) see an even stream.

    A send is never given back: the broker cannot know whether it reached the provider.

    Source: ITU-T I.371 annex A (GCRA, the virtual scheduling algorithm).
    """

    def __init__(self, rate: float, window_s: float) -> None:
        """Start with the first send allowed immediately.

        Args:
            rate: Sends per window, > 0; fractions are allowed.
            window_s: Length of the window in seconds, > 0, with the headroom.

        Raises:
            ValueError: Either is not a finite number above 0.
        """
        if not (math.isfinite(rate) and math.isfinite(window_s) and rate > 0 and window_s > 0):
            raise ValueError(
                f"rate and window_s must be finite and > 0 (got {rate!r} per {window_s!r} s)"
            )
        self.rate = rate
        self.ready_s = -math.inf
        self.stretch(window_s)

    def stretch(self, window_s: float) -> None:
        """Change the window for the sends after the next one."""
        # Rounded up, so that `rate` intervals never add up to less than the window (3 x the float
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
            wake_s: A send that is granted this late still counts as on time. Timers wake 1 ms late
                on a quiet machine, which at 100 sends per second would cost a tenth of them.

        Returns:
            How late the send is, if it counts as on time; else 0.

        Raises:
            ValueError: No send is allowed at `now_s`.
        """
        if now_s < self.ready_s:
            raise ValueError(f"a send at {now_s!r} s is {self.ready_s - now_s:.6f} s too early")
        since_s = self.ready_s if self.ready_s >= now_s - wake_s else now_s
        # The sum is rounded to nearest, so the next float is never below the true sum. At an uptime
        # of 100 days it is 2 ns away; without this, many sends would drift below the window.
        self.ready_s = math.nextafter(since_s + self.interval_s, math.inf)
        return now_s - since_s

    def postpone(self, by_s: float) -> None:
        """Delay the next send, and so all sends after it."""
        self.ready_s = math.nextafter(self.ready_s + by_s, math.inf)


MAX_CREDIT = 0.1
"""The greatest credit from refunded tokens, as a share of the window. Sends follow each other
without distance until the credit is used up."""


class Reservation:
    """The tokens of one send, on one limit.

    Attributes:
        units: The tokens reserved, or used as soon as that is known.
        is_counted: Whether its window has not passed yet.
    """

    __slots__ = ("is_counted", "over_s", "units")

    def __init__(self, units: int, over_s: float) -> None:
        self.units = units
        self.over_s = over_s
        self.is_counted = True


class TokenPacer:
    """A token bucket with reserve and settle: spaces sends by their reserved tokens, and logs them.

    Guarantee: any half-open window of `window_s` seconds contains at most `limit` reserved tokens,
    if no send uses more than its reservation. The excess of a larger send delays the next send, by
    one window at most: by then the provider no longer counts it.

    A send must satisfy a log and a spacing. The log of a window alone would admit a whole window's
    tokens in one burst (see `Pacer`). Spacing alone, `tokens * window_s / limit` after each send,
    is not exact if sends differ in size: three sends of 400 tokens in 48 s keep that distance at
    1000 per minute.

    A reservation that was too large is given back, to the log and to the spacing. If the next send
    is due already, the rest shortens later distances; otherwise the estimates would set the rate of
    sends. Idle time gives no credit.

    Source: ITU-T I.371 annex A (GCRA), with amounts, and a log of the sends in the window.
    """

    def __init__(self, limit: float, window_s: float) -> None:
        """Start with nothing sent.

        Args:
            limit: Tokens per window, >= 1.
            window_s: Length of the window in seconds, > 0, with the headroom.

        Raises:
            ValueError: Either is not a finite number within its bounds.
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
        """Change the window for sends from now on."""
        self.window_s = window_s
        self._token_s = window_s / self.limit

    def ready_at_s(self, tokens: int, now_s: float) -> float:
        """The earliest time, not before `now_s`, at which a send of this many tokens is allowed.

        Infinity if the send is larger than the limit.
        """
        if tokens > self.limit:
            return math.inf
        self._forget(now_s)
        at_s = max(now_s, self.ready_s)
        # The oldest sends leave the window first, until this one fits.
        too_many = self._counted + tokens - self.limit
        for sent in self._log:
            if too_many <= 0:
                break
            too_many -= sent.units
            at_s = max(at_s, sent.over_s)
        return at_s

    def reserve(self, tokens: int, now_s: float) -> Reservation:
        """Count one send at `now_s` with the tokens that it may use.

        Raises:
            ValueError: No such send is allowed at `now_s`.
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
        """Set the tokens that a send used; may be called again."""
        more = tokens - reservation.units
        self._forget(now_s)
        reservation.units = tokens
        if reservation.is_counted:
            self._counted += more
        if more > 0:
            owed_s = max(0.0, self.ready_s - now_s) + more * self._token_s
            self.ready_s = now_s + min(owed_s, self.window_s)
        elif reservation.is_counted:
            # A later refund is worthless: the window of its reservation has passed.
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
