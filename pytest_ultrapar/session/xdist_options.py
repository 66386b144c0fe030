"""xdist's options in a run with a pool: the meaning of `-n auto`, and refused options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.session import run_config

if TYPE_CHECKING:
    import pytest


SEATS_PER_WORKER = 100
"""The number of seats that one worker can keep busy. One process on one core sends about 600
requests/s, enough for more than 100 seats if an answer takes 0.2 s."""
_MANY_SEATS = 1000
_OWN_ID = re.compile(r"//id=(.*?)(?=//|$)")


def refuse(config: pytest.Config) -> None:
    """Refuse xdist options that this plugin's scheduler cannot honour.

    Raises:
        ConfigError: Such an option is given; the message names it, its value and the allowed
            values.
    """
    dist = config.getoption("dist")
    if dist not in {"no", "load"}:
        raise ConfigError(
            f"--dist {dist} cannot be used together with --ultrapar-pool, which has its own "
            "scheduler; use --dist load (the default with -n) or --dist no, which has "
            "the same effect"
        )
    for spec in config.getoption("tx") or ():
        # `3*popen` means three processes.
        if not str(spec).split("*")[-1].startswith("popen"):
            raise ConfigError(
                f"--tx {spec} cannot be used together with --ultrapar-pool, whose limits apply to "
                "one machine; use --tx popen"
            )
        named = _OWN_ID.search(str(spec))
        if named and not re.fullmatch(r"\w+", named[1]):
            # The worker's id is part of the names of its files.
            raise ConfigError(
                f"--tx {spec} must name its worker with letters, digits and underscores (id=NAME)"
            )


def suggested_workers(config: pytest.Config, n_cpus: int) -> int:
    """The number of workers for `-n auto`: few, because seats, not workers, limit requests."""
    _, pool = run_config.settings(config)
    return min(n_cpus, enough_workers(pool.seats(pool.lanes) or _MANY_SEATS, n_cpus))


def enough_workers(n_in_flight: int | None, n_workers: int) -> int:
    """The number of workers for this many requests in flight; all workers if that is unlimited."""
    return max(1, n_workers if n_in_flight is None else -(-n_in_flight // SEATS_PER_WORKER))
