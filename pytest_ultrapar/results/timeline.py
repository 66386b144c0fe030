"""Makespan and the times between completions, on the host's monotonic clock; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.results.measure import CaseMeasure

RESOLUTION_S = 1e-6
"""Completions closer than this are taken as one moment."""


class Timeline(NamedTuple):
    """When the measured episodes ran.

    Attributes:
        makespan_s: First send of any episode to the end of the last one.
        gaps_s: Seconds before each completion since the one before it (the first since the first
            send, the last up to the end of the makespan), so that they add up to the makespan. None
            is zero: completions at one moment share the time before it.
    """

    makespan_s: float
    gaps_s: tuple[float, ...]


def make_timeline(measures: Sequence[CaseMeasure]) -> Timeline | None:
    """The timeline of the measured episodes; None when none of them completed.

    Episodes that ended as `infra` take time but are no completions: a lane that fails fast must not
    look like throughput.
    """
    spans = [each.span for each in measures if each.span is not None]
    ends = sorted(each.span.end_s for each in measures if each.span is not None and each.completed)
    if not ends:
        return None
    start_s = min(each.first_send_s for each in spans)
    makespan_s = max(max(each.end_s for each in spans) - start_s, RESOLUTION_S)
    return Timeline(makespan_s, _gaps(start_s, ends, makespan_s))


def _gaps(start_s: float, ends: list[float], makespan_s: float) -> tuple[float, ...]:
    moments: list[tuple[float, int]] = []
    waiting = 0
    before_s = 0.0
    for end_s in ends:
        waiting += 1
        if end_s - start_s - before_s >= RESOLUTION_S:
            before_s = end_s - start_s
            moments.append((before_s, waiting))
            waiting = 0
    # What comes within a moment of the last completion belongs to it, as does the time after it.
    last = moments.pop()[1] if moments else 0
    moments.append((makespan_s, last + waiting))
    gaps: list[float] = []
    before_s = 0.0
    for at_s, n in moments:
        gaps.extend([(at_s - before_s) / n] * n)
        before_s = at_s
    return tuple(gaps)
