"""What each lane did over the time of a run, and how much of each limit was used, in slices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pytest_ultrapar.report.text import visible

if TYPE_CHECKING:
    from pytest_ultrapar.store.manifest import Manifest

N_SLICES = 200
MOST_LANES = 24
MOST_LIMITS = 12
_REFUSED = frozenset({"rate", "congestion", "overload"})


Spans = Sequence[tuple[float, float]]
"""Times by their begins and ends."""


class LaneUse(msgspec.Struct, frozen=True):
    """One lane over time.

    Attributes:
        seats: How many requests its limits allow at once, as far as the pool says.
        slice_s: Seconds of a slice.
        in_flight: Requests, on average over each slice.
        refused_at_s: When refusals came, in seconds from the run's first request.
        n: Requests in all.
        pauses: How often it was paused, in all.
        paused_s: Seconds for which it was.
        n_opened: How often its breaker opened.
        pauses_at_s: From when to when, in seconds from the run's first request; those that are
            nearer to each other than a slice is long as one.
        opened_at_s: The same of the times for which its breaker was open.
    """

    lane: str
    seats: int | None
    slice_s: float
    in_flight: list[float]
    refused_at_s: list[float]
    n: int
    pauses: int
    paused_s: float
    n_opened: int
    pauses_at_s: Spans
    opened_at_s: Spans


class LimitUse(msgspec.Struct, frozen=True):
    """How much of a declared limit was used over time.

    Attributes:
        limit: Its name, with what it bounds: `lab/key0 (qps 10)`.
        slice_s: Seconds of a slice.
        shares: Of what it allows: of requests in flight the mean over each slice, of a rate what
            was sent in its window up to the end of each slice; tokens as far as answers say how
            many they were.
    """

    limit: str
    slice_s: float
    shares: list[float]


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


def lane_uses(
    attempts: Sequence[dict[str, Any]], pauses: Sequence[dict[str, Any]], manifest: Manifest
) -> list[LaneUse]:
    """The lanes that were used most, at most `MOST_LANES`.

    Args:
        attempts: Rows of the table.
        pauses: Rows of the table.
        manifest: Of the run; which limits bound a lane.
    """
    sent = _sent(attempts)
    if not sent:
        return []
    start_s, slice_s = _slices(sent)
    limits = {one.name: one.workers for one in manifest.pool_limits}
    seats = {
        str(one.lane_id): min((n for name in one.limits if (n := limits.get(name))), default=None)
        for one in manifest.pool_lanes
    }
    by_lane: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sent:
        by_lane[f"{row['provider']}/{row['instance']}/{row['key']}"].append(row)
    most_used = sorted(by_lane, key=lambda name: -len(by_lane[name]))[:MOST_LANES]
    spans: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in pauses:
        lane = f"{row['provider']}/{row['instance']}/{row['key']}"
        spans[lane, row["cause"]].append((row["t_s"] - start_s, row["t_end_s"] - start_s))
    uses = []
    for lane in sorted(most_used):
        rows = by_lane[lane]
        paused, opened = spans[lane, "rate"], spans[lane, "breaker"]
        refused = [row["t_end_s"] - start_s for row in rows if row["outcome"] in _REFUSED]
        use = LaneUse(
            lane=visible(lane),
            seats=seats.get(lane),
            slice_s=slice_s,
            in_flight=[round(float(one), 3) for one in _in_flight(rows, start_s, slice_s)],
            refused_at_s=[round(one, 3) for one in sorted(refused)],
            n=len(rows),
            pauses=len(paused) + len(opened),
            paused_s=sum(end_s - begin_s for begin_s, end_s in (*paused, *opened)),
            n_opened=len(opened),
            pauses_at_s=_joined(paused, slice_s),
            opened_at_s=_joined(opened, slice_s),
        )
        uses.append(use)
    return uses


def limit_uses(attempts: Sequence[dict[str, Any]], manifest: Manifest) -> list[LimitUse]:
    """The limits that were used most, but those per day, at most `MOST_LANES`.

    Args:
        attempts: Rows of the table.
        manifest: Of the run; which limits there are, and on which lanes' paths.
    """
    sent = _sent(attempts)
    if not sent:
        return []
    start_s, slice_s = _slices(sent)
    paths = {str(one.lane_id): one.limits for one in manifest.pool_lanes}
    by_limit: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sent:
        for name in paths.get(f"{row['provider']}/{row['instance']}/{row['key']}", ()):
            by_limit[name].append(row)
    ends = start_s + np.arange(1, N_SLICES + 1) * slice_s
    found = []
    for limit in manifest.pool_limits:
        own = by_limit[limit.name]
        for kind, amount in limit.rows:
            if not own or kind.is_daily:
                continue
            if kind.is_rate:
                weight = _tokens if kind.counts == "tokens" else _one
                before = _sent_until(own, ends - kind.window_s, weight)
                used = _sent_until(own, ends, weight) - before
            else:
                used = _in_flight(own, start_s, slice_s)
            shares = [round(float(one), 4) for one in used / amount]
            name = f"{visible(limit.name)} ({kind.word} {amount:g})"
            found.append(LimitUse(name, slice_s, shares))
    most_used = sorted(found, key=lambda one: -sum(one.shares))[:MOST_LANES]
    return sorted(most_used, key=lambda one: one.limit)


def _one(row: dict[str, Any]) -> int:
    return 1


def _tokens(row: dict[str, Any]) -> int:
    return (row["tokens_in"] or 0) + (row["tokens_out"] or 0)


def _sent_until(
    rows: Sequence[dict[str, Any]],
    ends: Any,  # noqa: ANN401 - an array
    weight: Callable[[dict[str, Any]], int],
) -> Any:  # noqa: ANN401 - an array
    """Up to each end, the sum of the weights of what was sent."""
    ordered = sorted(rows, key=lambda row: row["t_send_s"])
    sums = np.concatenate(([0.0], np.cumsum([weight(row) for row in ordered])))
    sends = np.array([row["t_send_s"] for row in ordered])
    return sums[np.searchsorted(sends, ends, "right")]


def n_refused(attempts: Sequence[dict[str, Any]]) -> int:
    """Requests that were refused for rate limits."""
    return sum(row["outcome"] in _REFUSED for row in attempts)


def _sent(attempts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in attempts if row["t_send_s"] is not None and row["t_end_s"] is not None]


def _slices(sent: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """When the first slice begins, and how long each is."""
    start_s = min(row["t_send_s"] for row in sent)
    return start_s, max(1e-6, (max(row["t_end_s"] for row in sent) - start_s) / N_SLICES)


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


def _joined(spans: Sequence[tuple[float, float]], gap_s: float) -> Spans:
    """Spans in order; those with less than `gap_s` seconds between them as one."""
    joined: list[tuple[float, float]] = []
    for span in sorted(spans):
        if joined and span[0] - joined[-1][1] < gap_s:
            joined[-1] = joined[-1][0], max(joined[-1][1], span[1])
        else:
            joined.append(span)
    return [(round(begin_s, 3), round(end_s, 3)) for begin_s, end_s in joined]


def _in_flight(rows: Sequence[dict[str, Any]], start_s: float, slice_s: float) -> Any:  # noqa: ANN401 - an array
    """The mean of each slice."""
    edges = np.arange(N_SLICES + 1) * slice_s
    begun, ended = (
        _seconds_since(np.array([row[name] for row in rows]) - start_s, edges)
        for name in ("t_send_s", "t_end_s")
    )
    return np.diff(begun - ended) / slice_s


def _seconds_since(times: Any, edges: Any) -> Any:  # noqa: ANN401 - arrays
    """At each edge, the seconds that have gone by since all times before it, together."""
    ordered = np.sort(times)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    n = np.searchsorted(ordered, edges)
    return n * edges - sums[n]
