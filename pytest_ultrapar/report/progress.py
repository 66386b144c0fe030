"""How far a run is, in one line; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pytest_ultrapar.report.numbers import duration, rate

WINDOW_S = 30.0
"""Seconds over which the rate is taken: enough for slow models, few enough to see a pause."""

_STEP_S = 0.5


@dataclass(frozen=True, slots=True)
class ProgressState:
    """What is known of a run in progress.

    Attributes:
        total: Planned cases.
        done: Cases whose episode has ended, whether pytest has reported them or not.
        counts: Reported cases by outcome.
        in_flight: Requests in flight.
        seen: (monotonic seconds, done) of the recent past, oldest first, at most two a second.
    """

    total: int
    done: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    in_flight: int = 0
    seen: tuple[tuple[float, int], ...] = ()


def observe(
    state: ProgressState, *, done: int, counts: Mapping[str, int], in_flight: int, now_s: float
) -> ProgressState:
    """The state after a look at the run at `now_s`."""
    seen = state.seen
    if not seen or now_s - seen[-1][0] >= _STEP_S:
        seen = (*seen, (now_s, done))
    # The newest look that is older than the window stays, so that the window is always full.
    while len(seen) > 1 and now_s - seen[1][0] >= WINDOW_S:
        seen = seen[1:]
    return replace(state, done=done, counts=dict(counts), in_flight=in_flight, seen=seen)


def cases_per_s(state: ProgressState, now_s: float) -> float | None:
    """Episodes ended per second over the recent past; None before anything has ended."""
    if not state.seen:
        return None
    since_s, done_then = state.seen[0]
    ended = state.done - done_then
    return ended / (now_s - since_s) if ended > 0 and now_s > since_s else None


def progress_line(state: ProgressState, now_s: float, width: int) -> str:
    """One line of at most `width` characters; what matters least is left out first."""
    per_s = cases_per_s(state, now_s)
    counts = state.counts
    # (Rank, text) in the order shown; the highest rank goes first when the line is too long.
    parts = [(0, f"{state.done}/{state.total}")]
    for rank, outcome in ((3, "solved"), (6, "partial"), (5, "unsolved")):
        parts.append((rank, f"{counts.get(outcome, 0)} {outcome}"))
    parts.extend(
        (2, f"{counts[outcome]} {outcome}") for outcome in ("infra", "error") if counts.get(outcome)
    )
    parts.append((4, f"{state.in_flight} in flight"))
    if per_s is not None:
        parts.append((7, rate(per_s)))
        if state.done < state.total:
            parts.append((1, f"ETA {duration((state.total - state.done) / per_s)}"))
    for limit in range(7, -1, -1):
        line = ", ".join(text for rank, text in parts if rank <= limit)
        if len(line) <= width:
            return line
    return parts[0][1][: max(width, 0)]
