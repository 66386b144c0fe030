"""From a faults file to a `FaultScript`: every check is made here, before anything is served."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.pool.bounds import RATE, SEED, Bounds
from pytest_ultrapar.pool.fields import Location, check_name, check_word, shown
from pytest_ultrapar.pool.file import FileTable, Number, decode_as, parse_toml, read_pool_file
from pytest_ultrapar.pool.model import LIMIT_KINDS
from pytest_ultrapar.simulator.faults.kinds import (
    KINDS,
    FaultTable,
    PlaceTable,
    check_headers,
    refuse_unknown,
)
from pytest_ultrapar.simulator.faults.script import Fault, FaultScript, RateHeaders, Since, When
from pytest_ultrapar.simulator.faults.timeline import Capacity, Span, Where

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ultrapar.pool.model import Pool


_SINCE: tuple[Since, ...] = ("first-request", "start")
# What a day holds is not scripted: no rehearsal lasts that long.
_AMOUNTS = [word for word, kind in LIMIT_KINDS.items() if not kind.is_daily]


class CapacityTable(PlaceTable, kw_only=True):
    """`[[capacity]]`, with amounts by the words of their kinds."""

    limit: str | None = None
    factor: Number | None = None
    workers: int | None = None
    qps: Number | None = None
    rpm: Number | None = None
    tpm: Number | None = None


class RateHeadersTable(PlaceTable, kw_only=True):
    """`[[rate_headers]]`."""

    values: dict[str, str] | None = None


class FaultsFile(FileTable, kw_only=True):
    """The whole file."""

    schema: int = 1
    since: str = _SINCE[0]
    seed: int = 0
    fault: list[FaultTable] = msgspec.field(default_factory=list)
    capacity: list[CapacityTable] = msgspec.field(default_factory=list)
    rate_headers: list[RateHeadersTable] = msgspec.field(default_factory=list)


FROM_S = Bounds(at_least=0, at_most=1_000_000)
FOR_S = Bounds(above=0, at_most=1_000_000)
_NAMES = ("provider", "instance", "key", "model")


def read_label(location: Location, name: str | None, kind: str, index: int) -> str:
    """What the log calls an entry: its name, else its kind and number, from 1.

    Raises:
        ConfigError: The name cannot stand in a log.
    """
    return f"{kind} {index + 1}" if name is None else check_name(location.at("name"), name)


def read_where(location: Location, table: PlaceTable, pool: Pool) -> Where:
    """The lanes that an entry names.

    Raises:
        ConfigError: A name is not in the pool, or no lane has all of them.
    """
    where = Where(table.provider, table.instance, table.key, table.model)
    for field in _NAMES:
        known = dict.fromkeys(str(getattr(lane, field)) for lane in pool.lanes)
        name = getattr(where, field)
        if name is not None and name not in known:
            refuse_unknown(location.at(field), name, known, f"{field} of {pool.path}")
    if not any(where.holds(lane) for lane in pool.lanes):
        said = ", ".join(f"{f} = {shown(name)}" for f in _NAMES if (name := getattr(where, f)))
        location.refuse(f"names no lane of {pool.path}: none has {said}")
    return where


def read_span(location: Location, table: PlaceTable) -> Span:
    """When an entry holds.

    Raises:
        ConfigError: A time is out of its bounds.
    """
    from_s = float(FROM_S.check(location.at("from_s"), table.from_s))
    for_s = None if table.for_s is None else float(FOR_S.check(location.at("for_s"), table.for_s))
    return Span(from_s, for_s)


_BOUNDS = {
    "in flight": Bounds(at_least=0, at_most=100_000),
    "requests": RATE,
    "tokens": Bounds(above=0, at_least=1e-6, at_most=1e12),
}
FACTOR = Bounds(above=0, at_most=1_000)
_NUMBERS = {word: _BOUNDS[LIMIT_KINDS[word].counts] for word in _AMOUNTS} | {"factor": FACTOR}


def read_capacity(location: Location, table: CapacityTable, index: int, pool: Pool) -> Capacity:
    """What a limit holds for a while.

    Raises:
        ConfigError: A limit or lane is not there, no number is given, one is out of its bounds, or
            fields contradict each other.
    """
    given = {field for field in _NUMBERS if getattr(table, field) is not None}
    for field in given:
        _NUMBERS[field].check(location.at(field), getattr(table, field))
    if not given:
        location.refuse(f"changes nothing: it needs one of {', '.join(_NUMBERS)}")
    limits: tuple[str, ...] = ()
    where = Where()
    if table.limit is not None:
        for field in _NAMES:
            if getattr(table, field) is not None:
                location.at(field).refuse("cannot be given together with limit, which says where")
        held = pool.held or pool.limits
        limits = tuple(name for name in held if fnmatchcase(name, table.limit))
        if not limits:
            refuse_unknown(location.at("limit"), table.limit, tuple(held), f"limit of {pool.path}")
    else:
        if "factor" in given:
            location.at("factor").refuse("needs limit: a new limit has no numbers to multiply")
        where = read_where(location, table, pool)
    return Capacity(
        read_label(location, table.name, "capacity", index),
        limits,
        where,
        read_span(location, table),
        1.0 if table.factor is None else table.factor,
        {word: getattr(table, word) for word in _AMOUNTS if word in given},
    )


COUNT = Bounds(at_least=0, at_most=10**12)
SOME = Bounds(at_least=1, at_most=10**12)
SHARE = Bounds(above=0, at_most=1)


def read_fault(location: Location, table: FaultTable, index: int, pool: Pool) -> Fault:
    """The fault of an entry.

    Raises:
        ConfigError: A field is missing, of another kind, out of its bounds, or contradicts another.
    """
    kind = check_word(location.at("kind"), table.kind, tuple(KINDS))
    of_kinds = dict.fromkeys(field for one in KINDS.values() for field in one.fields)
    for field in of_kinds:
        if getattr(table, field) is not None and field not in KINDS[kind].fields:
            meant = " or ".join(f'"{name}"' for name, one in KINDS.items() if field in one.fields)
            location.at(field).refuse(f'is for kind = {meant} (got kind = "{kind}")')
    return Fault(
        read_label(location, table.name, kind, index),
        read_where(location, table, pool),
        _when(location, table),
        KINDS[kind].read(location, table),
    )


def _when(location: Location, table: FaultTable) -> When:
    return When(
        read_span(location, table),
        COUNT.check(location.at("after_requests"), table.after_requests),
        None
        if table.for_requests is None
        else SOME.check(location.at("for_requests"), table.for_requests),
        float(SHARE.check(location.at("share"), table.share)),
    )


def read_rate_headers(location: Location, table: RateHeadersTable, pool: Pool) -> RateHeaders:
    """Who is told what is left of the limits.

    Raises:
        ConfigError: No such lane, or a header that cannot be sent.
    """
    if table.name is not None:
        location.at("name").refuse("has no effect: headers are not marked in the log")
    values = check_headers(location.at("values"), table.values or {})
    return RateHeaders(read_where(location, table, pool), read_span(location, table), values)


def load_faults(path: Path, pool: Pool) -> FaultScript:
    """The script of a file, checked against the pool that is going to be served.

    Raises:
        ConfigError: The file cannot be read, or holds what is not allowed; one message that names
            file, field, what was found and what is allowed.
    """
    location = Location(str(path))
    text, digest = read_pool_file(path, location)
    file = decode_as(FaultsFile, parse_toml(text, location), location)
    if not (file.fault or file.capacity or file.rate_headers):
        location.refuse("is empty: it needs [[fault]], [[capacity]] or [[rate_headers]]")
    since = check_word(location.at("since"), file.since, _SINCE)
    seed = SEED.check(location.at("seed"), file.seed)
    faults = tuple(
        read_fault(location.at("fault").item(n), table, n, pool)
        for n, table in enumerate(file.fault)
    )
    capacities = tuple(
        read_capacity(location.at("capacity").item(n), table, n, pool)
        for n, table in enumerate(file.capacity)
    )
    headers = tuple(
        read_rate_headers(location.at("rate_headers").item(n), table, pool)
        for n, table in enumerate(file.rate_headers)
    )
    return FaultScript(str(path), digest, since, seed, faults, capacities, headers)
