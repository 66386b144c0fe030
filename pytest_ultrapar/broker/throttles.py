"""Throttles that keep requests within a limit: seats, spaced sends and reserved tokens."""

from __future__ import annotations

import math
from collections import deque


class Seats:
    """A limit on requests in flight: a semaphore whose cap may change.

    If the cap falls below the number in flight, the seats that are taken stay taken. No seat is
    granted until enough of them have been returned.

    Attributes:
        in_flight: How many seats are taken now.
        peak: The highest number of seats taken at the same time so far.
        cap: How many seats there are now, a whole number >= 0; infinity if unlimited.
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
            ValueError: No seat is taken.
        """
        if self.in_flight == 0:
            raise ValueError("no seat is taken")
        self.in_flight -= 1


UNRATED_SEND_BY_S = 60.0
"""How many seconds after its grant a lease may still be used, if no rate limit applies to its lane.
Without a rate limit, a late send does no harm. This number only matters for a client that was
suspended."""


class Pacer:
    """Spaces sends by `window_s / rate`: the generic cell rate algorithm (GCRA) with burst 1.

    Guarantee: if `rate` is a whole number, any half-open window of `window_s` seconds contains at
    most `rate` sends, regardless of when sends are requested and how times are rounded. If `rate`
    is a fraction, this is true for windows in which it allows a whole number of sends. So 1.5 per
    second means 3 in any 2 s, and 0.2 per second means one in any 5 s.

    Spacing is safer than a log of the last `rate` sends, which would admit the whole quota in one
    burst. Connection set-up, retransmissions or a late sender can push two such bursts together.
    The receiver then counts up to twice the quota in one of its windows. With spacing, the receiver
    sees one request too many only if a request is delayed by a whole interval. Some providers (such
    as Azure) enforce a limit per minute in slices of a second. Spacing gives them an even stream.

    Once counted, a send is never taken back, because the broker cannot know whether the request
    reached the provider.

    Source: ITU-T I.371 annex A (GCRA, the virtual scheduling algorithm).
    """

    def __init__(self, rate: float, window_s: float) -> None:
        """Start with the first send allowed immediately.

        Args:
            rate: Sends per window, > 0; fractions are allowed.
            window_s: Length of the window in seconds, > 0, including the headroom.

        Raises:
            ValueError: One of the arguments is not a finite number above 0.
        """
        if not (math.isfinite(rate) and math.isfinite(window_s) and rate > 0 and window_s > 0):
            raise ValueError(
                f"rate and window_s must be finite and > 0 (got {rate!r} per {window_s!r} s)"
            )
        self.rate = rate
        self.ready_s = -math.inf
        self.stretch(window_s)

    def stretch(self, window_s: float) -> None:
        """Change the window for all sends after the next one, whose time is already set."""
        # Round up, so that `rate` intervals never add up to less than the window. (Three times the
        # float below 1/3 would be less than 1.)
        self.interval_s = math.nextafter(window_s / self.rate, math.inf)

    @property
    def per_s(self) -> float:
        """The number of sends allowed per second."""
        return 1.0 / self.interval_s

    def ready_at_s(self, now_s: float) -> float:
        """The earliest time, not before `now_s`, at which a send is allowed."""
        return max(now_s, self.ready_s)

    def take(self, now_s: float, wake_s: float = 0.0) -> float:
        """Count one send at `now_s`.

        Args:
            now_s: The time.
            wake_s: How many seconds late a send may be granted and still count as on time. Even on
                an idle machine, timers wake 1 ms late. Without this tolerance, a rate of 100 sends
                per second would lose a tenth of the sends.

        Returns:
            How many seconds late the send is; 0 if it is later than `wake_s` allows.

        Raises:
            ValueError: No send is allowed at `now_s`.
        """
        if now_s < self.ready_s:
            raise ValueError(f"a send at {now_s!r} s is {self.ready_s - now_s:.6f} s too early")
        since_s = self.ready_s if self.ready_s >= now_s - wake_s else now_s
        # The sum is rounded to the nearest float, so the next float is never below the true sum.
        # After an uptime of 100 days the next float is 2 ns away. Without this step, many rounding
        # errors would add up, and a window would contain one send too many.
        self.ready_s = math.nextafter(since_s + self.interval_s, math.inf)
        return now_s - since_s

    def postpone(self, by_s: float) -> None:
        """Delay the next send, and therefore all later sends."""
        self.ready_s = math.nextafter(self.ready_s + by_s, math.inf)


MAX_CREDIT = 0.1
"""The maximum credit from refunded tokens, as a fraction of the window. Sends are not spaced until
the credit is used up."""


class Reservation:
    """The tokens that one send takes from one limit.

    Attributes:
        units: The number of tokens reserved or, once it is known, the number used.
        is_counted: Whether the tokens still count, because the window that follows the send is not
            over.
    """

    __slots__ = ("is_counted", "over_s", "units")

    def __init__(self, units: int, over_s: float) -> None:
        self.units = units
        self.over_s = over_s
        self.is_counted = True


class TokenPacer:
    """A token bucket that logs sends, and spaces them by the tokens reserved for each.

    Guarantee: any half-open window of `window_s` seconds contains at most `limit` reserved tokens,
    if no send uses more than its reservation. If a send uses more, the excess delays the next send,
    but by at most one window: after that, the provider no longer counts the excess.

    Both the log and the spacing must allow a send. A log alone would admit a whole window's tokens
    in one burst (see `Pacer`). Spacing alone (`tokens * window_s / limit` after each send) is not
    exact if sends differ in size: at 1000 per minute, it allows three sends of 400 tokens within
    48 s.

    If a reservation was too large, the log and the spacing get the unused tokens back. If the next
    send is already due, the unused tokens shorten later intervals. Without these refunds, the rate
    of sends would depend on the estimates instead of the tokens used. Idle time gives no credit.

    Source: ITU-T I.371 annex A (GCRA), with an amount for each send, and with a log of the sends in
    the window.
    """

    def __init__(self, limit: float, window_s: float) -> None:
        """Start without any sends.

        Args:
            limit: Tokens per window, >= 1.
            window_s: Length of the window in seconds, > 0, including the headroom.

        Raises:
            ValueError: One of the arguments is not a finite number within its bounds.
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
        """Change the window for later sends."""
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
        """Count one send at `now_s`, and reserve the tokens that it may use.

        Raises:
            ValueError: This send is not allowed at `now_s`.
        """
        ready_s = self.ready_at_s(tokens, now_s)
        if ready_s > now_s:
            raise ValueError(
                f"a send of {tokens} tokens at {now_s!r} s is {ready_s - now_s:.6f} s too early"
            )
        # Round up, as in `Pacer`.
        reservation = Reservation(tokens, math.nextafter(now_s + self.window_s, math.inf))
        self._log.append(reservation)
        self._counted += tokens
        distance_s = tokens * self._token_s
        credit_s = min(self._credit_s, distance_s)
        self._credit_s -= credit_s
        self.ready_s = now_s + (distance_s - credit_s)
        return reservation

    def settle(self, reservation: Reservation, tokens: int, now_s: float) -> None:
        """Record how many tokens a send used. You may call this more than once."""
        more = tokens - reservation.units
        self._forget(now_s)
        reservation.units = tokens
        if reservation.is_counted:
            self._counted += more
        if more > 0:
            owed_s = max(0.0, self.ready_s - now_s) + more * self._token_s
            self.ready_s = now_s + min(owed_s, self.window_s)
        elif reservation.is_counted:
            # Ignore later refunds, because the window of the reservation has passed.
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
