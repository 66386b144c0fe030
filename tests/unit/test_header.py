"""What the first lines say of workers that will have nothing to do."""

from __future__ import annotations

import pytest

from pytest_ultrapar.coordinator.header import idle_workers, most_in_flight


@pytest.mark.parametrize(
    ("n_workers", "seats", "n_cases", "said"),
    [
        (15, 10, 560, "15 workers for 10 requests in flight at most; -n 1"),
        (15, 465, 3, "15 workers for 3 requests in flight at most; -n 1"),
        (300, 250, 560, "300 workers for 250 requests in flight at most; -n 3"),
        (2, None, 1, "2 workers for 1 request in flight at most; -n 1"),
        (2, 1, 5, "2 workers for 1 request in flight at most; -n 1"),
        (15, 15, 560, None),
        (15, None, 15, None),
        (1, 1, 1, None),
    ],
)
def test_workers_are_too_many_where_some_will_have_nothing_to_do(n_workers, seats, n_cases, said):
    found = list(idle_workers(n_workers, most_in_flight(seats, n_cases)))
    assert found == ([] if said is None else [f"{said} is as fast and starts sooner"])
