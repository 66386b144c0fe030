"""Beside a broker: renews this host's part of the limits, about once a second.

What the host holds and wants is asked of the broker on its loop; the call to the server waits in a
thread of its own, so that a slow server keeps no request waiting that may go. A part ends by itself
`STOP_MS` after the call for it was begun, by a clock that goes on while the machine sleeps: a host
that cannot renew sends nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.broker.news import News
from pytest_ultrapar.broker.shares import Row
from pytest_ultrapar.clock import HostDayClock, boot_s
from pytest_ultrapar.cluster.address import VARIABLE, read_address
from pytest_ultrapar.cluster.counted import CountedRow, CountedShare
from pytest_ultrapar.cluster.days_before import DayFiles, Spans
from pytest_ultrapar.cluster.ledger import (
    EXPIRE_MS,
    STOP_MS,
    Answer,
    Notice,
    Renewal,
    RowSpec,
    RowUse,
)
from pytest_ultrapar.cluster.server import ClusterServer, NoAnswerError
from pytest_ultrapar.errors import ConfigError, UltraparError
from pytest_ultrapar.publish import NOT_THAT_JSON, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.broker.host import BrokerHost
    from pytest_ultrapar.cluster.address import ClusterAddress

RENEW_S, SOON_S = 0.8, 0.3
"""Between two calls; and while units are on their way, be it here or from here."""


_OVER = "over"
"""In place of a day: the row is told that nothing is held of it, and asked for no more."""
_CLOSED_MS = EXPIRE_MS + 3_000
"""At the start of an epoch all rows are closed; longer are only those of which not all is known."""


class SharingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the sharing of limits needs to know; crosses to the broker's process as JSON.

    Attributes:
        url: Of the server, without a password; None: the one in the environment.
        run: The run's name, as its hosts share limits.
        claims: The run's name, as its hosts share cases.
        host: This host's name.
        rows: All rows that are shared.
        limits: For each the name of its limit and the word of its kind.
        lanes: For each way through the limits, the positions of its rows.
        counted: How those that are counted are asked for; None for the others.
        days: The files of those that count days; None for the others.
        models: In the order in which the claims count what is unclaimed.
        n_cases: Cases of each, while nobody has joined the run.
        epoch_path: Where the host remembers the ledger's epoch.
    """

    url: str | None
    run: str
    claims: str
    host: str
    rows: tuple[RowSpec, ...]
    limits: tuple[tuple[str, str], ...]
    lanes: tuple[tuple[int, ...], ...]
    counted: tuple[CountedRow | None, ...]
    days: tuple[DayFiles | None, ...]
    models: tuple[str, ...]
    n_cases: tuple[int, ...]
    epoch_path: str


def make_shares(host: BrokerHost, config: str) -> HostShares:
    """What shares limits beside a broker, by `SharingSettings` as JSON. Called where the broker is.

    Raises:
        ConfigError: The server's URL is not there any more.
    """
    return HostShares(msgspec.json.decode(config, type=SharingSettings), host, os.environ)


