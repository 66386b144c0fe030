"""Make the plan of a run: a forecast that is made before the run's first request."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.plan.expectations import (
    ASSUMED_WITHIN,
    MEASURED,
    Basis,
    request_tokens,
    too_large,
    without_roles,
)
from pytest_ultrapar.analysis.plan.forecast import Forecast, ForecastEpisode, Step, forecast
from pytest_ultrapar.analysis.plan.load import KeyLoad, LimitLoad, limit_loads, longest
from pytest_ultrapar.analysis.plan.lower_bound import lower_bound, request_classes
from pytest_ultrapar.analysis.plan.waste import seat_uses
from pytest_ultrapar.analysis.statistics import Z_95
from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.pool.model import LIMIT_KINDS, PRICE_FIELDS
from pytest_ultrapar.pool.settings import ONE_AT_A_TIME
from pytest_ultrapar.records import by_key
from pytest_ultrapar.store.lower_bound import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_ultrapar.analysis.plan.expectations import (
        EarlierEpisode,
        EarlierRun,
        EpisodeLike,
        Expected,
    )
    from pytest_ultrapar.analysis.plan.load import LaneLoad
    from pytest_ultrapar.analysis.plan.waste import Service
    from pytest_ultrapar.pool.model import Lane, LaneId, Pool


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum and its interval: `low <= value <= high`."""

    value: float
    low: float
    high: float

    def scaled(self, value: float) -> Amount:
        """Return this amount scaled to another value, with its interval scaled in proportion."""
        if self.value <= 0:
            return Amount(value, value, value)
        return Amount(value, value * self.low / self.value, value * self.high / self.value)


def calls(one: EpisodeLike) -> float:
    """Return the number of requests in an episode."""
    return len(one.services_s)


def service_s(one: EpisodeLike) -> float:
    """Return the total service time of an episode's requests, in seconds."""
    return math.fsum(one.services_s)


def amount(
    expected: Iterable[Expected],
    earlier: Sequence[EarlierEpisode],
    value_of: Callable[[EpisodeLike], float | None],
) -> Amount | None:
    """Add up a value over the expected episodes; return the sum, and its interval in a new run.

    Cases of the same test function and model are treated as draws from one distribution. The
    earlier run made `m` of these draws. The difference between the sum of `n` new draws and `n`
    times the earlier mean then has the variance `n s**2 + n**2 s**2 / m`. Here `s` is the standard
    deviation of the earlier draws. The variances of different functions and models are added up.
    The upper end of the interval is 1.96 standard deviations above the sum. Amounts are positive,
    so the lower end is the sum divided by the ratio of the upper end to the sum. Cases that also
    ran in the earlier run vary less than such draws, so the interval tends to be too wide. The
    interval does not allow for changes at the provider. Values that come from hints or from cases
    of another test function are assumed to be wrong by at most the factor `ASSUMED_WITHIN`.

    Args:
        expected: The planned episodes.
        earlier: All episodes from which the expectations were made.
        value_of: Returns the value of an episode, or None if it is unknown.

    Returns:
        The sum and its interval; None if the value is unknown for any episode.

    Source: prediction interval of a mean, as in Hahn and Meeker, "Statistical Intervals" (1991),
        section 4.7, summed over strata.
    """
    seen = by_key(
        ((one.test, one.model, one.role), value)
        for one in earlier
        if (value := value_of(one)) is not None
    )
    measured: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    assumed = 0.0
    for planned in expected:
        value = value_of(planned)
        if value is None:
            return None
        if planned.basis not in MEASURED:
            assumed += value
        else:
            measured[planned.test, planned.model, planned.role].append(value)
    known = math.fsum(math.fsum(own) for own in measured.values())
    variance = math.fsum(_variance(len(own), seen[cell]) for cell, own in measured.items())
    half = Z_95 * math.sqrt(variance)
    return Amount(
        known + assumed,
        (known * known / (known + half) if known > 0 else 0.0) + assumed / ASSUMED_WITHIN,
        known + half + assumed * ASSUMED_WITHIN,
    )


def _variance(n: int, sample: Sequence[float]) -> float:
    m = len(sample)
    # A single draw does not show the spread, so assume that the spread is as large as the value.
    own = statistics.variance(sample) if m > 1 else sample[0] ** 2
    return own * (n + n * n / m)


