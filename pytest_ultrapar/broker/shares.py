"""A host's part of the limits that several hosts share: lowered, closed and raised while it runs.

What the hosts may use together is divided elsewhere (`cluster/`), in whole units. Here a broker
keeps to its part, and says what it still holds: a unit that is taken back is only free for others
when nothing that was done with it counts any more.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.broker.headroom import longest_late_s, longest_spare_s

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.broker.throttles import Pacer, Seats, TokenPacer
    from pytest_ultrapar.pool.model import Row

WIDER = 1.05
"""Sends of a share are spaced over a window so much wider: hosts' clocks may differ by 2 % in speed
(those that differ more get no share), and each host's sends may be late by themselves."""
_FINEST = 1000
"""Rates are taken as fractions of this denominator at most: 0.333 per second is 333 in 1,000 s."""


def whole(row: Row) -> tuple[int, float]:
    """A row's amount as a whole number, and the seconds for which it is: 1.5 per second is 3 in 2.

    Never more than declared.
    """
    kind, amount = row
    if not kind.is_rate or kind.counts == "tokens" or float(amount).is_integer():
        return math.floor(amount), kind.window_s
    fraction = Fraction(amount).limit_denominator(_FINEST)
    if fraction > Fraction(amount):
        fraction -= Fraction(1, _FINEST)
    return fraction.numerator, kind.window_s * fraction.denominator


class Holding(NamedTuple):
    """What a host has of one row, and what more it could use.

    Attributes:
        held: Units that it holds, used or not.
        want: Units that it could use, those that it holds included.
        unit: The smallest useful share.
    """

    held: int
    want: int
    unit: int = 1


class SharedSeats:
    """A host's part of a bound on requests in flight.

    Attributes:
        amount: What is shared, >= 1.
        units: This host's part now; 0 is closed.
    """

    __slots__ = ("_seats", "amount", "units")

    def __init__(self, row: Row, seats: Seats) -> None:
        self.amount, _ = whole(row)
        self.units = 0
        self._seats = seats

    def set(self, units: int, now_s: float) -> None:
        """Have so many from now on."""
        del now_s
        self.units = units

    def held(self, now_s: float) -> int:
        """The larger of its part and of what is in flight, dead workers' seats included."""
        del now_s
        return max(self.units, self._seats.in_flight)

    def sent(self, now_s: float) -> None:
        """A request was granted; seats know of it."""


class SharedPace:
    """A host's part of a rate of requests or tokens.

    A part that was lowered still counts as held for as long as sends under it are in any window:
    then others may have what was given back, and no window holds sends of both.

    Attributes:
        amount: What is shared in `window_s` seconds, >= 1.
        units: This host's part now; 0 is closed.
        is_of_tokens: Whether it counts tokens.
    """

    __slots__ = (
        "_earlier",
        "_hold_s",
        "_pacer",
        "_per_window",
        "_sent_s",
        "amount",
        "is_of_tokens",
        "units",
    )

    def __init__(self, row: Row, pacer: Pacer | TokenPacer) -> None:
        self.amount, window_s = whole(row)
        self.units = 0
        self.is_of_tokens = row.kind.counts == "tokens"
        self._pacer = pacer
        self._per_window = row.kind.window_s / window_s
        spare_s = longest_spare_s(row.kind.window_s) + longest_late_s(row.kind.window_s)
        self._hold_s = WIDER * window_s + spare_s
        self._sent_s = -math.inf
        # Parts of before, each with the time from which on nothing sent under it counts.
        self._earlier: list[tuple[int, float]] = []

    def set(self, units: int, now_s: float) -> None:
        """Have so many from now on."""
        if units == self.units:
            return
        if units < self.units and self._sent_s > -math.inf:
            self._earlier.append((self.units, self._sent_s + self._hold_s))
        self.units = units
        if units:
            self._pacer.change(units * self._per_window, now_s)

    def held(self, now_s: float) -> int:
        """The largest part under which anything was sent that still counts."""
        self._earlier = [one for one in self._earlier if one[1] > now_s]
        return max([self.units, *(units for units, _ in self._earlier)])

    def sent(self, now_s: float) -> None:
        """A request was granted."""
        self._sent_s = now_s


Shared = SharedSeats | SharedPace


def largest(sizes: Iterable[int], amount: int) -> int:
    """The smallest useful share of a row of tokens: the largest request that waits fits in it."""
    return max(1, min(amount, max(sizes, default=1)))
