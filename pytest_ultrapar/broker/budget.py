"""Budgets: the money that a run may spend in all its sessions.

They are enforced like any other limit.

Guarantee: the money spent plus the money reserved for unanswered requests never exceeds the budget,
as long as no request costs more than was reserved for it. The cost of a request has an upper bound
if the request sets `max_tokens`. Otherwise the reservation is an estimate. If answers turn out to
cost more, the budget may be exceeded by the difference for each request in flight.

**If no answer comes**, the request may have been billed. Its reservation then counts as spent.

**After a crash**, the record of the spent and reserved money is still in the run's spending file
(`spending_file`).

**Near the end of a budget**, a case begins only if the money left is enough for this case and for
what every open case may still spend (`Cases`). Otherwise the run would pay for answers in cases
that it cannot finish.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.high_quantile import ANSWER_TOKENS, HighQuantile
from pytest_ultrapar.broker.protocol import BUDGET, NO_LANE
from pytest_ultrapar.broker.spending_file import ALL_LANES
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.pool.money import amount_of, budget_units, money

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_ultrapar.broker.protocol import Feedback, LeaseRequest, TokenBounds
    from pytest_ultrapar.broker.shares import GrantedUnits
    from pytest_ultrapar.broker.spending_file import SpendingFile
    from pytest_ultrapar.pool.model import Lane, LaneId, Pool
    from pytest_ultrapar.pool.money import ModelPrice


class BudgetBalance:
    """The budget of one limit, and the money spent and reserved so far, in units (`pool.money`).

    Attributes:
        amount: The budget.
        spent: Units spent on finished requests, in this session and in earlier ones.
        reserved: Units reserved for requests in flight.
        is_shut: Whether all reservations are refused, regardless of the amount left.
        tranche: The part that this host may spend; None if hosts do not share the budget.
    """

    def __init__(self, amount: int, spent: int = 0) -> None:
        self.amount = amount
        self.spent = spent
        self.reserved = 0
        self.is_shut = False
        self.tranche: GrantedUnits | None = None

    @property
    def left(self) -> int:
        """The units that can still be reserved; below 0 if requests cost more than was reserved."""
        left = self.left_of_all
        return left if self.tranche is None else min(left, self.tranche.usable)

    @property
    def left_of_all(self) -> int:
        """All units left by this host's count, including units that it may not spend."""
        return -1 if self.is_shut else self.amount - self.spent - self.reserved

    def reserve(self, units: int) -> None:
        """Reserve the possible cost of a request.

        Raises:
            ValueError: `units` is more than is left.
        """
        if units > self.left:
            raise ValueError(f"cannot reserve {units} units: {self.left} are left")
        self.reserved += units
        if self.tranche is not None:
            self.tranche.reserve(units)

    def settle(self, reserved: int, used: int) -> None:
        """Replace a request's reservation with its cost."""
        self.reserved -= reserved
        self.spent += used
        if self.tranche is not None:
            self.tranche.settle(reserved, used)


class Part:
    """The units that a case has used so far on the lanes of one model.

    Attributes:
        used: Units spent on finished requests.
        reserved: Units reserved for requests in flight.
        peak: The largest sum of these two numbers so far.
    """

    def __init__(self) -> None:
        self.used = self.reserved = self.peak = 0


Way = tuple[str, ...]
"""The names of the limits that apply to a lane and have a budget."""


class OpenCase:
    """A case that has begun.

    Attributes:
        model: The case's own model.
        parts: The units that the case has used, by the model that received the requests.
        taken: The units used and reserved, by limit.
        ways: For each model, the budgets that the last request to the model was charged to.
    """

    def __init__(self, lane: Lane, ways: Mapping[LaneId, Way]) -> None:
        self.model = lane.model
        self.parts: dict[str, Part] = {}
        self.taken: dict[str, int] = {}
        self._ways = ways
        # Cases with the same ways have the same needs, which are then computed only once.
        self.ways: tuple[tuple[str, Way], ...] = ((lane.model, ways[lane.lane_id]),)

    def reserve(self, lane: Lane, units: int) -> None:
        """Reserve units for a request."""
        model, way = lane.model, self._ways[lane.lane_id]
        self.parts.setdefault(model, Part()).reserved += units
        if (model, way) not in self.ways:
            self.ways = tuple({**dict(self.ways), model: way}.items())
        self._take(lane, units)

    def settle(self, lane: Lane, *, reserved: int, needed: int, used: int) -> None:
        """Replace the reservation of a request that is over with its cost.

        Args:
            lane: The lane of the request.
            reserved: The units that were reserved for it.
            needed: The units that would have been enough as a reservation.
            used: The units that it cost.
        """
        part = self.parts[lane.model]
        part.reserved -= reserved
        part.peak = max(part.peak, part.used + part.reserved + max(needed, used))
        part.used += used
        self._take(lane, used - reserved)

    def _take(self, lane: Lane, units: int) -> None:
        for name in self._ways[lane.lane_id]:
            self.taken[name] = self.taken.get(name, 0) + units


