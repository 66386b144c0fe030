"""Leases that end by themselves, because their holder hangs and its connection does not end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.wakes import Wake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.lanes.queueing import WorkerState


class LeaseTerms(Wake):
    """The leases of one lane that are out, oldest first; wakes when the oldest may be over.

    All of a lane have the same term, so that their order is that of their ends and a lease costs
    one entry in a dict; it wakes once per term, not once per lease.
    """

    __slots__ = ("_out",)

    def __init__(self) -> None:
        super().__init__()
        self._out: dict[int, tuple[WorkerState, float]] = {}

    def begin(self, lease_id: int, worker: WorkerState, end_s: float) -> None:
        """A lease was granted that ends at `end_s`, which is no earlier than that of the last."""
        self._out[lease_id] = worker, end_s

    def end(self, lease_id: int) -> None:
        """A lease came back."""
        del self._out[lease_id]

    def pop_over(self, now_s: float) -> Iterator[tuple[int, WorkerState]]:
        """Leases whose term has ended, which are forgotten here."""
        while self._out:
            lease_id, (worker, end_s) = next(iter(self._out.items()))
            if end_s > now_s:
                return
            del self._out[lease_id]
            yield lease_id, worker

    def next_end_s(self) -> float | None:
        """When the oldest lease ends by itself; None when none is out."""
        for _, end_s in self._out.values():
            return end_s
        return None
