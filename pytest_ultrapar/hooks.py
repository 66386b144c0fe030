"""The hooks that suites, conftests and other plugins can implement."""

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

    Called before collection, in the main thread of every process. If a conftest implements this
    hook, it must therefore be one that pytest loads at startup. Also implement
    `pytest_ultrapar_assign` for every name that you return. If a user passes an unknown name, the
    error message lists all known names.

    Mode `phase` follows the benchmark's own rules and has no shipped policies. In this mode, only
    names that an implementation returns for `phase` can be used, and the first one is the default.

    Args:
        config: pytest's configuration.
        mode: The mode in force: `serial`, `rotate`, `phase` or `ultra`.

    Returns:
        The names, each of which is one word. If a policy takes an argument, write its name like
        `batch:N`. The run does not check the argument, so check it in `pytest_ultrapar_assign`. If
        your implementation raises `ConfigError`, the run ends with exit code 4.
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

    Called once, after collection and before the first request, in the main thread of the controller
    (without xdist: in the pytest process). The scheduler and the broker use the first result that
    is not None. The implementation for the shipped policies (--ultrapar-policy) is called last. The
    modes `serial` and `rotate` assign cases by themselves, and do not call this hook. Your function
    may omit arguments that it does not use.

    Args:
        config: pytest's configuration. Use `getoption` to read options that a conftest declares.
        workers: The ids of the workers: `gw0`, `gw1` and so on, or only `main` without xdist.
        lanes: All lanes in the pool that serve one of the selected models.
        cases: All cases that are about to run, in pytest's order.
        pool: The whole pool, with its limits (see `pool.seats(lanes)`) and its models by provider.
        policy: The policy that the user chose, such as `batch:3`, or the default policy.
        mode: The mode in force: `phase` or `ultra`.
    """


@pytest.hookspec(firstresult=True)
def pytest_ultrapar_process(config: pytest.Config, case: Case) -> str | None:
    """Return the name of the process in which a suite's original scripts ran a case, or None.

    Called in the main thread of the controller, before the first request: once for each case if the
    assignment has groups, otherwise never. The header and the plan then show how many of these
    processes share each key.
    """


@pytest.hookspec(firstresult=True)
def pytest_ultrapar_prompt_types(config: pytest.Config) -> int | None:
    """Return the number of prompt types that the run selects; None means 1.

    For models with `multiply_by_prompt_types`, the pool's `workers` are multiplied by this number.
    The hook is called before collection, in the main thread of every process. It is not called if
    the pool states the number, or if the pool has no such model.
    """


def pytest_ultrapar_data(config: pytest.Config) -> Mapping[str, str] | None:
    """Return named facts about a suite's data, such as versions and digests of task files.

    Called once before collection, in the main thread of the controller. The manifest contains the
    facts from all implementations. A run can be resumed or reused only if these facts are all still
    the same.
    """


def pytest_ultrapar_attempt(record: Attempt) -> None:
    """Receive the record of one HTTP request of a case.

    Called once per attempt, in the main thread of the process that ran the case, after the item's
    teardown.
    """


def pytest_ultrapar_case(record: Grade) -> None:
    """Receive the final record of a case.

    Called once per case, in the main thread of the process that ran it, after the item's teardown.
    If a plugin runs the test again, the hook is called again, and the last record counts.
    """


def pytest_ultrapar_figures(
    config: pytest.Config, rows: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Compute metrics over the whole run, such as F1, Elo or corpus BLEU.

    Called in the main thread of the controller when the tables are written, and when a run is
    regraded or merged. If a conftest implements this hook, it must therefore be one that pytest
    loads at startup. The summary, `report.md` and the HTML report show the figures. The rules of a
    gate refer to them as `figure.NAME`. If an implementation raises an exception or returns
    anything other than figures, the run fails, but the tables are kept.

    Args:
        config: pytest's configuration.
        rows: The rows of the table `results`. Each row maps column names to values, and is
            read-only.

    Returns:
        The figures by name. Each is a finite number, `(value, low, high)` with the bounds of its
        95 % interval, or a function that computes a number from rows. For a function, the bounds
        are computed from 200 random resamples of the rows' case clusters.
    """


def pytest_ultrapar_finish(run: FinishedRun) -> None:
    """Receive the finished run: its directory, counts and coverage.

    Called once, in the main thread of the controller, after the tables are written. If an
    implementation raises an exception, pytest reports an internal error (exit code 3), but the
    tables are kept.
    """
