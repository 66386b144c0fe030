"""Compute the load of each lane and the use of each limit, for each slice of a run's time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from pytest_ultrapar.records import by_key
from pytest_ultrapar.report.pages.columns import floats, grouped, lane_names, mask, places, rounded
from pytest_ultrapar.report.text import visible

if TYPE_CHECKING:
    from pytest_ultrapar.report.pages.columns import Floats, Mask, Numbers
    from pytest_ultrapar.store.manifest import Manifest

N_SLICES = 200
MOST_LANES = 24
MOST_LIMITS = 12
_REFUSED = frozenset({"rate", "congestion", "overload"})


Spans = Sequence[tuple[float, float]]
"""The start and the end of each span, in seconds."""


class LaneUse(msgspec.Struct, frozen=True):
    """How one lane was used over time.

    Attributes:
        seats: How many requests in flight the lane's declared limits allow; None if they do not
            limit this number.
        slice_s: The length of a slice, in seconds.
        in_flight: The mean number of requests in flight in each slice.
        refused_at_s: When requests were refused, in seconds after the run's first request.
        n: How many requests were sent on the lane.
        pauses: How often the lane was paused, by refusals or by its circuit breaker.
        paused_s: How long all these pauses were in total, in seconds.
        n_opened: How often the lane's circuit breaker opened.
        pauses_at_s: When pauses because of refusals began and ended, in seconds after the run's
            first request. Pauses that are less than a slice apart are joined.
        opened_at_s: When the lane's circuit breaker opened and closed, in the same form.
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
    """The use of a declared limit over time.

    Attributes:
        limit: The limit's name, kind and amount, such as `lab/key0 (qps 10)`.
        slice_s: The length of a slice, in seconds.
        shares: The share of the limit that was used in each slice. For a limit on requests in
            flight, this is the mean over the slice. For a rate, it is the use in the window that
            ends with the slice. Tokens are included if the answer reported them.
    """

    limit: str
    slice_s: float
    shares: list[float]


class LimitLine(msgspec.Struct, frozen=True):
    """An estimated limit over time.

    Attributes:
        at_s: When the limit changed, in seconds after the run's first request.
        workers: How many requests in flight were allowed after each change.
        reasons: The reason for each change, in a few words.
    """

    limit: str
    at_s: list[float]
    workers: list[int]
    reasons: list[str]


class Sent(NamedTuple):
    """The requests that were sent, in columns.

    Attributes:
        lanes: The names of the lanes, as `provider/instance/key`.
        lane: For each request, the index of its lane.
        refused: For each request, whether it was rate limited.
        tokens: The sum of each request's tokens in and out. Unknown tokens count as 0.
    """

    lanes: list[str]
    lane: Numbers
    sent_s: Floats
    ended_s: Floats
    refused: Mask
    tokens: Floats

    def of(self, chosen: Mask | Numbers) -> Sent:
        """Return the chosen requests."""
        columns: tuple[Any, ...] = self[1:]
        return Sent(self.lanes, *(column[chosen] for column in columns))

    @property
    def start_s(self) -> float:
        """When the first request was sent; 0 if there are no requests."""
        return float(self.sent_s.min()) if len(self.sent_s) else 0.0

    @property
    def slice_s(self) -> float:
        """The length of a slice, in seconds.

        Together, the slices cover the time from the first request until all requests have ended.
        """
        return max(1e-6, (float(self.ended_s.max()) - self.start_s) / N_SLICES)


def requests_sent(attempts: Any) -> Sent:  # noqa: ANN401 - an Arrow table
    """Return the requests in `attempts` that were sent and have ended."""
    names = lane_names(attempts)
    lanes = names.unique().to_pylist()
    tokens = [np.nan_to_num(floats(attempts[name])) for name in ("tokens_in", "tokens_out")]
    found = Sent(
        lanes,
        places(names, lanes),
        floats(attempts["t_send_s"]),
        floats(attempts["t_end_s"]),
        mask(attempts["outcome"], _REFUSED),
        tokens[0] + tokens[1],
    )
    return found.of(~np.isnan(found.sent_s) & ~np.isnan(found.ended_s))