CASE_QUANTILE = 0.8
"""A new case is expected to cost as much as this quantile of earlier cases. In 128 simulated runs
with half the money that they needed, 0.3 % of the started cases ran out of money. At the end,
enough money for 3.3 cases was left, mostly because requests reserve more than they use. With 0.9
the figures were 0.1 % and 4.0; with 0.7 they were 0.6 % and 2.7."""


class Cases:
    """Decides which cases may begin, based on the cost of earlier cases of their model.

    This class does no I/O. The cost includes requests to roles. A case *needs* the units that it
    uses, plus the units that one of its requests reserves but does not use. The needs of a model's
    cases are unknown until the first of them has ended.
    """

    def __init__(self, pool: Pool, purses: Mapping[str, BudgetBalance]) -> None:
        """Start without any record of earlier cases.

        Args:
            pool: The pool whose lanes the cases use.
            purses: The budgets, by limit.
        """
        self._purses = purses
        self._ways: dict[LaneId, Way] = {
            lane.lane_id: tuple(name for name in lane.limits if name in purses)
            for lane in pool.lanes
        }
        # For each model, the different ways of its lanes.
        self._choices: dict[str, dict[Way, None]] = {}
        for lane in pool.lanes:
            self._choices.setdefault(lane.model, {})[self._ways[lane.lane_id]] = None
        self._open: dict[str, OpenCase] = {}
        # The units used and the peak of earlier cases, by the case's model and then by the model
        # that received the requests.
        self._seen: dict[str, dict[str, tuple[HighQuantile, HighQuantile]]] = {}
        self._costliest: dict[str, float] = {}

    def way(self, lane: Lane) -> Way:
        """The budgets that apply to a lane.

        If two lanes of a model have the same budgets, the same cases may begin on both.
        """
        return self._ways[lane.lane_id]

    def begin(self, case_id: str, lane: Lane) -> None:
        """Record that a case got its first lease. Does nothing if the id is empty."""
        if case_id:
            self._open[case_id] = OpenCase(lane, self._ways)

    def of(self, case_id: str) -> OpenCase | None:
        """The open case with that id, or None."""
        return self._open.get(case_id)

    def ended(self, case_id: str) -> None:
        """Record that a case has ended, and learn from its cost."""
        case = self._open.pop(case_id, None)
        if case is None or not any(part.used for part in case.parts.values()):
            return
        seen = self._seen.setdefault(case.model, {})
        for model in case.parts:
            if model not in seen:
                seen[model] = HighQuantile(0, CASE_QUANTILE), HighQuantile(0, CASE_QUANTILE)
        for model, (used, peak) in seen.items():
            part = case.parts.get(model)
            used.add(0 if part is None else part.used)
            peak.add(0 if part is None else part.peak)
        self._costliest[case.model] = sum(peak.value for _, peak in seen.values())

    def lost(self, case_ids: Iterable[str]) -> None:
        """Forget cases that were lost with their worker, without learning from their cost."""
        for case_id in case_ids:
            self._open.pop(case_id, None)

    def needs(self, lane: Lane) -> dict[str, int]:
        """How many units a case that begins on a lane may need, by limit; 0 if unknown."""
        own = self._ways[lane.lane_id]
        takes = self._takes(lane.model)
        return dict.fromkeys(own, 0) | self._needs(takes, {lane.model: own})

    def may_begin(self, lane: Lane) -> bool:
        """Whether there is enough money to finish a new case on this lane and all open cases."""
        own, needs = self._ways[lane.lane_id], self.needs(lane)
        # If hosts share a budget, this host can request the money for roles later.
        left = {
            name: purse.left if name in own else purse.left_of_all
            for name, purse in self._purses.items()
            if name in needs
        }
        # Skip the exact sum if there is plenty of money, as there usually is.
        most = len(self._open) * max(self._costliest.values(), default=0)
        if self._seen and all(units + most <= left[name] for name, units in needs.items()):
            return True
        claimed = self._claimed()
        return all(units + claimed.get(name, 0) <= left[name] for name, units in needs.items())

    def _claimed(self) -> dict[str, int]:
        """The units that open cases may still need, beyond those used and reserved, by limit."""
        claimed: dict[str, int] = {}
        known: dict[object, dict[str, int]] = {}
        for case in self._open.values():
            key = case.model, case.ways
            needs = known.get(key)
            if needs is None:
                needs = known[key] = self._needs(self._takes(case.model), dict(case.ways))
            for name, units in needs.items():
                more = units - case.taken.get(name, 0)
                if more > 0:
                    claimed[name] = claimed.get(name, 0) + more
        return claimed

    def _takes(self, model: str) -> dict[str, tuple[int, int]]:
        """The expected usage and peak of a case, by the model that receives the requests.

        Until a case of this model has ended, both numbers are taken from the model's open cases.
        """
        if seen := self._seen.get(model):
            return {one: (int(used.value), int(peak.value)) for one, (used, peak) in seen.items()}
        takes: dict[str, tuple[int, int]] = {}
        for case in self._open.values():
            for asked, part in case.parts.items() if case.model == model else ():
                used, peak = takes.get(asked, (0, 0))
                takes[asked] = max(used, part.used), max(peak, part.peak)
        return takes

    def _needs(
        self, takes: Mapping[str, tuple[int, int]], ways: Mapping[str, Way]
    ) -> dict[str, int]:
        """The units that a case needs, by limit.

        `ways` gives the budgets of each model whose lane is known.
        """
        sums: dict[str, tuple[int, int]] = {}
        for asked, (used, peak) in takes.items():
            for name in ways[asked] if asked in ways else self._richest(asked):
                whole, beyond = sums.get(name, (0, 0))
                sums[name] = whole + used, max(beyond, peak - used)
        return {name: sum(both) for name, both in sums.items()}

    def _richest(self, model: str) -> Way:
        """The budgets of the model's lane that has the most money left."""
        choices = self._choices[model]
        if len(choices) == 1:
            return next(iter(choices))
        return max(
            choices,
            key=lambda way: min((self._purses[name].left_of_all for name in way), default=math.inf),
        )


