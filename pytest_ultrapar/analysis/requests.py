"""Store all requests of a run in columns, and audit the run's limits. All functions are pure."""

from __future__ import annotations

import math
import struct
from array import array
from collections import Counter
from datetime import datetime
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pytest_ultrapar.pool.model import LIMIT_KINDS, Limit
from pytest_ultrapar.records import Attempt, EpisodeEnded, by_key
from pytest_ultrapar.store.timing import NO_SERVICE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pytest_ultrapar.pool.model import Lane, LimitKind

    Floats = NDArray[np.float64]


class RequestColumns(NamedTuple):
    """Requests as numpy arrays, one element per request, in the order of the log.

    For each request, the times from `before_s` to `ended_s` are in ascending order. They are in
    seconds on the host's monotonic clock.

    Attributes:
        lane: The index of the request's lane in `RequestLog.lanes`.
        measured: Whether the makespan includes the request.
        first: Whether it is the first request in its episode. The episode's other requests come
            right after it in the columns.
        served: Whether a model worked on it. This is false if the request was rate limited, for
            example.
        again: Whether it is another attempt at the previous request.
        before_s: When the previous request in its episode ended. For a first request, this is
            `asked_s`.
        asked_s: When a lease was requested for it.
        granted_s: When it got the lease.
        sent_s: When it was sent.
        ended_s: When it was answered, or when the run gave up on it.
        rate_share: The share of its wait for the lease that was due to a rate, not to a lack of
            seats.
        tokens: Its input and output tokens together; tokens that the provider did not report count
            as 0.
        sent_at_s: When it was sent according to the wall clock, in seconds since the epoch.
    """

    lane: NDArray[np.int64]
    measured: NDArray[np.bool_]
    first: NDArray[np.bool_]
    served: NDArray[np.bool_]
    again: NDArray[np.bool_]
    before_s: Floats
    asked_s: Floats
    granted_s: Floats
    sent_s: Floats
    ended_s: Floats
    rate_share: Floats
    tokens: NDArray[np.int64]
    sent_at_s: Floats

    def of(self, chosen: NDArray[np.bool_]) -> RequestColumns:
        """Return the chosen requests, or this object itself if all of them are chosen."""
        if chosen.all():
            return self
        columns: tuple[Any, ...] = self
        return RequestColumns(*(column[chosen] for column in columns))

    def on(self, lanes: Sequence[int]) -> RequestColumns:
        """Return the requests on the lanes with these indexes."""
        import numpy as np  # noqa: PLC0415 - other code imports the types here without numpy

        return self.of(np.isin(self.lane, lanes))


_ROW = struct.Struct("=i4?6dqd")
_TYPES = ("i4", *["?"] * 4, *["f8"] * 6, "i8", "f8")
"""The numpy types of a row, in the order of the fields of `RequestColumns`."""


