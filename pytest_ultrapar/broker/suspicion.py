"""Whose fault a refusal is: the request's own, or that of a key, model or instance.

A 401, 403 or 404 may be about one request: a firewall's page, a provider behind the provider. So a
request that is refused goes once to another lane. A lane that comes under suspicion is *checked*:
its next lease is for a request of the run's own, as `ultrapar check` sends, and until that is back
there is no other. A check that is answered clears the lane; one that is refused removes what its
refusal names. Nothing here costs a run without refusals a request.

So it is with a `bad_request`, but only where it is the first word of a lane: then it may be all
that its instance says, and a check that is refused in the same words shows that. It is not sent to
another lane, and stands where the check is not refused alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.apis.failure_classes import ANSWERED, CLASSES, DOUBTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.apis.failure_classes import Scope
    from pytest_ultrapar.broker.lanes import LaneState
    from pytest_ultrapar.broker.protocol import LeaseOutcome, LeaseRequest
    from pytest_ultrapar.pool.model import LaneId

TELLING = 2
"""So many different requests refused in a row bring a lane under suspicion that has answered
before. With the check, a dead key refuses three."""


class Suspicion:
    """Which requests a lane refused since its last answer, and whether it is being checked. Pure.

    Attributes:
        is_new: The lane has never answered.
        is_being_checked: A check is out.
        is_deaf: The check was refused as the request was, and neither was understood.
    """

    def __init__(self) -> None:
        # By case, how it was refused, and in which words.
        self._refused: dict[str, tuple[str, int]] = {}
        self.is_new = True
        self._is_doubted = self.is_being_checked = self.is_deaf = False

    @property
    def is_suspect(self) -> bool:
        """Whether the lane is to be checked, or is.

        It is after two refusals in a row, and after one of the first that it ever answered or of a
        request that another lane refused, too.
        """
        is_enough = self.is_new or self._is_doubted or len(self._refused) >= TELLING
        return bool(self._refused) and is_enough

    @property
    def scope(self) -> Scope | None:
        """What of the lane would be removed, by its first refusal; None: the lane alone."""
        return next((CLASSES[one].removes for one, _ in self._refused.values()), None)

    def refused(self, case_id: str, outcome: str, words: int) -> None:
        """The lane's key, model or instance refused a request of a case."""
        self._refused[case_id] = outcome, words

    def doubt(self, case_id: str) -> None:
        """Another lane refused the request of that case, too."""
        self._is_doubted |= case_id in self._refused

    def answered(self) -> bool:
        """The lane answered, so that what it refused was not its fault.

        Returns:
            Whether it was a suspect.
        """
        was_suspect, self.is_new = self.is_suspect, False
        self.cleared()
        return was_suspect

    def cleared(self) -> None:
        """Nothing is known against the lane; a check that is out decides nothing any more."""
        self._refused.clear()
        self._is_doubted = self.is_being_checked = False

    def checked(self, outcome: LeaseOutcome, words: int) -> LeaseOutcome:
        """A check is over.

        Returns:
            What it says of the lane. One that was refused is `cancelled` where the lane has
            answered meanwhile, or where the check alone asks for what is not there.
        """
        is_told = self.is_being_checked and (
            outcome not in {"not_found", "bad_request"}
            or (outcome, words) in self._refused.values()
        )
        self.is_being_checked = False
        self.is_deaf = is_told and outcome == "bad_request"
        if outcome in DOUBTED and not is_told:
            self.is_new = False
            self.cleared()
            return "cancelled"
        if outcome in CLASSES and outcome not in ANSWERED:
            # It failed in another way: that is no verdict, and the next requests tell.
            self.cleared()
        return outcome


def next_lanes(
    request: LeaseRequest, allowed: Sequence[LaneState], known: Mapping[LaneId, LaneState]
) -> Sequence[LaneState] | None:
    """Where a request goes that was refused.

    Args:
        request: Its `refused_by` says where.
        allowed: The lanes that may serve it.
        known: All lanes.

    Returns:
        Other lanes, once; then those that refused it, as long as they are suspects. None: the
        refusal stands.
    """
    refused = [known[one] for one in request.refused_by if one in known]
    refused = [lane for lane in refused if not lane.is_removed]
    if not refused:
        return allowed
    if len(refused) > 1 or request.stays:
        for lane in refused:
            lane.health.suspicion.doubt(request.case_id)
    else:
        others = [lane for lane in allowed if lane not in refused and not lane.is_removed]
        if others := [lane for lane in others if not lane.health.awaits]:
            return others
    return [lane for lane in refused if lane.health.suspicion.is_suspect] or None
