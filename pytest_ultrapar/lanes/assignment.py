"""An assignment: plain data that says where workers are at home, and which cases run together."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.pool.model import LaneId


class Group(msgspec.Struct, frozen=True):
    """Cases that are scheduled by the same rule.

    A group ends when the episodes of all its cases have ended, never when pytest has reported them.

    Attributes:
        name: Unique in the assignment, not empty.
        cases: Case ids; a case belongs to at most one group, and a case in none is free.
        lanes: The only lanes these cases may use; None allows every lane of their model.
        after: Names of groups that must have ended before this one starts.
        start_after_s: Seconds after the run's start (and after the groups in `after`) before this
            one starts.
        exclusive: Groups with the same word here never run at the same time.
        at_once: At most so many episodes of the group are open at once; None is unlimited.
    """

    name: str
    cases: tuple[str, ...]
    lanes: tuple[LaneId, ...] | None = None
    after: tuple[str, ...] = ()
    start_after_s: float = 0.0
    exclusive: str | None = None
    at_once: int | None = None


class Assignment(msgspec.Struct, frozen=True):
    """What the assignment hook returns, carried out by scheduler and broker.

    Attributes:
        home: Lanes of each worker id. Leases stay on them while their own workers have work for
            them; idle seats are lent to whoever has work. A worker that is not named is at home
            everywhere.
        groups: Rules for sets of cases, in the order in which they should be fed.
    """

    home: dict[str, tuple[LaneId, ...]] = {}
    groups: tuple[Group, ...] = ()

    @property
    def is_restricted(self) -> bool:
        """Whether a rule may keep an episode from a lane of its model that is free."""
        return any(
            group.lanes is not None
            or group.after
            or group.start_after_s > 0
            or group.exclusive
            or group.at_once
            for group in self.groups
        )
