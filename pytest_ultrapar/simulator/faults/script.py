"""A script of faults as checked data, made by `load_faults` for the server's process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from pytest_ultrapar.simulator.faults.kinds import AnyEffect
from pytest_ultrapar.simulator.faults.timeline import Capacity, Span, Where

if TYPE_CHECKING:
    from collections.abc import Iterable


Since = Literal["first-request", "start"]


@dataclass(frozen=True, slots=True)
class When:
    """The requests that an entry takes, of those on its lanes: all conditions must hold.

    Attributes:
        span: The time of arrival.
        after_requests: Number of requests within the span that pass first.
        for_requests: Number of requests after those that the fault may take; None is all.
        share: The probability of taking a request, > 0 to 1.
    """

    span: Span = field(default_factory=Span)
    after_requests: int = 0
    for_requests: int | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One `[[fault]]`.

    Attributes:
        label: Its name in the server's log, such as `error 1`.
    """

    label: str
    where: Where
    when: When
    effect: AnyEffect


@dataclass(frozen=True, slots=True)
class FaultScript:
    """The content of a faults file.

    Attributes:
        path: The file as the user gave it; empty if there is no file.
        digest: SHA-256 (hex) of the file's bytes.
        since: The zero point of all times.
        seed: The seed of all draws.
    """

    path: str = ""
    digest: str = ""
    since: Since = "first-request"
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    capacities: tuple[Capacity, ...] = ()

    def preceded_by(self, faults: Iterable[Fault]) -> FaultScript:
        """The same script with other faults before its own."""
        return replace(self, faults=(*faults, *self.faults))
