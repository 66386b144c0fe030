"""From a faults file to a `FaultScript`: every check is made here, before anything is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.pool.bounds import SEED, check_word
from pytest_ultrapar.pool.decode import decode_as
from pytest_ultrapar.pool.place import Place
from pytest_ultrapar.pool.pool_file import parse_toml, read_pool_file
from pytest_ultrapar.simulator.faults.capacity_entry import read_capacity
from pytest_ultrapar.simulator.faults.fault_entry import read_fault
from pytest_ultrapar.simulator.faults.headers_entry import read_rate_headers
from pytest_ultrapar.simulator.faults.script import FaultScript, Since
from pytest_ultrapar.simulator.faults.table import FaultsFile

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ultrapar.pool.model import Pool

_SINCE: tuple[Since, ...] = ("first-request", "start")


def load_faults(path: Path, pool: Pool) -> FaultScript:
    """The script of a file, checked against the pool that is going to be served.

    Raises:
        ConfigError: The file cannot be read, or holds what is not allowed; one message that names
            file, field, what was found and what is allowed.
    """
    place = Place(str(path))
    content = read_pool_file(path, place)
    file = decode_as(FaultsFile, parse_toml(content.text, place), place)
    if not (file.fault or file.capacity or file.rate_headers):
        place.refuse("says nothing: it needs [[fault]], [[capacity]] or [[rate_headers]]")
    since = _SINCE[0]
    if file.since is not None:
        since = check_word(place.at("since"), file.since, _SINCE)
    seed = 0 if file.seed is None else SEED.check(place.at("seed"), file.seed)
    faults = tuple(
        read_fault(place.at("fault").item(n), table, n, pool) for n, table in enumerate(file.fault)
    )
    capacities = tuple(
        read_capacity(place.at("capacity").item(n), table, n, pool)
        for n, table in enumerate(file.capacity)
    )
    headers = tuple(
        read_rate_headers(place.at("rate_headers").item(n), table, pool)
        for n, table in enumerate(file.rate_headers)
    )
    return FaultScript(str(path), content.digest, since, seed, faults, capacities, headers)
