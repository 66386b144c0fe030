"""What all entries of a faults file say: a name, lanes, and a span of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pytest_ultrapar.pool.bounds import Bounds, check_name
from pytest_ultrapar.pool.place import shown
from pytest_ultrapar.simulator.faults.script import Span, Where

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.pool.place import Place
    from pytest_ultrapar.simulator.faults.table import PlaceTable

FROM_S = Bounds(at_least=0, at_most=1_000_000)
FOR_S = Bounds(above=0, at_most=1_000_000)
_NAMES = ("provider", "instance", "key", "model")


def read_label(place: Place, name: str | None, kind: str, index: int) -> str:
    """What the log calls an entry: its name, else its kind and number, from 1.

    Raises:
        ConfigError: The name cannot stand in a log.
    """
    return f"{kind} {index + 1}" if name is None else check_name(place.at("name"), name)


def read_where(place: Place, table: PlaceTable, pool: Pool) -> Where:
    """The lanes that an entry names.

    Raises:
        ConfigError: A name is not in the pool, or no lane has all of them.
    """
    where = Where(table.provider, table.instance, table.key, table.model)
    for field in _NAMES:
        known = dict.fromkeys(str(getattr(lane, field)) for lane in pool.lanes)
        name = getattr(where, field)
        if name is not None and name not in known:
            refuse_unknown(place.at(field), name, known, f"{field} of {pool.path}")
    if not any(where.holds(lane) for lane in pool.lanes):
        said = ", ".join(f"{f} = {shown(name)}" for f in _NAMES if (name := getattr(where, f)))
        place.refuse(f"names no lane of {pool.path}: none has {said}")
    return where


def read_span(place: Place, table: PlaceTable) -> Span:
    """When an entry holds.

    Raises:
        ConfigError: A time is out of its bounds.
    """
    from_s = 0.0 if table.from_s is None else float(FROM_S.check(place.at("from_s"), table.from_s))
    for_s = None if table.for_s is None else float(FOR_S.check(place.at("for_s"), table.for_s))
    return Span(from_s, for_s)


def refuse_unknown(place: Place, name: str, known: Collection[str], what: str) -> NoReturn:
    """Refuse a name that is not there, with the nearest one.

    Raises:
        ConfigError: Always.
    """
    import difflib  # noqa: PLC0415 - 8 ms, needed only for this message

    near = difflib.get_close_matches(name, known, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    place.refuse(f"is no {what}{meant} (got {shown(name)}; there is {', '.join(known) or 'none'})")
