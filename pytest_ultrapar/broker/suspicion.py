"""Whose fault a refusal is: the request's own, or that of a key, model or instance.

A 401, 403 or 404 may be about one request: a firewall's page, a provider behind the provider. So a
request that is refused goes once to another lane, and where a lane comes under suspicion a *probe*
decides: a request of the run's own, as `ultrapar check` sends. A probe that is answered clears the
lane; one that is refused removes what its refusal names. Nothing here costs a run without refusals
a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.broker.lanes import LaneState
    from pytest_ultrapar.broker.protocol import LeaseRequest
    from pytest_ultrapar.pool.model import LaneId

TELLING = 2
"""So many different requests refused in a row bring a lane under suspicion that has answered
before. With the probe, a dead key refuses three."""


class Suspicion:
    """Which requests a lane refused since its last answer, and whether a probe is out. Pure.

    Attributes:
        is_tried: A probe is out.
    """

    def __init__(self) -> None:
        # By case, how it was refused.
        self._refused: dict[str, str] = {}
        self._is_new = True
        self.is_tried = False

    @property
    def is_suspect(self) -> bool:
        """Whether it refused two in a row, or the first request that it ever had."""
        return bool(self._refused) and (self._is_new or len(self._refused) >= TELLING)

    def refused(self, case_id: str, outcome: str) -> None:
        """The lane's key, model or instance refused a request of a case."""
        self._refused[case_id] = outcome

    def has(self, outcome: str) -> bool:
        """Whether a request was refused like that."""
        return outcome in self._refused.values()

    def answered(self) -> bool:
        """The lane answered: what it refused was not its fault; whether it was a suspect."""
        was_suspect, self._is_new = self.is_suspect, False
        self.cleared()
        return was_suspect

    def cleared(self) -> None:
        """Nothing is known against it, and a probe that is out decides nothing."""
        self._refused.clear()
        self.is_tried = False

    def wants_probe(self, request: LeaseRequest) -> bool:
        """Whether the next lease on this lane of a request that was refused is for a probe."""
        if self.is_tried or request.case_id not in self._refused:
            return False
        # A request that two lanes refuse has both of them tried.
        return self.is_suspect or len(request.refused_by) > 1


def next_lanes(
    request: LeaseRequest, allowed: Sequence[LaneState], known: Mapping[LaneId, LaneState]
) -> tuple[Sequence[LaneState], LaneState | None] | None:
    """Where a request goes that was refused.

    Args:
        request: Its `refused_by` says where.
        allowed: The lanes that may serve it.
        known: All lanes.

    Returns:
        The lanes, and the one to go to first if that is under suspicion. None: the refusal stands,
        as two lanes refused it, or there is no other.
    """
    found = [known[one] for one in dict.fromkeys(request.refused_by) if one in known]
    refused = [one for one in found if not one.is_removed]
    if not refused:
        return allowed, None
    others = [one for one in allowed if one not in refused and not one.is_removed]
    for lane in refused:
        if lane.health.suspicion.wants_probe(request):
            # It goes elsewhere once: where two refused it, only their probes can help it.
            return allowed if len(refused) == 1 else [lane], lane
    if others and len(refused) == 1:
        return others, None
    # What is up has answered meanwhile.
    tried = [one for one in refused if one.health.suspicion.is_tried and not one.is_up]
    return (tried, None) if tried else None
