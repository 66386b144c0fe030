"""xdist's options on a run with a pool: what `-n auto` means, and what is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.session import run_config

if TYPE_CHECKING:
    import pytest


SEATS_PER_WORKER = 100
"""One process drives some 600 requests/s on one core: at 0.2 s an answer, above 100 seats."""
_MANY_SEATS = 1000
_OWN_ID = re.compile(r"//id=(.*?)(?=//|$)")


def refuse(config: pytest.Config) -> None:
    """Refuse xdist options that our scheduler cannot honour.

    Raises:
        ConfigError: Naming option, value and what is allowed.
    """
    dist = config.getoption("dist")
    if dist not in {"no", "load"}:
        raise ConfigError(
            f"--dist {dist} cannot be used together with --ultrapar-pool, which schedules itself; "
            "use --dist load (the default with -n; no counts as load)"
        )
    for spec in config.getoption("tx") or ():
        # `3*popen` are three of them.
        if not str(spec).split("*")[-1].startswith("popen"):
            raise ConfigError(
                f"--tx {spec} cannot be used together with --ultrapar-pool, whose limits hold on "
                "this host; allowed is popen"
            )
        named = _OWN_ID.search(str(spec))
        if named and not re.fullmatch(r"\w+", named[1]):
            # It is part of the names of the worker's files.
            raise ConfigError(
                f"--tx {spec} must name its worker by letters, digits and underscores (id=NAME)"
            )


def suggested_workers(config: pytest.Config, n_cpus: int) -> int:
    """How many workers `-n auto` means: few, since seats and not processes limit the requests."""
    _, pool = run_config.settings(config)
    return min(n_cpus, enough_workers(pool.seats(pool.lanes) or _MANY_SEATS, n_cpus))


def enough_workers(n_in_flight: int | None, n_workers: int) -> int:
    """How many workers drive so many requests in flight; None in flight needs all there are."""
    return max(1, n_workers if n_in_flight is None else -(-n_in_flight // SEATS_PER_WORKER))
