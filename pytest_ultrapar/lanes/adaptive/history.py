"""What became of a limit that is searched for: every change with its reason."""

from __future__ import annotations

import msgspec


class LimitChange(msgspec.Struct, frozen=True, array_like=True):
    """One change of a limit in adaptive mode.

    Attributes:
        limit: Its name: that of a limit of the pool, or of a lane.
        at_s: When, monotonic seconds of the host.
        seats: Requests at once from then on.
        rate: Sends per second from then on; None is unbounded.
        in_flight: Seats taken at that moment.
        reason: One word or two for people: `start`, `refused`, `grow`, `try`, ...
    """

    limit: str
    at_s: float
    seats: int
    rate: float | None
    in_flight: int
    reason: str
