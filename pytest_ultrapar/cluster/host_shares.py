"""Renew this host's shares of the limits about once a second, in the broker's process.

This module runs on the broker's event loop, where it reads which units the broker holds and could
use. It calls the server in a separate thread, so that a slow server delays no request. A share
expires `STOP_MS` after the start of the call that returned it. This time is measured with a clock
that also runs while the machine sleeps. So a host that cannot renew its shares sends no requests.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.broker.demand import RowDemand
from pytest_ultrapar.broker.protocol import ShareStatus
from pytest_ultrapar.broker.settings import SharesSettings
from pytest_ultrapar.cluster.address import VARIABLE, read_address
from pytest_ultrapar.cluster.asked_rows import AskedRows
from pytest_ultrapar.cluster.clock_drift import ClockDrift
from pytest_ultrapar.cluster.earlier_daily_use import DayFiles, EarlierDailyUse
from pytest_ultrapar.cluster.gateway_shares import RecentUse
from pytest_ultrapar.cluster.ledger import (
    EXPIRE_MS,
    STOP_MS,
    Answer,
    Notice,
    Renewal,
    RowShare,
    RowSpec,
)
from pytest_ultrapar.cluster.ledger_rows import BUDGET_UNITS, SharedRows
from pytest_ultrapar.cluster.notices import news_of, notice_of
from pytest_ultrapar.cluster.server import ClusterServer, NoAnswerError
from pytest_ultrapar.errors import UltraparError
from pytest_ultrapar.pool.model import LIMIT_KINDS, LaneId
from pytest_ultrapar.store.clock_stamps import Stamp, StampFile
from pytest_ultrapar.system.clock import boot_id, boot_s, wall_s
from pytest_ultrapar.system.files import NOT_THAT_JSON, read_file, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ultrapar.broker.event_loop import BrokerLoop
    from pytest_ultrapar.broker.notices import LaneNotice
    from pytest_ultrapar.broker.shares import Row
    from pytest_ultrapar.cluster.address import ClusterAddress

RENEW_S, SOON_S = 0.8, 0.3
"""Seconds between two calls: usually `RENEW_S`, but `SOON_S` while units are moving between hosts
or the broker has news for other hosts."""
LOOK_S = 0.1
"""Seconds between two checks for news from the broker."""
NAMED_S = 86_400.0
"""Seconds between two calls that send the names of rows. The server keeps the names for a week."""


class Line(msgspec.Struct, frozen=True):
    """A line of cases: the cases of one group, or the cases of one model that are in no group."""

    model: str
    group: str = ""


_CLOSED_MS = EXPIRE_MS + 3_000
"""How long any counted row may be closed at the start of an epoch, in milliseconds. Later, a row is
closed only if the server has lost its spent amount."""


class SharingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings for sharing limits. They are sent to the broker's process as JSON.

    Attributes:
        url: The URL of the server, without a password; None means the URL in the environment.
        run: The name under which hosts share limits.
        claims: The name under which hosts share cases; empty for a gateway, which has no cases.
        host: This host's name.
        rows: All shared rows.
        days: For each row of a daily limit, the files that count its units; None for other rows.
        lines: The lines of cases, in the order in which the server lists them.
        n_cases: The number of cases in each line. Until a host has joined the run, all of them are
            regarded as claimable.
        epoch_path: The file in which the host stores the ledger's epoch.
        clocks_path: The file for the offsets between the host's clock and the ledger's clock
            (`store.clock_stamps`). If the path is empty, the offsets are not stored.
        model_of: For a gateway, the model of each lane.
    """

    url: str | None
    run: str
    claims: str
    host: str
    rows: SharedRows
    days: tuple[DayFiles | None, ...]
    lines: tuple[Line, ...]
    n_cases: tuple[int, ...]
    epoch_path: str
    clocks_path: str = ""
    model_of: dict[LaneId, str] = {}

    def for_broker(self) -> SharesSettings:
        """Return the settings for a broker that shares limits with other hosts."""
        config = msgspec.json.encode(self).decode()
        return SharesSettings(f"{__name__}:{make_shares.__name__}", config, (VARIABLE,))


