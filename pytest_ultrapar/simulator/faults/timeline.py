"""The lanes and the time span of an entry in a script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import Lane


class Timeline:
    """Seconds since the first request, or since the server's start."""

    __slots__ = ("_began_s",)

    def __init__(self, began_s: float | None = None) -> None:
        """Count from `began_s`; None counts from the first `begin`."""
        self._began_s = began_s

    def begin(self, now_s: float) -> None:
        """Begin at `now_s`, unless it has begun; called at every request."""
        if self._began_s is None:
            self._began_s = now_s

    def elapsed_s(self, now_s: float) -> float:
        """Seconds since the beginning, 0 before it."""
        return 0.0 if self._began_s is None else now_s - self._began_s


@dataclass(frozen=True, slots=True)
class Where:
    """The lanes of an entry: those with all given names; None is any name."""

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
    """A half-open part of the server's time.

    Attributes:
        from_s: Seconds after the script's beginning, >= 0.
        for_s: Seconds, > 0; None has no end.
    """

    from_s: float = 0.0
    for_s: float | None = None

    def holds(self, elapsed_s: float) -> bool:
        """Whether that moment is in it."""
        return self.from_s <= elapsed_s < self.end_s

    @property
    def end_s(self) -> float:
        """Seconds after the script's beginning; infinity for no end."""
        return float("inf") if self.for_s is None else self.from_s + self.for_s


@dataclass(frozen=True, slots=True)
class Capacity:
    """One `[[capacity]]`: temporary amounts of a limit.

    Attributes:
        limits: Names of the limits that change; empty makes a new limit, shared by all lanes of
            `where`.
        factor: Multiplies the amounts of the limits, before the amounts here replace them.
        amounts: Amounts by the words of the pool file.
    """

    label: str
    limits: tuple[str, ...]
    where: Where
    span: Span
    factor: float = 1.0
    amounts: Mapping[str, float] = field(default_factory=dict)
