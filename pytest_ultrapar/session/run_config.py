"""What one process of a run knows of it: its role, pool and settings."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.config import load_pool
from pytest_ultrapar.pool.model import Lane, Pool
from pytest_ultrapar.pool.network import check_routes, route_secrets
from pytest_ultrapar.pool.secret import read_secrets
from pytest_ultrapar.pool.settings import Options
from pytest_ultrapar.pool.vendors import named_pool
from pytest_ultrapar.session.options import pool_path
from pytest_ultrapar.session.settings import read_options, read_overrides, selected_models
from pytest_ultrapar.session.source import PoolLanes, Source, source_of
from pytest_ultrapar.store.redact import Redactor
from pytest_ultrapar.store.run_directory import resolve_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.records import Case

_settings_key = pytest.StashKey[tuple[Options, Pool]]()


def settings(config: pytest.Config) -> tuple[Options, Pool]:
    """Options and pool of this process, read once.

    Raises:
        ConfigError: Either cannot be used.
    """
    found = config.stash.get(_settings_key, None)
    if found is None:
        pool = config.hook.pytest_ultrapar_pool(config=config)
        if pool is None:
            pool = _read_pool(config)
        has_money = pool.price_book is not None or pool.has_budget
        if has_money and not hasattr(config, "workerinput"):
            from pytest_ultrapar.pool import price_book  # noqa: PLC0415 - few pools have one

            pool = price_book.with_book_prices(pool)
            price_book.check_budgets(pool)
        options = read_options(config, pool)
        if options.divided_by is not None:
            from pytest_ultrapar.pool.shard import divided  # noqa: PLC0415 - few runs are shards

            pool = divided(pool, options.divided_by)
        found = config.stash[_settings_key] = (options, pool)
    return found


def _read_pool(config: pytest.Config) -> Pool:
    """The pool that a file has, or that the named models stand for."""
    path, overrides = pool_path(config), read_overrides(config)
    if path is not None:
        return load_pool(path, environ=os.environ, overrides=overrides)
    row = Options.models
    return named_pool(row.option, config.getoption(row.dest), os.environ, overrides)


def source(config: pytest.Config) -> Source:
    """Where the answers of the run come from."""
    return source_of(settings(config)[0])


def fix_source(config: pytest.Config) -> None:
    """Give workers the path of an earlier run: when one is replaced, `latest` is this run itself.

    Raises:
        ConfigError: There is no such run.
    """
    found = source(config)
    if not isinstance(found, PoolLanes):
        # xdist hands `config.option` to workers (`WorkerController.setup`).
        name = found.option.removeprefix("--").replace("-", "_")
        setattr(config.option, name, str(resolve_run(found.run)))


def models(config: pytest.Config) -> tuple[str, ...]:
    """The selected models, of those that make cases, in the pool's order."""
    options, pool = settings(config)
    # Without a pool the words are addresses: it has nothing else.
    patterns = options.models if pool.has_file else ()
    return selected_models(pool, patterns, pool.subjects)


def case_lanes(config: pytest.Config) -> tuple[Lane, ...]:
    """Lanes that serve one of the selected models, in the pool's order."""
    return _lanes_of(config, set(models(config)))


def lanes(config: pytest.Config) -> tuple[Lane, ...]:
    """These and the lanes of all roles, in the pool's order."""
    return _lanes_of(config, {*models(config), *settings(config)[1].roles.values()})


def asked_pool(config: pytest.Config, cases: Iterable[Case]) -> Pool:
    """The pool with the lanes alone that these cases, and roles for them, may ask."""
    _, pool = settings(config)
    names = {case.model for case in cases}
    names.update(pool.roles.values() if names else ())
    return replace(pool, lanes=_lanes_of(config, names))


def _lanes_of(config: pytest.Config, names: set[str]) -> tuple[Lane, ...]:
    return tuple(lane for lane in settings(config)[1].lanes if lane.model in names)


def redactor(pool: Pool) -> Redactor:
    """Knows the secrets of all keys of the pool, also of those that this run does not need."""
    named = {key.env for provider in pool.providers for key in provider.keys if key.env}
    # As they are sent (`read_secrets` strips them), and as they stand there.
    values = {os.environ[name] for name in named if os.environ.get(name)}
    keys = {value.strip() for value in values} | values
    more = route_secrets(pool, os.environ) | _cluster_secrets()
    return Redactor({key for key in keys if key.strip()} | more)


def _cluster_secrets() -> set[str]:
    """The password of the server that several hosts share, whether this run uses it or not."""
    if not os.environ.get("ULTRAPAR_CLUSTER", "").strip():
        return set()
    from pytest_ultrapar.cluster.address import read_address  # noqa: PLC0415 - seldom

    try:
        address = read_address(None, os.environ)
    except ConfigError:
        # Who wants to use it is told so; the whole of it may be a secret.
        return {os.environ["ULTRAPAR_CLUSTER"]}
    if address.password is None:
        return set()
    # As it is, and as it is spelled in the URL. The rest may be shown.
    spelled = urlsplit(os.environ["ULTRAPAR_CLUSTER"].strip()).password or ""
    return {address.password.reveal(), spelled} - {""}


def data(config: pytest.Config) -> dict[str, str]:
    """What the suites say of their data, by name."""
    found: dict[str, str] = {}
    for said in config.hook.pytest_ultrapar_data(config=config):
        found.update({str(name): str(value) for name, value in said.items()})
    return found


def check_keys(config: pytest.Config, pool: Pool) -> None:
    """Make sure that the secrets of all lanes are there, and what the ways to the servers need.

    Raises:
        ConfigError: Naming the variables that are not set, or a file that cannot be used.
    """
    try:
        read_secrets(pool, os.environ)
        check_routes(pool, os.environ)
    except ConfigError as error:
        if config.getoption(Options.pool.dest) or not pool.has_file:
            raise
        raise ConfigError(
            f"{error}; to run all but evaluations: pytest -o {Options.pool.ini}="
        ) from error


def stops_at_collection(session: pytest.Session) -> bool:
    """Whether something could not be collected and pytest will therefore run no test."""
    # The condition of `_pytest.main.pytest_runtestloop`.
    return bool(session.testsfailed and not session.config.option.continue_on_collection_errors)
