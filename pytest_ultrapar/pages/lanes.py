"""What each lane did over the time of a run, in slices."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pytest_ultrapar.report.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.store.manifest import Manifest

N_SLICES = 200
MOST_LANES = 24
MOST_LIMITS = 12
_REFUSED = frozenset({"rate", "congestion", "overload"})


class LaneUse(msgspec.Struct, frozen=True):
    """One lane over time.

    Attributes:
        seats: How many requests its limits allow at once, as far as the pool says.
        slice_s: Seconds of a slice.
        in_flight: Requests, on average over each slice.
        refused_at_s: When refusals came, in seconds from the run's first request.
        n: Requests in all.
        pauses: How often it was paused, in all.
        paused_s: Seconds for which it was; when is not kept.
        n_opened: How often its breaker opened.
    """

    lane: str
    seats: int | None
    slice_s: float
    in_flight: list[float]
    refused_at_s: list[float]
    n: int
    pauses: int = 0
    paused_s: float = 0.0
    n_opened: int = 0


class LimitLine(msgspec.Struct, frozen=True):
    """An estimated limit over time.

    Attributes:
        at_s: When it changed, in seconds from the run's first request.
        workers: Requests in flight that it allowed from then on.
        reasons: Why it changed, a few words each.
    """

    limit: str
    at_s: list[float]
    workers: list[int]
    reasons: list[str]


def lane_uses(attempts: Sequence[dict[str, Any]], manifest: Manifest) -> list[LaneUse]:
    """The lanes that were used most, at most `MOST_LANES`.

    Args:
        attempts: Rows of the table.
        manifest: Of the run; which limits bound a lane.
    """
    sent = [row for row in attempts if row["t_send_s"] is not None and row["t_end_s"] is not None]
    if not sent:
        return []
    start_s = min(row["t_send_s"] for row in sent)
    slice_s = max(1e-6, (max(row["t_end_s"] for row in sent) - start_s) / N_SLICES)
    limits = {one.name: one.workers for one in manifest.pool_limits}
    seats = {
        str(one.lane_id): min((n for name in one.limits if (n := limits.get(name))), default=None)
        for one in manifest.pool_lanes
    }
    by_lane: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sent:
        by_lane[f"{row['provider']}/{row['instance']}/{row['key']}"].append(row)
    most_used = sorted(by_lane, key=lambda name: -len(by_lane[name]))[:MOST_LANES]
    uses = [
        _use(name, by_lane[name], seats.get(name), start_s, slice_s) for name in sorted(most_used)
    ]
    status = {visible(str(one.lane)): one for one in manifest.lanes}
    return [
        msgspec.structs.replace(
            use,
            pauses=sum(one.pauses.values()),
            paused_s=sum(one.paused_s.values()),
            n_opened=one.n_opened,
        )
        if (one := status.get(use.lane))
        else use
        for use in uses
    ]


def limit_lines(
    changes: Sequence[dict[str, Any]], attempts: Sequence[dict[str, Any]]
) -> list[LimitLine]:
    """The limits that changed most often, at most `MOST_LIMITS`.

    Args:
        changes: Rows of `limits`.
        attempts: Rows of the table, of which the first begins the time.
    """
    start_s = min((row["t_send_s"] for row in attempts if row["t_send_s"] is not None), default=0.0)
    by_limit: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(changes, key=lambda row: row["t_s"]):
        by_limit[row["limit"]].append(row)
    most = sorted(by_limit, key=lambda name: -len(by_limit[name]))[:MOST_LIMITS]
    return [
        LimitLine(
            visible(name),
            [round(row["t_s"] - start_s, 3) for row in by_limit[name]],
            [row["workers"] for row in by_limit[name]],
            [visible(row["reason"]) for row in by_limit[name]],
        )
        for name in sorted(most)
    ]


def _use(
    name: str, rows: Sequence[dict[str, Any]], seats: int | None, start_s: float, slice_s: float
) -> LaneUse:
    begin = np.array([row["t_send_s"] for row in rows]) - start_s
    end = np.array([row["t_end_s"] for row in rows]) - start_s
    edges = np.arange(N_SLICES + 1) * slice_s
    # Seconds in flight until each edge: what began before it, cut at the edge.
    until = np.array([np.clip(edge - begin, 0, end - begin).sum() for edge in edges])
    refused = [row["t_end_s"] - start_s for row in rows if row["outcome"] in _REFUSED]
    return LaneUse(
        visible(name),
        seats,
        slice_s,
        [round(float(one), 3) for one in np.diff(until) / slice_s],
        [round(one, 3) for one in sorted(refused)],
        len(rows),
    )
