"""The bounds of the file as named limits, and the path of limits on which each lane lies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pytest_ultrapar.pool.bounds import RATE, TOKENS, WORKERS, Bounds
from pytest_ultrapar.pool.model import Level, Limit, RateMode
from pytest_ultrapar.pool.schema import CountByMode, LimitTable, RateByMode
from pytest_ultrapar.pool.sources import Sources

if TYPE_CHECKING:
    from pytest_ultrapar.pool.place import Place

_N = TypeVar("_N", int, float)

CAP_NAMES = ("workers", "qps", "rpm", "tpm")
"""The numbers of a limit, by the names of their fields."""


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


def read_caps(place: Place, table: LimitTable | None, mode: RateMode) -> Caps:
    """The caps of a table in one rate mode; values for the other mode are checked as well.

    Raises:
        ConfigError: A number is out of its bounds, a value by mode has none for this mode, or two
            numbers of the table contradict each other.
    """
    if table is None:
        return Caps()
    caps = Caps(
        _count(place.at("workers"), table.workers, mode),
        _rate(place.at("qps"), table.qps, mode),
        _rate(place.at("rpm"), table.rpm, mode),
        _rate(place.at("tpm"), table.tpm, mode, TOKENS),
    )
    if caps.qps is not None and caps.rpm is not None and caps.rpm < caps.qps:
        place.at("rpm").refuse(
            f"= {caps.rpm:g} contradicts {place.at('qps').path} = {caps.qps:g}: what is allowed in"
            " one second must be allowed in a minute"
        )
    return caps


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
        """Make a limit, unless it would bound nothing or is there, as that of a key listed twice.

        Args:
            name: Unique in the pool.
            level: Where it was declared.
            caps: Its numbers.
            workers_origin: Where `workers` comes from, if not from the file.
        """
        if caps == Caps() or name in self.limits:
            return
        self.limits[name] = Limit(name, level, caps.workers, caps.qps, caps.rpm, caps.tpm)
        self.sources.note(f"{name} workers", caps.workers, workers_origin)
        self.sources.note(f"{name} qps", caps.qps)
        self.sources.note(f"{name} rpm", caps.rpm)
        self.sources.note(f"{name} tpm", caps.tpm)

    def path(self, *names: str) -> tuple[str, ...]:
        """Those of `names` that were made, in the order given."""
        return tuple(name for name in names if name in self.limits)


def _count(place: Place, value: int | CountByMode | None, mode: RateMode) -> int | None:
    if isinstance(value, CountByMode):
        return _of_mode(WORKERS, place, value.fixed, value.adaptive, mode)
    return None if value is None else WORKERS.check(place, value)


def _rate(
    place: Place, value: float | RateByMode | None, mode: RateMode, bounds: Bounds = RATE
) -> float | None:
    if isinstance(value, RateByMode):
        return float(_of_mode(bounds, place, value.fixed, value.adaptive, mode))
    return None if value is None else float(bounds.check(place, value))


def _of_mode(
    bounds: Bounds, place: Place, fixed: _N | None, adaptive: _N | None, mode: RateMode
) -> _N:
    if fixed is not None:
        bounds.check(place.at("fixed"), fixed)
    if adaptive is not None:
        bounds.check(place.at("adaptive"), adaptive)
    if fixed is not None and adaptive is not None and adaptive < fixed:
        place.at("adaptive").refuse(
            f"= {adaptive:g} contradicts {place.at('fixed').path} = {fixed:g}: the ceiling of"
            " adaptive mode must not be below what fixed mode uses"
        )
    value = fixed if mode == "fixed" else adaptive
    if value is None:
        place.at(mode).refuse(f"is missing: {mode} mode needs a value of its own")
    return value
