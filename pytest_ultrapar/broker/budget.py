"""Budgets: what a run may spend, held as any other limit, over all of its sessions.

Guarantee: what was spent and what is reserved for requests without an answer are together never
more than the budget, as long as no request costs more than was reserved for it. What a request may
cost is a bound where it says `max_tokens`; without, it is an estimate, and one that turns out
larger passes the budget by so much, once for each request in flight.

**When nobody answers**, a request may have been billed: what was reserved for it counts as spent.

**Over crashes** what is spent and reserved is in a file: `spending_file`.

**Near its end** a budget begins a case only if it covers what such a case takes, beside what the
open ones still take (`Cases`): else it would pay for answers of cases that cannot be finished.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.protocol import BUDGET, NO_LANE
from pytest_ultrapar.broker.quantile import ANSWER_TOKENS, High
from pytest_ultrapar.broker.spending_file import ALL_LANES
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.pool.money import amount_of, budget_units, money

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_ultrapar.broker.protocol import Feedback, LeaseRequest, Most
    from pytest_ultrapar.broker.shares import Tranche
    from pytest_ultrapar.broker.spending_file import SpendingFile
    from pytest_ultrapar.pool.model import Lane, LaneId, Pool
    from pytest_ultrapar.pool.money import ModelPrice


class Purse:
    """What one limit may spend, in units (`pool.money`).

    Attributes:
        amount: The budget.
        spent: By requests that are over, those of earlier sessions among them.
        reserved: For those that are not.
        is_shut: Whether nothing is reserved any more, whatever is left.
        tranche: What of it this host may spend; None where hosts do not share it.
    """

    def __init__(self, amount: int, spent: int = 0) -> None:
        self.amount = amount
        self.spent = spent
        self.reserved = 0
        self.is_shut = False
        self.tranche: Tranche | None = None

    @property
    def left(self) -> int:
        """What may still be reserved; below 0 where requests cost more than was reserved."""
        left = self.left_of_all
        return left if self.tranche is None else min(left, self.tranche.usable)

    @property
    def left_of_all(self) -> int:
        """The same, if this host had all that it knows to be left."""
        return -1 if self.is_shut else self.amount - self.spent - self.reserved

    def reserve(self, units: int) -> None:
        """Set apart what a request may cost.

        Raises:
            ValueError: So much is not left.
        """
        if units > self.left:
            raise ValueError(f"{units} units do not fit into {self.left}")
        self.reserved += units
        if self.tranche is not None:
            self.tranche.reserve(units)

    def settle(self, reserved: int, used: int) -> None:
        """Count what a request cost in place of what was reserved for it."""
        self.reserved -= reserved
        self.spent += used
        if self.tranche is not None:
            self.tranche.settle(reserved, used)


class Part:
    """What a case has taken so far of the lanes of one model, in units.

    Attributes:
        used: By requests that are over.
        reserved: For those that are not.
        peak: The most that both were together.
    """

    def __init__(self) -> None:
        self.used = self.reserved = self.peak = 0


Way = tuple[str, ...]
"""The limits above a lane that have a budget."""


class OpenCase:
    """A case that has begun.

    Attributes:
        model: Its own.
        parts: What it took of each model that it asked.
        taken: The same by limit: used, and reserved.
        ways: By model where it was asked last.
    """

    def __init__(self, lane: Lane, ways: Mapping[LaneId, Way]) -> None:
        self.model = lane.model
        self.parts: dict[str, Part] = {}
        self.taken: dict[str, int] = {}
        self._ways = ways
        # Cases that are alike have equal ones, and so one sum of needs.
        self.ways: tuple[tuple[str, Way], ...] = ((lane.model, ways[lane.lane_id]),)

    def reserve(self, lane: Lane, units: int) -> None:
        """A request may cost so much."""
        model, way = lane.model, self._ways[lane.lane_id]
        self.parts.setdefault(model, Part()).reserved += units
        if (model, way) not in self.ways:
            self.ways = tuple({**dict(self.ways), model: way}.items())
        self._take(lane, units)

    def settle(self, lane: Lane, *, reserved: int, needed: int, used: int) -> None:
        """It is over: so much was reserved for it, so much would have been enough."""
        part = self.parts[lane.model]
        part.reserved -= reserved
        part.peak = max(part.peak, part.used + part.reserved + max(needed, used))
        part.used += used
        self._take(lane, used - reserved)

    def _take(self, lane: Lane, units: int) -> None:
        for name in self._ways[lane.lane_id]:
            self.taken[name] = self.taken.get(name, 0) + units


CASE_QUANTILE = 0.8
"""Of what cases took: a new one is taken to need so much. In 128 plays of runs on half their cost
0.3 % of the cases that were begun ended without money, and 3.3 cases' cost was left, mostly since a
request reserves more than it uses; with 0.9 it was 0.1 % and 4.0, with 0.7 0.6 % and 2.7."""


class Cases:
    """Which cases may begin, by what cases of their model took so far, roles included; pure.

    A case *needs* of a purse what it uses, and beside that what is reserved for one of its requests
    beyond what that uses. Until a first case of a model has ended, its needs are not known.
    """

    def __init__(self, pool: Pool, purses: Mapping[str, Purse]) -> None:
        """Know nothing yet.

        Args:
            pool: Its lanes.
            purses: By limit.
        """
        self._purses = purses
        self._ways: dict[LaneId, Way] = {
            lane.lane_id: tuple(name for name in lane.limits if name in purses)
            for lane in pool.lanes
        }
        # By model: the different ways of its lanes.
        self._choices: dict[str, dict[Way, None]] = {}
        for lane in pool.lanes:
            self._choices.setdefault(lane.model, {})[self._ways[lane.lane_id]] = None
        self._open: dict[str, OpenCase] = {}
        # By the case's model and the asked one: what was used, and the peak.
        self._seen: dict[str, dict[str, tuple[High, High]]] = {}
        self._dearest: dict[str, float] = {}

    def way(self, lane: Lane) -> Way:
        """The budgets above a lane: cases of one model begin alike on all lanes below the same."""
        return self._ways[lane.lane_id]

    def begin(self, case_id: str, lane: Lane) -> None:
        """A case has its first lease; an empty id is no case's."""
        if case_id:
            self._open[case_id] = OpenCase(lane, self._ways)

    def of(self, case_id: str) -> OpenCase | None:
        """A case that is open."""
        return self._open.get(case_id)

    def ended(self, case_id: str) -> None:
        """A case is over: the next ones will be alike."""
        case = self._open.pop(case_id, None)
        if case is None or not any(part.used for part in case.parts.values()):
            return
        seen = self._seen.setdefault(case.model, {})
        for model in case.parts:
            if model not in seen:
                seen[model] = High(0, CASE_QUANTILE), High(0, CASE_QUANTILE)
        for model, (used, peak) in seen.items():
            part = case.parts.get(model)
            used.add(0 if part is None else part.used)
            peak.add(0 if part is None else part.peak)
        self._dearest[case.model] = sum(peak.value for _, peak in seen.values())

    def lost(self, case_ids: Iterable[str]) -> None:
        """Cases are gone with their worker, and tell nothing of others."""
        for case_id in case_ids:
            self._open.pop(case_id, None)

    def needs(self, lane: Lane) -> dict[str, int]:
        """What a case may need that begins on a lane, by limit; 0 where that is not known."""
        own = self._ways[lane.lane_id]
        takes = self._takes(lane.model)
        return dict.fromkeys(own, 0) | self._needs(takes, {lane.model: own})

    def may_begin(self, lane: Lane) -> bool:
        """Whether a case that begins on a lane can be finished, and so can all that are open."""
        own, needs = self._ways[lane.lane_id], self.needs(lane)
        # Where hosts share a budget, what a role takes is given to this host once it asks.
        left = {
            name: purse.left if name in own else purse.left_of_all
            for name, purse in self._purses.items()
            if name in needs
        }
        # Mostly there is plenty, and then it is not summed up.
        most = len(self._open) * max(self._dearest.values(), default=0)
        if self._seen and all(units + most <= left[name] for name, units in needs.items()):
            return True
        claimed = self._claimed()
        return all(units + claimed.get(name, 0) <= left[name] for name, units in needs.items())

    def _claimed(self) -> dict[str, int]:
        """What open cases may still need beyond what is reserved for them, by limit."""
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
        """What a case uses and its peak, by the asked model: until one has ended, of those open."""
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
        """What a case needs, by limit; `ways` are those of the models whose lanes are known."""
        sums: dict[str, tuple[int, int]] = {}
        for asked, (used, peak) in takes.items():
            for name in ways[asked] if asked in ways else self._richest(asked):
                whole, beyond = sums.get(name, (0, 0))
                sums[name] = whole + used, max(beyond, peak - used)
        return {name: sum(both) for name, both in sums.items()}

    def _richest(self, model: str) -> Way:
        """The limits of the lane of a model that has most left."""
        choices = self._choices[model]
        if len(choices) == 1:
            return next(iter(choices))
        return max(
            choices,
            key=lambda way: min((self._purses[name].left_of_all for name in way), default=math.inf),
        )


