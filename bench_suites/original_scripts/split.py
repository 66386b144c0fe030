"""Policy `split`: the scripts' even split, each lane of a model gets its share in advance.

Whatever a lane can take and however fast it is, its share is as large as any other's; the first
lanes take what is left over (20 cases on 3 keys: 7, 7, 6). It is there to be compared with.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from pytest_ultrapar import Assignment, Group
from pytest_ultrapar.records import Case, by_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.pool.model import Lane, LaneId


def split(lanes: Sequence[Lane], cases: Sequence[Case]) -> Assignment:
    """One group for each model and lane, all at once.

    Args:
        lanes: All lanes of the run; every case's model has one.
        cases: All cases of the run; those of a model are dealt to its lanes in turn, in an order
            that their seeds draw: in that of collection a lane could get one difficulty.
    """
    own = by_key((lane.model, lane.lane_id) for lane in lanes)
    turns = {model: cycle(ids) for model, ids in own.items()}
    shares: dict[LaneId, list[str]] = {lane.lane_id: [] for lane in lanes}
    for case in sorted(cases, key=lambda case: case.seed):
        shares[next(turns[case.model])].append(case.case_id)
    return Assignment(
        groups=tuple(
            Group(lane_id, tuple(share), lanes=(lane_id,))
            for lane_id, share in shares.items()
            if share
        )
    )
