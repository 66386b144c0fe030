"""What pytest-xdist itself costs: tests that sleep as long as an answer takes.

It imports what a worker that runs cases imports. Run without a pool and with `-n`;
`python -m benchmarks.overhead small` compares.
"""

from __future__ import annotations

import time

import pytest
import uvloop

from pytest_ultrapar.session import prefetcher
from pytest_ultrapar.workers import worker

IMPORTED_BY_WORKERS = (prefetcher, uvloop, worker)
LATENCY_S = 0.1
"""As in `pools/overhead-small.toml`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many items as asked for."""
    metafunc.parametrize("number", range(metafunc.config.getoption("--overhead-cases")))


def test_sleeping(number: int) -> None:
    """Wait as for an answer."""
    time.sleep(LATENCY_S)
    assert number >= 0
