"""All requests of a run, in columns: what its audit, bound and attribution are made of."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.results.service import NO_SERVICE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.pool.model import Lane
    from pytest_ultrapar.records import Attempt, EpisodeEnded


class Request(NamedTuple):
    """One request. All `*_s` are monotonic seconds of the host, in the order of the fields.

    Attributes:
        lane: Index of its lane in `RequestLog.lanes`.
        measured: Whether it counts in the makespan.
        first: Whether it is the first one of its episode; the others follow it in the log.
        served: Whether a model was at work on it; not so for what was refused for its rate.
        again: Whether it repeats the request before it.
        before_s: When the request before it in its episode ended; `asked_s` for the first one.
        asked_s: When a lease was asked for.
        granted_s: When the lease was granted.
        sent_s: When it was sent.
        ended_s: When its answer was there, or when it was given up.
        rate_share: Of its wait for the lease, the share that was for a rate and not for a seat.
        tokens: In and out, as far as the provider told.
    """

    lane: int
    measured: bool
    first: bool
    served: bool
    again: bool
    before_s: float
    asked_s: float
    granted_s: float
    sent_s: float
    ended_s: float
    rate_share: float
    tokens: int


class RequestLog:
    """Collects the requests of episodes, at 65 bytes each.

    Args:
        lanes: All that the run could use; what was sent elsewhere, by a session that had another
            pool, is left out.
        from_us: Microseconds since the epoch; episodes that began before it are left out, since the
            monotonic clock may have been another one then.

    Attributes:
        lanes: As given.
        from_us: As given.
        first_token_s: Seconds from sending to the first token of each stream that had one.
    """

    def __init__(self, lanes: Sequence[Lane], *, from_us: int = 0) -> None:
        self.lanes = tuple(lanes)
        self.from_us = from_us
        self._index = {
            (lane.provider, lane.instance, lane.key): at for at, lane in enumerate(self.lanes)
        }
        self._lane = array("l")
        self._marks = array("b")
        self._tokens = array("q")
        self._times = tuple(array("d") for _ in range(6))
        self.first_token_s = array("d")

    def __len__(self) -> int:
        return len(self._lane)

    def __iter__(self) -> Iterator[Request]:
        for lane, marks, tokens, before_s, asked_s, granted_s, sent_s, ended_s, share in zip(
            self._lane, self._marks, self._tokens, *self._times, strict=True
        ):
            yield Request(
                lane,
                bool(marks & _MEASURED),
                bool(marks & _FIRST),
                bool(marks & _SERVED),
                bool(marks & _AGAIN),
                before_s,
                asked_s,
                granted_s,
                sent_s,
                ended_s,
                share,
                tokens,
            )

    def add(self, episode: EpisodeEnded, *, measured: bool) -> None:
        """Take the requests of one episode.

        Args:
            episode: Any one that ended, those that do not count among them.
            measured: Whether it counts in the makespan.
        """
        if episode.started_at_us < self.from_us:
            return
        before: Attempt | None = None
        for one in sorted(episode.attempts, key=_sent_at):
            lane = self._index.get((one.provider, one.instance, one.key))
            if lane is None:
                continue
            marks = _MEASURED if measured else 0
            marks |= _FIRST if before is None else 0
            marks |= 0 if one.outcome in NO_SERVICE else _SERVED
            marks |= _AGAIN if before is not None and before.turn == one.turn else 0
            waited_s = one.seat_wait_s + one.rate_wait_s
            asked_s = one.t_lease_s - waited_s
            times = (
                min(before.t_end_s, asked_s) if before is not None else asked_s,
                asked_s,
                one.t_lease_s,
                max(one.t_send_s, one.t_lease_s),
                one.t_end_s,
                one.rate_wait_s / waited_s if waited_s > 0 else 0.0,
            )
            self._lane.append(lane)
            self._marks.append(marks)
            self._tokens.append((one.tokens_in or 0) + (one.tokens_out or 0))
            for column, value in zip(self._times, times, strict=True):
                column.append(value)
            if one.t_first_token_s is not None:
                self.first_token_s.append(one.t_first_token_s - one.t_send_s)
            before = one


_MEASURED, _SERVED, _AGAIN, _FIRST = 1, 2, 4, 8


def _sent_at(attempt: Attempt) -> float:
    return attempt.t_send_s
