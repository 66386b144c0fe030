"""What every process of a run does: read settings, load the pool, find the cases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from pytest_ultrapar.options import pool_path
from pytest_ultrapar.pool.config import load_pool
from pytest_ultrapar.pool.model import Lane, Pool
from pytest_ultrapar.pool.route import check_routes, route_secrets
from pytest_ultrapar.pool.secret import check_secrets
from pytest_ultrapar.results.redact import Redactor
from pytest_ultrapar.results.taken_file import Taken
from pytest_ultrapar.settings import Options, read_options, read_overrides, selected_models
from pytest_ultrapar.suite.collection import Collected, collect_cases
from pytest_ultrapar.suite.taken import Question, read_reused
from pytest_ultrapar.worker_input import INPUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_ultrapar.records import Case

_SHOWN = 5

mark_faults_key = pytest.StashKey[list[str]]()
"""What is wrong with marks, noted while tests are generated."""
_settings_key = pytest.StashKey[tuple[Options, Pool]]()
reused_key = pytest.StashKey[dict[Question, str]]()
"""Questions that an earlier run answered, and the ids of the cases that did; in the process that
leads, workers read them."""
taken_key = pytest.StashKey[list[Taken]]()
"""What suites took instead of asking it, noted when cases are deselected."""


def settings(config: pytest.Config) -> tuple[Options, Pool]:
    """Options and pool of this process, read once.

    Raises:
        ConfigError: Either cannot be used.
    """
    found = config.stash.get(_settings_key, None)
    if found is None:
        pool = config.hook.pytest_ultrapar_pool(config=config)
        if pool is None:
            path = pool_path(config)
            assert path is not None
            pool = load_pool(path, environ=os.environ, overrides=read_overrides(config))
        options = read_options(config, pool)
        found = config.stash[_settings_key] = (options, pool)
    return found


def models(config: pytest.Config) -> tuple[str, ...]:
    """The selected models, in the pool's order."""
    options, pool = settings(config)
    return selected_models(pool, options.models)


def lanes(config: pytest.Config) -> tuple[Lane, ...]:
    """Lanes that serve one of the selected models, in the pool's order."""
    selected = set(models(config))
    return tuple(lane for lane in settings(config)[1].lanes if lane.model in selected)


def redactor(pool: Pool) -> Redactor:
    """Knows the secrets of all keys of the pool, also of those that this run does not need."""
    named = {key.env for provider in pool.providers for key in provider.keys if key.env}
    # As they are sent (`read_secrets` strips them), and as they stand there.
    values = {os.environ[name] for name in named if os.environ.get(name)}
    keys = {value.strip() for value in values} | values
    return Redactor({key for key in keys if key.strip()} | route_secrets(pool, os.environ))


def data(config: pytest.Config) -> dict[str, str]:
    """What the suites say of their data, by name."""
    found: dict[str, str] = {}
    for said in config.hook.pytest_ultrapar_data(config=config):
        found.update({str(name): str(value) for name, value in said.items()})
    return found


def reused(config: pytest.Config) -> dict[Question, str]:
    """The questions that the run named by --ultrapar-reuse answered, and the cases that did."""
    given = getattr(config, "workerinput", {}).get(INPUT)
    if given is not None:
        return read_reused(Path(given["directory"]))
    return config.stash.get(reused_key, {})


def taken(config: pytest.Config) -> list[Taken]:
    """What suites took from others instead of asking it; known when pytest has collected."""
    return config.stash.get(taken_key, [])


def check_keys(config: pytest.Config) -> None:
    """Make sure that the secrets of all keys are there, and what the ways to the servers need.

    Raises:
        ConfigError: Naming the variables that are not set, or a file that cannot be used.
    """
    _, pool = settings(config)
    check_secrets(pool, os.environ)
    check_routes(pool, os.environ)


def check_debug_log(config: pytest.Config, n_workers: int) -> None:
    """Make sure that the worker whose debug log is asked for is one of the run's.

    Raises:
        ConfigError: It is not.
    """
    options, _ = settings(config)
    options.debug_log.check(n_workers)


def stops_at_collection(session: pytest.Session) -> bool:
    """Whether something could not be collected and pytest will therefore run no test."""
    return bool(session.testsfailed and not session.config.option.continue_on_collection_errors)


class CollectOnly:
    """The plugin of `--collect-only` with a pool: faults are found, nothing is started."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Check the suite."""
        found = collect(session.config, session.items)
        if found.faults:
            raise pytest.UsageError(faults_message(found.faults))


def collect(config: pytest.Config, items: Sequence[pytest.Item]) -> Collected:
    """The cases among pytest's items, and all that is wrong with the suite."""
    options, pool = settings(config)
    collected = collect_cases(
        items, run_seed=options.seed, models=models(config), repeats=options.repeats
    )
    collected.faults[:0] = config.stash.get(mark_faults_key, None) or ()
    collected.cases[:] = _without_secrets(collected.cases, redactor(pool).text)
    return collected


def _without_secrets(cases: Sequence[Case], plain: Callable[[str], str]) -> Iterator[Case]:
    """What is written down of cases; their episodes get their parameters as they are."""
    for case in cases:
        params = {
            name: plain(value) if isinstance(value, str) else value
            for name, value in case.params.items()
        }
        skipped = None if case.skipped is None else plain(case.skipped)
        if params == case.params and skipped == case.skipped:
            yield case
        else:
            yield msgspec.structs.replace(case, params=params, skipped=skipped)


def faults_message(faults: Sequence[str]) -> str:
    """The faults of a suite as one message."""
    distinct = list(dict.fromkeys(faults))
    n_more = len(distinct) - _SHOWN
    more = f"\n(and {n_more} more)" if n_more > 0 else ""
    return "\n".join(distinct[:_SHOWN]) + more
