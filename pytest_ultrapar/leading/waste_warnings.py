"""What headers and plans warn of: parts of a pool, and workers, that a run has no use for.

Only in modes that would use them: one that has a single case under way leaves seats and workers
empty on purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.plan.waste import waste
from pytest_ultrapar.policy_names import ONE_AT_A_TIME
from pytest_ultrapar.report.numbers import counted
from pytest_ultrapar.xdist_options import enough_workers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_ultrapar.plan.busy_seats import Service
    from pytest_ultrapar.pool.model import Lane, Pool


def waste_of_pool(
    pool: Pool,
    lanes: Sequence[Lane],
    n_cases: Mapping[str, int],
    services: Mapping[str, Service],
    *,
    mode: str,
) -> tuple[str, ...]:
    """A sentence for each kind of waste; see `plan.waste.waste`."""
    return waste(pool, lanes, n_cases, services) if mode not in ONE_AT_A_TIME else ()


def most_in_flight(seats: int | None, n_cases: int) -> int:
    """How many requests seats (None: unlimited) and cases allow, a case having one in flight."""
    return n_cases if seats is None else min(seats, n_cases)


def idle_workers(n_workers: int, most: int, *, mode: str) -> Iterator[str]:
    """A sentence where some workers will have nothing to do.

    Args:
        n_workers: Processes that run tests.
        most: Requests that can be in flight.
        mode: The mode in force.
    """
    if n_workers > most and mode not in ONE_AT_A_TIME:
        yield (
            f"{n_workers} workers for {counted(most, 'request')} in flight at most; "
            f"-n {enough_workers(most, n_workers)} would be as fast and start sooner"
        )
