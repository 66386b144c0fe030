"""A plan: all that can be said of a run before its first request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.assignment import Assignment
from pytest_ultrapar.plan.amounts import Amount, amount, calls, service_s
from pytest_ultrapar.plan.bound import Bound, lower_bound
from pytest_ultrapar.plan.cost import cost, missing_prices, prices
from pytest_ultrapar.plan.demand import request_classes
from pytest_ultrapar.plan.expectations import Basis
from pytest_ultrapar.plan.forecast import Course, Forecast, forecast
from pytest_ultrapar.plan.key_load import KeyLoad
from pytest_ultrapar.plan.loads import KeyShare, LimitLoad, key_shares, limit_loads, longest
from pytest_ultrapar.plan.seats import SeatShare, seat_shares
from pytest_ultrapar.plan.token_demand import request_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.plan.earlier import EarlierEpisode, EarlierRun
    from pytest_ultrapar.plan.expectations import Expected
    from pytest_ultrapar.pool.model import Lane, Pool

CLIENT_S = 0.0005
"""What a client takes from a lease to the sending and from an answer to the next asking, where no
earlier run tells: 0.4 ms and 0.2 ms were the medians of 8,043 requests of the five phases on 2
cores."""

ONE_AT_A_TIME = ("serial", "rotate")


@dataclass(frozen=True, slots=True)
class Way:
    """A mode in which the cases could run.

    Attributes:
        policy: The policy that it would take.
        assignment: What that makes of the cases; None where the mode cannot run them.
        refusal: Why not.
        processes: Load of each key by the documents' processes; empty where none are bound.
    """

    mode: str
    policy: str
    assignment: Assignment | None
    refusal: str = ""
    processes: tuple[KeyLoad, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """What would become of a way.

    Attributes:
        forecast: None where it cannot run the cases.
        makespan_s: The forecast's, with the interval of what binds it.
        limits: Load of each limit, that which needs longest first.
        keys: Load of each key, in the order of the pool file.
    """

    way: Way
    forecast: Forecast | None = None
    makespan_s: Amount | None = None
    limits: tuple[LimitLoad, ...] = ()
    keys: tuple[KeyShare, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """What one model is asked; amounts as in `RunPlan`."""

    model: str
    n_cases: int
    calls: Amount
    tokens_in: Amount | None
    tokens_out: Amount | None
    service_s: Amount


@dataclass(frozen=True, slots=True)
class RunPlan:
    """All that is said of a run.

    Attributes:
        mode: The mode in force.
        calls: Requests.
        tokens_in: None where they are not known of every case.
        tokens_out: As `tokens_in`.
        service_s: Seconds of all requests, one after another.
        bases: Cases by what their estimate stands on.
        bound: Lower bound of the makespan, whatever the mode.
        predictions: For each mode.
        cost: Of the models that have a price; None where none has or tokens are not known.
        unpriced: Models without a price and what the pool leaves out of it, where it has any price.
        seats: Which models share seats, and how many.
    """

    mode: str
    n_cases: int
    calls: Amount
    tokens_in: Amount | None
    tokens_out: Amount | None
    service_s: Amount
    models: tuple[ModelPlan, ...]
    bases: Mapping[Basis, int]
    bound: Bound
    predictions: tuple[Prediction, ...]
    cost: Amount | None
    unpriced: Mapping[str, tuple[str, ...]]
    seats: tuple[SeatShare, ...]

    @property
    def chosen(self) -> Prediction:
        """The prediction for the mode in force."""
        return next(one for one in self.predictions if one.way.mode == self.mode)


def make_plan(
    pool: Pool,
    lanes: Sequence[Lane],
    expected: Sequence[Expected],
    earlier: EarlierRun,
    ways: Sequence[Way],
    *,
    mode: str,
) -> RunPlan:
    """The plan of a run.

    Args:
        pool: As declared.
        lanes: All of the run; those of models that are not asked are left out.
        expected: Its episodes, in the order in which they would be fed, at least one.
        earlier: What the expectations stand on; without episodes where they stand on hints alone.
        ways: The modes that are compared.
        mode: The mode in force, one of the ways'.
    """
    services: dict[str, list[float]] = {}
    for one in expected:
        services.setdefault(one.model, []).extend(one.services_s)
    lanes = [lane for lane in lanes if lane.model in services]
    bound = lower_bound(
        lanes,
        pool.limits.values(),
        request_classes(services),
        longest_s=max(sum(one.services_s) for one in expected),
    )
    predictions = tuple(_predict(pool, lanes, expected, earlier, way) for way in ways)
    chosen = next(one for one in predictions if one.way.mode == mode)
    loads = chosen.forecast.lanes if chosen.forecast is not None else {}
    price_of = prices(pool, lanes, loads)
    whole = _sums(expected, earlier)
    return RunPlan(
        mode,
        len(expected),
        *whole,
        tuple(
            ModelPlan(model, len(own), *_sums(own, earlier))
            for model, own in _by_model(expected).items()
        ),
        Counter(one.basis for one in expected),
        bound,
        predictions,
        cost(expected, earlier.episodes, price_of) if price_of else None,
        missing_prices(pool, services),
        seat_shares(pool, lanes),
    )


def _by_model(expected: Sequence[Expected]) -> dict[str, list[Expected]]:
    found: dict[str, list[Expected]] = {}
    for one in expected:
        found.setdefault(one.model, []).append(one)
    return found


def _sums(
    expected: Sequence[Expected], earlier: EarlierRun
) -> tuple[Amount, Amount | None, Amount | None, Amount]:
    seen = earlier.episodes
    n_calls, busy_s = amount(expected, seen, calls), amount(expected, seen, service_s)
    assert n_calls is not None
    assert busy_s is not None
    return (
        n_calls,
        amount(expected, seen, lambda one: one.tokens_in),
        amount(expected, seen, lambda one: one.tokens_out),
        busy_s,
    )


def _predict(
    pool: Pool,
    lanes: Sequence[Lane],
    expected: Sequence[Expected],
    earlier: EarlierRun,
    way: Way,
) -> Prediction:
    if way.assignment is None:
        return Prediction(way)
    group_of = {case_id: group.name for group in way.assignment.groups for case_id in group.cases}
    seat_s = earlier.before_send_s if earlier.episodes else CLIENT_S
    courses = [
        Course(
            one.case_id,
            one.model,
            group_of.get(one.case_id, ""),
            # A seat is taken from the lease on, and requests are sent a moment later.
            tuple(seat_s + service for service in one.services_s),
            request_tokens(one) or 0,
        )
        for one in expected
    ]
    between_s = earlier.between_s if earlier.between_s is not None else CLIENT_S
    serial = way.mode in ONE_AT_A_TIME
    most_open = {"most_open": 1} if serial else {}
    found = forecast(pool, courses, way.assignment, between_s=between_s, **most_open)
    loads = limit_loads(lanes, pool.limits, found.lanes)
    binding = () if serial else longest(loads)
    makespan_s = _as_known(found.makespan_s, expected, earlier.episodes, lanes, binding)
    return Prediction(way, found, makespan_s, loads, key_shares(lanes, found.lanes))


def _as_known(
    makespan_s: float,
    expected: Sequence[Expected],
    earlier: Sequence[EarlierEpisode],
    lanes: Sequence[Lane],
    binding: Sequence[LimitLoad],
) -> Amount:
    """A makespan with the interval of what falls on the limits that bind it, or of everything.

    Each of them may turn out to need longest, so both ends are the highest of theirs.
    """
    parts = {
        (frozenset(lane.model for lane in lanes if one.limit in lane.limits), one.kind != "workers")
        for one in binding
    } or {(frozenset(lane.model for lane in lanes), False)}
    scaled = []
    for models, is_rate in parts:
        own = [one for one in expected if one.model in models]
        whole = amount(own, earlier, calls if is_rate else service_s)
        assert whole is not None
        scaled.append(whole.scaled(makespan_s))
    return Amount(makespan_s, max(one.low for one in scaled), max(one.high for one in scaled))