class Budgets:
    """The budgets of a run, its prices, and the file that records the spending.

    Attributes:
        purses: The budgets, by limit; limits without a budget are left out.
        cases: Decides which cases may begin.
        currency: The currency of all budgets.
        trouble: Empty as long as spending can be recorded. If this fails, a sentence that gives the
            reason; from then on, no lease is granted.
    """

    def __init__(self, pool: Pool, file: SpendingFile | None = None) -> None:
        """Start with the spending of earlier sessions.

        Args:
            pool: The pool with the limits and prices. Each lane that a budget applies to must have
                a price.
            file: The spending file of the run; None for simulations and tests, which record no
                spending.
        """
        self.currency = pool.currency
        self.trouble = ""
        spent = spent_by_limit(pool, file.spent if file is not None else {})
        self.purses = {
            name: BudgetBalance(budget_units(limit.budget), spent.get(name, 0))
            for name, limit in pool.limits.items()
            if limit.budget is not None
        }
        self.cases = Cases(pool, self.purses)
        self._prices = {(one.provider, one.model): one for one in pool.prices}
        self._answers: dict[str, HighQuantile] = {}
        self._file = file

    def tariff(self, lane: Lane) -> Tariff:
        """The prices and estimates for requests on a lane."""
        answer = self._answers.setdefault(lane.model, HighQuantile(ANSWER_TOKENS))
        return Tariff(self._prices[lane.provider, lane.model], answer)

    def reserved(self, lease_id: int, lane: Lane, units: int) -> bool:
        """Record a reservation. Call this before the lease is granted.

        Returns:
            Whether the lease may be granted. If not, `trouble` says why.
        """
        if self._file is not None:
            try:
                self._file.reserved(lease_id, lane.lane_id, units)
            except ResultsError as error:
                self._shut(error)
        return not self.trouble

    def settled(self, lease_id: int, units: int) -> None:
        """Record the actual cost of a reservation."""
        if self._file is not None:
            try:
                self._file.settled(lease_id, units)
            except ResultsError as error:
                # The reservation stays in the file and counts as spent.
                self._shut(error)

    def _shut(self, error: ResultsError) -> None:
        self.trouble = str(error)
        for purse in self.purses.values():
            purse.is_shut = True

    def why_not(self, limit: str, units: int, request: LeaseRequest) -> tuple[str, str]:
        """The reason for refusing a request that needs `units`, and the kind of refusal."""
        if self.trouble:
            return self.trouble, NO_LANE
        purse = self.purses[limit]
        whole, left, needed = (
            money(amount_of(one), self.currency)
            for one in (purse.amount, max(0, purse.left), units)
        )
        what, remedy = f"the {needed} that the request may cost", "raise the budget"
        if request.opens:
            what = (
                f"the {needed} that a new case of {request.model} may need, including the "
                "reservation for its costliest request"
            )
        elif request.most is not None and request.most.n_guessed:
            what = f"the {needed} that a request without max_tokens may cost"
            remedy = "limit its answer with max_tokens, or raise the budget"
        return (
            f"the budget of {limit} ({whole}, {left} left) does not cover {what}; {remedy}",
            BUDGET,
        )

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