def lane_uses(sent: Sent, pauses: Sequence[dict[str, Any]], manifest: Manifest) -> list[LaneUse]:
    """Return the load of the `MOST_LANES` most used lanes.

    Args:
        sent: The requests of the run.
        pauses: Rows of `pauses`.
        manifest: The run's manifest, with the limits of each lane.
    """
    limits = {one.name: one.workers for one in manifest.pool_limits}
    seats = {
        str(one.lane_id): min((n for name in one.limits if (n := limits.get(name))), default=None)
        for one in manifest.pool_lanes
    }
    start_s = sent.start_s
    by_lane = {
        lane: sent.of(own)
        for lane, own in zip(sent.lanes, grouped(sent.lane, len(sent.lanes)), strict=True)
        if len(own)
    }
    most_used = sorted(by_lane, key=lambda name: -len(by_lane[name].lane))[:MOST_LANES]
    spans: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in pauses:
        lane = f"{row['provider']}/{row['instance']}/{row['key']}"
        spans[lane, row["cause"]].append((row["t_s"] - start_s, row["t_end_s"] - start_s))
    uses = []
    for lane in sorted(most_used):
        own = by_lane[lane]
        paused, opened = spans[lane, "rate"], spans[lane, "breaker"]
        use = LaneUse(
            lane=visible(lane),
            seats=seats.get(lane),
            slice_s=sent.slice_s,
            in_flight=rounded(_in_flight(own, start_s, sent.slice_s), 3),
            refused_at_s=rounded(np.sort(own.ended_s[own.refused]) - start_s, 3),
            n=len(own.lane),
            pauses=len(paused) + len(opened),
            paused_s=sum(end_s - begin_s for begin_s, end_s in (*paused, *opened)),
            n_opened=len(opened),
            pauses_at_s=_joined(paused, sent.slice_s),
            opened_at_s=_joined(opened, sent.slice_s),
        )
        uses.append(use)
    return uses


def limit_uses(sent: Sent, manifest: Manifest) -> list[LimitUse]:
    """Return the use of the `MOST_LANES` most used limits. Daily limits are left out.

    Args:
        sent: The requests of the run.
        manifest: The run's manifest, with the limits and their lanes.
    """
    paths = {str(one.lane_id): one.limits for one in manifest.pool_lanes}
    found = []
    for limit in manifest.pool_limits:
        on = [at for at, lane in enumerate(sent.lanes) if limit.name in paths.get(lane, ())]
        own = sent.of(np.isin(sent.lane, on))
        for kind, amount in limit.rows:
            if not len(own.lane) or kind.is_daily:
                continue
            ends_s = sent.start_s + np.arange(1, N_SLICES + 1) * sent.slice_s
            used: Floats
            if kind.is_rate:
                weights = own.tokens if kind.counts == "tokens" else own.tokens**0
                before = _sent_until(own, ends_s - kind.window_s, weights)
                used = _sent_until(own, ends_s, weights) - before
            else:
                used = _in_flight(own, sent.start_s, sent.slice_s)
            name = f"{visible(limit.name)} ({kind.word} {amount:g})"
            found.append(LimitUse(name, sent.slice_s, rounded(used / amount, 4)))
    most_used = sorted(found, key=lambda one: -sum(one.shares))[:MOST_LANES]
    return sorted(most_used, key=lambda one: one.limit)


def _sent_until(sent: Sent, ends_s: Floats, weights: Floats) -> Floats:
    """Return, for each of these times, the total weight of the requests that were sent by then."""
    order = np.argsort(sent.sent_s, kind="stable")
    sums = np.concatenate(([0.0], np.cumsum(weights[order])))
    return sums[np.searchsorted(sent.sent_s[order], ends_s, "right")]


def n_refused(attempts: Any) -> int:  # noqa: ANN401 - an Arrow table
    """Return how many requests were rate limited."""
    return int(mask(attempts["outcome"], _REFUSED).sum())


def limit_lines(changes: Sequence[dict[str, Any]], start_s: float) -> list[LimitLine]:
    """Return the `MOST_LIMITS` limits that changed most often.

    Args:
        changes: Rows of `limits`.
        start_s: The time of the run's first request.
    """
    in_order = sorted(changes, key=lambda row: row["t_s"])
    by_limit = by_key((row["limit"], row) for row in in_order)
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
    """Return the spans in chronological order; join those less than `gap_s` seconds apart."""
    joined: list[tuple[float, float]] = []
    for span in sorted(spans):
        if joined and span[0] - joined[-1][1] < gap_s:
            joined[-1] = joined[-1][0], max(joined[-1][1], span[1])
        else:
            joined.append(span)
    return [(round(begin_s, 3), round(end_s, 3)) for begin_s, end_s in joined]


def _in_flight(sent: Sent, start_s: float, slice_s: float) -> Floats:
    """Return the mean number of requests in flight in each slice."""
    edges_s = np.arange(N_SLICES + 1) * slice_s
    begun = _seconds_since(sent.sent_s - start_s, edges_s)
    return np.diff(begun - _seconds_since(sent.ended_s - start_s, edges_s)) / slice_s


def _seconds_since(times_s: Floats, edges_s: Floats) -> Floats:
    """For each edge, add up the seconds that have passed since each of the earlier times."""
    ordered_s = np.sort(times_s)
    sums_s = np.concatenate(([0.0], np.cumsum(ordered_s)))
    n = np.searchsorted(ordered_s, edges_s)
    return n * edges_s - sums_s[n]
