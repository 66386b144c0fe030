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
    """Give the pool instead of the file that --ultrapar-pool names.

    Called once in every process that needs the pool (controller and workers, main thread), before
    collection. It must return the same pool everywhere.
    """


def pytest_ultrapar_policies(config: pytest.Config, mode: str) -> Sequence[str] | None:
    """Offer words for --ultrapar-policy, beside the shipped ones; an unknown word lists them all.

    Called in every process, main thread, before collection, so the conftest must be one that pytest
    loads at its start. Whoever offers a word answers `pytest_ultrapar_assign` when that is the
    policy. In mode `phase`, whose rules are the benchmark's own, only words that are offered for it
    can be used; the first is its default.

    Args:
        config: pytest's.
        mode: The mode in force: `serial`, `rotate`, `phase` or `ultra`.

    Returns:
        Names, each one word; one that takes an argument looks like `batch:N`, and the argument is
        then the offerer's to check (`ConfigError` ends the run with exit code 4).
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
    """Say which lanes each worker prefers, and which cases run together.

    Called once, in the controller (without xdist: in the pytest process), main thread, after
    collection and before the first request. The first result that is not None is carried out by
    scheduler and broker; the shipped policies (--ultrapar-policy) come last. Not called in the
    modes `serial` and `rotate`, which are assignments themselves. An implementation names only the
    arguments that it uses.

    Args:
        config: pytest's; options of a conftest's own are read with `getoption`.
        workers: Worker ids, `gw0`, `gw1`, ...; without xdist `main` alone.
        lanes: All lanes of the pool that serve one of the selected models.
        cases: All cases that are going to run, in pytest's order.
        pool: The whole pool: its limits (`pool.seats(lanes)`), and its models by provider.
        policy: The policy in force, given or default: `even`, `batch:3`, ...
        mode: The mode in force: `phase` or `ultra`.
    """


@pytest.hookspec(firstresult=True)
def pytest_ultrapar_process(config: pytest.Config, case: Case) -> str | None:
    """Name the process in which the scripts that ran a suite before ran a case, if any did.

    Called in the controller, main thread, before the first request, for each case, where the
    assignment has groups. The header and the plan then say how many of these processes meet on each
    key.
    """


@pytest.hookspec(firstresult=True)
def pytest_ultrapar_prompt_types(config: pytest.Config) -> int | None:
    """Count the prompt types that the run selects, where workers are multiplied by them.

    Called in every process, main thread, before collection; not where the pool says the number.
    """


def pytest_ultrapar_data(config: pytest.Config) -> Mapping[str, str] | None:
    """Say what a suite's data are, by name: digests of task files, versions of a domain.

    Called once in the controller, main thread, before collection. What all implementations say is
    recorded in the manifest; a run is resumed or reused only where it is the same.
    """


def pytest_ultrapar_attempt(record: Attempt) -> None:
    """See one HTTP request of a case.

    Called in the process that ran it, main thread, when the case's item is reported; once per
    attempt.
    """


def pytest_ultrapar_case(record: Grade) -> None:
    """See a case's final word.

    Called in the process that ran it, main thread, after the item's teardown; once per case, and
    once more each time that a plugin runs its test again: the last record counts.
    """


def pytest_ultrapar_figures(
    config: pytest.Config, rows: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Compute figures of the whole run, such as F1, Elo or corpus BLEU.

    Called in the controller, main thread, when the tables are written, and where a run is graded
    again or merged; so the conftest must be one that pytest loads at its start. All that
    implementations return stands in summary, report and page, and rules of a gate name it
    `figure.NAME`. One that raises, or returns what is no figure, fails the run; the tables stay.

    Args:
        config: pytest's.
        rows: Those of `results`, by column; they cannot be changed.

    Returns:
        By name: a finite number, `(value, low, high)` with bounds at 95 %, or a function of rows
        that returns a number. Of a function, bounds are found by drawing the clusters of the rows
        200 times anew.
    """


def pytest_ultrapar_finish(run: FinishedRun) -> None:
    """See the finished run: its directory, counts and coverage.

    Called once, in the controller, main thread, after the tables are written. What it raises is an
    internal error of pytest (exit code 3); the tables stay as they are.
    """
