"""Joins engine and pytest in a process that runs cases.

Apart from what every process of a run does: a controller sends no request, so it need not import
the engine and its HTTP client, 0.17 s that all its workers would wait for.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_ultrapar import process
from pytest_ultrapar.clock import MonotonicClock
from pytest_ultrapar.engine.descriptors import connections_allowed
from pytest_ultrapar.engine.engine import SPARE_CONNECTIONS, EngineSettings
from pytest_ultrapar.engine.retry import RetryPolicy
from pytest_ultrapar.engine.token_estimate import TokenEstimates
from pytest_ultrapar.lane_endpoints import lane_endpoints
from pytest_ultrapar.runtime import Runtime
from pytest_ultrapar.suite.ahead import RunAhead

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    import pytest

    from pytest_ultrapar.lanes.protocol import BrokerPort
    from pytest_ultrapar.suite.collection import Collected

_MOST_OPEN = 1000
"""Episodes open at once in one process where no limit says less."""

_LONGEST_FAILURE = 300
"""Characters that are kept of what a server says of a failure."""


def start(
    config: pytest.Config,
    *,
    items: Sequence[pytest.Item],
    collected: Collected,
    directory: Path,
    worker: str,
    base_urls: Mapping[str, str],
    connect: Callable[[], Awaitable[BrokerPort]],
    alone: bool = False,
) -> tuple[Runtime, RunAhead]:
    """Put together what runs cases in this process; nothing is sent before the first case is put.

    Raises:
        ConfigError: A key's environment variable is not set.
        ResultsError: The journal cannot be written.
    """
    options, pool = process.settings(config)
    found = lane_endpoints(pool, base_urls)
    runtime = Runtime(
        config=config,
        options=options,
        directory=directory,
        worker=worker,
        redactor=process.redactor(pool),
    )
    seats = pool.seats(pool.lanes)
    # Twice the seats: episodes between two requests hold none.
    most_open = min(_MOST_OPEN, 2 * seats + 16) if seats is not None else _MOST_OPEN
    most_open = max(1, connections_allowed(most_open + SPARE_CONNECTIONS) - SPARE_CONNECTIONS)
    engine_settings = EngineSettings(
        worker=worker,
        connect=connect,
        endpoints=found,
        retry=RetryPolicy(options.max_attempts),
        episode_timeout_s=options.episode_timeout_s,
        most_open=most_open,
        clock=MonotonicClock(),
        watch=runtime.debug_log,
        tokens=TokenEstimates.of(pool),
        shown=partial(runtime.redactor.short, most=_LONGEST_FAILURE),
    )
    return runtime, RunAhead(items, collected, runtime, engine_settings, alone=alone)
