"""Limits and lanes while a run is on, and who waits for them.

From below: limits hold what is in flight; a lane lies on a path of limits and belongs to an
instance; requests wait in lines at sets of lanes, sent by workers and perhaps bound to groups of
cases. These refer to each other both ways, so they stand in one chapter; who is served when, says
`scheduler`.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.apis.failure_classes import ANSWERED, LIMITED
from pytest_ultrapar.broker.headroom import OF_WAKE, Headroom, never_late_s
from pytest_ultrapar.broker.health import PauseLog
from pytest_ultrapar.broker.protocol import BUDGET, EstimatedLimit, LaneStatus
from pytest_ultrapar.broker.retry_budget import RetryBudget
from pytest_ultrapar.broker.shares import (
    BUDGET_ROW,
    SEATS_ROW,
    LimitShares,
    SharedDays,
    SharedPacer,
    SharedSeats,
    SharedTokens,
    Tranche,
    WholeRow,
    whole_row,
)
from pytest_ultrapar.broker.throttles import (
    UNRATED_SEND_BY_S,
    Pacer,
    Reservation,
    Seats,
    TokenPacer,
)
from pytest_ultrapar.broker.wakes import LeaseTerms, Wake, WakeQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pytest_ultrapar.apis.outcome import Exceeded
    from pytest_ultrapar.broker.adaptive.controller import AdaptiveController
    from pytest_ultrapar.broker.adaptive.observation import LimitChange, Observation
    from pytest_ultrapar.broker.adaptive.server_load import ServerLoad
    from pytest_ultrapar.broker.assignment import Assignment, Group
    from pytest_ultrapar.broker.budget import OpenCase, Purse, Tariff
    from pytest_ultrapar.broker.daily_limits import Days
    from pytest_ultrapar.broker.day_ledger import DayLedger, DayReservation
    from pytest_ultrapar.broker.headroom import Promise
    from pytest_ultrapar.broker.health import LaneHealth
    from pytest_ultrapar.broker.protocol import Feedback, LeaseOutcome, LeaseRequest
    from pytest_ultrapar.pool.model import Lane, Limit, LimitKind

    SpendableDays = tuple[tuple[LimitKind, DayLedger | SharedDays], ...]


Reserved = Sequence["Settle"]
"""What one lease has reserved on the limits of its lane: to be told what it used."""
_NOTHING_SENT = ("unsent", "connect")
"""Where there was no connection there was no request either, and no provider counted one."""


class Settle(NamedTuple):
    """Units that one lease has reserved on one limit."""

    limit: LimitState
    counts: str
    reservation: Reservation | DayReservation
    settle: Callable[[int, float], None]


def reserve(lane: LaneState, tokens: int, now_s: float) -> Reserved:
    """Take the units of a request; they must fit."""
    reserved: list[Settle] = []
    for limit in lane.metered:
        for pacer in limit.tokens:
            of_window = pacer.reserve(tokens, now_s)
            settle_window = partial(pacer.settle, of_window)
            reserved.append(Settle(limit, "tokens", of_window, settle_window))
        for kind, ledger in limit.spendable_days:
            units = tokens if kind.counts == "tokens" else 1
            of_day = ledger.reserve(units, now_s)
            reserved.append(Settle(limit, kind.counts, of_day, partial(ledger.settle, of_day)))
        limit.look_at_days(now_s)
    return reserved


def settle(
    reserved: Reserved, outcome: LeaseOutcome, feedback: Feedback, now_s: float
) -> list[LaneState]:
    """Put what a request took in place of what was reserved for it; all stays where nobody knows.

    Returns:
        Lanes that may serve at another time than it seemed.
    """
    is_sent = outcome not in _NOTHING_SENT
    lanes: list[LaneState] = []
    for limit, counts, reservation, settle_one in reserved:
        used = feedback.tokens if counts == "tokens" else 1
        if not is_sent:
            used = 0
        elif used is None:
            # It may have been worked on and counted in full: what failed says nothing of it. That
            # it is over says on which day it was.
            used = reservation.units
        settle_one(used, now_s)
        limit.look_at_days(now_s)
        lanes += limit.lanes
    return lanes


TELLING_ANSWERS = 20
"""From so many on, the longest tells how long a request may take: the next one takes longer with a
chance of 1 in 21 at most, if they are alike."""


class LimitState(Wake):
    """One limit of the pool, or one lane's own: what is in flight, when the next send may go.

    Attributes:
        name: Its name, as in the pool.
        declared: What the pool says of it.
        seats: Requests in flight.
        rates: A pacer for each row that counts requests; all must allow a send.
        tokens: One for each row that counts tokens.
        days: What counts units per day, with its kind; nothing where days are not counted, as in a
            forecast.
        spendable_days: The same, of which this host may spend its share; as `days` where none is.
        purse: What it may spend; None where no money is counted.
        shares: What of it this host may use now; all of it where hosts share none of its rows.
        headrooms: What is added to each window over which rates and tokens are spaced, with those
            pacers; nothing where sends are never late, as in a play.
        spent_until_s: When the first unit of a day that is used up comes free.
        ready_s: The earliest time of the next send, by all of the following (`reckon`).
        pace_ready_s: The earliest time by the pace that `controller` finds.
        controller: Who estimates what the provider bears below cap and rate: in adaptive mode, and
            in fixed mode from the first refusal on; None leaves them as declared.
        head_of_line: Of the request that it is kept for, if any; `kept_until_s`: when that
            request's tokens fit, -infinity without one.
        lanes: The lanes that share it.
        was_full: Whether all seats were taken when the lanes were last told.
    """

    def __init__(
        self,
        declared: Limit,
        days: Days = (),
        late_s: Promise = never_late_s,
        purse: Purse | None = None,
        shared: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.name = declared.name
        self.purse = purse
        self.declared = declared
        self.days = days
        self.spendable_days: SpendableDays = days
        self.controller: AdaptiveController | None = None
        self.head_of_line: HeadOfLine | None = None
        self.lanes: list[LaneState] = []
        self.was_full = False
        self.ready_s = self.pace_ready_s = self.spent_until_s = self.kept_until_s = -math.inf
        self.seats = Seats(self.most_seats)
        self.shares = LimitShares(self.name)
        self._begin_closed(shared)
        headrooms: dict[float, tuple[Headroom, list[Pacer | TokenPacer]]] = {}
        rates: list[Pacer] = []
        tokens: list[TokenPacer] = []
        self._rate_labels: list[tuple[Pacer | TokenPacer, str]] = []
        for kind, amount in declared.rows:
            if not kind.window_s or kind.is_daily:
                continue
            is_shared = kind.word in shared
            window_s = whole_row(amount, kind.window_s).window_s if is_shared else kind.window_s
            spare_s = late_s(window_s)
            pacer = self._pacer(kind, amount, spare_s, is_shared=is_shared)
            if isinstance(pacer, Pacer):
                rates.append(pacer)
            else:
                tokens.append(pacer)
            self._rate_labels.append((pacer, f"{self.name} ({kind.word})"))
            if spare_s:
                # Nobody knows how many tokens a request will have; a hundred of them in a minute
                # are neither few nor many.
                interval_s = kind.window_s / (amount if kind.is_spaced else 100)
                own = Headroom(window_s, spare_s, interval_s)
                _, pacers = headrooms.setdefault(window_s, (own, []))
                pacers.append(pacer)
        self.rates, self.tokens = tuple(rates), tuple(tokens)
        self.headrooms = tuple(headrooms.values())
        self.reckon()
        if uncounted := set(shared) - set(self.shares.rows):
            msg = f"nothing counts {', '.join(sorted(uncounted))} of {self.name}"
            raise ValueError(msg)

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

    def _begin_closed(self, shared: Collection[str]) -> None:
        """Begin with no seat and nothing to spend of what is shared."""
        rows = self.shares.rows
        if SEATS_ROW in shared:
            rows[SEATS_ROW] = SharedSeats(WholeRow(int(self.most_seats), 0.0), self.seats)
            self.seats.cap = 0
        if BUDGET_ROW in shared and self.purse is not None:
            self.purse.tranche = rows[BUDGET_ROW] = Tranche()
        found: list[tuple[LimitKind, DayLedger | SharedDays]] = []
        for kind, ledger in self.days:
            spendable: DayLedger | SharedDays = ledger
            # A key that is known by several names has a count for each, and one tranche for all.
            if kind.word in shared and kind.word not in rows:
                tranche = rows[kind.word] = Tranche()
                spendable = SharedDays(ledger, tranche)
            found.append((kind, spendable))
        self.spendable_days = tuple(found)

    @property
    def most_seats(self) -> float:
        """Seats as declared, for all hosts that share it; infinity when unlimited."""
        return math.inf if self.declared.workers is None else self.declared.workers

    def take(self, now_s: float, wake_s: float = 0.0) -> float:
        """Take a seat and a send; both must be free.

        Args:
            now_s: The time.
            wake_s: So long after its time the send counts as on time.

        Returns:
            How long ago the time of the send was, as far as it has to come as if sent then.
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
            # No `Pacer`: its distance is fixed, and this one changes with what comes back.
            self.pace_ready_s = now_s + self.controller.interval_s()
        self.reckon()
        return behind_s

    def control(self, controller: AdaptiveController) -> None:
        """Let a controller find cap and pace from now on; what is declared stays the bound."""
        self.controller = controller
        self.adopt_cap()

    def load_reported(self, load: ServerLoad, now_s: float) -> bool:
        """Let the controller hear what the server says of its queue.

        Returns:
            Whether there is room that was not there before.
        """
        if self.controller is None:
            return False
        self.controller.load_reported(load, self.seats.in_flight, now_s)
        return self.adopt_cap()

    def was_late(self, late_s: float) -> None:
        """A send on it went so long after its time."""
        for headroom, _ in self.headrooms:
            headroom.saw(late_s)

    def make_up(self, late_s: float, made_up_s: Mapping[Headroom, float]) -> None:
        """Let all later sends wait for as long as one was later than promised.

        Args:
            late_s: So late was it.
            made_up_s: `Headroom.made_up_s` when it was granted: what has been made up for since,
                later sends wait for already.
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
        """Whether a refusal made its sends keep more distance."""
        return any(headroom.is_taught for headroom, _ in self.headrooms)

    def give_headroom(self, exceeded: Exceeded | None, granted_s: float, now_s: float) -> bool:
        """Space sends wider after one was refused for its rate.

        Args:
            exceeded: Of what there was too much, if the provider says so.
            granted_s: When that send was granted.
            now_s: Now.

        Returns:
            Whether that is the answer; else there is as much headroom as helps.
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

    def take_changes(self) -> list[LimitChange]:
        """What the controller changed since the last call."""
        return self.controller.take_changes() if self.controller is not None else []

    def observe(self, seen: Observation) -> bool:
        """Let the controller see a returned lease.

        Returns:
            Whether there may be room that was not there before.
        """
        if self.controller is None:
            return False
        self.controller.observe(seen)
        return self.adopt_cap()

    def adopt_cap(self) -> bool:
        """Have as many seats as its share, its controller and the pool allow now.

        The controller knows of no share, so that it neither takes a lowered one for congestion nor
        forgets what it has found when the share is back.

        Returns:
            Whether there is room that was not there before.
        """
        before = self.seats.cap
        cap = self.most_seats if self.controller is None else self.controller.cap()
        self.seats.cap = min(cap, self.shares.seats)
        return self.seats.cap > before

    def reckon(self) -> None:
        """Set `ready_s` anew; to be called when anything that it depends on has changed."""
        ready_s = max(self.pace_ready_s, self.kept_until_s, self.spent_until_s)
        for pacer in self.tokens:
            ready_s = max(ready_s, pacer.ready_s)
        for rate in self.rates:
            ready_s = max(ready_s, rate.ready_s)
        self.ready_s = ready_s

    def look_at_days(self, now_s: float) -> None:
        """Set `ready_s` anew, by what the days have left now, too."""
        self.spent_until_s = max(
            (one.ready_at_s(1, now_s) for _, one in self.spendable_days if not one.left(now_s)),
            default=-math.inf,
        )
        self.reckon()

    @property
    def day_trouble(self) -> str:
        """Why units per day cannot be counted now, a sentence; or empty."""
        return next((one.trouble for _, one in self.days if one.failing_since_s < math.inf), "")

    def is_spent(self, tokens: int, until_s: float, now_s: float) -> bool:
        """Whether no request of so many tokens can be sent before `until_s`, as its day is used up.

        Not so while requests are in flight: what they reserved and did not use comes back. A memory
        that could not be written for as long as that counts as a day that is used up; before that
        it is waited for, since a disk that is full for a moment should cost no case.
        """
        if self.seats.in_flight:
            return False
        for kind, ledger in self.days:
            ready_s = self.day_ready_at_s(kind, ledger, tokens, now_s)
            failed_s = now_s - ledger.failing_since_s
            if ready_s > until_s or failed_s >= until_s - now_s:
                return True
        return False

    def day_ready_at_s(
        self, kind: LimitKind, ledger: DayLedger, tokens: int, now_s: float
    ) -> float:
        """When a day has room for a request, be it used up by this host or by all together."""
        units = tokens if kind.counts == "tokens" else 1
        ready_s = ledger.ready_at_s(units, now_s)
        if self.shares.is_used_up(kind.word, units):
            ready_s = max(ready_s, ledger.back_at_s(units, now_s))
        return ready_s

    def pays(self, units: int) -> bool:
        """Whether a request that may cost so much can be granted now."""
        return self.purse is None or units <= self.purse.left

    def could_pay(self, units: int) -> bool:
        """Whether it could be granted by all that is left, this host's share or not."""
        if self.purse is None:
            return True
        return not self.shares.is_used_up(BUDGET_ROW, units) and units <= self.purse.left_of_all

    @property
    def wait_label(self) -> str:
        """What requests wait for while its `ready_s` has not come: a kind, a share, or money."""
        if self.shares.are_rates_cut:
            return self.shares.label
        if self.purse is not None and self.kept_until_s == math.inf:
            return BUDGET
        own = (label for pacer, label in self._rate_labels if pacer.ready_s >= self.ready_s)
        return next(own, self.name)

    @property
    def seat_label(self) -> str:
        """What requests wait for while it is full: itself, or its share."""
        if self.shares.are_seats_cut:
            return self.shares.label
        return f"{self.name} (workers)"

    def free(self) -> None:
        """Be kept for no request any more."""
        self.head_of_line = None
        self.kept_until_s = -math.inf
        self.reckon()


