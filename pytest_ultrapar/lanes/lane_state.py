"""Limits and lanes while a run is on: seats taken, rates used, pauses, and who waits for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.failure_classes import ANSWERED, LIMITED
from pytest_ultrapar.lanes.headroom import HEADROOM, TOKEN_WINDOW_S
from pytest_ultrapar.lanes.lease_terms import LeaseTerms
from pytest_ultrapar.lanes.protocol import FoundLimit, LaneStatus
from pytest_ultrapar.lanes.rate import RateLimiter
from pytest_ultrapar.lanes.rest_log import RestLog
from pytest_ultrapar.lanes.token_rate import TokenLimiter
from pytest_ultrapar.lanes.wakes import Wake
from pytest_ultrapar.lanes.window import Window

if TYPE_CHECKING:
    from pytest_ultrapar.lanes.adaptive.controller import AdaptiveController
    from pytest_ultrapar.lanes.adaptive.history import LimitChange
    from pytest_ultrapar.lanes.adaptive.observation import Observation
    from pytest_ultrapar.lanes.adaptive.vllm_metrics import ServerLoad
    from pytest_ultrapar.lanes.deferral import Deferral
    from pytest_ultrapar.lanes.health import LaneHealth
    from pytest_ultrapar.lanes.instance_state import InstanceState
    from pytest_ultrapar.lanes.lane_set import LaneSet
    from pytest_ultrapar.pool.model import Lane, Limit

MAX_SEND_BY_S = 1.0
"""With a rate on the path a send may be late by the headroom of the rate's window (50 ms for
`qps`): n + 1 sends, of which the first is late by that much, still span the whole window."""
TELLING_ANSWERS = 20
"""From so many on, the longest tells how long a request may take: the next one takes longer with a
chance of 1 in 21 at most, if they are alike."""
UNRATED_SEND_BY_S = 60.0
"""Without a rate on the path a late send harms nobody; this catches a client that slept."""


class LimitState(Wake):
    """One limit of the pool, or one lane's own: what is in flight, when the next send may go.

    Attributes:
        name: The limit's name, as in the pool.
        window: Requests in flight.
        rates: The limiters of `qps` and `rpm`; both must allow a send.
        tokens: The limiter of `tpm`, if there is one.
        ready_s: The earliest time of the next send, by all of the following (`reckon`).
        pace_ready_s: The earliest time by the pace that `controller` finds.
        controller: Who estimates what the provider bears below cap and rate: in adaptive mode, and
            in fixed mode from the first refusal on; None leaves them as declared.
        deferral: The request whose tokens it waits for to fit, if any; `deferred_until_s`: when
            they do, -infinity without one.
        lanes: The lanes that share it.
        was_full: Whether the window was full when the lanes were last told.
    """

    __slots__ = (
        "controller",
        "deferral",
        "deferred_until_s",
        "lanes",
        "name",
        "pace_ready_s",
        "rates",
        "ready_s",
        "tokens",
        "was_full",
        "window",
    )

    def __init__(self, name: str, cap: float, rates: tuple[RateLimiter, ...]) -> None:
        super().__init__()
        self.name = name
        self.window = Window(cap)
        self.controller: AdaptiveController | None = None
        self.rates = rates
        self.tokens: TokenLimiter | None = None
        self.ready_s = self.pace_ready_s = -math.inf
        self.deferral: Deferral | None = None
        self.deferred_until_s = -math.inf
        self.lanes: list[LaneState] = []
        self.was_full = False

    @classmethod
    def of(cls, limit: Limit) -> LimitState:
        """The state of a limit that nothing has used yet."""
        declared = ((limit.qps, 1.0), (limit.rpm, 60.0))
        rates = tuple(
            RateLimiter(rate, window_s) for rate, window_s in declared if rate is not None
        )
        cap = math.inf if limit.workers is None else limit.workers
        state = cls(limit.name, cap, rates)
        if limit.tpm is not None:
            state.tokens = TokenLimiter(limit.tpm, TOKEN_WINDOW_S)
        return state

    def take(self, now_s: float) -> None:
        """Take a seat and a send; both must be free."""
        self.window.take()
        if not self.rates and self.controller is None:
            return
        for rate in self.rates:
            rate.take(now_s)
        if self.controller is not None:
            self.controller.sent(now_s)
            self.pace_ready_s = now_s + self.controller.interval_s()
        self.reckon()

    def control(self, controller: AdaptiveController) -> None:
        """Let a controller find cap and pace from now on; what is declared stays the bound."""
        self.controller = controller
        self.window.cap = controller.cap()

    def told_load(self, load: ServerLoad, now_s: float) -> bool:
        """Let the controller hear what the server says of its queue.

        Returns:
            Whether there is room that was not there before.
        """
        if self.controller is None:
            return False
        self.controller.told_load(load, self.window.in_flight, now_s)
        return self._adopt_cap(self.controller)

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
        return self._adopt_cap(self.controller)

    def _adopt_cap(self, controller: AdaptiveController) -> bool:
        before, self.window.cap = self.window.cap, controller.cap()
        return self.window.cap > before

    def reckon(self) -> None:
        """Set `ready_s` anew; to be called when anything that it depends on has changed."""
        ready_s = max(self.pace_ready_s, self.deferred_until_s)
        if self.tokens is not None:
            ready_s = max(ready_s, self.tokens.ready_s)
        for rate in self.rates:
            ready_s = max(ready_s, rate.ready_s)
        self.ready_s = ready_s

    def let_go(self) -> None:
        """No longer wait for a certain request to fit."""
        self.deferral = None
        self.deferred_until_s = -math.inf
        self.reckon()


class ModelState:
    """The lanes of one model, and how many requests may be served by them now.

    Attributes:
        n_waiting: Waiting requests for the model, those that no group lets through left out.
        n_turns: Those of them that are turns.
        down: Its lanes that are paused or out.
        sets: Every set of its lanes that some request was ever bound to.
        whole: All its lanes as a set.
    """

    __slots__ = ("down", "lanes", "n_turns", "n_waiting", "name", "sets", "whole")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lanes: list[LaneState] = []
        self.n_waiting = self.n_turns = 0
        self.down: dict[LaneState, None] = {}
        self.sets: dict[tuple[LaneState, ...], LaneSet] = {}
        self.whole: LaneSet | None = None


class LaneState(Wake):
    """One lane: its path of limits, health, homes and counts. Wakes when its pause ends.

    Attributes:
        path: Every limit a lease takes a unit of.
        windows: Those of them with a cap; `rated`: those with a rate; `metered`: those of them
            that count tokens; `balance`: the windows that tell this lane from the others of its
            model, by which requests are spread.
        counted: The limit by which the provider counts its requests, as far as the pool says: the
            innermost that is not the run's own. A refusal says something about it. None: there is
            none yet.
        is_declared: Whether its limits are as the pool says (fixed mode).
        is_up: Neither paused nor out, as of the last wake.
        paused_until_s: -infinity when not paused; infinity when out.
        reason: Why it is paused or out.
        n_full: Full limits on its path as last told, plus one when it is out.
        seat_label: The limit whose seats last bound it; `rate_label`: the rate limit or `pause`
            that did.
        unspoken: Home workers that have not asked for anything yet.
        is_lendable: Whether workers that are not at home here may use it.
        hold_ended_s: Since when it is lendable.
        used_order: Order of its last grant among all grants.
        n_retries: Grants for requests that had failed before; `n_moved`: requests that failed here
            and were granted another lane.
        out_after_s: When it went out, seconds after the run's start.
        terms: Its leases that are out.
        started_s: When it was first granted a lease; infinity before.
        service_s: From lease to answer, the sum over all answers; `longest_s`: the longest.
        busy_s: Seconds that leases were out which came back.
    """

    __slots__ = (
        "balance",
        "busy_s",
        "counted",
        "granted",
        "health",
        "hold_ended_s",
        "in_flight",
        "instance",
        "is_declared",
        "is_lendable",
        "is_up",
        "lane",
        "longest_s",
        "metered",
        "model",
        "n_full",
        "n_moved",
        "n_retries",
        "orphans",
        "out_after_s",
        "outcomes",
        "path",
        "paused_until_s",
        "peak",
        "rate_label",
        "rated",
        "reason",
        "rests",
        "seat_label",
        "send_by_s",
        "service_s",
        "sets",
        "started_s",
        "terms",
        "unspoken",
        "used_order",
        "waited_s",
        "windows",
    )

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
        self.balance: tuple[Window, ...] = ()
        self.metered = tuple(limit for limit in path if limit.tokens is not None)
        self.follow(path)
        windows_s = [rate.window_s for limit in path for rate in limit.rates]
        windows_s += [limit.tokens.window_s for limit in path if limit.tokens is not None]
        self.send_by_s = (
            min(MAX_SEND_BY_S, HEADROOM * min(windows_s)) if windows_s else UNRATED_SEND_BY_S
        )
        self.terms = LeaseTerms()
        self.counted: LimitState | None = None
        self.is_declared = True
        self.sets: list[LaneSet] = []
        self.is_up = True
        self.paused_until_s = -math.inf
        self.reason = ""
        self.n_full = 0
        self.seat_label = self.rate_label = ""
        self.unspoken: dict[str, None] = {}
        self.is_lendable = True
        self.hold_ended_s = -math.inf
        self.used_order = 0
        self.in_flight = self.peak = self.granted = self.orphans = 0
        self.n_retries = self.n_moved = 0
        self.started_s = math.inf
        self.service_s = self.longest_s = 0.0
        self.busy_s = 0.0
        self.rests = RestLog()
        self.out_after_s: float | None = None
        self.waited_s: dict[str, float] = {}
        self.outcomes: dict[str, int] = {}

    def follow(self, path: tuple[LimitState, ...]) -> None:
        """Have a path of limits; to be called again when one of them gets a cap or a controller."""
        self.path = path
        self.windows = tuple(limit.window for limit in path if limit.window.cap < math.inf)
        self.rated = tuple(
            limit for limit in path if limit.rates or limit.tokens is not None or limit.controller
        )

    @property
    def is_out(self) -> bool:
        """Out for the rest of the run."""
        return self.paused_until_s == math.inf

    def is_free(self, now_s: float) -> bool:
        """Whether it is up and every limit on its path has a seat and allows a send at `now_s`."""
        if not self.is_up:
            return False
        for limit in self.rated:
            if limit.ready_s > now_s:
                return False
        return self.has_seat()

    def has_seat(self) -> bool:
        """Whether every window on the path has a free seat."""
        # No `all(...)`: this is asked some 30 times per grant, and a generator is twice the price.
        for window in self.windows:  # noqa: SIM110
            if window.in_flight >= window.cap:
                return False
        return True

    def fits(self, tokens: int) -> bool:
        """Whether no limit on its path is smaller than one request of so many tokens."""
        return all(limit.tokens is None or tokens <= limit.tokens.limit for limit in self.metered)

    @property
    def load(self) -> float:
        """Share of the seats taken on what is this lane's own, 0 to 1; 0 when unlimited."""
        load = 0.0
        for window in self.balance:
            load = max(load, window.in_flight / window.cap)
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
            state="up" if self.is_up else "out" if self.is_out else "paused",
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
            rests=dict(self.rests.n),
            rested_s=self.rests.rested_s(now_s),
            n_opened=self.health.n_opened,
            n_moved=self.n_moved,
            out_after_s=self.out_after_s,
            found=self._found_now(),
            busy_s=self.busy_s + under_way_s,
        )

    def _found_now(self) -> FoundLimit | None:
        limit = self.counted
        if limit is None or limit.controller is None:
            return None
        workers, qps = limit.controller.found()
        declared_qps = min((rate.per_s for rate in limit.rates), default=math.inf)
        is_back = limit.window.cap >= limit.controller.seats.ceiling
        is_back = is_back and limit.controller.pace.rate >= declared_qps
        return FoundLimit(
            limit.name,
            workers,
            qps,
            limit.controller.n_cuts,
            limit.window.peak,
            declared=self.is_declared,
            is_back=is_back,
        )
