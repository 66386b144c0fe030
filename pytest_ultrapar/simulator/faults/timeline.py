"""The lanes and the time span that an entry in a script applies to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import Lane


class Timeline:
    """Counts seconds since the first request, or since the server started."""

    __slots__ = ("_began_s",)

    def __init__(self, began_s: float | None = None) -> None:
        """Count from `began_s`; None means from the first call of `begin`."""
        self._began_s = began_s

    def begin(self, now_s: float) -> None:
        """Begin at `now_s`, unless the timeline has already begun. Call this for every request."""
        if self._began_s is None:
            self._began_s = now_s

    def elapsed_s(self, now_s: float) -> float:
        """Return the seconds since the beginning; 0 if the timeline has not begun."""
        return 0.0 if self._began_s is None else now_s - self._began_s


@dataclass(frozen=True, slots=True)
class Where:
    """The lanes that an entry applies to. All names must match; None matches any name."""

    provider: str | None = None
    instance: str | None = None
    key: str | None = None
    model: str | None = None

    def holds(self, lane: Lane) -> bool:
        """Whether the lane matches."""
        return (
            self.provider in {None, lane.provider}
            and self.instance in {None, lane.instance}
            and self.key in {None, lane.key}
            and self.model in {None, lane.model}
        )


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open time span.

    Attributes:
        from_s: Its beginning, in seconds after the script began, >= 0.
        for_s: Its length in seconds, > 0; None means that it has no end.
    """

    from_s: float = 0.0
    for_s: float | None = None

    def holds(self, elapsed_s: float) -> bool:
        """Whether the span contains this moment."""
        return self.from_s <= elapsed_s < self.end_s

    @property
    def end_s(self) -> float:
        """The end in seconds after the script began; infinity if there is no end."""
        return float("inf") if self.for_s is None else self.from_s + self.for_s


@dataclass(frozen=True, slots=True)
class Capacity:
    """One `[[capacity]]`: temporary amounts of a limit.

    Attributes:
        limits: Names of the limits that change. If there are no names, a new limit is added; all
            lanes that `where` selects share it.
        factor: The number by which all amounts of the limits are multiplied first.
        amounts: Amounts that are set after that, by their names in the pool file, such as `rpm`.
    """

    label: str
    limits: tuple[str, ...]
    where: Where
    span: Span
    factor: float = 1.0
    amounts: Mapping[str, float] = field(default_factory=dict)
