"""Speed-ups over a run of the same cases one at a time, measured case by case; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.policy_names import ONE_AT_A_TIME
from pytest_ultrapar.results.part_time import PartTime, part_time
from pytest_ultrapar.results.speedup import Part, speedup, speedup_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_ultrapar.bench.mode_run import ModeRun
    from pytest_ultrapar.results.measure import CaseMeasure


def base_run(runs: Sequence[ModeRun]) -> ModeRun | None:
    """The run that others are measured against: `serial`, else `rotate`, one case at a time too.

    Returns:
        None where neither is among them, or `rotate` has nothing beside it.
    """
    of_mode = {run.mode: run for run in runs}
    if set(of_mode) == {"rotate"}:
        return None
    return next((of_mode[mode] for mode in ONE_AT_A_TIME if mode in of_mode), None)


class Speedup(NamedTuple):
    """How much faster a run was than the serial one.

    Attributes:
        factor: Cases per second over those of the serial run.
        interval: At least 95 %, as `speedup_interval` has it; None with fewer than 3 cases.
        serial_s: What the run's completed cases took one after the other.
        n_both: Cases that both completed.
        n_serial: Cases that the serial run completed.
    """

    factor: float
    interval: tuple[float, float] | None
    serial_s: float
    n_both: int
    n_serial: int


def full_speedup(
    serial: Mapping[str, CaseMeasure],
    other: Mapping[str, CaseMeasure],
    chosen: Callable[[CaseMeasure], bool],
) -> Speedup | None:
    """The speed-up of some cases; None when one of the runs completed none of them.

    A case stands for its time in both runs, so that one that takes long takes long in both: drawn
    together, such cases do not widen the interval.

    Args:
        serial: All measures of the serial run, by case id.
        other: Those of the other run.
        chosen: Which cases.
    """
    slow = _shares(part_time(serial.values(), chosen))
    fast = _shares(part_time(other.values(), chosen))
    parts = [
        Part(
            _completed(serial.get(case_id)),
            slow.get(case_id, 0.0),
            _completed(other.get(case_id)),
            fast.get(case_id, 0.0),
        )
        for case_id in {**slow, **fast}
    ]
    factor = speedup(parts)
    if factor is None:
        return None
    n_slow, n_fast = sum(part.n_slow for part in parts), sum(part.n_fast for part in parts)
    return Speedup(
        factor,
        speedup_interval([parts]),
        n_fast * sum(part.slow_s for part in parts) / n_slow,
        sum(part.n_slow * part.n_fast for part in parts),
        n_slow,
    )


def _shares(took: PartTime | None) -> dict[str, float]:
    return {each.case_id: share_s for each, share_s in took.shares} if took is not None else {}


def _completed(measure: CaseMeasure | None) -> int:
    return int(measure is not None and measure.timed)