def make_shares(host: BrokerLoop, config: str) -> HostShares:
    """Create the object that gives a broker its shares, from `SharingSettings` as JSON.

    Called in the broker's process.

    Raises:
        ConfigError: The environment no longer contains the server's URL.
    """
    return HostShares(msgspec.json.decode(config, type=SharingSettings), host, os.environ)


class HostShares:
    """Gives a broker its shares of the limits, from `start` to `close`.

    Runs on the broker's event loop.

    Attributes:
        said: The ledger's last answer; None before the first answer.
    """

    def __init__(
        self, settings: SharingSettings, host: BrokerLoop, environ: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._host = host
        self._server = ClusterServer(read_address(settings.url, environ))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ultrapar-shares")
        self._incarnation = secrets.token_hex(8)
        self._seq = 0
        self._clock = boot_id() + _time_namespace()
        self._epoch_path = Path(settings.epoch_path)
        self._epoch = _read_epoch(self._epoch_path)
        self._stamps = StampFile(Path(settings.clocks_path)) if settings.clocks_path else None
        self._clock_drift = ClockDrift()
        self._peers = self._news_seen = self._answered_ms = 0
        self._news: tuple[Notice, ...] = ()
        self._claimable: Sequence[int] = settings.n_cases
        self._earlier_use = EarlierDailyUse(settings.days)
        self._asked = AskedRows(settings.rows, self._earlier_use.spent)
        self._lately = None if settings.claims else RecentUse(settings.model_of)
        self._server_ahead_s = 0.0
        self._is_closed = self._returned = False
        self._named_in, self._named_s = 0, 0.0
        self._applied_s = boot_s()
        self.said: Answer | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, host: BrokerLoop) -> None:
        """Start renewing shares. Called once, when the event loop is running."""
        self._earlier_use.read(wall_s())
        self._task = host.loop.create_task(self._renew_always())
        self._task.add_done_callback(self._ended)

    def close(self) -> None:
        """Stop renewing shares, and tell the server so if it can be reached. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        # From now on, hold only units that are in flight or still count in a window. Otherwise
        # other hosts would have to wait for as long as the longest possible request.
        now_s = self._host.now_s()
        self._host.broker.share({}, now_s, now_s)
        self._thread.submit(self._leave, self._next_call(leaving=True))
        self._thread.shutdown(wait=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """If the renewal task failed, report it. The thread that claims cases then ends the run."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._host.broker.trouble = (
                f"cannot renew this host's shares of limits: {error!r} (please report this)"
            )

    async def _renew_always(self) -> None:
        while True:
            begun_s = boot_s()
            call = self._next_call()
            pause_s = SOON_S
            try:
                answer = await self._host.loop.run_in_executor(self._thread, self._ask, call)
            except UltraparError as error:
                # The shares expire soon, and the next call reports the units held at that time. If
                # the problem lasts too long, the thread that claims cases ends the run.
                self._host.broker.trouble = str(error)
            else:
                if not answer.stale:
                    pause_s = self._apply(answer, call, begun_s)
            while (left_s := begun_s + pause_s - boot_s()) > 0:
                await asyncio.sleep(min(left_s, LOOK_S))
                if self._host.broker.has_news:
                    pause_s = SOON_S

    def _ask(self, call: Renewal) -> Answer:
        """Call the server. Runs on the separate thread."""
        facts = self._server.facts or self._server.read_facts()
        call = msgspec.structs.replace(call, server_run_id=facts.run_id)
        try:
            begun_s = boot_s()
            answer = self._server.renew(call)
            if self._stamps is not None and not answer.stale:
                lag_ms = answer.server_ms - answer.now_ms
                self._stamps.add(Stamp(answer.epoch, lag_ms, answer.now_ms, begun_s, boot_s()))
            self._look_beside(answer.epoch)
        except NoAnswerError:
            # The server that comes back may be another one.
            self._server.facts = None
            raise
        return answer

    def _look_beside(self, epoch: int) -> None:
        """Read how many cases are claimable, and send the names of rows. Failures are ignored."""
        with suppress(UltraparError):
            if self._settings.claims:
                claimable = self._server.claimable(self._settings.claims)
                if len(claimable) == len(self._settings.lines):
                    self._claimable = claimable
            # Send the names of rows for `ultrapar cluster status`. Send them again in a new epoch,
            # because the server may have lost them, and otherwise long before they expire.
            if epoch != self._named_in or boot_s() - self._named_s > NAMED_S:
                rows = self._settings.rows
                named = zip(rows.specs, rows.limits, strict=True)
                self._server.name_rows(self._settings.run, {spec.name: row for spec, row in named})
                self._named_in, self._named_s = epoch, boot_s()

    def _leave(self, call: Renewal) -> None:
        """Give back all units that are not in use. Runs on the separate thread."""
        with suppress(UltraparError):
            if self._server.facts is not None:
                run_id = self._server.facts.run_id
                self._server.renew(msgspec.structs.replace(call, server_run_id=run_id))
        self._server.close()
        if self._stamps is not None:
            self._stamps.flush()

    def _next_call(self, *, leaving: bool = False) -> Renewal:
        settings, self._seq = self._settings, self._seq + 1
        broker, now_s = self._host.broker, self._host.now_s()
        held = broker.holdings(now_s)
        if self._lately is not None:
            models = [line.model for line in settings.lines]
            self._claimable = self._lately.claimable(broker, now_s, models)
        left = [0 if leaving else n for n in self._claimable]
        lines = list(zip(settings.lines, left, strict=True))
        free = {line.model: n for line, n in lines if not line.group}
        in_groups = {line.group: n for line, n in lines if line.group}
        wants = broker.wants(now_s, free, in_groups=in_groups)
        wanted = wants.rows
        if self._clock_drift.trouble:
            wanted = {row: _unpaced(row, want) for row, want in wanted.items()}
        server_s = wall_s() + self._server_ahead_s
        lanes = self._asked.ask(held, wanted, server_s, leaving=leaving)
        uses = tuple(row.use for row in self._asked.last)
        if self.said is not None:
            at_ms = self.said.server_ms + round((boot_s() - self._applied_s) * 1000)
            news = broker.take_notices(now_s)
            self._news += tuple(notice_of(one, settings.run, at_ms) for one in news)
        return Renewal(
            host=settings.host,
            incarnation=self._incarnation,
            seq=self._seq,
            run=settings.run,
            server_run_id="",
            epoch=self._epoch,
            clock=self._clock,
            clock_ms=round(boot_s() * 1000),
            rows=tuple(row.spec for row in self._asked.last),
            uses=uses,
            lanes=lanes,
            answered_ms=self._answered_ms,
            peers=self._peers,
            news=self._news,
            news_seen=self._news_seen,
            leaving=leaving and not any(use.held for use in uses),
        )

    def _apply(self, answer: Answer, call: Renewal, begun_s: float) -> float:
        """Apply an answer; return the seconds until the next call."""
        self.said = answer
        self._clock_drift.record(begun_s, boot_s(), answer.server_ms / 1000)
        self._news = self._news[len(call.news) :]
        if answer.epoch != self._epoch:
            self._epoch = answer.epoch
            with suppress(OSError, UltraparError):
                self._epoch_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(self._epoch_path, f"{answer.epoch}\n".encode())
        self._peers, self._news_seen = answer.peers, answer.news_seen
        self._answered_ms = answer.now_ms
        # After this host was treated as dead, other hosts may have the units that it still holds.
        # Its requests may finish, but no new request begins before all of them have ended.
        was_dead = self._returned or begun_s - self._applied_s > EXPIRE_MS / 1000
        self._returned = was_dead and any(use.held for use in call.uses)
        self._applied_s = begun_s
        self._earlier_use.told()
        self._server_ahead_s = answer.server_ms / 1000 - wall_s()
        until_s, now_s = begun_s + STOP_MS / 1000, self._host.now_s
        broker = self._host.broker
        held = broker.holdings(now_s())
        shares, left = self._asked.granted(answer.shares, held, forfeits=self._returned)
        if answer.news:
            # Apply the news first, so that no request goes to a removed lane.
            heard = _news(answer.news, answer.server_ms)
            self._host.move(lambda: broker.apply_notices(heard, now_s()))
        self._host.move(lambda: broker.share(shares, until_s, now_s(), left))
        self._tell_people(answer)
        moves = any(
            share.target > share.grant or use.held > share.grant
            for share, use in zip(answer.shares, call.uses, strict=True)
        )
        return SOON_S if moves else RENEW_S

    def _tell_people(self, answer: Answer) -> None:
        rows, broker = self._settings.rows, self._host.broker
        broker.shares, broker.notes = [], []
        broker.trouble = self._clock_drift.trouble
        for asked, share in zip(self._asked.last, answer.shares, strict=True):
            limit, spec = rows.limits[asked.at], rows.specs[asked.at]
            if share.amount < spec.amount and not asked.is_over:
                broker.notes.append(_lowered(limit, spec, share.amount))
            # Counted rows are granted in small portions, which tell users nothing.
            if rows.counted[asked.at] is None:
                grant = 0 if self._returned else share.grant
                broker.shares.append(_for_people(limit, spec, share, grant))
            elif share.closed and not asked.is_over and answer.epoch_age_ms > _CLOSED_MS:
                broker.shares.append(ShareStatus(*limit, 0.0, 0.0, 0.0, closed=True))
                broker.notes.append(
                    f"{limit[0]}'s {limit[1]} is closed: the server lost count of "
                    "what was spent, and hosts that may have used part of this limit are gone. To "
                    "continue with the spending that is still known, run ultrapar cluster reset-day"
                )


