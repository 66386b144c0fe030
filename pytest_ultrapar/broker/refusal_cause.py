"""Decides whether a refusal was caused by the request, or by a key, model or instance.

A 401, 403 or 404 may concern just one request: it may come from a firewall, or from a second
provider behind the provider. So a refused request is sent to another lane, but only once. A lane
that is suspected of being the cause is *checked*. Its next lease is used for a short request, like
the ones that `ultrapar check` sends. Until this check is answered, the lane gets no other lease. If
the check succeeds, the lane is no longer suspected. If the check is refused, the part of the lane
that refuses requests (key, model or instance) is removed. A run without refusals sends no extra
requests.

A `bad_request` leads to a check only if it is the first reply from a lane. The instance may then
reply in this way to every request. The request is not sent to another lane. If the instance
refuses the check with the same message, it is assumed to refuse every request. Otherwise the
refusal of the request is final.
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
"""A lane that has answered before is suspected once it has refused requests of this many different
cases in a row. Including the check, a dead key refuses three requests in total."""


class RefusalCheck:
    """The refusals by a lane since its last answer, and the state of the lane's check.

    Attributes:
        is_new: Whether the lane has never answered.
        is_being_checked: Whether a check is in flight.
        is_deaf: Whether the check was refused with the same `bad_request` as a request before it.
    """

    def __init__(self) -> None:
        # For each case: the outcome of the refusal, and the number that identifies its message.
        self._refused: dict[str, tuple[str, int]] = {}
        self.is_new = True
        self._is_doubted = self.is_being_checked = self.is_deaf = False

    @property
    def is_suspect(self) -> bool:
        """Whether the lane needs a check, or is being checked.

        It needs one if it has refused requests of two cases in a row. One refusal is enough if the
        lane has never answered, or if another lane has also refused the request.
        """
        is_enough = self.is_new or self._is_doubted or len(self._refused) >= TELLING
        return bool(self._refused) and is_enough

    @property
    def scope(self) -> Scope | None:
        """The part of the lane that its first refusal would remove; None if only this lane."""
        return next((CLASSES[one].removes for one, _ in self._refused.values()), None)

    def refused(self, case_id: str, outcome: str, words: int) -> None:
        """Record that the lane's key, model or instance refused a request of a case."""
        self._refused[case_id] = outcome, words

    def doubt(self, case_id: str) -> None:
        """Record that another lane has also refused the request of this case."""
        self._is_doubted |= case_id in self._refused

    def answered(self) -> bool:
        """Record an answer from the lane. It shows that the lane did not cause the refusals.

        Returns:
            Whether the lane was suspected.
        """
        was_suspect, self.is_new = self.is_suspect, False
        self.cleared()
        return was_suspect

    def cleared(self) -> None:
        """Forget all refusals. If a check is in flight, its result is ignored."""
        self._refused.clear()
        self._is_doubted = self.is_being_checked = False

    def checked(self, outcome: LeaseOutcome, words: int) -> LeaseOutcome:
        """Record the end of a check.

        Returns:
            The verdict on the lane. A refusal becomes `cancelled` if the lane has answered in the
            meantime, or if the check was refused for a different reason than the requests.
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
            # Other failures do not show what the lane does with requests: the next requests do.
            self.cleared()
        return outcome


def next_lanes(
    request: LeaseRequest, allowed: Sequence[LaneState], known: Mapping[LaneId, LaneState]
) -> Sequence[LaneState] | None:
    """The lanes that may serve a request that was refused.

    Args:
        request: The request. Its `refused_by` lists the lanes that refused it.
        allowed: The lanes that could serve it if none had refused it.
        known: All lanes.

    Returns:
        After the first refusal, other lanes. After that, the lanes that refused the request and are
        suspected of being the cause themselves. None if the refusal is final.
    """
    refused = [known[one] for one in request.refused_by if one in known]
    refused = [lane for lane in refused if not lane.is_removed]
    if not refused:
        return allowed
    if len(refused) > 1 or request.stays:
        for lane in refused:
            lane.health.refusal_check.doubt(request.case_id)
    else:
        others = [lane for lane in allowed if lane not in refused and not lane.is_removed]
        if others := [lane for lane in others if not lane.health.awaits]:
            return others
    return [lane for lane in refused if lane.health.refusal_check.is_suspect] or None
