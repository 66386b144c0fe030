"""Speed-ups over a serial run of the same cases, measured case by case; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.results.speedup import Part, makespan_shares, speedup, speedup_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_ultrapar.results.measure import CaseMeasure


class Speedup(NamedTuple):
    """How much faster a run was than the serial one.

    Attributes:
        factor: Cases per second over those of the serial run.
        interval: At 95 %, by bootstrap over cases; None with fewer than 8.
        serial_s: What the run's completed cases took one after the other.
        n_both: Cases that both completed.
    """

    factor: float
    interval: tuple[float, float] | None
    serial_s: float
    n_both: int


def shares_by_case(measures: Mapping[str, CaseMeasure]) -> dict[str, float]:
    """Each case's share of the makespan of all, seconds by case id."""
    ran = {case_id: each.span for case_id, each in measures.items() if each.span is not None}
    return dict(zip(ran, makespan_shares(list(ran.values())), strict=True))


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
    # Of the whole serial run: cases of others may have run between those chosen.
    slow_s = shares_by_case(serial)
    fast = {case_id: each for case_id, each in other.items() if chosen(each)}
    fast_s = shares_by_case(fast)
    slow = {case_id: each for case_id, each in serial.items() if chosen(each)}
    ids = [case_id for case_id in {**slow, **fast} if case_id in slow_s or case_id in fast_s]
    parts = [
        Part(
            _completed(slow.get(case_id)),
            slow_s.get(case_id, 0.0),
            _completed(fast.get(case_id)),
            fast_s.get(case_id, 0.0),
        )
        for case_id in ids
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
    )


def _completed(measure: CaseMeasure | None) -> int:
    return int(measure is not None and measure.timed)