class Budgets:
    """The purses of a run by limit, its prices, and the file in which spending is remembered.

    Attributes:
        purses: Of the limits that have a budget.
        cases: Which cases may begin.
        currency: Of all of them.
        trouble: Why spending cannot be remembered, a sentence: nothing is granted from then on.
            Empty while it can.
    """

    def __init__(self, pool: Pool, file: SpendingFile | None = None) -> None:
        """Begin with what earlier sessions have spent.

        Args:
            pool: Its limits and prices; each lane below a budget has a price.
            file: Of the run; None remembers nothing, for plays and tests.
        """
        self.currency = pool.currency
        self.trouble = ""
        spent = spent_by_limit(pool, file.spent if file is not None else {})
        self.purses = {
            name: Purse(budget_units(limit.budget), spent.get(name, 0))
            for name, limit in pool.limits.items()
            if limit.budget is not None
        }
        self.cases = Cases(pool, self.purses)
        self._prices = {(one.provider, one.model): one for one in pool.prices}
        self._answers: dict[str, High] = {}
        self._file = file

    def tariff(self, lane: Lane) -> Tariff:
        """What requests cost on a lane."""
        answer = self._answers.setdefault(lane.model, High(ANSWER_TOKENS))
        return Tariff(self._prices[lane.provider, lane.model], answer)

    def reserved(self, lease_id: int, lane: Lane, units: int) -> bool:
        """Remember a reservation, before its lease goes out; False: it must not, for `trouble`."""
        if self._file is not None:
            try:
                self._file.reserved(lease_id, lane.lane_id, units)
            except ResultsError as error:
                self._shut(error)
        return not self.trouble

    def settled(self, lease_id: int, units: int) -> None:
        """Remember what became of it."""
        if self._file is not None:
            try:
                self._file.settled(lease_id, units)
            except ResultsError as error:
                # The file has what was reserved, which is no less.
                self._shut(error)

    def _shut(self, error: ResultsError) -> None:
        self.trouble = str(error)
        for purse in self.purses.values():
            purse.is_shut = True

    def why_not(self, limit: str, units: int, request: LeaseRequest) -> tuple[str, str]:
        """Why a request is refused that needs so much, and which kind that is."""
        if self.trouble:
            return self.trouble, NO_LANE
        purse = self.purses[limit]
        whole, left, needed = (
            money(amount_of(one), self.currency)
            for one in (purse.amount, max(0, purse.left), units)
        )
        what, remedy = f"the request: it may cost {needed}", "raise the budget"
        if request.opens:
            what = f"a case of {request.model}: it may take {needed} with its dearest request"
        elif request.most is not None and request.most.n_guessed:
            what = f"a request without max_tokens: it may cost {needed}"
            remedy = "bound its answer with max_tokens, or raise the budget"
        return (
            f"the budget of {limit} ({whole}) has no room for {what}, and {left} is left; {remedy}",
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
"""Outcomes that say that the provider did no work: nothing was sent, or it refused to begin. An
error inside of an answer has such an outcome, too, and says `maybe_billed`."""


class Tariff:
    """What requests cost on one lane."""

    def __init__(self, price: ModelPrice, answer: High) -> None:
        """Know what tokens cost.

        Args:
            price: Of the lane's model.
            answer: How long the model's answers are that nothing bounds, for all lanes of it.
        """
        self._price = price
        self._answer = answer

    def most(self, most: Most) -> int:
        """What a request may cost at most, or by estimate, in units."""
        guessed = math.ceil(most.n_guessed * self._answer.early)
        return self._price.most(most.most_in, most.most_out + guessed)

    def learn(self, tokens_out: int, n_answers: int) -> None:
        """Take into account how long answers were."""
        self._answer.add(tokens_out / n_answers)

    def charged(self, outcome: str, feedback: Feedback, reserved: int) -> int:
        """What a lease that came back has cost: by its answer, else all that was reserved.

        Tokens that a cache had count as any others: nobody tells the broker how many there were.
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
    """Units by limit.

    Args:
        pool: As it is now.
        spent: By lane, of which some may be gone: they count for the pool, for their provider and
            for their key as far as those are called as before.
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
