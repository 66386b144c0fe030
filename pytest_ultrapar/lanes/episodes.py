"""Which episodes are open, over all workers and by group."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ultrapar.lanes.groups import GroupState
    from pytest_ultrapar.lanes.protocol import LeaseRequest
    from pytest_ultrapar.lanes.queueing import WorkerState


class OpenEpisodes:
    """Counts episodes from their first lease to their end or to the end of their worker.

    Attributes:
        n_open: Open episodes of all workers.
    """

    __slots__ = ("n_open",)

    def __init__(self) -> None:
        self.n_open = 0

    def is_opening(self, worker: WorkerState, request: LeaseRequest) -> bool:
        """Whether a request is for the first lease of an episode that the worker has not open."""
        return request.opens and request.case_id not in worker.open_cases

    def open(self, worker: WorkerState, case_id: str, group: GroupState | None) -> None:
        """Count an episode that gets its first lease; an empty `case_id` counts without a name."""
        if case_id:
            if case_id in worker.open_cases:
                return
            worker.open_cases[case_id] = group
        else:
            worker.open_unnamed[group] = worker.open_unnamed.get(group, 0) + 1
        self.n_open += 1
        if group is not None:
            group.n_open += 1
            group.has_opened = True

    def close(
        self, worker: WorkerState, case_id: str, group: GroupState | None
    ) -> list[GroupState]:
        """Count an episode as ended; nothing happens when the worker never opened one of that case.

        Returns:
            The groups that have one open episode less.
        """
        if case_id in worker.open_cases:
            return self._less(worker.open_cases.pop(case_id))
        n_unnamed = worker.open_unnamed.get(group, 0)
        if not n_unnamed:
            return []
        worker.open_unnamed[group] = n_unnamed - 1
        return self._less(group)

    def close_all(self, worker: WorkerState) -> list[GroupState]:
        """Count all episodes of a worker as closed. Returns the groups that have fewer now."""
        groups = [*worker.open_cases.values()]
        for group, n_unnamed in worker.open_unnamed.items():
            groups += [group] * n_unnamed
        worker.open_cases.clear()
        worker.open_unnamed.clear()
        return list({less: None for group in groups for less in self._less(group)})

    def _less(self, group: GroupState | None) -> list[GroupState]:
        self.n_open -= 1
        if group is None:
            return []
        group.n_open -= 1
        return [group]
