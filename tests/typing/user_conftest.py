"""A conftest as users write it, with all annotations: mypy reads it, but it never runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from pytest_ultrapar import Assignment, Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_ultrapar.coordinator.finish import FinishedRun
    from pytest_ultrapar.pool.model import Lane, LaneId
    from pytest_ultrapar.records import Attempt, Case, Grade


def pytest_ultrapar_assign(
    config: pytest.Config, workers: Sequence[str], lanes: Sequence[Lane], cases: Sequence[Case]
) -> Assignment:
    """Give every worker all lanes; run the cases of one model first."""
    del config
    everywhere: tuple[LaneId, ...] = tuple(lane.lane_id for lane in lanes)
    first = Group("first", tuple(case.case_id for case in cases if case.model == "qwen"))
    rest = tuple(case.case_id for case in cases if case.model != "qwen")
    groups = (first, Group("rest", rest, after=("first",), at_once=10))
    return Assignment(home=dict.fromkeys(workers, everywhere), groups=groups)


def pytest_ultrapar_policies(mode: str) -> Sequence[str]:
    """Offer a policy, except in mode `phase`."""
    return [] if mode == "phase" else ["first-model"]


def pytest_ultrapar_attempt(record: Attempt) -> None:
    """See a request."""
    assert_type(record.t_end_s - record.t_send_s, float)


def pytest_ultrapar_case(record: Grade) -> None:
    """See a case."""
    assert_type(record.scores, dict[str, float])


def pytest_ultrapar_finish(run: FinishedRun) -> None:
    """See the run."""
    if run.summary is not None:
        assert_type(run.summary.statistics.coverage, float)
