"""All requests of a run in columns, and an audit of the limits. All functions are pure."""

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
    """Requests as numpy arrays, in the order of their log.

    The times from `before_s` to `ended_s` are monotonic seconds of the host, in ascending order.

    Attributes:
        lane: The index of the request's lane in `RequestLog.lanes`.
        measured: Whether the makespan includes it.
        first: Whether it is the first request of its episode; the others follow in the log.
        served: Whether a model worked on it; false if the request was rate limited.
        again: Whether it repeats the previous request.
        before_s: When the previous request of its episode ended; `asked_s` for the first one.
        asked_s: When it asked for a lease.
        granted_s: When it got the lease.
        sent_s: When it was sent.
        ended_s: When it was answered, or when the run gave up on it.
        rate_share: The share of its wait for the lease that was for a rate and not for a seat.
        tokens: Its tokens in and out, as far as the provider reported them.
        sent_at_s: When it was sent by the wall clock, in seconds since the epoch.
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
        """Select some of the requests; return this object itself if all are chosen."""
        if chosen.all():
            return self
        columns: tuple[Any, ...] = self
        return RequestColumns(*(column[chosen] for column in columns))

    def on(self, lanes: Sequence[int]) -> RequestColumns:
        """Select the requests on some lanes, given by index."""
        import numpy as np  # noqa: PLC0415 - code without numpy reads the types here

        return self.of(np.isin(self.lane, lanes))


_ROW = struct.Struct("=i4?6dqd")
_TYPES = ("i4", *["?"] * 4, *["f8"] * 6, "i8", "f8")
"""The numpy types of a row, in the order of the fields of `RequestColumns`."""


class RequestLog:
    """Collects the requests of episodes, at 72 bytes each.

    Args:
        lanes: All lanes of the run. Requests on other lanes are left out; a session with another
            pool sent them.
        from_us: Microseconds since the epoch. Earlier episodes are left out, because their
            monotonic clock may be a different one.

    Attributes:
        lanes: The same lanes.
        from_us: The same time.
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
        """Return all requests; callers must not change them."""
        if self._columns is None or len(self._columns.lane) < len(self):
            table: Any = self._table()
            self._columns = RequestColumns(*(table[name].copy() for name in RequestColumns._fields))
        return self._columns

    def arranged(self, parts: Sequence[range], measured: Sequence[int]) -> RequestLog:
        """Return the same requests in another order.

        Args:
            parts: The requests of each wanted episode, as returned by `add`.
            measured: The indexes of the episodes that the makespan includes.
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
        """Add all requests of another log of the same lanes."""
        self._rows += other._rows
        self.first_token_s.extend(other.first_token_s)

    def add(self, episode: EpisodeEnded, *, measured: bool) -> range:
        """Add the requests of one episode; return their range.

        Args:
            episode: Any episode that has ended, even one that does not count.
            measured: Whether the makespan includes it.
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
    # There are two fields for each row of LIMIT_KINDS. The file contains the daily fields only if
    # the pool has daily limits; the others may be null.
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
    """The highest load of one limit, and the load that it allows.

    A request is in flight from the moment before it is sent to the moment after its answer was
    read, so the provider never saw more requests than this.

    Each kind of limit has two columns. One is named like the kind and shows the allowed load. The
    other one shows the highest load:

    - `in_flight`: requests at the same time;
    - `sends_1s`, `sends_60s`: requests in any such period, including both ends;
    - `tokens_60s`: tokens of the requests sent in any 60 s, as far as the provider reported them;
      null without a report or if `tpm` is null;
    - `sends_1d`, `tokens_1d`: the same in any 24 hours of the run, or on any calendar day of the
      limit's zone; missing without the limit. Requests of other runs on that day are not included.

    Attributes:
        limit: The limit's name.
        n: How many requests were sent on all lanes of the limit.
        passed: The words of the numbers that were exceeded.
    """

    limit: str
    n: int
    passed: tuple[str, ...]

    def of(self, kind: LimitKind) -> tuple[int | None, float | None]:
        """Return the highest load of this kind, if known, and the allowed load."""
        most, allowed = getattr(self, _COLUMNS[kind.word]), getattr(self, kind.word)
        return (
            None if most is msgspec.UNSET else most,
            None if allowed is msgspec.UNSET else allowed,
        )


def audit(
    log: RequestLog, limits: Iterable[Limit], *, error_s: float = 0.0
) -> tuple[LimitAudit, ...]:
    """Audit each limit that has requests, in the given order, and then every other key.

    If the pool lists a key more than once, it counts as one key.

    Requests from workers that died are not recorded, so they are left out.

    Args:
        log: Every request of the run, even those that do not count.
        limits: The limits of the run's lanes.
        error_s: The largest error between two times; an excess within it is ignored.
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
        """Return the highest load that is certain if times are wrong by at most `by_s`."""
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
        # A rate of 2.5 per second means 5 in 2 s, and 3 of these may be in one second. A rate of
        # 0.2 allows one.
        if word in allowed and most(kind, error_s) > math.ceil(allowed[word]):
            passed.append(word)
    return LimitAudit(limit=limit.name, n=len(sends), passed=tuple(passed), **columns)


def _most_on_a_day(sent_at_s: Floats, amounts: NDArray[np.int64], zone_name: str) -> int:
    """Return the largest sum of these amounts on any calendar day in a zone, by sending time."""
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
    """Return the largest sum of these amounts in any window of this length; times are sorted.

    It is 0 if the length is negative: if clocks differ by more than a window, nothing is certain.
    """
    import numpy as np  # noqa: PLC0415 - as above

    if window_s < 0:
        return 0
    first = np.searchsorted(sends, sends - window_s)
    # At both ends of a window, the rounded difference decides.
    while (wrong := sends - sends[first] > window_s).any():
        first += wrong
    while (wrong := (first > 0) & (sends - sends[first - 1] <= window_s)).any():
        first -= wrong
    so_far = np.cumsum(amounts)
    return int((so_far - so_far[first] + amounts[first]).max(initial=0))