NEVER_BILLED = frozenset(
    (
        "unsent",
        "connect",
        "loading",
        "no_host",
        "tls",
        "rate",
        "congestion",
        "quota",
        "daily_quota",
        "auth",
        "forbidden",
        "not_found",
        "too_large",
        "bad_request",
    )
)
"""Outcomes for which the provider did no work: no request was sent, or the provider refused it at
once. An error inside an answer may also have such an outcome. In this case, `maybe_billed` is
set."""


class Tariff:
    """The cost of requests on one lane."""

    def __init__(self, price: ModelPrice, answer: HighQuantile) -> None:
        """Create the tariff of a lane.

        Args:
            price: The price of the lane's model.
            answer: Estimates the length of the model's unbounded answers, over all its lanes.
        """
        self._price = price
        self._answer = answer

    def most(self, most: TokenBounds) -> int:
        """The maximum cost of a request in units, or an estimate if there is no maximum."""
        guessed = math.ceil(most.n_guessed * self._answer.early)
        return self._price.most(most.most_in, most.most_out + guessed)

    def learn(self, tokens_out: int, n_answers: int) -> None:
        """Learn from the length of answers."""
        self._answer.add(tokens_out / n_answers)

    def charged(self, outcome: str, feedback: Feedback, reserved: int) -> int:
        """The cost of a lease that was given back, computed from its answer if there is one.

        Without an answer, the cost is the whole reservation, or 0 if the provider did no work.
        Cached tokens are charged at the full price, because the broker does not know how many there
        are.
        """
        if outcome in NEVER_BILLED and not feedback.maybe_billed:
            return 0
        if feedback.tokens is None or feedback.tokens_out is None:
            return reserved
        return self._price.cost(
            feedback.tokens - feedback.tokens_out,
            feedback.tokens_out,
            written=feedback.cache_write_tokens,
        )


def spent_by_limit(pool: Pool, spent: Mapping[str, int]) -> dict[str, int]:
    """Add up the spent units for each limit.

    Args:
        pool: The current pool.
        spent: The spent units, by lane. The units of a lane that no longer exists count towards the
            pool. They also count towards its provider and key if these still have the same names.
    """
    paths = {lane.lane_id: lane.limits for lane in pool.lanes}
    found: dict[str, int] = {}
    for lane_id, units in spent.items():
        path = paths.get(lane_id)  # type: ignore[call-overload]
        if lane_id == ALL_LANES:
            path = tuple(pool.limits)
        if path is None:
            provider, _, key = lane_id.partition("/")[0], "", lane_id.rpartition("/")[2]
            path = ("pool", provider, f"{provider}/{key}")
        for name in path:
            found[name] = found.get(name, 0) + units
    return found