class RequestLog:
    """Collects the requests of episodes, at 72 bytes per request.

    Args:
        lanes: All lanes of the run. Requests on other lanes are left out, because a session with
            another pool sent them.
        from_us: Microseconds since the epoch. Episodes that began earlier are left out, because
            their times may be from a different monotonic clock.

    Attributes:
        lanes: The lanes that were passed in.
        from_us: The time that was passed in.
        first_token_s: The seconds from sending to the first token, for each stream with tokens.
    """

    def __init__(self, lanes: Sequence[Lane], *, from_us: int = 0) -> None:
        self.lanes = tuple(lanes)
        self.from_us = from_us
        self._index = {
            (lane.provider, lane.instance, lane.key): at for at, lane in enumerate(self.lanes)
        }
        self._rows = bytearray()
        self._columns: RequestColumns | None = None
        self.first_token_s = array("d")

    def __len__(self) -> int:
        return len(self._rows) // _ROW.size

    def _table(self) -> NDArray[np.void]:
        import numpy as np  # noqa: PLC0415 - as above

        types = np.dtype([*zip(RequestColumns._fields, _TYPES, strict=True)])
        return np.frombuffer(self._rows, types)

    def columns(self) -> RequestColumns:
        """Return all requests. Callers must not change the arrays."""
        if self._columns is None or len(self._columns.lane) < len(self):
            table: Any = self._table()
            self._columns = RequestColumns(*(table[name].copy() for name in RequestColumns._fields))
        return self._columns

    def arranged(self, parts: Sequence[range], measured: Sequence[int]) -> RequestLog:
        """Return a new log with these requests in another order.

        Args:
            parts: The range of requests for each wanted episode, as returned by `add`, in the new
                order.
            measured: Which of these episodes the makespan includes, as indexes into `parts`.
        """
        import numpy as np  # noqa: PLC0415 - as above

        log = RequestLog(self.lanes, from_us=self.from_us)
        sizes = [len(part) for part in parts]
        place = np.fromiter(chain.from_iterable(parts), dtype=np.int64, count=sum(sizes))
        table = self._table()[place]
        counts = np.zeros(len(parts), dtype=bool)
        counts[list(measured)] = True
        table["measured"] |= np.repeat(counts, sizes)
        log._rows += table.tobytes()
        log.first_token_s = self.first_token_s
        return log

    def extend(self, other: RequestLog) -> None:
        """Add all requests from another log, which must have the same lanes."""
        self._rows += other._rows
        self.first_token_s.extend(other.first_token_s)

    def add(self, episode: EpisodeEnded, *, measured: bool) -> range:
        """Add the requests of one episode; return the range of their positions.

        Args:
            episode: Any episode that has ended, even if it is not the one that was graded.
            measured: Whether the makespan includes the episode.
        """
        begin = len(self)
        if episode.started_at_us < self.from_us:
            return range(begin, begin)
        before: Attempt | None = None
        sent = episode.sent
        first_s = min([one.t_lease_s for one in sent], default=0.0)
        for one in sorted(sent, key=attrgetter("t_send_s")):
            lane = self._index.get((one.provider, one.instance, one.key))
            if lane is None:
                continue
            waited_s = one.seat_wait_s + one.rate_wait_s
            asked_s = one.t_lease_s - waited_s
            sent_s = max(one.t_send_s, one.t_lease_s)
            self._rows += _ROW.pack(
                lane,
                measured,
                before is None,
                one.outcome not in NO_SERVICE,
                before is not None and before.turn == one.turn,
                min(before.t_end_s, asked_s) if before is not None else asked_s,
                asked_s,
                one.t_lease_s,
                sent_s,
                one.t_end_s,
                one.rate_wait_s / waited_s if waited_s > 0 else 0.0,
                (one.tokens_in or 0) + (one.tokens_out or 0),
                episode.started_at_us / 1e6 + sent_s - first_s,
            )
            if one.t_first_token_s is not None:
                self.first_token_s.append(one.t_first_token_s - one.t_send_s)
            before = one
        return range(begin, len(self))


def _column(kind: LimitKind) -> str:
    if not kind.window_s:
        return "in_flight"
    window = "1d" if kind.is_daily else f"{kind.window_s:g}s"
    return f"{'tokens' if kind.counts == 'tokens' else 'sends'}_{window}"


_COLUMNS = {word: _column(kind) for word, kind in LIMIT_KINDS.items()}


if TYPE_CHECKING:
    _Figures = msgspec.Struct
else:
    # There are two fields for each row of LIMIT_KINDS. The file contains daily fields only if the
    # pool has daily limits. All other fields are always in the file, but may be null.
    _Figures = msgspec.defstruct(
        "_Figures",
        [
            (name, number | msgspec.UnsetType | None, msgspec.UNSET if kind.is_daily else None)
            for word, kind in LIMIT_KINDS.items()
            for name, number in ((_COLUMNS[word], int), (word, float if kind.window_s else int))
        ],
        frozen=True,
        kw_only=True,
    )


class LimitAudit(_Figures, frozen=True):
    """The highest load on one limit, and the load that the limit allows.

    A request counts as in flight from just before it is sent until just after its answer was read.
    So the provider never saw more requests at the same time than this class reports.

    There are two columns for each kind of limit. One has the name of the kind and shows the allowed
    load. The other shows the highest load:

    - `in_flight`: requests in flight at the same time;
    - `sends_1s`, `sends_60s`: requests sent in any period of this length, including both ends;
    - `tokens_60s`: tokens that the provider reported for the requests sent in any 60 s. It is null
      if the provider reported none, or if the limit has no `tpm`;
    - `sends_1d`, `tokens_1d`: requests and tokens in any 24 hours of the run, or on any calendar
      day if the limit has a time zone. Each of them is left out if the limit has no
      such number. Requests from other runs are not included.

    Attributes:
        limit: The limit's name.
        n: How many requests were sent on all lanes to which the limit applies.
        passed: The kinds of the numbers that were exceeded, such as `qps`.
    """

    limit: str
    n: int
    passed: tuple[str, ...]

    def of(self, kind: LimitKind) -> tuple[int | None, float | None]:
        """Return the highest load of this kind, if known, and the allowed load, if there is one."""
        most, allowed = getattr(self, _COLUMNS[kind.word]), getattr(self, kind.word)
        return (
            None if most is msgspec.UNSET else most,
            None if allowed is msgspec.UNSET else allowed,
        )


