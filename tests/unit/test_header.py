"""What the first lines say of workers that will have nothing to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_ultrapar.leading.header import _idle_workers
from pytest_ultrapar.pool.config import load_pool
from pytest_ultrapar.pool.environment import Overrides

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("n_workers", "seats", "n_cases", "said"),
    [
        (15, 10, 560, "15 workers for 10 seats; -n 1 would be as fast and start sooner"),
        (15, 465, 3, "15 workers for 3 cases; -n 1 would be as fast and start sooner"),
        (300, 250, 560, "300 workers for 250 seats; -n 3 would be as fast and start sooner"),
        (2, None, 1, "2 workers for 1 case; -n 1 would be as fast and start sooner"),
        (2, 1, 5, "2 workers for 1 seat; -n 1 would be as fast and start sooner"),
        (15, 15, 560, None),
        (15, None, 15, None),
        (1, 1, 1, None),
    ],
)
def test_workers_are_too_many_where_some_will_have_nothing_to_do(n_workers, seats, n_cases, said):
    assert list(_idle_workers(n_workers, seats, n_cases)) == ([] if said is None else [said])


def test_readmes_first_command_is_not_told_off():
    pool = load_pool(ROOT / "pool.toml", environ=os.environ, overrides=Overrides())
    assert "pytest bench_suites/phase53 -n 15 --ultrapar-pool pool.toml" in (
        ROOT / "README.md"
    ).read_text(encoding="utf-8")
    assert list(_idle_workers(15, pool.seats(pool.lanes), 560)) == []
    assert list(_idle_workers(15, pool.seats(pool.lanes_of("qwen2.5-72b-instruct")), 70)) == []
