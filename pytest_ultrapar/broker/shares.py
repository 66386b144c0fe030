"""Shares: how many units of a limit this host may use. Shares change during the run.

A limit's rows (`workers`, `qps`, `tpd`, ...) may be divided between hosts in whole units. This
module enforces a share in the same way as `throttles` enforces a limit. It also counts the units of
earlier shares that are still in use. The ledger that divides a row follows one rule: the sum of the
hosts' holdings (`HeldUnits.units`) plus new grants never exceeds the row. So no row is ever
exceeded, regardless of when units move from one host to another.

A shared row is closed at first: no lease that needs it is granted before the host gets its first
share.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pytest_ultrapar.broker.headroom import longest_late_s
from pytest_ultrapar.broker.throttles import Pacer, Reservation, Seats, TokenPacer
from pytest_ultrapar.pool.model import LIMIT_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.broker.day_ledger import DayLedger, DayReservation
    from pytest_ultrapar.pool.model import Pool


BUDGET_ROW, SEATS_ROW = "budget", "workers"
DRIFT = 1.02
"""The sends that a share allows in a window are spaced over the window multiplied by this factor,
plus the spare time for late sends. Each host spaces its sends by its own clock. A host loses its
share if its clock and the server's differ in speed by more than this factor. A higher factor costs
time: with 1.05, phase 5.3 on three hosts took 1.052 times as long as on one host; with 1.02, it
took 1.036 times as long."""
COUNTS = 1.05
"""For how long a send counts, as a multiple of the window. On any host's clock, this is longer than
the window."""
MOST_WINDOWS = 10
"""A fractional amount is converted to a whole one over at most this many windows. With more
windows, units would move too slowly between hosts."""


class Row(NamedTuple):
    """One row of a limit, identified by the limit's name and the row's kind (or `budget`)."""

    limit: str
    word: str


class WholeRow(NamedTuple):
    """A row in whole units: the maximum in any window of `window_s` seconds (0: at any moment)."""

    units: int
    window_s: float


class HeldUnits(msgspec.Struct, frozen=True, array_like=True):
    """The units of a row that a host still holds.

    Attributes:
        units: For seats, the larger of the share and the number of requests in flight. For paced
            rows, the larger of the share and the number of sends under earlier, larger shares that
            still count. For tokens, the larger of the share and the number of tokens that still
            count. For counted rows, the units that the host may still spend.
        spent: For counted rows: the units spent since the host started, including reservations for
            unanswered requests.
        reserved: How many of the `spent` units are only reserved.
    """

    units: int
    spent: int = 0
    reserved: int = 0


def whole_row(amount: float, window_s: float) -> WholeRow:
    """Convert a row to whole units. The result never allows more than was declared.

    A fractional amount becomes a whole one over several windows: 1.5 per second becomes 3 per 2 s,
    and 0.2 becomes 1 per 5 s. If this would take more than `MOST_WINDOWS` windows, an amount below
    one becomes one unit over a longer time. In this case, a larger amount is rounded down, over the
    number of windows that loses the least.

    Args:
        amount: The declared amount, > 0.
        window_s: The window of the row's kind; 0 if the limit applies at any moment.
    """
    if not window_s or amount == int(amount):
        return WholeRow(int(amount), window_s)
    from fractions import Fraction  # noqa: PLC0415 - few amounts are fractions

    exact = Fraction(str(amount))
    if exact.denominator <= MOST_WINDOWS:
        return WholeRow(exact.numerator, window_s * exact.denominator)
    if amount < 1:
        return WholeRow(1, math.nextafter(window_s / amount, math.inf))
    n = max(range(1, MOST_WINDOWS + 1), key=lambda n: (Fraction(int(exact * n), n), -n))
    return WholeRow(int(exact * n), window_s * n)


def rows_of(pool: Pool, names: Iterable[str] | None = None) -> tuple[Row, ...]:
    """All rows that hosts can share, including daily limits and budgets.

    Args:
        pool: The pool with the limits.
        names: The names of the limits; None for all limits.
    """
    found: list[Row] = []
    for name in pool.limits if names is None else names:
        limit = pool.limits[name]
        found += [Row(name, kind.word) for kind, _ in limit.rows]
        if limit.budget is not None:
            found.append(Row(name, BUDGET_ROW))
    return tuple(found)


def declared_row(pool: Pool, row: Row) -> WholeRow:
    """A row of a limit in the pool, in whole units. Money is in the units of `pool.money`.

    Raises:
        ValueError: The pool has no such row.
    """
    limit = pool.limits.get(row.limit)
    amount = None
    if limit is not None and (row.word in LIMIT_KINDS or row.word == BUDGET_ROW):
        amount = getattr(limit, row.word)
    if amount is None:
        raise ValueError(f"the pool has no row {row.word!r} of a limit {row.limit!r}")
    if row.word == BUDGET_ROW:
        from pytest_ultrapar.pool.money import budget_units  # noqa: PLC0415 - few runs have one

        return WholeRow(budget_units(amount), 0.0)
    return whole_row(amount, LIMIT_KINDS[row.word].window_s)


class _Divided:
    """A divided row whose units become free again as soon as this host no longer uses them.

    Attributes:
        row: The whole row.
        share: How many units this host may use now.
    """

    def __init__(self, row: WholeRow) -> None:
        self.row = row
        self.share = 0

    @property
    def is_cut(self) -> bool:
        """Whether the share is less than the whole row."""
        return self.share < self.row.units

    @property
    def is_closed(self) -> bool:
        """Whether no units may be used until the next share."""
        return not self.share

    def set_share(self, units: int) -> bool:
        """Allow this many units from now on, but no more than the whole row.

        Returns:
            Whether the share changed.
        """
        before, self.share = self.share, min(units, self.row.units)
        return self.share != before

    def close(self) -> None:
        """Allow no units from now on."""
        self.set_share(0)


class SharedSeats(_Divided):
    """Seats that hosts share, of which this host may use its share."""

    def __init__(self, row: WholeRow, seats: Seats) -> None:
        super().__init__(row)
        self._seats = seats

    def held(self, _: float) -> HeldUnits:
        """The larger of the share and the number of taken seats."""
        return HeldUnits(max(self.share, self._seats.in_flight))


class SharedPacer(_Divided, Pacer):
    """Spaces sends according to a share that changes.

    Guarantee: the interval between a send and the one before it is never shorter than the current
    share requires. So the window that ends with a send never contains more sends than the share
    allows at that time, regardless of earlier shares. For `held`, a send counts as long as one
    window can contain both this send and the next one. So if the share is lowered, the units become
    free for other hosts one by one, as the sends leave the window.
    """

    def __init__(self, row: WholeRow, spare_s: float) -> None:
        """Start closed.

        Args:
            row: The whole row.
            spare_s: The spare time, as in `Headroom`.
        """
        _Divided.__init__(self, row)
        self._sent: deque[float] = deque()
        self._used = False
        self._past: list[tuple[int, float]] = []
        Pacer.__init__(self, row.units, row.window_s + spare_s)
        self.ready_s = math.inf

    def stretch(self, window_s: float) -> None:
        """Change the window for the sends after the next one. Time for clock drift is added."""
        self._spare_s = window_s - self.row.window_s
        share = self.share
        self.interval_s = math.nextafter(self._width_s / share, math.inf) if share else math.inf

    @property
    def _width_s(self) -> float:
        return spaced_over_s(self.row.window_s, self._spare_s)

    @property
    def per_s(self) -> float:
        """How many sends per second the whole row allows."""
        return self.row.units / self.row.window_s

    def take(self, now_s: float, wake_s: float = 0.0) -> float:
        """Take a send, as in `Pacer.take`."""
        behind_s = super().take(now_s, wake_s)
        self._forget(now_s)
        self._sent.append(now_s - behind_s)
        self._used = True
        self.ready_s = max(self.ready_s, self._window_free_s())
        return behind_s

    def postpone(self, by_s: float) -> None:
        """Delay the next send, and therefore all later sends."""
        if self._sent:
            self._sent[-1] += by_s
        super().postpone(by_s)

    def set_share(self, units: int) -> bool:
        """Set the share, as in `_Divided.set_share`."""
        before = self.share
        if not super().set_share(units):
            return False
        if self._used and self._sent:
            self._past.append((before, self._sent[-1]))
        self._used = False
        self.stretch(self.row.window_s + self._spare_s)
        self.ready_s = math.inf
        if self.share:
            last_s = self._sent[-1] if self._sent else -math.inf
            spaced_s = math.nextafter(last_s + self.interval_s, math.inf)
            self.ready_s = max(spaced_s, self._window_free_s())
        return True

    def held(self, now_s: float) -> HeldUnits:
        """The larger of the share and the number of sends under larger shares that still count."""
        over_s = self._forget(now_s)
        self._past = [one for one in self._past if one[1] > over_s]
        largest = max((share for share, _ in self._past), default=0)
        return HeldUnits(max(self.share, min(largest, len(self._sent))))

    def _window_free_s(self) -> float:
        """The time from which the window before a send has fewer sends than the share allows."""
        if len(self._sent) < self.share:
            return -math.inf
        return math.nextafter(self._sent[-self.share] + self._width_s, math.inf)

    def _forget(self, now_s: float) -> float:
        """Forget sends that are too old to be in the same window as a later send."""
        over_s = now_s - counts_s(self.row, self._spare_s)
        while self._sent and self._sent[0] <= over_s:
            self._sent.popleft()
        return over_s


class SharedTokens(_Divided, TokenPacer):
    """Counts tokens against a share that changes.

    Guarantee: at each send, the tokens reserved for it, together with the tokens in the window
    before it, do not exceed the current share. Tokens that still count are `held` until their
    window has passed, even if they exceed the share. If the share is 0, even a send without tokens
    must wait.

    Attributes:
        last_units: The units of the last reservation; 0 before the first.
    """

    def __init__(self, row: WholeRow, spare_s: float) -> None:
        """Start closed. The arguments are the same as for `SharedPacer`."""
        _Divided.__init__(self, row)
        self.last_units = 0
        self._open = row.units
        self._from_s = -math.inf
        TokenPacer.__init__(self, row.units, row.window_s + spare_s)
        self.limit = 0

    def stretch(self, window_s: float) -> None:
        """Change the window for later sends. Time for clock drift is added."""
        self.window_s = spaced_over_s(self.row.window_s, window_s - self.row.window_s)
        self._token_s = self.window_s / self._open

    def ready_at_s(self, tokens: int, now_s: float) -> float:
        """Like `TokenPacer.ready_at_s`, but infinity if the share is 0 or smaller than `tokens`."""
        return super().ready_at_s(tokens, now_s) if self.share else math.inf

    def reserve(self, tokens: int, now_s: float) -> Reservation:
        """Reserve tokens, as in `TokenPacer.reserve`."""
        reservation = super().reserve(tokens, now_s)
        self._from_s = now_s
        self.last_units = tokens
        return reservation

    def settle(self, reservation: Reservation, tokens: int, now_s: float) -> None:
        """Settle a reservation, as in `TokenPacer.settle`."""
        is_debt = tokens > reservation.units
        super().settle(reservation, tokens, now_s)
        if is_debt:
            self._from_s = now_s

    def set_share(self, units: int) -> bool:
        """Set the share, as in `_Divided.set_share`."""
        is_other = super().set_share(units)
        self.limit = self.share
        if not self.share or self.share == self._open:
            return is_other
        # Debt and credit are measured in tokens. With the new share, a token takes a different
        # time.
        slower = self._open / self.share
        self._open = self.share
        self._token_s = self.window_s / self.share
        if self.ready_s > -math.inf:
            self.ready_s = self._from_s + (self.ready_s - self._from_s) * slower
        self._credit_s *= slower
        return is_other

    def held(self, now_s: float) -> HeldUnits:
        """The larger of the share and the number of tokens that still count."""
        self._forget(now_s)
        return HeldUnits(max(self.share, self._counted))


def spaced_over_s(window_s: float, spare_s: float) -> float:
    """The time over which a share's sends are spaced, including time for drift and delays."""
    return DRIFT * window_s + spare_s


