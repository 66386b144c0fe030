"""What of a pool and its settings is of no use for a run, and what is inconsistent."""

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
    """How long a model's requests take.

    Attributes:
        mean_s: Seconds, >= 0.
        is_assumed: Whether nobody measured or said so; nothing is refused on its ground.
    """

    mean_s: float
    is_assumed: bool = False


class SeatUse(msgspec.Struct, frozen=True):
    """Seats of a limit's lanes that rates bound as well.

    Attributes:
        limits: Names of the limits of which all of this is true.
        seats: What the limits of these lanes alone allow in flight.
        rate: Requests per second that their rates let pass.
        service: The longest mean service among their models.
    """

    limits: tuple[str, ...]
    seats: int
    rate: float
    service: Service

    @property
    def busy(self) -> float:
        """Seats busy on average, at most."""
        return self.rate * self.service.mean_s

    @property
    def useful(self) -> int:
        """The same in whole seats, >= 1."""
        return max(1, math.ceil(self.busy - _ROUNDING))

    @property
    def ratio(self) -> float:
        """Seats for each useful one."""
        return self.seats / self.useful

    @property
    def where(self) -> str:
        """The first of its limits, and how many are alike."""
        more = f" and {len(self.limits) - 1} like it" if len(self.limits) > 1 else ""
        return f"{self.limits[0]}{more}"


def seat_uses(
    pool: Pool, lanes: Sequence[Lane], services: Mapping[str, Service]
) -> tuple[SeatUse, ...]:
    """All limits whose lanes are bounded by seats and by rates, the widest first.

    Args:
        pool: For its limits.
        lanes: All of the run.
        services: Of each model of the lanes.
    """
    lanes_of = by_key((name, lane) for lane in lanes for name in lane.limits)
    numbered = {part.limit for part in resources(pool.limits.values())}
    rates = _rates(pool)
    found: dict[tuple[int, float, Service], list[str]] = {}
    for name, own in sorted(lanes_of.items(), key=lambda one: -len(one[1])):
        if name not in numbered:
            continue
        # Limits that bind other lanes, too, say nothing of these: 500 seats over a whole pool are
        # not 500 seats on one of its keys.
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
    """Requests per second that each limit lets pass, where it bounds them."""
    rates: dict[str, float] = {}
    for part in resources(pool.limits.values()):
        if part.is_rate:
            rates[part.limit] = min(rates.get(part.limit, math.inf), part.per_s)
    return rates


WASTE_ABOVE = 3.0
"""Seats for each one that rates keep busy: the quick start's keys have 1.7, and need them."""
_SHOWN = 3


def waste(pool: Pool, lanes: Sequence[Lane], services: Mapping[str, Service]) -> tuple[str, ...]:
    """A sentence for each limit whose rates keep few of its seats busy.

    Args:
        pool: What is to be run on.
        lanes: All of the run.
        services: Of each model.
    """
    return tuple(
        f"{use.where}: at {use.rate:.6g} requests/s and {use.service.mean_s:.3g} s each"
        f"{' (assumed; set latency_hint_s)' if use.service.is_assumed else ''} only about "
        f"{use.useful} of {use.seats} workers "
        f"{'is' if use.useful == 1 else 'are'} busy; {WASTE_ABOVE * use.useful:g} are plenty"
        for use in seat_uses(pool, lanes, services)
        if use.ratio > WASTE_ABOVE
    )


def more_seats_than_cases(
    pool: Pool, lanes: Sequence[Lane], n_cases: Mapping[str, int]
) -> Iterator[str]:
    """A sentence where models have seats that none of their cases will use.

    A plan says so. A run does not: a short one has fewer cases, and nobody changes the pool for it.

    Args:
        pool: What is to be run on.
        lanes: All of the run.
        n_cases: By model, how many cases are going to run.
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
        more = f"; likewise {n_more} more model{'s' if n_more > 1 else ''}" if n_more > 0 else ""
        yield (
            f"more seats than cases (a case uses one at a time): {shown}{more}; "
            "lower workers, or add cases (--ultrapar-repeats)"
        )
