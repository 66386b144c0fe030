"""One `[[capacity]]` of the file, checked."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.bounds import RATE, Bounds
from pytest_ultrapar.simulator.faults.place_entry import (
    read_label,
    read_span,
    read_where,
    refuse_unknown,
)
from pytest_ultrapar.simulator.faults.script import Capacity, Where

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.pool.place import Place
    from pytest_ultrapar.simulator.faults.table import CapacityTable

SEATS = Bounds(at_least=0, at_most=100_000)
TOKENS = Bounds(above=0, at_least=1e-6, at_most=1e12)
BURST = Bounds(at_least=1, at_most=1_000_000_000)
FACTOR = Bounds(above=0, at_most=1_000)
_NUMBERS = {
    "workers": SEATS,
    "qps": RATE,
    "rpm": RATE,
    "tpm": TOKENS,
    "factor": FACTOR,
    "burst": BURST,
    "burst_tokens": BURST,
}
_WHERE = ("provider", "instance", "key", "model")


def read_capacity(place: Place, table: CapacityTable, index: int, pool: Pool) -> Capacity:
    """What a limit holds for a while.

    Raises:
        ConfigError: A limit or lane is not there, no number is given, one is out of its bounds, or
            fields contradict each other.
    """
    given = {field for field in _NUMBERS if getattr(table, field) is not None}
    for field in given:
        _NUMBERS[field].check(place.at(field), getattr(table, field))
    if not given:
        place.refuse(f"changes nothing: it needs one of {', '.join(_NUMBERS)}")
    limits: tuple[str, ...] = ()
    where = Where()
    if table.limit is not None:
        for field in _WHERE:
            if getattr(table, field) is not None:
                place.at(field).refuse("cannot be given together with limit, which says where")
        held = pool.held or pool.limits
        limits = tuple(name for name in held if fnmatchcase(name, table.limit))
        if not limits:
            refuse_unknown(place.at("limit"), table.limit, tuple(held), f"limit of {pool.path}")
    else:
        if "factor" in given:
            place.at("factor").refuse("needs limit: a new limit has no numbers to multiply")
        where = read_where(place, table, pool)
    for burst, rates in (("burst", ("qps", "rpm")), ("burst_tokens", ("tpm",))):
        if burst in given and not limits and not any(rate in given for rate in rates):
            place.at(burst).refuse(f"needs {' or '.join(rates)}: a bucket fills at a rate")
    return Capacity(
        read_label(place, table.name, "capacity", index),
        limits,
        where,
        read_span(place, table),
        1.0 if table.factor is None else table.factor,
        table.workers,
        table.qps,
        table.rpm,
        table.tpm,
        table.burst,
        table.burst_tokens,
    )
