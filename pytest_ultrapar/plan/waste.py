"""What of a pool and its settings is of no use for a run: plans and headers warn about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.plan.busy_seats import lanes_by_limit, limited_lanes, own_seats, seat_uses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_ultrapar.plan.busy_seats import Service
    from pytest_ultrapar.pool.model import Lane, Pool

WASTE_ABOVE = 3.0
"""Seats for each one that rates keep busy: the quick start's keys have 1.7, and need them."""

_SHOWN = 3
_CEILINGS = ("pool", "provider")


def waste(
    pool: Pool,
    lanes: Sequence[Lane],
    n_cases: Mapping[str, int],
    services: Mapping[str, Service],
) -> tuple[str, ...]:
    """A sentence for each kind of waste.

    Args:
        pool: What is to be run on.
        lanes: All of the run.
        n_cases: By model, how many cases are going to run.
        services: Of each model.
    """
    return (
        *_more_seats_than_cases(pool, lanes, n_cases),
        *_more_workers_than_servers_use(pool, lanes),
        *(
            f"{use}; more than {WASTE_ABOVE * use.useful:g} ({WASTE_ABOVE:g} times that) are wasted"
            for use in seat_uses(pool, lanes, services)
            if use.ratio > WASTE_ABOVE
        ),
    )


def _more_seats_than_cases(
    pool: Pool, lanes: Sequence[Lane], n_cases: Mapping[str, int]
) -> Iterator[str]:
    own: dict[str, list[Lane]] = {}
    for lane in lanes:
        own.setdefault(lane.model, []).append(lane)
    over = []
    for model, n in n_cases.items():
        seats = pool.seats(tuple(own[model]))
        if seats is not None and seats > n:
            over.append((seats, n, model))
    if over:
        over.sort(key=lambda one: one[1] - one[0])
        shown = ", ".join(
            f"{model} has {seats} seats for {n} {'case' if n == 1 else 'cases'}"
            for seats, n, model in over[:_SHOWN]
        )
        more = f" and {len(over) - _SHOWN} more models have such" if len(over) > _SHOWN else ""
        yield (
            f"seats that nobody takes, a case having one request in flight: {shown}{more}; "
            "lower workers, or add cases (--ultrapar-repeats)"
        )


def _more_workers_than_servers_use(pool: Pool, lanes: Sequence[Lane]) -> Iterator[str]:
    n_bound = lanes_by_limit(lanes)
    for name, own in limited_lanes(pool, lanes).items():
        limit = pool.limits[name]
        if limit.level not in _CEILINGS or limit.workers is None:
            continue
        below = own_seats(pool, n_bound, own, without=name)
        if below is not None and limit.workers > below:
            yield (
                f"{name}: {limit.workers} workers, but its servers and keys take "
                f"{below} {'request' if below == 1 else 'requests'} at once; {below} would do"
            )
