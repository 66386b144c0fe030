"""Policy `split`: the scripts' even split. Each lane of a model gets its share in advance.

All shares have the same size, regardless of a lane's limits and speed. The first lanes take the
remainder (20 cases on 3 keys: 7, 7, 6). Use this policy for comparisons.
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
    """One group for each model and lane. All groups run at the same time.

    Args:
        lanes: All lanes of the run, at least one for each case's model.
        cases: All cases of the run. The cases of a model go to its lanes in turn, in the order of
            their seeds. In the order of collection, a lane might get cases of only one difficulty.
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
