"""The bounds of the file as named limits, and the path of limits on which each lane lies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pytest_ultrapar.pool.bounds import RATE, TOKENS, WORKERS, Bounds
from pytest_ultrapar.pool.model import Level, Limit
from pytest_ultrapar.pool.schema import CountByMode, LimitTable, RateByMode
from pytest_ultrapar.pool.sources import Sources

if TYPE_CHECKING:
    from pytest_ultrapar.pool.place import Place

_N = TypeVar("_N", int, float)


@dataclass(frozen=True, slots=True)
class Caps:
    """What one table bounds: in flight, sends per second and minute, tokens; None is unlimited."""

    workers: int | None = None
    qps: float | None = None
    rpm: float | None = None
    tpm: float | None = None

    def over(self, outer: Caps) -> Caps:
        """These caps, and `outer`'s where nothing is said here."""
        return Caps(
            self.workers if self.workers is not None else outer.workers,
            self.qps if self.qps is not None else outer.qps,
            self.rpm if self.rpm is not None else outer.rpm,
            self.tpm if self.tpm is not None else outer.tpm,
        )


def read_caps(place: Place, table: LimitTable | None) -> Caps:
    """The caps of a table in fixed mode; values for adaptive mode are checked as well.

    Raises:
        ConfigError: A number is out of its bounds, or a value by mode has none for fixed mode.
    """
    if table is None:
        return Caps()
    return Caps(
        _count(place.at("workers"), table.workers),
        _rate(place.at("qps"), table.qps),
        _rate(place.at("rpm"), table.rpm),
        _rate(place.at("tpm"), table.tpm, TOKENS),
    )


@dataclass(frozen=True, slots=True)
class LimitBook:
    """All limits made so far, by name, outermost first within each provider.

    Attributes:
        sources: Where the origin of every number is noted, as `<limit> <field>`.
        prompt_types: What models that ask for it multiply their own workers by.
    """

    sources: Sources
    limits: dict[str, Limit] = field(default_factory=dict)
    prompt_types: int = 1

    def add(self, name: str, level: Level, caps: Caps, workers_origin: str | None = None) -> None:
        """Make a limit, unless it would bound nothing.

        Args:
            name: Unique in the pool.
            level: Where it was declared.
            caps: Its numbers.
            workers_origin: Where `workers` comes from, if not from the file.
        """
        if caps == Caps():
            return
        self.limits[name] = Limit(name, level, caps.workers, caps.qps, caps.rpm, caps.tpm)
        self.sources.note(f"{name} workers", caps.workers, workers_origin)
        self.sources.note(f"{name} qps", caps.qps)
        self.sources.note(f"{name} rpm", caps.rpm)
        self.sources.note(f"{name} tpm", caps.tpm)

    def path(self, *names: str) -> tuple[str, ...]:
        """Those of `names` that were made, in the order given."""
        return tuple(name for name in names if name in self.limits)


def _count(place: Place, value: int | CountByMode | None) -> int | None:
    if isinstance(value, CountByMode):
        if value.adaptive is not None:
            WORKERS.check(place.at("adaptive"), value.adaptive)
        return WORKERS.check(place.at("fixed"), _fixed(place, value.fixed))
    return None if value is None else WORKERS.check(place, value)


def _rate(place: Place, value: float | RateByMode | None, bounds: Bounds = RATE) -> float | None:
    if isinstance(value, RateByMode):
        if value.adaptive is not None:
            bounds.check(place.at("adaptive"), value.adaptive)
        return _float(bounds, place.at("fixed"), _fixed(place, value.fixed))
    return None if value is None else _float(bounds, place, value)


def _fixed(place: Place, value: _N | None) -> _N:
    if value is None:
        place.at("fixed").refuse("is missing: fixed mode needs a value of its own")
    return value


def _float(bounds: Bounds, place: Place, value: float) -> float:
    return float(bounds.check(place, value))
