"""The line at the start about workers without work."""

from __future__ import annotations

import pytest

from pytest_ultrapar.coordinator.header import idle_workers, most_in_flight


@pytest.mark.parametrize(
    ("n_workers", "seats", "n_cases", "said"),
    [
        (15, 10, 560, "15 workers for at most 10 requests in flight; -n 1"),
        (15, 465, 3, "15 workers for at most 3 requests in flight; -n 1"),
        (300, 250, 560, "300 workers for at most 250 requests in flight; -n 3"),
        (2, None, 1, "2 workers for at most 1 request in flight; -n 1"),
        (2, 1, 5, "2 workers for at most 1 request in flight; -n 1"),
        (15, 15, 560, None),
        (15, None, 15, None),
        (1, 1, 1, None),
    ],
)
def test_header_advises_fewer_workers_if_some_have_no_work(n_workers, seats, n_cases, said):
    found = list(idle_workers(n_workers, most_in_flight(seats, n_cases)))
    assert found == ([] if said is None else [f"{said} is as fast and starts sooner"])
