"""Find parts of a pool and its settings that a run cannot use, or that contradict each other."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.plan.load import resources
from pytest_ultrapar.records import by_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_ultrapar.pool.model import Lane, Pool


_ROUNDING = 1e-9


class Service(msgspec.Struct, frozen=True):
    """How long requests to a model take.

    Attributes:
        mean_s: How long they take on average, in seconds, >= 0.
        is_assumed: Whether the mean was neither measured nor set. If so, nothing is refused because
            of this mean.
    """

    mean_s: float
    is_assumed: bool = False


class SeatUse(msgspec.Struct, frozen=True):
    """The seats of the lanes to which a limit applies, if rates also apply to these lanes.

    Attributes:
        limits: The names of all limits whose lanes have these figures.
        seats: How many seats these lanes have under the limits that do not apply to other lanes.
        rate: How many requests per second the rates allow on these lanes together.
        service: The service of the slowest model on these lanes: the model with the longest mean.
    """

    limits: tuple[str, ...]
    seats: int
    rate: float
    service: Service

    @property
    def busy(self) -> float:
        """The largest number of seats that the rate can keep busy on average."""
        return self.rate * self.service.mean_s

    @property
    def useful(self) -> int:
        """`busy` rounded up to whole seats, >= 1."""
        return max(1, math.ceil(self.busy - _ROUNDING))

    @property
    def ratio(self) -> float:
        """How many seats there are for each useful seat."""
        return self.seats / self.useful

    @property
    def where(self) -> str:
        """The name of the first limit, and how many other limits have the same figures."""
        more = f" and {len(self.limits) - 1} like it" if len(self.limits) > 1 else ""
        return f"{self.limits[0]}{more}"


def seat_uses(
    pool: Pool, lanes: Sequence[Lane], services: Mapping[str, Service]
) -> tuple[SeatUse, ...]:
    """Return the use of seats for each limit whose lanes have both seats and rates.

    Limits with the most lanes come first.

    Args:
        pool: The pool with the limits.
        lanes: All lanes of the run.
        services: How long requests take, for each model on the lanes.
    """
    lanes_of = by_key((name, lane) for lane in lanes for name in lane.limits)
    numbered = {part.limit for part in resources(pool.limits.values())}
    rates = _rates(pool)
    found: dict[tuple[int, float, Service], list[str]] = {}
    for name, own in sorted(lanes_of.items(), key=lambda one: -len(one[1])):
        if name not in numbered:
            continue
        # Skip limits that also apply to other lanes: 500 seats of a whole pool are not 500 seats of
        # each key.
        alone = Counter(limit for lane in own for limit in lane.limits)
        caps = {
            limit: float(workers)
            for limit, n in alone.items()
            if (workers := pool.limits[limit].workers) is not None and n == len(lanes_of[limit])
        }
        seats, rate = pool.most(own, caps), pool.most(own, rates)
        slowest = max((services[lane.model] for lane in own), key=lambda one: one.mean_s)
        if math.isfinite(seats) and math.isfinite(rate) and slowest.mean_s > 0:
            found.setdefault((round(seats), rate, slowest), []).append(name)
    return tuple(SeatUse(tuple(names), *key) for key, names in found.items())


def _rates(pool: Pool) -> dict[str, float]:
    """Return how many requests per second each limit with a rate allows."""
    rates: dict[str, float] = {}
    for part in resources(pool.limits.values()):
        if part.is_rate:
            rates[part.limit] = min(rates.get(part.limit, math.inf), part.per_s)
    return rates


WASTE_ABOVE = 3.0
"""If there are more seats than this for each seat that the rates can keep busy, seats are wasted.
The keys in the quick start have 1.7 seats for each busy seat, and need all of them."""
_SHOWN = 3


def waste(pool: Pool, lanes: Sequence[Lane], services: Mapping[str, Service]) -> tuple[str, ...]:
    """Return a sentence for each limit with many more seats than its rates can keep busy.

    Args:
        pool: The pool of the run.
        lanes: All lanes of the run.
        services: How long the requests to each model take.
    """
    return tuple(
        f"{use.where}: at {use.rate:.6g} requests/s and {use.service.mean_s:.3g} s each"
        f"{' (assumed; set latency_hint_s)' if use.service.is_assumed else ''}, only about "
        f"{use.useful} of {use.seats} workers "
        f"{'is' if use.useful == 1 else 'are'} busy; {WASTE_ABOVE * use.useful:g} are enough"
        for use in seat_uses(pool, lanes, services)
        if use.ratio > WASTE_ABOVE
    )


def more_seats_than_cases(
    pool: Pool, lanes: Sequence[Lane], n_cases: Mapping[str, int]
) -> Iterator[str]:
    """Yield a sentence if any model has more seats than cases.

    Only a plan prints this sentence, not a run. A short run may also have fewer cases than seats,
    but then the pool need not be changed.

    Args:
        pool: The pool of the run.
        lanes: All lanes of the run.
        n_cases: The number of cases to run, by model.
    """
    over = []
    for model, n in n_cases.items():
        seats = pool.seats([lane for lane in lanes if lane.model == model])
        if seats is not None and seats > n:
            over.append((seats, n, model))
    if over:
        over.sort(key=lambda one: one[1] - one[0])
        shown = ", ".join(
            f"{model} has {seats} seats for {n} {'case' if n == 1 else 'cases'}"
            for seats, n, model in over[:_SHOWN]
        )
        n_more = len(over) - _SHOWN
        more = f"; {n_more} more model{'s' if n_more > 1 else ''} as well" if n_more > 0 else ""
        yield (
            f"more seats than cases (a case uses one seat at a time): {shown}{more}; reduce "
            "workers, or add cases (--ultrapar-repeats)"
        )
