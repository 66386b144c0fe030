"""What became of the lanes of a run: a line for each that had trouble; pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_ultrapar.lanes.failure_classes import ANSWERED, CLASSES
from pytest_ultrapar.report.escape import visible
from pytest_ultrapar.report.numbers import counted, duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.lanes.protocol import FoundLimit, LaneStatus

MOST_LANES = 24
"""Lines of their own; the manifest has all lanes."""
_LONGEST = 200
_OUT = ": out for the rest of the run"
_FAILURES = frozenset(CLASSES) - ANSWERED
"""Outcomes that are the lane's, and not of what was asked."""


def lane_lines(lanes: Sequence[LaneStatus]) -> Iterator[str]:
    """Lines safe for a terminal: lanes with trouble, those that are out first, then sums.

    Lanes that are out for the same reason, such as all of one key, share a line.
    """
    lines = [*_out_lines(lanes), *(line for lane in lanes if (line := _line(lane)))]
    yield from lines[:MOST_LANES]
    if len(lines) > MOST_LANES:
        yield f"... and {len(lines) - MOST_LANES:,} more lines of lanes, all in the manifest"
    found = {lane.found.limit: lane.found for lane in lanes if lane.found is not None}
    found = {name: one for name, one in found.items() if one.n_cuts or not one.declared}
    yield from map(_found_line, list(found.values())[:MOST_LANES])
    if len(found) > MOST_LANES:
        yield f"... and {len(found) - MOST_LANES:,} more limits found; `limits` has all of them"
    n_refused = sum(lane.n_rate_limited for lane in lanes)
    n_granted = sum(lane.granted for lane in lanes)
    if n_refused:
        were = "was" if n_granted == 1 else "were"
        yield f"{n_refused:,} of {counted(n_granted, 'request')} {were} refused as too much"
    n_lost = sum(lane.outcomes.get("lost", 0) for lane in lanes)
    if n_lost:
        yield (
            f"{counted(n_lost, 'request')} of workers that died or hung stand in no table, and may "
            "have been billed"
        )


def n_failed_requests(lanes: Sequence[LaneStatus]) -> int:
    """Requests that failed by their lane: all failures but those of what was asked."""
    return sum(_failures(lanes).values())


def _found_line(found: FoundLimit) -> str:
    if found.declared:
        return visible(_lowered_line(found))
    parts = [] if found.workers is None else [f"{found.workers} in flight"]
    if found.qps is not None:
        parts.append(f"{found.qps:.3g} per second")
    if not parts:
        return visible(f"limit of {found.limit} not reached: {found.peak} in flight at most")
    cuts = f"; refusals lowered it {_times(found.n_cuts)}" if found.n_cuts else ""
    return visible(f"limit found of {found.limit}: {', '.join(parts)}{cuts}")


def _lowered_line(found: FoundLimit) -> str:
    """What became of a declared limit that the provider refused requests below."""
    refused = f"refusals lowered {found.limit} {_times(found.n_cuts)} below what the pool declares"
    if found.is_back:
        return f"{refused}; it is back there"
    allowed, fields = [], []
    if found.workers is not None:
        allowed.append(f"{found.workers} in flight")
        fields.append(f"workers = {found.workers}")
    if found.qps is not None:
        allowed.append(f"{found.qps:.3g} per second")
        fields.append(f"qps = {found.qps:.3g}")
    if not allowed:
        return f"{refused}; too few were answered to tell what the provider allows"
    return (
        f"{refused}; the provider seems to allow {', '.join(allowed)}: declare "
        f"{', '.join(fields)}, or have it estimated from the start (--ultrapar-rate-mode adaptive)"
    )


def _out_lines(lanes: Sequence[LaneStatus]) -> Iterator[str]:
    alike: dict[str, list[LaneStatus]] = {}
    for lane in lanes:
        if lane.state == "out":
            alike.setdefault(lane.reason, []).append(lane)
    for reason, group in alike.items():
        yield "; ".join([_out(reason, group), *_happened(group)])


def _out(reason: str, group: Sequence[LaneStatus]) -> str:
    said = f"lane {group[0].lane}"
    more = [] if len(group) == 1 else [counted(len(group), "lane")]
    if len(group) > 1 or reason.startswith(f"{said} "):
        head = reason
    else:
        head = f"{said}: {reason}" if reason.endswith(_OUT) else f"{said} is out: {reason}"
    # What a provider said stands before the last words, which must not be cut off.
    shown = visible(head.removesuffix(_OUT), _LONGEST) + (_OUT if head.endswith(_OUT) else "")
    after_s = [lane.out_after_s for lane in group if lane.out_after_s is not None]
    more += [f"after {duration(min(after_s))}"] if after_s else []
    return f"{shown} ({', '.join(more)})" if more else shown


def _line(lane: LaneStatus) -> str:
    """What happened to a lane that is not out; empty when nothing did."""
    happened = list(_happened([lane]))
    said = f"lane {lane.lane}"
    if lane.state == "paused":
        # How long it rested is among what happened.
        reason = lane.reason.rpartition(": paused ")[0] if lane.rests else ""
        reason = reason or lane.reason
        head = reason if reason.startswith(f"{said} ") else f"{said} is paused: {reason}"
        return "; ".join([visible(head, _LONGEST), *happened])
    if lane.state == "up" and happened:
        return f"{visible(said)}: {'; '.join(happened)}"
    return ""


def _happened(lanes: Sequence[LaneStatus]) -> Iterator[str]:
    failures = _failures(lanes)
    if failures:
        kinds = ", ".join(f"{n:,} {outcome}" for outcome, n in failures.most_common())
        n_moved = sum(lane.n_moved for lane in lanes)
        moved = f", {n_moved:,} tried again on other lanes" if n_moved else ""
        yield f"{counted(failures.total(), 'failed request')} ({kinds}){moved}"
    n_rests = sum(lane.rests.get("rate", 0) for lane in lanes)
    if n_rests:
        rested_s = sum(lane.rested_s.get("rate", 0.0) for lane in lanes)
        yield f"paused {_times(n_rests)}, {duration(rested_s)} in all"
    n_opened = sum(lane.n_opened for lane in lanes)
    if n_opened:
        rested_s = sum(lane.rested_s.get("breaker", 0.0) for lane in lanes)
        yield f"breaker opened {_times(n_opened)}, {duration(rested_s)} in all"


def _failures(lanes: Sequence[LaneStatus]) -> Counter[str]:
    found: Counter[str] = Counter()
    for lane in lanes:
        found.update({name: n for name, n in lane.outcomes.items() if n and name in _FAILURES})
    return found


def _times(n: int) -> str:
    return {1: "once", 2: "twice"}.get(n, f"{n:,} times")
