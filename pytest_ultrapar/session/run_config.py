"""The pool and the settings of a run, as each of its processes reads them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.load_pool import load_pool
from pytest_ultrapar.pool.model import Lane, Pool
from pytest_ultrapar.pool.network import check_routes, route_secrets
from pytest_ultrapar.pool.secret import read_secrets
from pytest_ultrapar.pool.settings import Options
from pytest_ultrapar.pool.vendors import named_pool
from pytest_ultrapar.session.answer_source import PoolLanes, Source, source_of
from pytest_ultrapar.session.options import pool_path
from pytest_ultrapar.session.settings import read_options, read_overrides, selected_models
from pytest_ultrapar.store.redact import Redactor
from pytest_ultrapar.store.run_directory import resolve_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_ultrapar.records import Case

_settings_key = pytest.StashKey[tuple[Options, Pool]]()


def settings(config: pytest.Config) -> tuple[Options, Pool]:
    """The options and the pool of this process, which are read only once.

    Raises:
        ConfigError: The options or the pool cannot be used.
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
    """The pool in the pool file; without a file, a pool made from the models that a user named."""
    path, overrides = pool_path(config), read_overrides(config)
    if path is not None:
        return load_pool(path, environ=os.environ, overrides=overrides)
    row = Options.models
    return named_pool(row.option, config.getoption(row.dest), os.environ, overrides)


def source(config: pytest.Config) -> Source:
    """The source of the run's answers."""
    return source_of(settings(config)[0])


def fix_source(config: pytest.Config) -> None:
    """Give workers an earlier run as a path, because `latest` may soon mean this run itself.

    Raises:
        ConfigError: There is no such run.
    """
    found = source(config)
    if not isinstance(found, PoolLanes):
        # xdist passes `config.option` on to workers (`WorkerController.setup`).
        name = found.option.removeprefix("--").replace("-", "_")
        setattr(config.option, name, str(resolve_run(found.run)))


def models(config: pytest.Config) -> tuple[str, ...]:
    """The selected models that have cases of their own, in the pool's order."""
    options, pool = settings(config)
    # Without a pool file, the patterns are addresses, and all of them are selected.
    patterns = options.models if pool.has_file else ()
    return selected_models(pool, patterns, pool.subjects)


def case_lanes(config: pytest.Config) -> tuple[Lane, ...]:
    """Lanes that serve one of the selected models, in the pool's order."""
    return _lanes_of(config, set(models(config)))


def lanes(config: pytest.Config) -> tuple[Lane, ...]:
    """Lanes that serve a selected model or a role, in the pool's order."""
    return _lanes_of(config, {*models(config), *settings(config)[1].roles.values()})


def asked_pool(config: pytest.Config, cases: Iterable[Case]) -> Pool:
    """The pool, reduced to the lanes that these cases and their roles may use."""
    _, pool = settings(config)
    names = {case.model for case in cases}
    names.update(pool.roles.values() if names else ())
    return replace(pool, lanes=_lanes_of(config, names))


def _lanes_of(config: pytest.Config, names: set[str]) -> tuple[Lane, ...]:
    return tuple(lane for lane in settings(config)[1].lanes if lane.model in names)


def redactor(pool: Pool) -> Redactor:
    """A redactor for all secrets in the pool, including keys that this run does not need."""
    named = {key.env for provider in pool.providers for key in provider.keys if key.env}
    # Include secrets both as they are sent (`read_secrets` strips blanks) and as they are set.
    values = {os.environ[name] for name in named if os.environ.get(name)}
    keys = {value.strip() for value in values} | values
    more = route_secrets(pool, os.environ) | _cluster_secrets()
    return Redactor({key for key in keys if key.strip()} | more)


def _cluster_secrets() -> set[str]:
    """The password of the server that hosts share, even if this run does not use the server."""
    if not os.environ.get("ULTRAPAR_CLUSTER", "").strip():
        return set()
    from pytest_ultrapar.cluster.address import read_address  # noqa: PLC0415 - rare

    try:
        address = read_address(None, os.environ)
    except ConfigError:
        # A run that uses the address reports the error. Here, the whole address may be secret.
        return {os.environ["ULTRAPAR_CLUSTER"]}
    if address.password is None:
        return set()
    # Include the password both decoded and as it is written in the URL. The rest of the URL may be
    # shown.
    spelled = urlsplit(os.environ["ULTRAPAR_CLUSTER"].strip()).password or ""
    return {address.password.reveal(), spelled} - {""}


def data(config: pytest.Config) -> dict[str, str]:
    """Facts about the suites' data, by name."""
    found: dict[str, str] = {}
    for said in config.hook.pytest_ultrapar_data(config=config):
        found.update({str(name): str(value) for name, value in said.items()})
    return found


def check_keys(config: pytest.Config, pool: Pool) -> None:
    """Check that the secrets for all lanes, and for the routes to their servers, are set.

    Raises:
        ConfigError: Variables are not set, or a file cannot be used; the message names them.
    """
    try:
        read_secrets(pool, os.environ)
        check_routes(pool, os.environ)
    except ConfigError as error:
        if config.getoption(Options.pool.dest) or not pool.has_file:
            raise
        raise ConfigError(
            f"{error}; to run all tests except evaluations: pytest -o {Options.pool.ini}="
        ) from error


def stops_at_collection(session: pytest.Session) -> bool:
    """Whether pytest runs no test because of errors during collection."""
    # This is the condition in `_pytest.main.pytest_runtestloop`.
    return bool(session.testsfailed and not session.config.option.continue_on_collection_errors)