def counts_s(row: WholeRow, spare_s: float) -> float:
    """How long after its grant a send counts: its longest delay plus a window on any clock.

    A send is late by at most the spare time plus the interval between sends (`Headroom.send_by_s`).
    """
    late_s = spare_s + row.window_s / row.units if spare_s else 0.0
    return COUNTS * row.window_s + min(late_s, longest_late_s(row.window_s))


class GrantedUnits:
    """The part of a counted row that this host may spend, and what it has spent.

    Attributes:
        left: How many units may still be reserved; below 0 if requests used more than was reserved.
        spent: How many units have been used or are reserved.
        reserved: How many of the `spent` units are only reserved.
        is_open: Whether units may be reserved now.
        last_units: The units of the last reservation; 0 before the first.
        most: How many units no host has spent yet; infinity if unknown. This host cannot get more
            than that.
    """

    def __init__(self) -> None:
        self.left = self.spent = self.reserved = self.last_units = 0
        self.most = math.inf
        self.is_open = False

    @property
    def usable(self) -> int:
        """How many units may be reserved now; never below 0."""
        return max(0, self.left) if self.is_open else 0

    @property
    def is_used_up(self) -> bool:
        """Whether a request like the last one needs more than all hosts together have left."""
        return self.most < max(1, self.last_units)

    @property
    def is_cut(self) -> bool:
        """Whether a request like the last one needs more units than this host has left."""
        return self.usable < max(1, self.last_units)

    @property
    def is_closed(self) -> bool:
        """Whether no units may be reserved until the next share."""
        return not self.usable and not self.is_used_up

    def set_share(self, units: int) -> bool:
        """Set the share, as in `_Divided.set_share`, but to any number of units."""
        before, self.left, self.is_open = self.usable, units, True
        return self.usable != before

    def close(self) -> None:
        """Allow no reservations from now on. The host still holds the units that are left."""
        self.is_open, self.most = False, math.inf

    def held(self, _: float) -> HeldUnits:
        """The units left and the units spent."""
        return HeldUnits(max(0, self.left), self.spent, self.reserved)

    def reserve(self, units: int) -> None:
        """Reserve units."""
        self.last_units = units
        self.left -= units
        self.spent += units
        self.reserved += units

    def settle(self, reserved: int, used: int) -> None:
        """Replace a reservation with the units that were used. Call this once per reservation."""
        self.left -= used - reserved
        self.spent += used - reserved
        self.reserved -= reserved