def audit(
    log: RequestLog, limits: Iterable[Limit], *, error_s: float = 0.0
) -> tuple[LimitAudit, ...]:
    """Audit each limit that has requests, and then each key that has requests but no limit.

    Limits are in the given order. If the pool lists a key more than once, it counts as one key.

    Requests of workers that died are left out, because they are not recorded.

    Args:
        log: All requests of the run, including those in episodes that were not graded.
        limits: The limits of the run's lanes.
        error_s: The largest possible clock error between two recorded times, in seconds. If such an
            error could explain why a limit seems to be exceeded, the limit is not reported as
            exceeded.
    """
    columns = log.columns()
    found = ((limit, columns.on(on)) for limit, on in _bound_lanes(log, limits))
    return tuple(_audited(limit, own, error_s) for limit, own in found if len(own.lane))


def _bound_lanes(log: RequestLog, limits: Iterable[Limit]) -> Iterator[tuple[Limit, list[int]]]:
    known = set()
    for limit in limits:
        known.add(limit.name)
        yield limit, [at for at, lane in enumerate(log.lanes) if limit.name in lane.limits]
    keys = by_key((lane.key_name, at) for at, lane in enumerate(log.lanes))
    for name, on in keys.items():
        if name not in known:
            yield Limit(name, "key"), on


def peak_in_flight(log: RequestLog) -> int:
    """Return the largest number of requests in flight at the same time; 0 without requests."""
    import numpy as np  # noqa: PLC0415 - as above

    columns = log.columns()
    return _most_in_flight(np.sort(columns.sent_s), np.sort(columns.ended_s))


def _audited(limit: Limit, own: RequestColumns, error_s: float) -> LimitAudit:
    import numpy as np  # noqa: PLC0415 - as above

    order = np.argsort(own.sent_s)
    sends, tokens, ends = own.sent_s[order], own.tokens[order], np.sort(own.ended_s)

    def most(kind: LimitKind, by_s: float) -> int:
        """Return the highest load that is certain even if times may be wrong by up to `by_s`."""
        if kind.counts == "in flight":
            return _most_in_flight(sends, ends - by_s)
        amounts = tokens if kind.counts == "tokens" else np.ones_like(tokens)
        if kind.is_daily and limit.day is not None:
            return _most_on_a_day(own.sent_at_s[order], amounts, limit.day)
        return _most_within(sends, amounts, kind.window_s - by_s)

    allowed = {kind.word: amount for kind, amount in limit.rows}
    columns: dict[str, Any] = dict(allowed)
    passed = []
    for word, kind in LIMIT_KINDS.items():
        if word not in allowed and (kind.is_daily or kind.counts == "tokens"):
            continue
        peak = most(kind, 0.0)
        columns[_COLUMNS[word]] = peak if peak or kind.counts != "tokens" else None
        # Round up: a rate of 2.5 per second means 5 in 2 s, and 3 of these may be in the same
        # second. A rate of 0.2 allows one request in a second.
        if word in allowed and most(kind, error_s) > math.ceil(allowed[word]):
            passed.append(word)
    return LimitAudit(limit=limit.name, n=len(sends), passed=tuple(passed), **columns)


def _most_on_a_day(sent_at_s: Floats, amounts: NDArray[np.int64], zone_name: str) -> int:
    """Return the largest sum of the amounts sent on any one calendar day in a time zone."""
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - few pools use calendar days

    zone = ZoneInfo(zone_name)
    days: Counter[int] = Counter()
    for at_s, n in zip(sent_at_s.tolist(), amounts.tolist(), strict=True):
        days[datetime.fromtimestamp(at_s, zone).toordinal()] += n
    return max(days.values())


def _most_in_flight(sends: Floats, ends: Floats) -> int:
    import numpy as np  # noqa: PLC0415 - as above

    under_way = np.arange(1, len(sends) + 1) - np.searchsorted(ends, sends, side="right")
    return int(under_way.max(initial=0))


def _most_within(sends: Floats, amounts: NDArray[np.int64], window_s: float) -> int:
    """Return the largest sum of amounts in any window of this length. Times must be sorted.

    The sum is 0 if the length is negative: if times may be wrong by more than a window, no load is
    certain.
    """
    import numpy as np  # noqa: PLC0415 - as above

    if window_s < 0:
        return 0
    first = np.searchsorted(sends, sends - window_s)
    # The rounded difference decides whether a time is in the window, at both of its ends.
    while (wrong := sends - sends[first] > window_s).any():
        first += wrong
    while (wrong := (first > 0) & (sends - sends[first - 1] <= window_s)).any():
        first -= wrong
    so_far = np.cumsum(amounts)
    return int((so_far - so_far[first] + amounts[first]).max(initial=0))
