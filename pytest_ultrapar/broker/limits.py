"""Limits during a run: the seats taken, the units reserved, and the time of the next send."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_ultrapar.broker.headroom import Headroom, never_late_s
from pytest_ultrapar.broker.places import Places
from pytest_ultrapar.broker.protocol import BUDGET
from pytest_ultrapar.broker.shares import (
    BUDGET_ROW,
    SEATS_ROW,
    GrantedUnits,
    LimitShares,
    SharedDays,
    SharedPacer,
    SharedSeats,
    SharedTokens,
    WholeRow,
    whole_row,
)
from pytest_ultrapar.broker.throttles import Pacer, Seats, TokenPacer
from pytest_ultrapar.broker.timers import Timer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pytest_ultrapar.apis.outcome import Exceeded
    from pytest_ultrapar.broker.adaptive.controller import AdaptiveController
    from pytest_ultrapar.broker.budget import BudgetBalance
    from pytest_ultrapar.broker.daily_limits import Days
    from pytest_ultrapar.broker.day_ledger import DayLedger
    from pytest_ultrapar.broker.headroom import Promise
    from pytest_ultrapar.broker.lanes import LaneState
    from pytest_ultrapar.broker.protocol import Feedback, LeaseOutcome
    from pytest_ultrapar.broker.waiting import HeadOfLine
    from pytest_ultrapar.pool.model import Limit, LimitKind


def units_of(counts: str, tokens: int) -> int:
    """How many units a request with this many tokens uses: its tokens, or one request."""
    return tokens if counts == "tokens" else 1


class CountedLimit(NamedTuple):
    """A counter on which leases reserve units: tokens in a window, or daily units."""

    counts: str
    book: TokenPacer | DayLedger | SharedDays


class Reserved(NamedTuple):
    """The units that one lease has reserved on one limit: a `Reservation` or `DayReservation`."""

    limit: LimitState
    meter: CountedLimit
    reservation: Any


_NOTHING_SENT = ("unsent", "connect", "no_host", "tls")
"""With these outcomes, no request was sent, so the provider cannot have counted one."""


def reserve(limits: Iterable[LimitState], tokens: int, now_s: float) -> list[Reserved]:
    """Reserve the units of a request. Call this only if every limit has room for them."""
    reserved: list[Reserved] = []
    for limit in limits:
        for meter in limit.meters:
            units = units_of(meter.counts, tokens)
            reserved.append(Reserved(limit, meter, meter.book.reserve(units, now_s)))
        limit.look_at_days(now_s)
    return reserved


def settle(
    reserved: Iterable[Reserved], outcome: LeaseOutcome, feedback: Feedback, now_s: float
) -> list[LaneState]:
    """Replace reservations with the units that a request used.

    If it is unknown how many units the request used, all its reserved units count as used.

    Returns:
        The lanes whose next send may now be at a different time.
    """
    lanes: list[LaneState] = []
    for limit, meter, reservation in reserved:
        used = feedback.tokens if meter.counts == "tokens" else 1
        if outcome in _NOTHING_SENT:
            used = 0
        elif used is None:
            # The provider may have processed the request and counted it in full: a failure does not
            # show that. But the time at which the request ended shows on which day it was counted.
            used = reservation.units
        meter.book.settle(reservation, used, now_s)
        limit.look_at_days(now_s)
        lanes += limit.lanes
    return lanes


class LimitState(Timer):
    """One limit of the pool or of one lane: its requests in flight, and the time of the next send.

    Attributes:
        name: Its name, as in the pool.
        declared: The limit as the pool declares it.
        seats: The seats, which limit the requests in flight.
        paced: The pacers, one for each row with a window, each with the label for the waits that it
            causes. A send is allowed only if every pacer allows it.
        rates: The pacers that count requests. `tokens`: the pacers that count tokens.
        meters: The counters on which a lease reserves units: the token pacers and the ledgers of
            daily units, both restricted to this host's share.
        days: The ledgers of daily units, each with the kind of quota that it counts; empty if daily
            units are not counted, as in a forecast.
        purse: The money that may be spent; None if the limit has no budget.
        shares: The shares of its rows that this host may use now. If none of its rows is shared,
            this host may use the whole limit.
        headrooms: For each window, its headroom and its pacers; empty if sends are never late, as
            in a simulation.
        spent_until_s: When the first units of a used-up daily quota become free; -infinity if no
            quota is used up.
        ready_s: The earliest time of the next send, as computed by `reckon`.
        pace_ready_s: The earliest time of the next send at the pace of `controller`.
        controller: Estimates the limit, up to the declared seats and rates: in adaptive mode from
            the start, in fixed mode after the first refusal. None if nothing is estimated, so that
            the declared limit applies.
        head_of_line: The `HeadOfLine` for which the limit is reserved, or None. `kept_until_s`:
            until when the limit serves no request for this reason; -infinity if it is not reserved.
        places: Decides which open cases come first on this limit.
        lanes: The lanes that share it.
        was_full: Whether all seats were taken when the lanes were last updated.
    """

    def __init__(
        self,
        declared: Limit,
        days: Days = (),
        late_s: Promise = never_late_s,
        purse: BudgetBalance | None = None,
        shared: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.name = declared.name
        self.purse = purse
        self.declared = declared
        self.days = days
        self.controller: AdaptiveController | None = None
        self.head_of_line: HeadOfLine | None = None
        self.lanes: list[LaneState] = []
        self.was_full = False
        self.ready_s = self.pace_ready_s = self.spent_until_s = self.kept_until_s = -math.inf
        self.seats = Seats(self.most_seats)
        self.places = Places(self.seats)
        self.shares = LimitShares(self.name)
        self._spendable_days = self._begin_closed(shared)
        headrooms: dict[float, tuple[Headroom, list[Pacer | TokenPacer]]] = {}
        paced: list[tuple[Pacer | TokenPacer, str]] = []
        for kind, amount in declared.rows:
            if not kind.window_s or kind.is_daily:
                continue
            is_shared = kind.word in shared
            window_s = whole_row(amount, kind.window_s).window_s if is_shared else kind.window_s
            spare_s = late_s(window_s)
            pacer = self._pacer(kind, amount, spare_s, is_shared=is_shared)
            paced.append((pacer, f"{self.name} ({kind.word})"))
            if spare_s:
                # The number of tokens in a request is unknown, so assume a hundred requests per
                # window: this is neither few nor many.
                interval_s = kind.window_s / (amount if kind.is_spaced else 100)
                own = Headroom(window_s, spare_s, interval_s)
                _, pacers = headrooms.setdefault(window_s, (own, []))
                pacers.append(pacer)
        self.paced = tuple(paced)
        self.rates = tuple(one for one, _ in paced if isinstance(one, Pacer))
        self.tokens = tuple(one for one, _ in paced if isinstance(one, TokenPacer))
        spendable = zip(days, self._spendable_days, strict=True)
        self.meters = (
            *(CountedLimit("tokens", one) for one in self.tokens),
            *(CountedLimit(kind.counts, day) for (kind, _), day in spendable),
        )
        self.headrooms = tuple(headrooms.values())
        self.reckon()
        if uncounted := set(shared) - set(self.shares.rows):
            raise ValueError(f"no counter for {', '.join(sorted(uncounted))} of {self.name}")

    def _pacer(
        self, kind: LimitKind, amount: float, spare_s: float, *, is_shared: bool
    ) -> Pacer | TokenPacer:
        if is_shared:
            row = whole_row(amount, kind.window_s)
            paced = SharedPacer(row, spare_s) if kind.is_spaced else SharedTokens(row, spare_s)
            self.shares.rows[kind.word] = paced
            return paced
        width_s = kind.window_s + spare_s
        return Pacer(amount, width_s) if kind.is_spaced else TokenPacer(amount, width_s)

    def _begin_closed(self, shared: Collection[str]) -> list[DayLedger | SharedDays]:
        """Set up the rows that hosts share, at first with no seats and no units.

        Returns:
            The ledgers of daily units, restricted to the units that this host may spend.
        """
        rows = self.shares.rows
        if SEATS_ROW in shared:
            rows[SEATS_ROW] = SharedSeats(WholeRow(int(self.most_seats), 0.0), self.seats)
            self.seats.cap = 0
        if BUDGET_ROW in shared and self.purse is not None:
            self.purse.tranche = rows[BUDGET_ROW] = GrantedUnits()
        found: list[DayLedger | SharedDays] = []
        for kind, ledger in self.days:
            spendable: DayLedger | SharedDays = ledger
            # A key with several names has one count for each name, but a single tranche for all
            # names.
            if kind.word in shared and kind.word not in rows:
                tranche = rows[kind.word] = GrantedUnits()
                spendable = SharedDays(ledger, tranche)
            found.append(spendable)
        return found

    @property
    def most_seats(self) -> float:
        """The declared number of seats, for all hosts together; infinity if there is no maximum."""
        return math.inf if self.declared.workers is None else self.declared.workers

    def take(self, now_s: float, wake_s: float = 0.0) -> float:
        """Take a seat and count a send. Call this only if a seat is free and a send is allowed.

        Args:
            now_s: The current time.
            wake_s: How late a send may be and still count as on time, in seconds.

        Returns:
            How late the send is, up to `wake_s`. If it is later than that, 0: it then counts as due
            at `now_s`, and later sends are spaced from there.
        """
        self.seats.take()
        for headroom, pacers in self.headrooms:
            if headroom.revise(now_s):
                _stretch(pacers, headroom)
        if not self.rates and self.controller is None:
            return 0.0
        behind_s = 0.0
        for rate in self.rates:
            behind_s = max(behind_s, rate.take(now_s, wake_s))
        if self.controller is not None:
            self.controller.sent(now_s)
            # This is not a `Pacer`, whose interval is fixed: the interval changes with the answers.
            self.pace_ready_s = now_s + self.controller.interval_s()
        self.reckon()
        return behind_s

    def make_up(self, late_s: float, made_up_s: Mapping[Headroom, float]) -> None:
        """Delay all later sends by as much as one send was later than promised.

        Args:
            late_s: How late that send was.
            made_up_s: The values of `Headroom.made_up_s` when that send was granted. Time made up
                since then is not added again, because it already delays all later sends.
        """
        for headroom, pacers in self.headrooms:
            owed_s = headroom.make_up(late_s, made_up_s[headroom])
            if owed_s > 0:
                for pacer in pacers:
                    if isinstance(pacer, Pacer):
                        pacer.postpone(owed_s)
        self.reckon()

    @property
    def is_widened(self) -> bool:
        """Whether a refusal has widened the spacing of its sends."""
        return any(headroom.is_taught for headroom, _ in self.headrooms)

    def give_headroom(self, exceeded: Exceeded | None, granted_s: float, now_s: float) -> bool:
        """Widen the spacing of sends after one was refused because of a rate limit.

        Args:
            exceeded: The kind of limit that was exceeded; None if the provider does not name it.
            granted_s: When that send was granted.
            now_s: The current time.

        Returns:
            Whether wider spacing is the solution. If not, more headroom would not help.
        """
        is_answer = False
        for headroom, pacers in self.headrooms:
            counts = {"tokens" if isinstance(one, TokenPacer) else "rate" for one in pacers}
            if exceeded is not None and exceeded not in counts:
                continue
            if headroom.refused(granted_s, now_s):
                is_answer = True
                _stretch(pacers, headroom)
        return is_answer

    def adopt_cap(self) -> bool:
        """Set the seats to the lowest of the host's share, the estimate and the declared number.

        The controller does not know the share. So it does not treat a lower share as congestion,
        and it keeps its estimate until the share grows again.

        Returns:
            Whether there are more seats than before.
        """
        before = self.seats.cap
        cap = self.most_seats if self.controller is None else self.controller.cap()
        self.seats.cap = min(cap, self.shares.seats)
        return self.seats.cap > before

    def reckon(self) -> None:
        """Compute `ready_s` again. Call this when any of its inputs has changed."""
        ready_s = max(self.pace_ready_s, self.kept_until_s, self.spent_until_s)
        for pacer, _ in self.paced:
            ready_s = max(ready_s, pacer.ready_s)
        self.ready_s = ready_s

    def look_at_days(self, now_s: float) -> None:
        """Compute `ready_s` again, with the daily units that are left now."""
        self.spent_until_s = max(
            (day.ready_at_s(1, now_s) for day in self._spendable_days if not day.left(now_s)),
            default=-math.inf,
        )
        self.reckon()

    @property
    def day_trouble(self) -> str:
        """A sentence that says why daily units cannot be counted now; empty if they can."""
        return next((one.trouble for _, one in self.days if one.failing_since_s < math.inf), "")

    def is_spent(self, tokens: int, until_s: float, now_s: float) -> bool:
        """Whether the daily quota does not allow a request of this many tokens before `until_s`.

        False while requests are in flight, because they may not use all the units reserved for
        them. The quota also counts as used up if writing its count has failed for at least as long
        as the time left until `until_s`. Until then, requests wait: no case should fail
        because a disk is full for a moment.
        """
        if self.seats.in_flight:
            return False
        for kind, ledger in self.days:
            ready_s = self.day_ready_at_s(kind, ledger, units_of(kind.counts, tokens), now_s)
            failed_s = now_s - ledger.failing_since_s
            if ready_s > until_s or failed_s >= until_s - now_s:
                return True
        return False

    def day_ready_at_s(self, kind: LimitKind, ledger: DayLedger, units: int, now_s: float) -> float:
        """When a daily limit has room for this many units, no matter which hosts used the rest."""
        ready_s = ledger.ready_at_s(units, now_s)
        if self.shares.is_used_up(kind.word, units):
            ready_s = max(ready_s, ledger.back_at_s(units, now_s))
        return ready_s

    def could_pay(self, units: int) -> bool:
        """Whether all hosts together have enough money left to pay this many units."""
        if self.purse is None:
            return True
        return not self.shares.is_used_up(BUDGET_ROW, units) and units <= self.purse.left_of_all

    @property
    def wait_label(self) -> str:
        """Why requests must wait until `ready_s`: a kind of limit, a share, or a lack of money."""
        if self.shares.are_rates_cut:
            return self.shares.label
        if self.purse is not None and self.kept_until_s == math.inf:
            return BUDGET
        own = (label for pacer, label in self.paced if pacer.ready_s >= self.ready_s)
        return next(own, self.name)

    @property
    def seat_label(self) -> str:
        """Why requests wait if all seats are taken: because of the limit or this host's share."""
        if self.shares.are_seats_cut:
            return self.shares.label
        return f"{self.name} (workers)"

    def free(self) -> None:
        """Release the limit, which was reserved for the request at the head of a line."""
        self.head_of_line = None
        self.kept_until_s = -math.inf
        self.reckon()


def _stretch(pacers: Iterable[Pacer | TokenPacer], headroom: Headroom) -> None:
    for pacer in pacers:
        pacer.stretch(headroom.window_s + headroom.spare_s)