_MTOK = 1_000_000


def prices(
    pool: Pool, lanes: Sequence[Lane], loads: Mapping[LaneId, LaneLoad]
) -> dict[str, tuple[float, float]]:
    """Return the price per million tokens, of input and of output, for each model that has prices.

    If several providers serve a model, all of them must have prices for it. The model's prices are
    then their mean, weighted by the providers' shares of the requests.
    """
    listed = {(one.provider, one.model): one for one in pool.prices}
    requests: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for lane in lanes:
        if lane.lane_id in loads:
            requests[lane.model][lane.provider] += loads[lane.lane_id].requests
    found = {}
    for model, by_provider in requests.items():
        if all((provider, model) in listed for provider in by_provider):
            whole = sum(by_provider.values())
            own = [(listed[provider, model], n / whole) for provider, n in by_provider.items()]
            found[model] = (
                sum(price.per_mtok_in * share for price, share in own),
                sum(price.per_mtok_out * share for price, share in own),
            )
    return found


def missing_prices(pool: Pool, models: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the price fields that at least one provider of a model omits, for each such model.

    The models are in the given order. The result is empty if the pool has no prices at all, because
    prices are then not regarded as missing.
    """
    known = {(one.provider, one.model) for one in pool.prices}
    says_some = bool(known or pool.price_book)
    silent: dict[str, set[str]] = {model: set() for model in models}
    for provider in pool.providers:
        for one in provider.models:
            if one.name in silent:
                says_some |= one.unpriced != PRICE_FIELDS
                if (provider.name, one.name) not in known:
                    silent[one.name].update(one.unpriced)
    if not says_some:
        return {}
    return {
        model: tuple(name for name in PRICE_FIELDS if name in own)
        for model, own in silent.items()
        if own
    }


def cost(
    expected: Sequence[Expected],
    earlier: Sequence[EarlierEpisode],
    price_of: Mapping[str, tuple[float, float]],
) -> Amount | None:
    """Return the cost of all episodes whose model has a price.

    Returns:
        The cost; None if the tokens of any of these episodes are unknown.
    """

    def of(one: EpisodeLike) -> float | None:
        if one.tokens_in is None or one.tokens_out is None:
            return None
        per_in, per_out = price_of[one.model]
        return (one.tokens_in * per_in + one.tokens_out * per_out) / _MTOK

    priced = [one for one in expected if one.model in price_of]
    return amount(priced, [one for one in earlier if one.model in price_of], of)


REFUSED_ABOVE = 10.0
"""The largest accepted number of seats for each seat that the rates keep busy. Latencies vary and
requests are sent in bursts, so it makes sense to have a few times as many seats as are busy on
average. Any seats beyond that are wasted. If there are more than ten times as many, one of the
numbers is wrong."""


def contradictions(
    pool: Pool,
    lanes: Sequence[Lane],
    expected: Sequence[Expected],
    services: Mapping[str, Service],
    *,
    episode_timeout_s: float,
) -> tuple[str, ...]:
    """Return a sentence for each contradiction in the plan.

    Args:
        pool: The pool of the run.
        lanes: All lanes of the run.
        expected: The run's episodes.
        services: How long the requests to each model take. If this is only assumed, it is never the
            cause of a contradiction.
        episode_timeout_s: The time limit for an episode, in seconds.
    """
    return (
        *_empty_seats(pool, lanes, services),
        *_late_requests(pool, lanes, services),
        *_late_episodes(expected, services, episode_timeout_s),
        *too_large(pool, lanes, expected),
    )


def _empty_seats(
    pool: Pool, lanes: Sequence[Lane], services: Mapping[str, Service]
) -> Iterator[str]:
    for use in seat_uses(pool, lanes, services):
        if use.ratio > REFUSED_ABOVE and not use.service.is_assumed:
            requests = "request" if use.rate == 1 else "requests"
            yield (
                f"{use.where}: {use.rate:.6g} {requests} per second at {use.service.mean_s:.3g} s "
                f"each can use only {use.useful} of {use.seats} workers ({use.rate:.6g} x "
                f"{use.service.mean_s:.3g} = {use.busy:.3g} on average); use {use.useful} to "
                f"{REFUSED_ABOVE * use.useful:g} workers, or raise the rate"
            )


def _late_requests(
    pool: Pool, lanes: Sequence[Lane], services: Mapping[str, Service]
) -> Iterator[str]:
    timeouts = {provider.name: provider.timeout_s for provider in pool.providers}
    for provider, model in dict.fromkeys((lane.provider, lane.model) for lane in lanes):
        service, timeout_s = services[model], timeouts[provider]
        if service.mean_s > timeout_s and not service.is_assumed:
            yield (
                f"{provider}/{model}: requests take {service.mean_s:.3g} s on average, so "
                f"timeout_s = {timeout_s:g} cuts them off"
            )


def _late_episodes(
    expected: Sequence[Expected], services: Mapping[str, Service], timeout_s: float
) -> Iterator[str]:
    by_model = by_key((one.model, service_s(one)) for one in expected)
    for model, own in by_model.items():
        mean_s = sum(own) / len(own)
        if mean_s > timeout_s and not services[model].is_assumed:
            yield (
                f"{model}: episodes take {mean_s:.4g} s on average, excluding waits, so "
                f"--ultrapar-episode-timeout {timeout_s:g} cuts them off"
            )


CLIENT_S = 0.0005
"""The assumed seconds from a lease to the sending of its request, and from an answer to the request
for the next lease. If these times are known from an earlier run, those are used instead. In 8,043
requests from the benchmark's five phases on 2 cores, the medians of the two times were 0.4 ms and
0.2 ms."""


@dataclass(frozen=True, slots=True)
class ModeOption:
    """A mode in which the cases could run.

    Attributes:
        policy: The mode's policy.
        assignment: The assignment of the cases; None if the mode cannot run them.
        refusal: Why the mode cannot run the cases; empty if it can.
        processes: The load on each key from the processes of the suite's original scripts. It may
            be empty; see `header.process_loads`.
    """

    mode: str
    policy: str
    assignment: Assignment | None
    refusal: str = ""
    processes: tuple[KeyLoad, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """The plan's prediction for a mode.

    Attributes:
        forecast: The forecast; None if the mode cannot run the cases.
        makespan_s: The makespan in the forecast. Its interval is computed from the load on the
            binding limits.
        limits: The load on each limit, the slowest limit first.
    """

    way: ModeOption
    forecast: Forecast | None = None
    makespan_s: Amount | None = None
    limits: tuple[LimitLoad, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The requests to one model, from its own cases or in one role. Fields are as in `RunPlan`."""

    model: str
    role: str
    n_cases: int
    calls: Amount
    tokens_in: Amount | None
    tokens_out: Amount | None
    service_s: Amount


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The plan of a run.

    Attributes:
        mode: The run's mode.
        calls: How many requests the run sends.
        tokens_in: The tokens of all prompts; None if they are unknown for any case.
        tokens_out: The tokens of all answers; None if they are unknown for any case.
        service_s: How many seconds all requests would take if they were sent one after another.
        bases: For each basis, the number of cases whose expectation has this basis.
        bound: The lower bound on the makespan, which is the same for all modes.
        predictions: The prediction for each mode.
        cost: The cost of the requests to models with a price. None if no model has a price, or if
            the tokens of any of these requests are unknown.
        unpriced: For each model, the price fields that the pool omits. Empty if the pool has no
            prices at all.
        currency: The currency of `cost`.
        budget: The budget of the whole run; None if there is no budget.
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
    currency: str
    budget: float | None

    @property
    def chosen(self) -> Prediction:
        """The prediction for the run's mode."""
        return next(one for one in self.predictions if one.way.mode == self.mode)


def make_plan(
    pool: Pool,
    lanes: Sequence[Lane],
    expected: Sequence[Expected],
    earlier: EarlierRun,
    ways: Sequence[ModeOption],
    *,
    mode: str,
) -> RunPlan:
    """Make the plan of a run.

    Args:
        pool: The pool as declared.
        lanes: All lanes of the run. Lanes of models that get no requests are ignored.
        expected: The expectations for the run's episodes (at least one), in the order in which the
            episodes are to begin. The expectation for an episode is followed by its requests to
            roles.
        earlier: The earlier run from which the expectations were made. It has no episodes if all
            expectations come from hints.
        ways: The modes to compare in the plan.
        mode: The run's mode, which must be one of the modes in `ways`.
    """
    services = by_key((one.model, each_s) for one in expected for each_s in one.services_s)
    lanes = [lane for lane in lanes if lane.model in services]
    bound = lower_bound(
        lanes,
        pool.limits.values(),
        request_classes(services),
        longest_s=max(_by_case(expected).values()),
    )
    predictions = tuple(_predict(pool, lanes, expected, earlier, way) for way in ways)
    chosen = next(one for one in predictions if one.way.mode == mode)
    loads = chosen.forecast.lanes if chosen.forecast is not None else {}
    price_of = prices(pool, lanes, loads)
    whole = _sums(expected, earlier)
    return RunPlan(
        mode,
        len(without_roles(expected)),
        *whole,
        tuple(
            ModelPlan(model, role, len(asked), *_sums(asked, earlier))
            for (model, role), asked in _by_model(expected).items()
        ),
        Counter(one.basis for one in without_roles(expected)),
        bound,
        predictions,
        cost(expected, earlier.episodes, price_of) if price_of else None,
        missing_prices(pool, services),
        pool.currency,
        pool.limits["pool"].budget if "pool" in pool.limits else None,
    )


def _by_model(expected: Sequence[Expected]) -> dict[tuple[str, str], list[Expected]]:
    """Group the expectations by model and role. Expectations without a role come first."""
    in_order = sorted(expected, key=lambda one: bool(one.role))
    return by_key(((one.model, one.role), one) for one in in_order)


def _by_case(expected: Sequence[Expected]) -> dict[str, float]:
    """Return the total service time of all requests in each case, in seconds."""
    found: dict[str, float] = defaultdict(float)
    for one in expected:
        found[one.case_id] += service_s(one)
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
    way: ModeOption,
) -> Prediction:
    if way.assignment is None:
        return Prediction(way)
    group_of = {case_id: group.name for group in way.assignment.groups for case_id in group.cases}
    seat_s = earlier.before_send_s if earlier.episodes else CLIENT_S
    # Include the moment between lease and sending, because a request occupies its seat from the
    # lease on.
    beside: dict[str, tuple[Step, ...]] = {}
    for one in expected:
        if one.role:
            beside[one.case_id] = beside.get(one.case_id, ()) + tuple(
                Step(one.model, seat_s + service, request_tokens(one) or 0)
                for service in one.services_s
            )
    courses = [
        ForecastEpisode(
            one.case_id,
            one.model,
            group_of.get(one.case_id, ""),
            tuple(seat_s + service for service in one.services_s),
            request_tokens(one) or 0,
            beside.get(one.case_id, ()),
        )
        for one in without_roles(expected)
    ]
    between_s = earlier.between_s if earlier.between_s is not None else CLIENT_S
    serial = way.mode in ONE_AT_A_TIME
    most_open = {"most_open": 1} if serial else {}
    found = forecast(pool, courses, way.assignment, between_s=between_s, **most_open)
    loads = limit_loads(lanes, pool.limits, found.lanes)
    binding = () if serial else longest(loads)
    makespan_s = _as_known(found.makespan_s, expected, earlier.episodes, lanes, binding)
    return Prediction(way, found, makespan_s, loads)


def _as_known(
    makespan_s: float,
    expected: Sequence[Expected],
    earlier: Sequence[EarlierEpisode],
    lanes: Sequence[Lane],
    binding: Sequence[LimitLoad],
) -> Amount:
    """Return a makespan with an interval that is computed from the load on the binding limits.

    If no limit binds, the interval is computed from the whole load. Any of the binding limits may
    turn out to be the slowest. So each limit has its own interval, and the result has the highest
    of the lower ends and the highest of the upper ends.
    """
    parts = {
        (
            frozenset(lane.model for lane in lanes if one.limit in lane.limits),
            LIMIT_KINDS[one.kind].is_rate,
        )
        for one in binding
    } or {(frozenset(lane.model for lane in lanes), False)}
    scaled = []
    for models, is_rate in parts:
        own = [one for one in expected if one.model in models]
        whole = amount(own, earlier, calls if is_rate else service_s)
        assert whole is not None
        scaled.append(whole.scaled(makespan_s))
    return Amount(makespan_s, max(one.low for one in scaled), max(one.high for one in scaled))
