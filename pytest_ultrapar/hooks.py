"""The hooks that suites, conftests and other plugins may implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.broker.assignment import Assignment
    from pytest_ultrapar.coordinator.finish import FinishedRun
    from pytest_ultrapar.pool.model import Lane, Pool
    from pytest_ultrapar.records import Attempt, Case, Grade


@pytest.hookspec(firstresult=True)
def pytest_ultrapar_pool(config: pytest.Config) -> Pool | None:
    """Return the pool to use instead of the file that --ultrapar-pool names.

    Called once before collection, in the main thread of every process that needs the pool (the
    controller and the workers). It must return the same pool everywhere.
    """


def pytest_ultrapar_policies(config: pytest.Config, mode: str) -> Sequence[str] | None:
    """Return names for --ultrapar-policy, in addition to the shipped ones.

    The error for an unknown name lists all of them. Called before collection, in the main thread of
    every process, so pytest must load the conftest at startup. If you return a name, also implement
    `pytest_ultrapar_assign` for it. Mode `phase` follows the benchmark's own rules: only names that
    a hook returns for this mode can be used, and the first is the default.

    Args:
        config: pytest's.
        mode: The mode in force: `serial`, `rotate`, `phase` or `ultra`.

    Returns:
        Names, each one word. A name that takes an argument looks like `batch:N`; the hook that
        returned it checks the argument (`ConfigError` ends the run with exit code 4).
    """


@pytest.hookspec(firstresult=True)
def pytest_ultrapar_assign(  # noqa: PLR0917 - pluggy passes them by name
    config: pytest.Config,
    workers: Sequence[str],
    lanes: Sequence[Lane],
    cases: Sequence[Case],
    pool: Pool,
    policy: str,
    mode: str,
) -> Assignment | None:
    """Return the lanes that each worker prefers, and the cases that run together.

    Called once, in the main thread of the controller (without xdist: of the pytest process), after
    collection and before the first request. The scheduler and the broker follow the first result
    that is not None; the shipped policies (--ultrapar-policy) come last. Not called in modes
    `serial` and `rotate`, which define their own assignment. Your function may omit arguments that
    it does not use.

    Args:
        config: pytest's; read a conftest's own options with `getoption`.
        workers: Worker ids, `gw0`, `gw1`, ...; without xdist only `main`.
        lanes: All lanes of the pool that serve one of the selected models.
        cases: All cases that are about to run, in pytest's order.
        pool: The whole pool: its limits (`pool.seats(lanes)`), and its models by provider.
        policy: The policy in force, given or by default: `even`, `batch:3`, ...
        mode: The mode in force: `phase` or `ultra`.
    """


@pytest.hookspec(firstresult=True)
def pytest_ultrapar_process(config: pytest.Config, case: Case) -> str | None:
    """Return the process in which a suite's original scripts ran a case, or None.

    Called only if the assignment has groups: for each case, in the main thread of the controller,
    before the first request. The header and the plan then show how many of these processes share
    each key.
    """


@pytest.hookspec(firstresult=True)
def pytest_ultrapar_prompt_types(config: pytest.Config) -> int | None:
    """Return the number of prompt types, if the run's number of workers is multiplied by it.

    Called before collection, in the main thread of every process; not called if the pool states the
    number.
    """


def pytest_ultrapar_data(config: pytest.Config) -> Mapping[str, str] | None:
    """Return facts about a suite's data by name: digests of task files, versions of a domain.

    Called once before collection, in the main thread of the controller. The manifest records the
    results of all implementations. A run can be resumed or reused only if these facts are equal.
    """


def pytest_ultrapar_attempt(record: Attempt) -> None:
    """Receive one HTTP request of a case.

    Called once per attempt, in the main thread of the process that ran the case, when the case's
    item is reported.
    """


def pytest_ultrapar_case(record: Grade) -> None:
    """Receive the final record of a case.

    Called once per case, in the main thread of the process that ran it, after the item's teardown.
    If a plugin runs the test again, the hook is called again. The last record counts.
    """


def pytest_ultrapar_figures(
    config: pytest.Config, rows: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Compute metrics of the whole run, such as F1, Elo or corpus BLEU.

    Called in the main thread of the controller when the tables are written, and when a run is
    regraded or merged. So pytest must load the conftest at startup. The summary, `report.md` and
    the HTML report show the figures, and a gate's rules call them `figure.NAME`. The run fails if
    an implementation raises an exception or returns anything other than figures. The tables are
    kept.

    Args:
        config: pytest's.
        rows: The rows of `results`, by column; read-only.

    Returns:
        By name: a finite number, `(value, low, high)` with bounds at 95 %, or a function of rows
        that returns a number. For a function, the bounds are computed from 200 random resamples of
        the rows' clusters.
    """


def pytest_ultrapar_finish(run: FinishedRun) -> None:
    """Receive the finished run: its directory, counts and coverage.

    Called once, in the main thread of the controller, after the tables are written. If an
    implementation raises an exception, pytest reports an internal error (exit code 3); the tables
    are kept.
    """
