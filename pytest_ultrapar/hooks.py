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

    Called once before collection, in the main thread of each process that needs the pool: the
    controller and the workers. Your function must return the same pool in all of them.
    """


def pytest_ultrapar_policies(config: pytest.Config, mode: str) -> Sequence[str] | None:
    """Return names of your own policies for --ultrapar-policy, in addition to the shipped ones.

    If a user passes an unknown name, the error message lists all known ones. Called before
    collection, in the main thread of every process, so pytest must load the conftest at startup. If
    you return a name, also implement `pytest_ultrapar_assign` for it. Mode `phase` follows the
    benchmark's own rules. So in this mode, only names that a hook returns for it can be used, and
    the first of them is the default.

    Args:
        config: pytest's configuration.
        mode: The mode in force: `serial`, `rotate`, `phase` or `ultra`.

    Returns:
        The names, each of which is one word. A name that takes an argument looks like `batch:N`.
        The run does not check the argument, so check it in `pytest_ultrapar_assign`. If that hook
        raises `ConfigError`, the run ends with exit code 4.
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

    Called once, in the main thread of the controller (of the pytest process without xdist), after
    collection and before the first request. The scheduler and the broker use the first result that
    is not None. The shipped policies (--ultrapar-policy) come last. This hook is not called in the
    modes `serial` and `rotate`, which have their own assignment. Your function may omit arguments
    that it does not use.

    Args:
        config: pytest's configuration. Use `getoption` to read options that a conftest declares.
        workers: The ids of the workers: `gw0`, `gw1` and so on, or only `main` without xdist.
        lanes: All lanes of the pool that serve one of the selected models.
        cases: All cases that are about to run, in pytest's order.
        pool: The whole pool, with its limits (see `pool.seats(lanes)`), and its models by provider.
        policy: The policy in force, such as `batch:3`: the user's choice or the default.
        mode: The mode in force: `phase` or `ultra`.
    """


@pytest.hookspec(firstresult=True)
def pytest_ultrapar_process(config: pytest.Config, case: Case) -> str | None:
    """Return the name of the process in which a suite's original scripts ran a case, or None.

    Called only if the assignment has groups, once for each case, in the main thread of the
    controller, before the first request. The header and the plan then show how many of these
    processes share each key.
    """


@pytest.hookspec(firstresult=True)
def pytest_ultrapar_prompt_types(config: pytest.Config) -> int | None:
    """Return the number of prompt types if the number of workers has to be multiplied by it.

    Called before collection, in the main thread of every process, unless the pool states the
    number.
    """


def pytest_ultrapar_data(config: pytest.Config) -> Mapping[str, str] | None:
    """Return facts about a suite's data by name, such as versions and digests of task files.

    Called once before collection, in the main thread of the controller. The manifest contains the
    results of all implementations. A run can be resumed or reused only if all these facts are still
    the same.
    """


def pytest_ultrapar_attempt(record: Attempt) -> None:
    """Receive one HTTP request of a case.

    Called once per attempt, in the main thread of the process that ran the case, when pytest
    reports the case's item.
    """


def pytest_ultrapar_case(record: Grade) -> None:
    """Receive the final record of a case.

    Called once per case, in the main thread of the process that ran it, after the item's teardown.
    If a plugin runs the test again, the hook is called again, and the last record counts.
    """


def pytest_ultrapar_figures(
    config: pytest.Config, rows: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Compute metrics of the whole run, such as F1, Elo or corpus BLEU.

    Called in the main thread of the controller when the tables are written, and when a run is
    regraded or merged. So pytest must load the conftest at startup. The summary, `report.md` and
    the HTML report show the figures, and a gate's rules call them `figure.NAME`. If an
    implementation raises an exception or returns anything other than figures, the run fails, but
    the tables are kept.

    Args:
        config: pytest's configuration.
        rows: The rows of `results`. Each row maps column names to values, and is read-only.

    Returns:
        The figures by name. Each is a finite number, `(value, low, high)` with bounds at 95 %, or a
        function that computes a number from rows. For a function, the bounds are computed by
        resampling the rows' clusters 200 times at random.
    """


def pytest_ultrapar_finish(run: FinishedRun) -> None:
    """Receive the finished run: its directory, counts and coverage.

    Called once, in the main thread of the controller, after the tables are written. If an
    implementation raises an exception, pytest reports an internal error (exit code 3), but the
    tables are kept.
    """