SharedRow = SharedSeats | SharedPacer | SharedTokens | GrantedUnits


class SharedDays:
    """Limits a daily ledger to the units that this host was granted (its *tranche*).

    It has the interface of `DayLedger`. If the tranche is too small, requests wait, because the
    next tranche may arrive at any time. The ledger itself knows whether the daily quota is used up.
    """

    def __init__(self, ledger: DayLedger, tranche: GrantedUnits) -> None:
        self.ledger = ledger
        self.tranche = tranche

    def left(self, now_s: float) -> int:
        """How many units may be sent now."""
        return min(self.tranche.usable, self.ledger.left(now_s))

    def ready_at_s(self, units: int, now_s: float) -> float:
        """Like `DayLedger.ready_at_s`, but also infinity if the tranche is too small."""
        if units > self.tranche.usable:
            return math.inf
        return self.ledger.ready_at_s(units, now_s)

    def reserve(self, units: int, now_s: float) -> DayReservation:
        """Reserve units, as in `DayLedger.reserve`."""
        reservation = self.ledger.reserve(units, now_s)
        self.tranche.reserve(units)
        return reservation

    def settle(self, reservation: DayReservation, units: int, now_s: float) -> None:
        """Settle a reservation, as in `DayLedger.settle`."""
        self.tranche.settle(reservation.units, units)
        self.ledger.settle(reservation, units, now_s)


