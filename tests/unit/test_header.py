"""What the first lines say of workers that will have nothing to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_ultrapar.coordinator.header import idle_workers, most_in_flight
from pytest_ultrapar.pool.config import load_pool
from pytest_ultrapar.pool.environment import Overrides

ROOT = Path(__file__).parents[2]


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
    found = list(idle_workers(n_workers, most_in_flight(seats, n_cases), mode="ultra"))
    assert found == ([] if said is None else [f"{said} would be as fast and start sooner"])


def test_readmes_first_command_is_not_told_off():
    pool = load_pool(ROOT / "pool.toml", environ=os.environ, overrides=Overrides())
    assert "pytest bench_suites/phase53 -n 15 --ultrapar-pool pool.toml" in (
        ROOT / "README.md"
    ).read_text(encoding="utf-8")
    assert list(idle_workers(15, most_in_flight(pool.seats(pool.lanes), 560), mode="ultra")) == []
    seats = pool.seats(pool.lanes_of("qwen2.5-72b-instruct"))
    assert list(idle_workers(15, most_in_flight(seats, 70), mode="ultra")) == []