class HostShares:
    """Tells a broker its part of the limits, from `start` to `close`; all on the broker's loop.

    Attributes:
        said: The ledger's last answer; None before the first.
    """

    def __init__(
        self, settings: SharingSettings, host: BrokerHost, environ: Mapping[str, str]
    ) -> None:
        address = read_address(settings.url, environ)
        if address is None:
            msg = f"the environment variable {VARIABLE} is gone"
            raise ConfigError(msg)
        self._settings = settings
        self._host = host
        self._server = ClusterServer(address)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ultrapar-shares")
        self._incarnation = secrets.token_hex(8)
        self._seq = 0
        self._clock = HostDayClock().at(0.0).boot_id + _time_namespace()
        self._epoch_path = Path(settings.epoch_path)
        self._epoch = _read_epoch(self._epoch_path)
        self._peers = self._news_seen = self._answered_ms = 0
        self._news: tuple[Notice, ...] = ()
        self._unclaimed: Mapping[str, int] = dict(
            zip(settings.models, settings.n_cases, strict=True)
        )
        self._counted: dict[tuple[int, str], CountedShare] = {}
        self._asked: tuple[tuple[int, str], ...] = ()
        self._untold: dict[int, Spans] = {}
        self._is_told = False
        self._server_ahead_s = 0.0
        self._is_closed = self._returned = False
        self._applied_s = boot_s()
        self.said: Answer | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, host: BrokerHost) -> None:
        """Begin to renew. Called once, when the loop runs."""
        now = HostDayClock().at(host.now_s())
        for at, files in enumerate(self._settings.days):
            if files is not None and (spans := files.untold(now)):
                self._untold[at] = spans
        self._task = host.loop.create_task(self._renew_always())
        self._task.add_done_callback(self._ended)

    def close(self) -> None:
        """Renew no more, and say so if the server can be reached. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        # From here on only what is in flight, or counts in a window, is held: else others would
        # wait for as long as the longest request may take.
        now_s = self._host.now_s()
        self._host.broker.share({}, now_s, now_s)
        self._thread.submit(self._leave, self._next_call(leaving=True))
        self._thread.shutdown(wait=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Nothing is renewed any more: whoever claims cases ends the run with this sentence."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._host.broker.trouble = f"limits cannot be renewed any more: {error!r}"

    async def _renew_always(self) -> None:
        while True:
            begun_s = boot_s()
            call = self._next_call()
            pause_s = SOON_S
            try:
                answer, unclaimed = await self._host.loop.run_in_executor(
                    self._thread, self._ask, call
                )
            except UltraparError as error:
                # Closed by itself soon, never open. The next call says what is held then; whoever
                # claims cases ends the run where this lasts for too long.
                self._host.broker.trouble = str(error)
            else:
                self._host.broker.trouble = ""
                if not answer.stale:
                    pause_s = self._apply(answer, call, begun_s)
                    self._unclaimed = unclaimed or self._unclaimed
            await asyncio.sleep(max(0.0, begun_s + pause_s - boot_s()))

    def _ask(self, call: Renewal) -> tuple[Answer, Mapping[str, int]]:
        """Call the server; on the thread."""
        if self._server.facts is None:
            self._server.look()
        facts = self._server.facts
        assert facts is not None
        call = msgspec.structs.replace(call, server_run_id=facts.run_id)
        try:
            answer = self._server.renew(call)
            left = self._server.unclaimed(self._settings.claims)
        except NoAnswerError:
            # It may be another one when it is back.
            self._server.facts = None
            raise
        if len(left) != len(self._settings.models):
            return answer, {}
        return answer, dict(zip(self._settings.models, left, strict=True))

    def _leave(self, call: Renewal) -> None:
        """Give all back that is not in use; on the thread."""
        with suppress(UltraparError):
            if self._server.facts is not None:
                run_id = self._server.facts.run_id
                self._server.renew(msgspec.structs.replace(call, server_run_id=run_id))
        self._server.close()

    def _next_call(self, *, leaving: bool = False) -> Renewal:
        settings, self._seq = self._settings, self._seq + 1
        broker, now_s = self._host.broker, self._host.now_s()
        held = broker.holdings(now_s)
        wants = broker.wants(now_s, {} if leaving else self._unclaimed)
        rows: list[RowSpec] = []
        uses: list[RowUse] = []
        asked: list[tuple[int, str]] = []
        places: list[list[int]] = []
        for at, limit in enumerate(settings.limits):
            row, spec, counted = Row(*limit), settings.rows[at], settings.counted[at]
            want, places = wants.rows[row], [*places, []]
            if counted is None:
                places[at].append(len(rows))
                rows.append(spec)
                asked.append((at, ""))
                units = 0 if leaving else want.units
                uses.append(RowUse(held=held[row].units, want=units, unit=want.unit))
                continue
            days = counted.days(self._walls_s())
            for day in days:
                if (at, day) not in self._counted:
                    name = f"{spec.name}:{counted.zone}:{day}" if day else spec.name
                    own = msgspec.structs.replace(spec, name=name)
                    before = 0
                    if (files := settings.days[at]) is not None:
                        before = files.on_day(self._untold.get(at, {}), day)
                    self._counted[at, day] = CountedShare(counted, own, held[row], before)
            for place, share in list(self._counted.items()):
                if place[0] != at:
                    continue
                # A day that is over is asked for no more once the ledger heard that it is.
                is_over = place[1] not in days
                if is_over and place not in self._asked:
                    del self._counted[place]
                    continue
                if not is_over:
                    places[at].append(len(rows))
                    asked.append(place)
                else:
                    asked.append((at, _OVER))
                rows.append(share.spec)
                uses.append(share.use(held[row], want, leaving=leaving or is_over))
        self._asked = tuple(asked)
        lanes = tuple(tuple(one for at in lane for one in places[at]) for lane in settings.lanes)
        self._news += tuple(_notice(one, settings.run) for one in broker.take_news(now_s))
        return Renewal(
            host=settings.host,
            incarnation=self._incarnation,
            seq=self._seq,
            run=settings.run,
            server_run_id="",
            epoch=self._epoch,
            clock=self._clock,
            clock_ms=round(boot_s() * 1000),
            rows=tuple(rows),
            uses=tuple(uses),
            lanes=lanes,
            answered_ms=self._answered_ms,
            peers=self._peers,
            news=self._news,
            news_seen=self._news_seen,
            leaving=leaving and not any(use.held for use in uses),
        )

    def _apply(self, answer: Answer, call: Renewal, begun_s: float) -> float:
        """Have what was answered; returns in how many seconds to ask again."""
        self.said = answer
        self._news = self._news[len(call.news) :]
        if answer.epoch != self._epoch:
            self._epoch = answer.epoch
            with suppress(OSError, UltraparError):
                self._epoch_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(self._epoch_path, f"{answer.epoch}\n".encode())
        self._peers, self._news_seen = answer.peers, answer.news_seen
        self._answered_ms = answer.now_ms
        # Taken for dead, others may have by now what it still holds: that may end, and nothing is
        # begun before all of it has.
        was_dead = self._returned or begun_s - self._applied_s > EXPIRE_MS / 1000
        self._returned = was_dead and any(use.held for use in call.uses)
        self._applied_s = begun_s
        self._remember_told()
        self._server_ahead_s = answer.server_ms / 1000 - time.time()
        until_s, now_s = begun_s + STOP_MS / 1000, self._host.now_s
        broker = self._host.broker
        shares, most = self._grants(answer)
        self._host.move(lambda: broker.share(shares, until_s, now_s(), most))
        if answer.news:
            heard = [news for notice in answer.news if (news := _news(notice)) is not None]
            self._host.move(lambda: broker.hear(heard, now_s()))
        moves = any(
            share.target > share.grant or use.held > share.grant
            for share, use in zip(answer.shares, call.uses, strict=True)
        )
        return SOON_S if moves else RENEW_S

    def _grants(
        self, answer: Answer
    ) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], float]]:
        """What the broker may use now, and what is left of counted rows on all hosts."""
        settings, broker = self._settings, self._host.broker
        held = broker.holdings(self._host.now_s())
        shares: dict[tuple[str, str], int] = {}
        most: dict[tuple[str, str], float] = {}
        for place, share in zip(self._asked, answer.shares, strict=True):
            at, day = place
            row = Row(*settings.limits[at])
            if day == _OVER:
                continue
            if settings.counted[at] is None:
                shares[row] = 0 if self._returned else share.grant
                continue
            # Where two days count, both must have room.
            units, left = self._counted[place].answered(share, held[row], forfeits=self._returned)
            shares[row] = min(units, shares.get(row, units))
            most[row] = min(left, most.get(row, math.inf))
            if share.closed and answer.epoch_age_ms > _CLOSED_MS:
                broker.trouble = (
                    f"{row.word} of {row.limit} is closed: the server has forgotten what was spent "
                    "of it, and hosts that know are gone; ultrapar cluster reset-day "
                    "opens it with what is known"
                )
        return shares, most

    def _remember_told(self) -> None:
        """The ledger knows now what this host had spent before it joined."""
        if self._is_told:
            return
        self._is_told = True
        now = HostDayClock().at(self._host.now_s())
        for at, spans in self._untold.items():
            files = self._settings.days[at]
            assert files is not None
            # Where that fails it is told once more by the next run: too much, never too little.
            with suppress(UltraparError):
                files.tell(spans, now)

    def _walls_s(self) -> tuple[float, float]:
        """The time by this host's clock and by the server's."""
        wall_s = time.time()
        return wall_s, wall_s + self._server_ahead_s


def _notice(news: News, run: str) -> Notice:
    """What a host learned, for the other hosts of its run: they have the same lanes."""
    return Notice(
        name=f"{news.lane_id}:{news.removes or ''}",
        reason=msgspec.json.encode(news).decode(),
        for_ms=round(news.for_s * 1000),
        run=run,
    )


def _news(notice: Notice) -> News | None:
    """The same as another host hears it; None where somebody else wrote it."""
    try:
        news = msgspec.json.decode(notice.reason, type=News)
    except NOT_THAT_JSON:
        return None
    # What is left of a pause is by the ledger's clock.
    return msgspec.structs.replace(news, for_s=notice.for_ms / 1000)


def epoch_path(directory: Path, address: ClusterAddress) -> Path:
    """Where a host remembers the epoch of the ledger at a server."""
    where = hashlib.sha256(f"{address.shown}\n{address.prefix}".encode()).hexdigest()[:16]
    return directory / f"cluster-{where}.epoch"


def _read_epoch(path: Path) -> int:
    try:
        return int(path.read_text("ascii")[:20])
    except (OSError, ValueError):
        return 0


def _time_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/time").readlink())
    except OSError:
        return ""
