"""Make a `FaultScript` from a faults file. All checks run before the server starts."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from pytest_ultrapar.pool.field_checks import Location, check_name, check_word, shown
from pytest_ultrapar.pool.file import FileTable, Seed, decode_as, parse_toml, read_pool_file, within
from pytest_ultrapar.pool.model import LIMIT_KINDS
from pytest_ultrapar.simulator.faults.kinds import KINDS, FaultTable, PlaceTable, refuse_unknown
from pytest_ultrapar.simulator.faults.script import Fault, FaultScript, Since, When
from pytest_ultrapar.simulator.faults.timeline import Capacity, Span, Where

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ultrapar.pool.model import LimitKind, Pool


# Scripts cannot set daily limits, because no test lasts that long.
_AMOUNTS = [word for word, kind in LIMIT_KINDS.items() if not kind.is_daily]


def _amount(kind: LimitKind) -> object:
    """The type of an amount. Unlike in a pool file, the number of seats may be 0."""
    if kind.is_rate:
        return Annotated[float, within(kind.bounds)] | None
    return Annotated[int, Meta(ge=0, le=kind.bounds.at_most)] | None


if TYPE_CHECKING:
    _Amounts = PlaceTable
else:
    _Amounts = msgspec.defstruct(
        "_Amounts",
        [(word, _amount(LIMIT_KINDS[word]), None) for word in _AMOUNTS],
        bases=(PlaceTable,),
        kw_only=True,
    )


class CapacityTable(_Amounts, kw_only=True):
    """`[[capacity]]`, with one field for each kind of limit."""

    limit: str | None = None
    factor: Annotated[float, Meta(gt=0, le=1_000)] | None = None


class FaultsFile(FileTable, kw_only=True):
    """The whole file."""

    schema: int = 1
    since: Since = "first-request"
    seed: Seed = 0
    fault: list[FaultTable] = msgspec.field(default_factory=list)
    capacity: list[CapacityTable] = msgspec.field(default_factory=list)


_NAMES = ("provider", "instance", "key", "model")


def read_label(location: Location, name: str | None, kind: str, index: int) -> str:
    """Return the label for an entry in the log: its name, or its kind and number, counted from 1.

    Raises:
        ConfigError: The name is not allowed in a log.
    """
    return f"{kind} {index + 1}" if name is None else check_name(location.at("name"), name)


def read_where(location: Location, table: PlaceTable, pool: Pool) -> Where:
    """Return the lanes that an entry selects.

    Raises:
        ConfigError: A name is not in the pool, or no lane matches all the names.
    """
    where = Where(table.provider, table.instance, table.key, table.model)
    for field in _NAMES:
        known = dict.fromkeys(str(getattr(lane, field)) for lane in pool.lanes)
        name = getattr(where, field)
        if name is not None and name not in known:
            refuse_unknown(location.at(field), name, known, f"{field} in {pool.path}")
    if not any(where.holds(lane) for lane in pool.lanes):
        said = ", ".join(f"{f} = {shown(name)}" for f in _NAMES if (name := getattr(where, f)))
        location.refuse(f"matches no lane in {pool.path}: no lane has {said}")
    return where


def read_capacity(location: Location, table: CapacityTable, index: int, pool: Pool) -> Capacity:
    """Return the temporary amounts of a limit.

    Raises:
        ConfigError: A limit or lane does not exist, no number is set, or fields contradict each
            other.
    """
    numbers = (*_AMOUNTS, "factor")
    given = {field for field in numbers if getattr(table, field) is not None}
    if not given:
        location.refuse(f"has no effect: set one of {', '.join(numbers)}")
    limits: tuple[str, ...] = ()
    where = Where()
    if table.limit is not None:
        for field in _NAMES:
            if getattr(table, field) is not None:
                location.at(field).refuse("cannot be combined with limit; leave one of them out")
        held = pool.held or pool.limits
        limits = tuple(name for name in held if fnmatchcase(name, table.limit))
        if not limits:
            refuse_unknown(location.at("limit"), table.limit, tuple(held), f"limit in {pool.path}")
    else:
        if "factor" in given:
            location.at("factor").refuse(
                "requires limit, because it multiplies the numbers of an existing limit"
            )
        where = read_where(location, table, pool)
    return Capacity(
        read_label(location, table.name, "capacity", index),
        limits,
        where,
        Span(table.from_s, table.for_s),
        1.0 if table.factor is None else table.factor,
        {word: getattr(table, word) for word in _AMOUNTS if word in given},
    )


def read_fault(location: Location, table: FaultTable, index: int, pool: Pool) -> Fault:
    """Return the fault that an entry describes.

    Raises:
        ConfigError: A field is missing, belongs to another kind, is out of bounds, or contradicts
            another field.
    """
    kind = check_word(location.at("kind"), table.kind, tuple(KINDS))
    of_kinds = dict.fromkeys(field for one in KINDS.values() for field in one.fields)
    for field in of_kinds:
        if getattr(table, field) is not None and field not in KINDS[kind].fields:
            meant = " or ".join(f'"{name}"' for name, one in KINDS.items() if field in one.fields)
            location.at(field).refuse(f'requires kind = {meant} (got kind = "{kind}")')
    return Fault(
        read_label(location, table.name, kind, index),
        read_where(location, table, pool),
        When(
            Span(table.from_s, table.for_s), table.after_requests, table.for_requests, table.share
        ),
        KINDS[kind].read(location, table),
    )


def load_faults(path: Path, pool: Pool) -> FaultScript:
    """Read a script, and check it against the pool that the server simulates.

    Raises:
        ConfigError: The file cannot be read, or is invalid. The message names the file, the field,
            the value found and the allowed values.
    """
    location = Location(str(path))
    text, digest = read_pool_file(path, location)
    file = decode_as(FaultsFile, parse_toml(text, location), location)
    if not (file.fault or file.capacity):
        location.refuse("is empty: it must contain [[fault]] or [[capacity]]")
    faults = tuple(
        read_fault(location.at("fault").item(n), table, n, pool)
        for n, table in enumerate(file.fault)
    )
    capacities = tuple(
        read_capacity(location.at("capacity").item(n), table, n, pool)
        for n, table in enumerate(file.capacity)
    )
    return FaultScript(str(path), digest, file.since, file.seed, faults, capacities)