class LimitShares:
    """The shared rows of one limit. Without shared rows, this object blocks no requests.

    Attributes:
        label: The label for waits that are due to a share that is too small.
        rows: The shared rows, by kind.
    """

    def __init__(self, name: str) -> None:
        """Start without shared rows, for the limit with this name."""
        self.label = f"share of {name}"
        self.rows: dict[str, SharedRow] = {}

    @property
    def seats(self) -> float:
        """How many seats this host may use; infinity if seats are not shared."""
        row = self.rows.get(SEATS_ROW)
        return row.share if isinstance(row, SharedSeats) else math.inf

    @property
    def are_seats_cut(self) -> bool:
        """Whether this host may use only part of the seats."""
        return SEATS_ROW in self.rows and self.rows[SEATS_ROW].is_cut

    @property
    def are_rates_cut(self) -> bool:
        """Whether this host may use only part of a rate, a daily limit or a budget."""
        return any(one.is_cut for word, one in self.rows.items() if word != SEATS_ROW)

    @property
    def is_spent(self) -> bool:
        """Whether all hosts together have used up a daily quota or a budget."""
        return any(isinstance(one, GrantedUnits) and one.is_used_up for one in self.rows.values())

    @property
    def is_closed(self) -> bool:
        """Whether requests must wait for the next share. Rows that are used up do not count."""
        return any(one.is_closed for one in self.rows.values())

    def is_used_up(self, word: str, units: int) -> bool:
        """Whether fewer than this many units of a counted row are left for all hosts together."""
        row = self.rows.get(word)
        return isinstance(row, GrantedUnits) and units > row.most