def _stretch(pacers: Iterable[Pacer | TokenPacer], headroom: Headroom) -> None:
    for pacer in pacers:
        pacer.stretch(headroom.window_s + headroom.spare_s)


class ModelState:
    """The lanes of one model, and how many requests may be served by them now.

    Attributes:
        n_waiting: Waiting requests for the model, those that no group lets through left out.
        n_follow_ups: Those of them that are follow-ups.
        down: Its lanes that are paused or removed.
        sets: Every set of its lanes that some request was ever bound to.
        whole: All its lanes as a set.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lanes: list[LaneState] = []
        self.n_waiting = self.n_follow_ups = 0
        self.down: dict[LaneState, None] = {}
        self.sets: dict[tuple[LaneState, ...], LaneSet] = {}
        self.whole: LaneSet | None = None


class LaneState(Wake):
    """One lane: its path of limits, health, homes and counts. Wakes when its pause ends.

    Attributes:
        path: Every limit a lease takes a unit of.
        seats: Of those of them with a cap; `rated`: those with a rate; `metered`: those of them
            that count tokens, days or money; `balance`: the seats that tell this lane from the
            others of its model, by which requests are spread; `headrooms`: those of all of them.
        counted: The limit by which the provider counts its requests, as far as the pool says: the
            innermost that is not the run's own. A refusal says something about it. None: there is
            none yet.
        is_declared: Whether its limits are as the pool says (fixed mode).
        is_up: Neither paused nor removed, as of the last wake.
        paused_until_s: -infinity when not paused; infinity when removed.
        reason: Why it is paused or removed.
        n_full: Full limits on its path as last counted, plus one when it is removed.
        seat_label: The limit whose seats last bound it; `rate_label`: the rate limit or `pause`
            that did.
        absent: Home workers that have not asked for anything yet.
        is_stealable: Whether workers that are not at home here may use it.
        stealable_s: Since when they may.
        used_order: Order of its last grant among all grants.
        n_retries: Grants for requests that had failed before; `n_moved`: requests that failed here
            and were granted another lane.
        removed_after_s: When it was removed, seconds after the run's start.
        terms: Its leases that are out.
        tariff: What requests cost; None where no money is counted.
        started_s: When it was first granted a lease; infinity before.
        service_s: From lease to answer, the sum over all answers; `longest_s`: the longest.
        busy_s: Seconds that leases were out which came back.
    """

    def __init__(
        self,
        lane: Lane,
        model: ModelState,
        path: tuple[LimitState, ...],
        instance: InstanceState,
        health: LaneHealth,
    ) -> None:
        super().__init__()
        self.lane = lane
        self.model = model
        self.instance = instance
        instance.lanes.append(self)
        self.health = health
        self.balance: tuple[Seats, ...] = ()
        self.metered = tuple(one for one in path if one.tokens or one.days or one.purse)
        self.tariff: Tariff | None = None
        self.follow(path)
        self.headrooms = tuple(headroom for limit in path for headroom, _ in limit.headrooms)
        self.terms: LeaseTerms[WorkerState] = LeaseTerms()
        self.counted: LimitState | None = None
        self.is_declared = True
        self.sets: list[LaneSet] = []
        self.is_up = True
        self.paused_until_s = -math.inf
        self.reason = ""
        self.n_full = 0
        self.seat_label = self.rate_label = ""
        self.absent: dict[str, None] = {}
        self.is_stealable = True
        self.stealable_s = -math.inf
        self.used_order = 0
        self.in_flight = self.peak = self.granted = self.orphans = 0
        self.n_retries = self.n_moved = 0
        self.started_s = math.inf
        self.service_s = self.longest_s = 0.0
        self.busy_s = 0.0
        self.pauses = PauseLog()
        self.removed_after_s: float | None = None
        self.waited_s: dict[str, float] = {}
        self.outcomes: dict[str, int] = {}

    def follow(self, path: tuple[LimitState, ...]) -> None:
        """Have a path of limits; to be called again when one of them gets a cap or a controller."""
        self.path = path
        self.seats = tuple(limit.seats for limit in path if limit.seats.cap < math.inf)
        self.rated = tuple(
            one
            for one in path
            if one.rates or one.tokens or one.days or one.purse or one.controller
        )

    @property
    def is_share_closed(self) -> bool:
        """Whether this host has no share of a limit on the way, and so cannot send."""
        return any(one.shares.is_closed for one in self.path)

    @property
    def is_removed(self) -> bool:
        """Removed for the rest of the run."""
        return self.paused_until_s == math.inf

    def is_free(self, now_s: float) -> bool:
        """Whether it is up and every limit on its path has a seat and allows a send at `now_s`."""
        if not self.is_up:
            return False
        for limit in self.rated:
            if limit.ready_s > now_s:
                return False
        return self.has_seat()

    def send_by_s(self, granted_s: float) -> float:
        """By when a request must be sent whose time that is."""
        late_s = UNRATED_SEND_BY_S
        for headroom in self.headrooms:
            late_s = min(late_s, headroom.send_by_s())
        return granted_s + late_s

    def on_time_s(self) -> float:
        """So long after its time a send counts as on time: the same for all limits of the path.

        A looser limit that kept its own time would fall behind the one that binds, and its sends
        would look late there.
        """
        return OF_WAKE * min((one.late_s for one in self.headrooms), default=0.0)

    def late_after_s(self, granted_s: float) -> float:
        """When a request whose time that is becomes late."""
        return granted_s + min((one.late_s for one in self.headrooms), default=math.inf)

    def has_seat(self) -> bool:
        """Whether every limit on the path has a free seat."""
        # No `all(...)`: this is asked some 30 times per grant, and a generator is twice the price.
        for seats in self.seats:  # noqa: SIM110
            if seats.in_flight >= seats.cap:
                return False
        return True

    def fits(self, tokens: int) -> bool:
        """Whether no limit on its path is smaller than one request of so many tokens."""
        return all(
            tokens <= amount
            for limit in self.metered
            for kind, amount in limit.declared.rows
            if kind.counts == "tokens"
        )

    @property
    def is_spent(self) -> bool:
        """Whether a day or a budget on its path is used up over all hosts."""
        return any(one.shares.is_spent for one in self.path)

    def spent_on(self, request: LeaseRequest, until_s: float, now_s: float) -> LimitState | None:
        """A limit on its path whose day (`LimitState.is_spent`) is used up until then."""
        for limit in self.metered:
            if limit.days and limit.is_spent(request.tokens, until_s, now_s):
                return limit
        return None

    def units(self, request: LeaseRequest) -> int:
        """Money that a request may cost here; 0 where none is counted."""
        return 0 if self.tariff is None else self.tariff.units(request)

    def pays(self, request: LeaseRequest) -> bool:
        """Whether all its limits have the money for a request now."""
        units = self.units(request)
        return all(limit.pays(units) for limit in self.metered)

    def reserve_money(self, units: int) -> bool:
        """Reserve what a request may cost; False, and nothing reserved, where that is not there."""
        if not all(limit.pays(units) for limit in self.metered):
            return False
        for limit in self.metered:
            if limit.purse is not None:
                limit.purse.reserve(units)
        return True

    def settle_money(
        self, reserved: int, outcome: LeaseOutcome, feedback: Feedback
    ) -> tuple[int, list[LaneState]]:
        """Count what a lease cost in place of what was reserved for it.

        Returns:
            What it cost, and the lanes of those who wait for money.
        """
        assert self.tariff is not None
        used = self.tariff.charged(outcome, feedback, reserved)
        lanes: list[LaneState] = []
        for limit in self.metered:
            if limit.purse is not None:
                limit.purse.settle(reserved, used)
                if limit.head_of_line is not None:
                    lanes += limit.lanes
        return used, lanes

    @property
    def load(self) -> float:
        """Share of the seats taken on what is this lane's own, 0 to 1; 0 when unlimited."""
        load = 0.0
        try:
            for seats in self.balance:
                load = max(load, seats.in_flight / seats.cap)
        except ZeroDivisionError:
            # Its share is nothing now.
            return 1.0
        return load

    def answered(self, granted_s: float, now_s: float) -> None:
        """The provider answered a lease; to be counted as outcome as well."""
        took_s = now_s - granted_s
        self.service_s += took_s
        self.longest_s = max(self.longest_s, took_s)
        self.instance.answered(now_s)

    def grace_s(self) -> float:
        """Seconds for which the provider may still be at work on what a dead worker sent."""
        most_s = self.lane.longest_grace_s
        if most_s is None or self.n_answered() < TELLING_ANSWERS:
            return self.lane.orphan_grace_s
        return min(self.longest_s, most_s)

    def n_answered(self) -> int:
        """How many leases the provider answered."""
        return sum(self.outcomes.get(outcome, 0) for outcome in ANSWERED)

    def count_wait(self, label: str, waited_s: float) -> None:
        """Add to the seconds waited for `label`."""
        self.waited_s[label] = self.waited_s.get(label, 0.0) + waited_s

    def count_outcome(self, outcome: str) -> None:
        """Count one lease that came back."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def status(self, now_s: float, under_way_s: float = 0.0) -> LaneStatus:
        """A snapshot; its numbers do not change afterwards.

        Args:
            now_s: The time.
            under_way_s: Seconds that its leases have been out which have not come back.
        """
        counts = self.outcomes
        n_ok = counts.get("ok", 0) + counts.get("refused", 0)
        n_rate = sum(counts.get(outcome, 0) for outcome in LIMITED)
        neither = ("ok", "refused", *LIMITED, "unsent", "cancelled")
        return LaneStatus(
            lane=self.lane.lane_id,
            state="up" if self.is_up else "out" if self.is_removed else "paused",
            reason=self.reason,
            in_flight=self.in_flight,
            peak_in_flight=self.peak,
            granted=self.granted,
            n_ok=n_ok,
            n_rate_limited=n_rate,
            n_failed=sum(n for outcome, n in counts.items() if outcome not in neither),
            waited_s=dict(self.waited_s),
            outcomes=dict(counts),
            orphans=self.orphans,
            pauses=dict(self.pauses.n),
            paused_s=self.pauses.paused_s(now_s),
            n_opened=self.health.n_opened,
            n_moved=self.n_moved,
            removed_after_s=self.removed_after_s,
            estimated=self._estimate(),
            busy_s=self.busy_s + under_way_s,
            widened=tuple(limit.name for limit in self.rated if limit.is_widened),
        )

    def _estimate(self) -> EstimatedLimit | None:
        limit = self.counted
        if limit is None or limit.controller is None:
            return None
        workers, qps = limit.controller.estimate()
        declared_qps = min((rate.per_s for rate in limit.rates), default=math.inf)
        is_back = limit.controller.cap() >= limit.controller.seats.ceiling
        is_back = is_back and limit.controller.pace.rate >= declared_qps
        return EstimatedLimit(
            limit.name,
            workers,
            qps,
            limit.controller.n_cuts,
            limit.seats.peak,
            declared=self.is_declared,
            is_back=is_back,
        )


ANSWERING_S = 10.0
"""An instance that answered something so lately is at work. When it then refuses a request without
a word about when to come back, it is congested; an instance that is silent has failed."""
BLOCK, TELLING_CUTS, UNRELIEVED = 64, 6, 0.22
"""When limits have been cut so often, a block of so many requests tells: where so large a share is
still refused, it was not because of too many. Estimated limits leave 2 to 10 % refused, a quota by
the minute up to 18 % (`benchmarks/adaptive/play.py`)."""
SPAN_S, FAR_BELOW, STILL_REFUSED = 30.0, 0.25, 0.05
"""So is a smaller share where far fewer requests go now than were answered in the best such span: a
provider that could do that is not busy now."""


class InstanceState:
    """The lanes of an instance, one per key, when it last answered, and its retry budget.

    Attributes:
        answered_s: When a request on any of its lanes was last answered, monotonic seconds;
            -infinity before the first answer.
        started_s: When it was first sent a request; infinity before.
        is_broken: Whether its wordless 503s were found to have nothing to do with load, such as
            those of one broken server of several: then they are failures like any other.
    """

    def __init__(self) -> None:
        self.answered_s = -math.inf
        self.started_s = math.inf
        self.lanes: list[LaneState] = []
        self.retries: RetryBudget[WorkerState] = RetryBudget()
        self.is_broken = False
        self._n_block = self._n_refused = self._n_span = 0
        self._block_s = self._span_s = self._best_per_s = 0.0

    def answered(self, now_s: float) -> None:
        """A request on one of its lanes was answered."""
        self.answered_s = now_s
        self.retries.answered(now_s)

    def has_answered(self) -> bool:
        """Whether any request on any of its lanes was answered."""
        return self.answered_s > -math.inf

    def is_answering(self, now_s: float) -> bool:
        """Whether it answered something in the last `ANSWERING_S` seconds, and can be congested."""
        return now_s - self.answered_s <= ANSWERING_S and not self.is_broken

    def is_starting(self, now_s: float) -> bool:
        """Whether it has answered nothing yet and may just not have had the time."""
        return (
            not self.has_answered() and not self.is_broken and now_s - self.started_s <= ANSWERING_S
        )

    def learn(self, n_cuts: int, now_s: float, *, is_refused: bool) -> bool:
        """Take a request into account that was answered, or refused without a word.

        Args:
            n_cuts: How often its limit has been cut.
            now_s: Now.
            is_refused: Which of the two.

        Returns:
            Whether it is now known that such refusals have nothing to do with load.
        """
        if now_s - self._span_s >= SPAN_S:
            if self._span_s:
                self._best_per_s = max(self._best_per_s, self._n_span / (now_s - self._span_s))
            self._span_s, self._n_span = now_s, 0
        self._n_span += not is_refused
        if n_cuts < TELLING_CUTS or self.is_broken:
            return False
        if self._n_block == 0:
            self._block_s = now_s
        self._n_block += 1
        self._n_refused += is_refused
        if self._n_block < BLOCK:
            return False
        share, per_s = self._n_refused / BLOCK, BLOCK / max(1e-9, now_s - self._block_s)
        is_far_below = per_s < FAR_BELOW * self._best_per_s
        self.is_broken = share >= UNRELIEVED or (share >= STILL_REFUSED and is_far_below)
        self._n_block = self._n_refused = 0
        return self.is_broken

    @property
    def is_removed(self) -> bool:
        """Whether all its lanes are removed: nothing is sent there any more."""
        return all(lane.is_removed for lane in self.lanes)

    def n_requests(self) -> int:
        """Requests that it was sent, retries that draw on a budget left out.

        Summed up when asked, which happens only after a failure: a request that goes well pays
        nothing for it.
        """
        # What came back unsent is no request; retries that did so are subtracted twice, which
        # errs on the careful side.
        n = sum(
            lane.granted - lane.n_retries - lane.outcomes.get("unsent", 0) for lane in self.lanes
        )
        return max(0, n)


class LaneSet:
    """Lanes of one model that some requests are bound to; its clock runs while none has a seat.

    A waiting request notes the clock when it comes and reads it when it goes: the difference is its
    seat wait. That costs nothing per waiting request, however many there are.

    Attributes:
        lanes: In the order of the pool.
        is_metered: Whether any of them counts tokens, days or money; `is_spendable`: days or money;
            `is_priced`: money.
        n_alive: Lanes that are not removed.
        n_seated: Lanes that are not removed and have a seat free on every limit of their path.
        follow_up_lines: By the lane that their requests want, None for any.
        opening_lines: Those that no group lets through included. All lines have a request at least.
    """

    def __init__(self, lanes: tuple[LaneState, ...], now_s: float) -> None:
        self.lanes = lanes
        self.members = frozenset(lanes)
        self.is_metered = any(lane.metered for lane in lanes)
        self.is_priced = any(lane.tariff is not None for lane in lanes)
        self.is_spendable = any(one.days or one.purse for lane in lanes for one in lane.metered)
        self.n_alive = sum(not lane.is_removed for lane in lanes)
        self.n_seated = sum(lane.n_full == 0 for lane in lanes)
        self.follow_up_lines: dict[LaneState | None, Line] = {}
        self.opening_lines: dict[Line, None] = {}
        self._full_s = 0.0
        self._full_since_s = now_s

    def full_s(self, now_s: float) -> float:
        """Seconds, up to `now_s`, during which no lane had a seat."""
        return self._full_s if self.n_seated else self._full_s + (now_s - self._full_since_s)

    def lane_filled(self, now_s: float) -> None:
        """A lane of the set lost its last seat, or is removed."""
        self.n_seated -= 1
        if self.n_seated == 0:
            self._full_since_s = now_s

    def lane_freed(self, now_s: float) -> None:
        """A lane of the set has a seat again."""
        if self.n_seated == 0:
            self._full_s += now_s - self._full_since_s
        self.n_seated += 1


class HeadOfLine:
    """The limits that are kept for one request whose tokens do not fit yet.

    A smaller request behind it waits as well: else it would never fit on a limit that is much used.
    Guarantee: that is over when the request no longer stands in a line that is served, and when
    something changed for a lane of such a limit; all lanes of all its limits are then looked at.
    """

    def __init__(self, changed: dict[LaneState, None]) -> None:
        """Keep nothing yet.

        Args:
            changed: Where to enter the lanes to look at again.
        """
        self._changed = changed
        self._limits: list[LimitState] = []

    def keep(self, limit: LimitState, until_s: float) -> None:
        """Let a limit serve nobody before `until_s`."""
        limit.head_of_line = self
        limit.kept_until_s = until_s
        limit.reckon()
        self._limits.append(limit)

    def free(self) -> None:
        """Let its limits serve anybody; harmless when it keeps none."""
        for limit in self._limits:
            # Its time may have come, and the limit wait for another request since.
            if limit.head_of_line is self:
                limit.free()
                self._changed.update(dict.fromkeys(limit.lanes))
        self._limits.clear()


def keeps_limits(
    waiting: Waiting, lane: LaneState, changed: dict[LaneState, None], now_s: float
) -> bool:
    """Whether the next request does not fit yet; the limits are kept until it does."""
    request = waiting.request
    tokens, units = request.tokens, lane.units(request)
    late = False
    for limit in lane.metered:
        if not limit.pays(units):
            # Until an answer frees some, or nothing is in flight any more.
            ready_s = math.inf
            is_share = BUDGET_ROW in limit.shares.rows
            lane.rate_label = limit.shares.label if is_share else BUDGET
        else:
            ready_s = max(
                [now_s]
                + [pacer.ready_at_s(tokens, now_s) for pacer in limit.tokens]
                + [
                    ledger.ready_at_s(tokens if kind.counts == "tokens" else 1, now_s)
                    for kind, ledger in limit.spendable_days
                ]
            )
        if ready_s > now_s:
            if waiting.head_of_line is None:
                waiting.head_of_line = HeadOfLine(changed)
            waiting.head_of_line.keep(limit, ready_s)
            late = True
    return late


def decide_again(lanes: Iterable[LaneState]) -> None:
    """Free the limits of these lanes from whatever requests they are kept for."""
    found: list[HeadOfLine] = []
    for lane in lanes:
        # Most lanes count no tokens.
        if lane.metered:
            found += [
                limit.head_of_line for limit in lane.metered if limit.head_of_line is not None
            ]
    for head in found:
        head.free()


class Waiting:
    """One request without a lease yet.

    Attributes:
        order: Its place among all requests ever made.
        opens: Whether it opens an episode.
        prefers: The lane it wants, None for none.
        since_s: When it came.
        waits_for: The lanes whose seats it waits for; `full_s`: their clock when it came; `shut_s`:
            that of its group's gate.
        line: Where it waits; None before and after.
        head_of_line: The limits that are kept until its tokens fit; None: there never were any.
        parked_s: Seconds it waited for the retry budget before it joined a line.
        probes: The retry budget whose probe it is; None for all other requests.
    """

    def __init__(
        self,
        *,
        order: int,
        worker: WorkerState,
        request: LeaseRequest,
        model: ModelState,
        lane_set: LaneSet,
        waits_for: LaneSet,
        group: GroupState | None,
        prefers: LaneState | None,
        now_s: float,
        opens: bool,
    ) -> None:
        self.order = order
        self.worker = worker
        self.request = request
        self.model = model
        self.lane_set = lane_set
        self.group = group
        self.prefers = prefers
        self.opens = opens
        self.since_s = now_s
        self.waits_for = waits_for
        self.full_s = waits_for.full_s(now_s)
        self.shut_s = group.shut_s(now_s) if group is not None and opens else 0.0
        self.line: Line | None = None
        self.head_of_line: HeadOfLine | None = None
        self.parked_s = 0.0
        self.probes: RetryBudget[WorkerState] | None = None

    def free_limits(self) -> None:
        """Let nobody wait until its tokens fit."""
        if self.head_of_line is not None:
            self.head_of_line.free()


class Line:
    """Requests that the same lanes can serve by the same rules, first come, first served.

    An `OrderedDict`, since a plain dict finds its first entry by walking over all those taken out
    before.

    Attributes:
        worker: The worker whose opening requests wait here; None for follow-ups, which wait in one
            line for all workers.
        prefers: The lane that follow-ups here want; None for none, and for opening requests.
        is_linked: Whether the scheduler sees it; a line of opening requests is not linked while its
            group's gate is shut.
    """

    def __init__(
        self,
        model: ModelState,
        lane_set: LaneSet,
        *,
        worker: WorkerState | None = None,
        group: GroupState | None = None,
        prefers: LaneState | None = None,
    ) -> None:
        self.model = model
        self.lane_set = lane_set
        self.worker = worker
        self.group = group
        self.prefers = prefers
        self.is_linked = False
        self._queue: OrderedDict[int, Waiting] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def first(self) -> Waiting:
        """The request that has waited longest; the line must not be empty."""
        return next(iter(self._queue.values()))

    def requests(self) -> list[Waiting]:
        """All requests of the line, first come first."""
        return list(self._queue.values())

    def join(self, waiting: Waiting) -> None:
        """Put a request at the end."""
        self._queue[waiting.order] = waiting
        waiting.line = self
        waiting.worker.waiting[waiting.request.request_id] = waiting
        if self.worker is None:
            self.model.n_follow_ups += 1
        if self.is_linked:
            self.model.n_waiting += 1
        elif len(self._queue) == 1:
            self._appear()

    def leave(self, waiting: Waiting) -> None:
        """Take a request out, wherever it stands."""
        del self._queue[waiting.order]
        waiting.line = None
        if waiting.head_of_line is not None:
            waiting.head_of_line.free()
        del waiting.worker.waiting[waiting.request.request_id]
        if self.worker is None:
            self.model.n_follow_ups -= 1
        if self.is_linked:
            self.model.n_waiting -= 1
        if not self._queue:
            self._vanish()

    def link(self) -> None:
        """Show the line to the scheduler."""
        if self.is_linked:
            return
        self.is_linked = True
        self.model.n_waiting += len(self._queue)
        if self.worker is not None:
            self.worker.linked.setdefault(self.model, {})[self] = None

    def unlink(self) -> None:
        """Hide the line from the scheduler."""
        if not self.is_linked:
            return
        self.is_linked = False
        self.model.n_waiting -= len(self._queue)
        if self._queue:
            # Only the first of a line is ever tried.
            self.first.free_limits()
        if self.worker is not None:
            lines = self.worker.linked[self.model]
            del lines[self]
            if not lines:
                del self.worker.linked[self.model]

    def _appear(self) -> None:
        if self.worker is None:
            self.lane_set.follow_up_lines[self.prefers] = self
        else:
            self.lane_set.opening_lines[self] = None
        if self.group is not None:
            self.group.lines[self] = None
        if self.group is None or self.group.admits:
            self.link()

    def _vanish(self) -> None:
        self.unlink()
        if self.worker is None:
            del self.lane_set.follow_up_lines[self.prefers]
        else:
            del self.lane_set.opening_lines[self]
        if self.group is not None:
            del self.group.lines[self]


class WorkerState:
    """One connected worker.

    Attributes:
        home: Lanes it is at home on; None for all of them.
        waiting: Its requests without a lease, by request id, those that are parked left out.
        parked: Its retries that wait for a budget, by request id, and for which.
        leases: Its leases out, by lease id.
        opening_lines: Its lines of opening requests, by lane set and group.
        linked: Those of them that may be served now, by model.
        open_cases: Cases whose episodes have had a first lease and are not over, with their group.
        has_spoken: Whether it has asked for a lease.
    """

    def __init__(self, name: str, home: frozenset[LaneState] | None) -> None:
        self.name = name
        self.home = home
        self.has_spoken = False
        self.waiting: dict[int, Waiting] = {}
        self.parked: dict[int, RetryBudget[WorkerState]] = {}
        self.leases: dict[int, HeldLease] = {}
        self.linked: dict[ModelState, dict[Line, None]] = {}
        self.opening_lines: dict[tuple[LaneSet, GroupState | None], Line] = {}
        self.open_cases: dict[str, GroupState | None] = {}

    def open(self, case_id: str, group: GroupState | None) -> None:
        """Count an episode that gets its first lease, once; one of no case is not counted."""
        if not case_id or case_id in self.open_cases:
            return
        self.open_cases[case_id] = group
        if group is not None:
            group.n_open += 1
            group.has_opened = True

    def is_home(self, lane: LaneState) -> bool:
        """Whether `lane` is one of its homes."""
        return self.home is None or lane in self.home


class HeldLease:
    """One lease out: on which lane, since when, as which of those at once, and its tokens.

    Attributes:
        behind_s: How long before the grant the time of the send was.
        late_s: How late its request was sent, as far as that was said.
        probes: The retry budget whose probe it is; None for all other leases.
        units: Money that is reserved for it; `bounded`: without what answers may cost that nothing
            bounds.
        n_guessed: How many these are.
        case: What its case takes; None where no money is counted.
    """

    def __init__(
        self,
        lane: LaneState,
        granted_s: float,
        at_grant: int,
        behind_s: float,
        probes: RetryBudget[WorkerState] | None,
    ) -> None:
        self.lane = lane
        self.granted_s = granted_s
        self.at_grant = at_grant
        self.behind_s = behind_s
        self.late_s = 0.0
        self.made_up_s = {one: one.made_up_s for one in lane.headrooms}
        self.probes = probes
        self.reserved: Reserved = ()
        self.units = self.bounded = self.n_guessed = 0
        self.case: OpenCase | None = None

    def sent_late(self, late_s: float) -> None:
        """Its request was sent so long after the grant, which later sends make up for.

        It may be said more than once: when its connection had to be made, for example.
        """
        late_s += self.behind_s
        for limit in self.lane.rated:
            limit.make_up(late_s, self.made_up_s)
        for one in self.reserved:
            if isinstance(one.reservation, Reservation):
                one.reservation.over_s += max(0.0, late_s - self.late_s)
        self.late_s = max(self.late_s, late_s)


class GroupState(Wake):
    """One group while a run is on. Wakes when its delay is over.

    Attributes:
        rule: What the assignment says of it; None while no assignment has named it.
        rank: Its place in the assignment.
        n_left: Its cases that have not ended.
        n_open: Its open episodes.
        has_opened: Whether any episode of it was ever opened.
        startable_s: When `after` and `start_after_s` let it start; infinity while not known.
        admits: Whether its gate is open. Lines are linked exactly while it is.
        lines: Its lines with at least one request.
        sets: The lanes it may use, by model; filled as requests come.
    """

    def __init__(self, name: str, now_s: float) -> None:
        super().__init__()
        self.name = name
        self.rule: Group | None = None
        self.rank = 0
        self.n_left = 0
        self.n_open = 0
        self.has_opened = False
        self.startable_s = math.inf
        self.admits = False
        self.lines: dict[Line, None] = {}
        self.sets: dict[ModelState, LaneSet] = {}
        self._shut_s = 0.0
        self._shut_since_s = now_s

    def shut_s(self, now_s: float) -> float:
        """Seconds, up to `now_s`, during which its gate was shut."""
        return self._shut_s if self.admits else self._shut_s + (now_s - self._shut_since_s)

    def set_gate(self, now_s: float, *, admits: bool) -> None:
        """Open or shut the gate and show or hide the waiting lines."""
        if admits is self.admits:
            return
        if admits:
            self._shut_s += now_s - self._shut_since_s
        else:
            self._shut_since_s = now_s
        self.admits = admits
        for line in list(self.lines):
            if admits:
                line.link()
            else:
                line.unlink()


class GroupBook:
    """All groups of the assignment, and which cases have ended.

    Groups of one `exclusive` word share a lock: a group takes it when the first request of it comes
    that could start otherwise, and releases it when its last case has ended, or when that request
    left again and nothing was ever opened.
    """

    def __init__(self, wakes: WakeQueue, look_at: Callable[[Iterable[ModelState]], object]) -> None:
        self._wakes = wakes
        self._look_at = look_at
        self._groups: dict[str, GroupState] = {}
        self._by_case: dict[str, GroupState] = {}
        self._followers: dict[str, list[GroupState]] = {}
        self._sharers: dict[str, list[GroupState]] = {}
        self._holders: dict[str, GroupState] = {}
        self.ended: set[str] = set()
        self.start_s: float | None = None

    def find(self, name: str, now_s: float) -> GroupState | None:
        """The group of that name; None for the empty name.

        Before the first assignment an unknown group is made on the spot and its requests wait for
        it.

        Raises:
            LookupError: When the assignment names no such group.
        """
        if not name:
            return None
        group = self._groups.get(name)
        if group is None:
            if self.start_s is not None:
                raise LookupError(name)
            group = self._groups[name] = self._new_group(name, now_s)
        return group

    def _new_group(self, name: str, now_s: float) -> GroupState:
        group = GroupState(name, now_s)
        group.due = lambda now_s: self._look_at(self.refresh(group, now_s))
        return group

    def states(self) -> Collection[GroupState]:
        """All groups."""
        return self._groups.values()

    def get(self, name: str) -> GroupState | None:
        """The group of that name; None when there is none."""
        return self._groups.get(name)

    def assign(self, assignment: Assignment, now_s: float) -> list[GroupState]:
        """Put an assignment in force and open the gates it opens.

        Counts of open episodes and ended cases are kept, so that a later assignment (a worker came
        back under a new name) changes rules only.

        Returns:
            Groups with waiting requests that the assignment does not name.
        """
        if self.start_s is None:
            self.start_s = now_s
        named = {group.name for group in assignment.groups}
        orphans = [state for name, state in self._groups.items() if name not in named]
        for state in orphans:
            state.rule = None
            state.set_gate(now_s, admits=False)
            del self._groups[state.name]
        self._by_case, self._followers, self._sharers = {}, {}, {}
        for rank, rule in enumerate(assignment.groups):
            state = self._groups.setdefault(rule.name, self._new_group(rule.name, now_s))
            state.rule, state.rank = rule, rank
            state.sets.clear()
            left = {case_id for case_id in rule.cases if case_id not in self.ended}
            state.n_left = len(left)
            self._by_case.update(dict.fromkeys(left, state))
            for name in rule.after:
                self._followers.setdefault(name, []).append(state)
            if rule.exclusive is not None:
                self._sharers.setdefault(rule.exclusive, []).append(state)
        self._holders = {
            lock: state
            for lock, state in self._holders.items()
            if state.rule is not None and state.rule.exclusive == lock and state.n_left
        }
        for rule in assignment.groups:
            self._schedule(self._groups[rule.name], now_s)
        return [state for state in orphans if state.lines]

    def end_case(self, case_id: str, now_s: float) -> list[ModelState]:
        """Count a case as ended, once; open the gates that waited for it.

        Returns:
            Models whose waiting requests may now be served.
        """
        if case_id in self.ended:
            return []
        self.ended.add(case_id)
        group = self._by_case.pop(case_id, None)
        if group is None:
            return []
        group.n_left -= 1
        if group.n_left:
            return []
        models: list[ModelState] = []
        for follower in self._followers.get(group.name, ()):
            models += self._schedule(follower, now_s)
        return models + self._release_lock(group, now_s)

    def refresh(self, group: GroupState, now_s: float) -> list[ModelState]:
        """Open or shut the group's gate as its rule says at `now_s`.

        Returns:
            Models whose waiting requests may now be served.
        """
        admits = self._decide(group, now_s)
        if admits is group.admits:
            return []
        group.set_gate(now_s, admits=admits)
        return list({line.model: None for line in group.lines}) if admits else []

    def went_quiet(self, group: GroupState, now_s: float) -> list[ModelState]:
        """Release the lock when nobody of the group waits and it is not under way (any more).

        Returns:
            Models whose waiting requests may now be served.
        """
        is_under_way = group.has_opened and (group.n_left or group.n_open)
        return [] if group.lines or is_under_way else self._release_lock(group, now_s)

    def _schedule(self, group: GroupState, now_s: float) -> list[ModelState]:
        rule = group.rule
        if rule is None or self.start_s is None:
            return []
        if group.startable_s == math.inf and not any(
            self._groups[name].n_left for name in rule.after
        ):
            # With predecessors the delay counts from the end of the last of them, else from the
            # run's start.
            group.startable_s = (now_s if rule.after else self.start_s) + rule.start_after_s
        if now_s < group.startable_s < math.inf:
            self._wakes.ensure(group, group.startable_s)
        return self.refresh(group, now_s)

    def _decide(self, group: GroupState, now_s: float) -> bool:
        rule = group.rule
        if rule is None or now_s < group.startable_s:
            return False
        if rule.exclusive is not None and not self._holds_lock(group, rule.exclusive):
            return False
        return rule.at_once is None or group.n_open < rule.at_once

    def _holds_lock(self, group: GroupState, lock: str) -> bool:
        holder = self._holders.get(lock)
        if holder is None and group.lines:
            holder = self._holders[lock] = group
        return holder is group

    def _release_lock(self, group: GroupState, now_s: float) -> list[ModelState]:
        lock = group.rule.exclusive if group.rule is not None else None
        if lock is None or self._holders.get(lock) is not group:
            return []
        del self._holders[lock]
        models = []
        # The group itself comes last: it would take the lock again before any other could.
        for candidate in self._sharers.get(lock, ()):
            if candidate is not group:
                models += self.refresh(candidate, now_s)
        return models + self.refresh(group, now_s)
