"""A script of faults as checked data. `load_faults` makes it for the server's process."""

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
    """The conditions under which a fault affects a request on its lanes. All of them must be met.

    Attributes:
        span: The time span in which the request must arrive.
        after_requests: How many requests in the span pass without the fault before it takes effect.
        for_requests: How many of the requests after these the fault may affect; None means all.
        share: The probability that a request is affected, above 0 and up to 1.
    """

    span: Span = field(default_factory=Span)
    after_requests: int = 0
    for_requests: int | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One `[[fault]]`.

    Attributes:
        label: The fault's name in the server's log, such as `error 1`.
    """

    label: str
    where: Where
    when: When
    effect: AnyEffect


@dataclass(frozen=True, slots=True)
class FaultScript:
    """The content of a faults file.

    Attributes:
        path: The file as the user named it; empty if there is no file.
        digest: SHA-256 (hex) of the file's bytes.
        since: The event from which all times are counted: the first request, or the server's start.
        seed: The seed for all random draws.
    """

    path: str = ""
    digest: str = ""
    since: Since = "first-request"
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    capacities: tuple[Capacity, ...] = ()

    def preceded_by(self, faults: Iterable[Fault]) -> FaultScript:
        """Return the same script with these faults in front of its own."""
        return replace(self, faults=(*faults, *self.faults))