def _unpaced(row: Row, want: RowDemand) -> RowDemand:
    """Return the demand for a row of a host whose clock is too inaccurate for rates.

    The demand is 0 for a limit per second or minute. For any other row, it is `want`.
    """
    kind = LIMIT_KINDS.get(row.word)
    return RowDemand(0) if kind is not None and kind.is_rate and not kind.is_daily else want


def _per(word: str, spec: RowSpec) -> float:
    """Return the value of one unit of a row, in the pool's unit.

    For example, it is 0.5 for 3 units per 2 s (`qps = 1.5`).
    """
    kind = LIMIT_KINDS.get(word)
    if kind is None:
        return 1 / BUDGET_UNITS
    return kind.window_s * 1000 / spec.window_ms if spec.kind == "paced" else 1.0


def _for_people(row: Row, spec: RowSpec, share: RowShare, grant: int) -> ShareStatus:
    per = _per(row.word, spec)
    return ShareStatus(*row, grant * per, share.amount * per, share.target * per)


def _lowered(row: Row, spec: RowSpec, amount: int) -> str:
    limit, word = row
    per = _per(word, spec)
    return (
        f"limit {limit}: {word} = {spec.amount * per:g} in this pool, but {amount * per:g} on "
        "other hosts that share this limit; the run uses the smallest value"
    )


def _news(notices: Iterable[Notice], server_ms: int) -> list[LaneNotice]:
    """Return the news that still applies. Notices that other programs wrote are ignored."""
    found = []
    for notice in notices:
        with suppress(*NOT_THAT_JSON):
            found.append(news_of(notice, server_ms))
    return [one for one in found if one is not None]


def epoch_path(directory: Path, address: ClusterAddress) -> Path:
    """Return the file in which a host stores the epoch of a server's ledger."""
    return directory / f"{address.label}.epoch"


def _read_epoch(path: Path) -> int:
    try:
        return int(read_file(path)[:20])
    except (OSError, ValueError):
        return 0


def _time_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/time").readlink())
    except OSError:
        return ""
