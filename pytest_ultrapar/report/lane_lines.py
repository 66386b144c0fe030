"""What became of the lanes of a run: a line for each that had trouble; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.report.escape import visible
from pytest_ultrapar.report.numbers import counted, duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.lanes.protocol import FoundLimit, LaneStatus

MOST_LANES = 24
"""Lanes with a line of their own; the manifest has all of them."""
_LONGEST = 200


def lane_lines(lanes: Sequence[LaneStatus]) -> Iterator[str]:
    """Lines safe for a terminal: lanes with trouble, then sums over all lanes."""
    troubled = [line for lane in lanes if (line := _line(lane))]
    yield from troubled[:MOST_LANES]
    if len(troubled) > MOST_LANES:
        yield f"... and {len(troubled) - MOST_LANES:,} more lanes with trouble, in the manifest"
    found = {lane.found.limit: lane.found for lane in lanes if lane.found is not None}
    yield from map(_found_line, list(found.values())[:MOST_LANES])
    if len(found) > MOST_LANES:
        yield f"... and {len(found) - MOST_LANES:,} more limits found; `limits` has all of them"
    n_refused = sum(lane.n_rate_limited for lane in lanes)
    n_granted = sum(lane.granted for lane in lanes)
    if n_refused:
        yield f"{n_refused:,} of {n_granted:,} requests were refused for their rate (429)"
    n_lost = sum(lane.outcomes.get("lost", 0) for lane in lanes)
    if n_lost:
        yield (
            f"{counted(n_lost, 'request')} of workers that died or hung stand in no table, and may "
            "have been billed"
        )


def _found_line(found: FoundLimit) -> str:
    parts = [] if found.workers is None else [f"{found.workers} in flight"]
    if found.qps is not None:
        parts.append(f"{found.qps:.3g} per second")
    if not parts:
        return visible(f"limit of {found.limit} not reached: {found.peak} in flight at most")
    cuts = f"; refusals lowered it {_times(found.n_cuts)}" if found.n_cuts else ""
    return visible(f"limit found of {found.limit}: {', '.join(parts)}{cuts}")


def _line(lane: LaneStatus) -> str:
    """What happened to a lane; empty when nothing did."""
    happened = list(_happened(lane))
    said = f"lane {lane.lane}"
    if lane.state != "up":
        is_said = lane.reason.startswith(f"{said} ")
        head = lane.reason if is_said else f"{said} is {lane.state}: {lane.reason}"
        after = "" if lane.out_after_s is None else f" (after {duration(lane.out_after_s)})"
        return "; ".join([visible(head, _LONGEST) + after, *happened])
    return f"{visible(said)}: {'; '.join(happened)}" if happened else ""


def _happened(lane: LaneStatus) -> Iterator[str]:
    n_rests = lane.rests.get("rate", 0)
    if n_rests:
        rested_s = lane.rested_s.get("rate", 0.0)
        yield f"paused {_times(n_rests)} for its rate, {duration(rested_s)} in all"
    if lane.n_opened:
        rested_s = lane.rested_s.get("breaker", 0.0)
        yield f"breaker opened {_times(lane.n_opened)}, {duration(rested_s)} in all"
    if lane.n_moved:
        yield f"{counted(lane.n_moved, 'failed request')} went to other lanes"


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n:,} times"
