"""A script of faults as checked data; `load_faults` makes it, a server's process gets it."""

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
    """Which of the requests on its lanes an entry takes: those for which all of this holds.

    Attributes:
        span: When they arrive.
        after_requests: So many requests within the span pass first.
        for_requests: So many after those are open to the fault; None is all.
        share: Each is taken with this chance, > 0 to 1.
    """

    span: Span = field(default_factory=Span)
    after_requests: int = 0
    for_requests: int | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One `[[fault]]`.

    Attributes:
        label: What the server's log calls it, such as `error 1`.
    """

    label: str
    where: Where
    when: When
    effect: AnyEffect


@dataclass(frozen=True, slots=True)
class FaultScript:
    """All that a faults file says.

    Attributes:
        path: The file it was read from, as given; empty for none.
        digest: SHA-256 (hex) of the file's bytes.
        since: What times count from.
        seed: Of all shares.
    """

    path: str = ""
    digest: str = ""
    since: Since = "first-request"
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    capacities: tuple[Capacity, ...] = ()

    def preceded_by(self, faults: Iterable[Fault]) -> FaultScript:
        """The same script with some faults before its own."""
        return replace(self, faults=(*faults, *self.faults))
