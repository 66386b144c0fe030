"""The ledger of shares as a pure model of `division.lua`, one script of Redis or Valkey.

Tests compare the model with the script (`python -m tests.ledger_world --server valkey`).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pytest_ultrapar.cluster.ledger import (
    EXPIRE_MS,
    STOP_MS,
    Answer,
    Notice,
    Renewal,
    RowKind,
    RowShare,
    RowSpec,
    RowUse,
)

# `division.lua` explains these numbers.
SKIP_MS = 500
GRACE_MS = 2_000
LEAST_PACED = 10
RECOMPUTE_MS = 250
AT_ONCE = 2_000
KEPT_PERCENT = 5
TURN_MS = 20_000
CELLS = 48
FORGOTTEN_MS = 86_400_000
NEVER = math.inf

Closing = Literal["open", "expiry", "all"]
"""An epoch before rows open: ready, waiting for hosts to expire, or for that and all windows."""


@dataclass(slots=True)
class Share:
    """A row's record of one incarnation."""

    run: str
    rank: int
    held: int = 0
    grant: int = 0
    want: int = 0
    unit: int = 1
    amount: int = 0
    target: int = 0
    decided: bool = False
    barred: float = 0
    """The time since which other hosts fill the row; 0: they do not."""
    spent: int = 0

    @property
    def out(self) -> int:
        """Units that no other host has."""
        return max(self.held, self.grant)


@dataclass(slots=True)
class Row:
    """A limit and its shares, by incarnation."""

    kind: RowKind
    epoch: int
    amount: int
    window_ms: int = 0
    longest_ms: int = 0
    shares: dict[str, Share] = field(default_factory=dict)
    out: int = 0
    shown: int = 0
    version: int = 0
    due_ms: float = 0
    computed_ms: float = -NEVER
    deaths: int = 0
    cells: dict[int, int] = field(default_factory=dict)
    told: int = 0
    first_held: int = 0
    since: int = 0
    """Units of `first_held` that were spent while the row awaits."""
    awaits: bool = False
    unsure: bool = False
    """Whether a host was last told, before the data was lost, that not everything was known."""

    @property
    def lasts_ms(self) -> int:
        """Milliseconds after its expiry during which a dead host's units are in use."""
        return {"seats": self.longest_ms, "paced": self.window_ms, "counted": 0}[self.kind]

    @property
    def spent(self) -> int:
        """Units that were spent within the window."""
        return sum(self.cells.values())


@dataclass(slots=True)
class Member:
    """An incarnation: its last call and answer, with a position for each row.

    Unchanged rows are skipped: the host reports the same, holds its grant, which is its target, and
    the row was not divided again.
    """

    seq: int
    epoch: int
    rows: tuple[RowSpec, ...] = ()
    lanes: tuple[tuple[int, ...], ...] = ()
    uses: tuple[RowUse, ...] = ()
    shares: list[RowShare] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    wants: list[int] = field(default_factory=list)
    barred: list[float] = field(default_factory=list)
    wake_ms: float = 0
    """The time at which its lanes must be checked again, in any case."""


class Told(NamedTuple):
    """A notice, its number, and its end."""

    number: int
    until_ms: float
    notice: Notice


class Ledger:
    """All rows and hosts of one installation; `cluster.ledger` explains the guarantees."""

    def __init__(self) -> None:
        self.epoch = 0
        self.born = 0
        self.begun_ms = 0
        self.closing: Closing = "open"
        self.run_id = ""
        self.now_ms = 0
        self.server_ms = 0
        self.lag_ms = 0
        self.shift_ms = 0
        self.clocks: dict[str, tuple[int, int, int]] = {}
        self.members: dict[str, Member] = {}
        self.seen: dict[str, int] = {}
        self.dead: dict[str, int] = {}
        self.deaths = 0
        self.versions = 0
        self.rows: dict[str, Row] = {}
        self.peers = 0
        self.reported = 0
        self.last_told = (0, 0)
        self.reports: list[int] = []
        self.news: dict[str, Told] = {}
        self.news_number = 0

    def renew(self, call: Renewal, server_ms: int, run_id: str = "") -> Answer:
        """Answer a host's call.

        Args:
            call: The host's call.
            server_ms: The time of the server.
            run_id: The server's `run_id`, if it is newer than the host's.
        """
        self._go_on(call, server_ms)
        self._live(call, run_id or call.server_run_id)
        self._bury()
        known = self.members.get(call.incarnation)
        if known and call.seq <= known.seq:
            same = call.seq == known.seq and known.epoch == self.epoch
            stale = not same or call.incarnation not in self.seen
            return self._answer(call, [] if stale else known.shares, stale=stale)
        if (known is None or known.epoch != self.epoch) and call.peers:
            self._report(call)
        self._hear(call.news)
        self._renew(call)
        if call.leaving:
            self._leave(call)
            shares = [RowShare(0, spec.amount, 0) for spec in call.rows]
            return self._answer(call, shares, stale=False)
        return self._answer(call, self.members[call.incarnation].shares, stale=False)

    def _leave(self, call: Renewal) -> None:
        for spec in call.rows:
            row = self.rows.get(spec.name)
            if call.open_days and row and row.epoch == self.epoch and row.awaits:
                self._settle(row)
            self._drop(spec.name, call.incarnation)
        self.seen.pop(call.incarnation, None)
        self.dead.pop(call.incarnation, None)
        self.members[call.incarnation] = Member(call.seq, 0)

    def _renew(self, call: Renewal) -> None:
        known = self.members.get(call.incarnation)
        alive = self.seen.get(call.incarnation)
        self.seen[call.incarnation] = self.now_ms
        self.dead.pop(call.incarnation, None)
        count = len(call.rows)
        same = known and alive is not None and known.epoch == self.epoch
        if known is None or not same or (known.rows, known.lanes) != (call.rows, call.lanes):
            known = Member(call.seq, self.epoch, call.rows, call.lanes)
            known.versions, known.wants = [-1] * count, [-1] * count
            known.barred, known.shares = [0] * count, [RowShare(0, 0, 0)] * count
            self.members[call.incarnation] = known
            for spec in call.rows:
                self._row(spec)
        active = [self._is_active(known, call, at) for at in range(count)]
        known.seq, known.uses = call.seq, call.uses
        if not any(active) and self.now_ms < known.wake_ms:
            return
        for at, spec in enumerate(call.rows):
            if active[at]:
                share = self._row(spec).shares.get(call.incarnation)
                known.barred[at] = share.barred if share else 0
        for at, want in enumerate(self._usable_wants(call, known)):
            active[at] = active[at] or want != known.wants[at]
            known.wants[at] = want
            if active[at]:
                self._state(call, at, want)
        room = AT_ONCE
        for at, spec in enumerate(call.rows):
            row = self.rows[spec.name]
            size = len(row.shares)
            if active[at] and self._is_due(row) and (room == AT_ONCE or room >= size):
                room -= size
                self._divide(row, spec.name)
        self._grants(call, known, active)

    def _grants(self, call: Renewal, known: Member, active: list[bool]) -> None:
        known.wake_ms = NEVER
        for at, spec in enumerate(call.rows):
            if active[at]:
                row = self.rows[spec.name]
                share = row.shares[call.incarnation]
                known.shares[at] = self._grant(row, share)
                known.versions[at] = row.version
                if known.barred[at] != share.barred:
                    known.wake_ms, known.barred[at] = 0, share.barred
            if known.barred[at] and known.barred[at] + GRACE_MS > self.now_ms:
                known.wake_ms = min(known.wake_ms, known.barred[at] + GRACE_MS)

    def _is_active(self, known: Member, call: Renewal, at: int) -> bool:
        share, use = known.shares[at], call.uses[at]
        if (
            share.closed
            or not known.uses
            or use != known.uses[at]
            or not use.held == share.grant == share.target
        ):
            return True
        row = self.rows[call.rows[at].name]
        return row.version != known.versions[at] or self._is_due(row)

    # Time, lives and deaths

    def _go_on(self, call: Renewal, server_ms: int) -> None:
        if not self.epoch:
            self.now_ms = self.server_ms = server_ms
        step_ms = server_ms - self.server_ms
        heard_ms, at_ms, lag_ms = self.clocks.get(
            call.clock, (call.clock_ms, self.now_ms, self.lag_ms)
        )
        agreed_ms = call.clock_ms - heard_ms
        if agreed_ms > STOP_MS:
            agreed_ms = 0
        agreed_ms -= (self.now_ms - at_ms) + (self.lag_ms - lag_ms)
        if step_ms < 0:
            self.lag_ms += max(agreed_ms, 0)
        elif step_ms > max(agreed_ms, 0) + SKIP_MS:
            believed_ms = min(max(agreed_ms // 2, 0), SKIP_MS)
            self.lag_ms += step_ms - believed_ms
            self.now_ms += believed_ms
        else:
            self.now_ms += step_ms
        self.server_ms = server_ms
        if call.clock_ms >= heard_ms:
            self.clocks[call.clock] = (call.clock_ms, self.now_ms, self.lag_ms)

    def _live(self, call: Renewal, run_id: str) -> None:
        if not self.epoch:
            self.epoch = self.born = max(self.server_ms, call.epoch + 1)
            self.closing = "all" if call.epoch else "open" if call.fresh else "expiry"
            self.begun_ms, self.run_id = self.now_ms, run_id
        elif run_id != self.run_id or call.epoch > self.epoch:
            self.epoch = max(self.server_ms, self.epoch + 1, call.epoch + 1)
            self.closing = "all"
            self.begun_ms, self.run_id = self.now_ms, run_id
            self.seen, self.dead = {}, {}
            self.peers, self.reported, self.last_told, self.reports = 0, 0, (0, 0), []
        elif 0 < call.epoch < self.born:
            self.closing = "all"

    def _bury(self) -> None:
        for incarnation, seen_ms in list(self.seen.items()):
            if self.now_ms - seen_ms >= EXPIRE_MS:
                self.dead[incarnation] = seen_ms + EXPIRE_MS
                del self.seen[incarnation]
                self.deaths += 1
        for incarnation, died_ms in list(self.dead.items()):
            if self.now_ms - died_ms > 2 * FORGOTTEN_MS:
                del self.dead[incarnation]

    def _report(self, call: Renewal) -> None:
        """Record the report of a host of an earlier epoch: after all reports, the counts are known.

        All hosts that lived at the last answer of that epoch must have reported. A host that got an
        answer within the expiry before it lived then; a host that was stopped and comes back did
        not.
        """
        told = (call.epoch, call.answered_ms)
        if call.epoch == self.epoch or call.epoch < self.last_told[0]:
            return
        if call.epoch > self.last_told[0]:
            self.reports = []
        self.reports.append(call.answered_ms)
        self.shift_ms += max(call.answered_ms - self._day_ms(), 0)
        if told > self.last_told:
            self.last_told, self.peers = told, call.peers
        since_ms = self.last_told[1] - EXPIRE_MS
        self.reported = sum(answered_ms > since_ms for answered_ms in self.reports)

    def _opens_ms(self, row: Row) -> float:
        if self.closing == "open":
            return -NEVER
        if self.closing == "expiry":
            return self.begun_ms + EXPIRE_MS
        if row.kind != "counted":
            return self.begun_ms + EXPIRE_MS + row.lasts_ms
        if row.awaits and (row.unsure or not self._complete()):
            return self.begun_ms + EXPIRE_MS + row.window_ms
        return self.begun_ms + EXPIRE_MS

    def _day_ms(self) -> int:
        """A time that continues from epoch to epoch, by which counts expire."""
        return self.now_ms + self.shift_ms

    def _complete(self) -> bool:
        return 0 < self.peers <= self.reported

    # Rows

    def _row(self, spec: RowSpec) -> Row:
        row = self.rows.get(spec.name)
        if row is None:
            row = Row(
                spec.kind,
                self.epoch,
                spec.amount,
                awaits=self.closing == "all" and spec.kind == "counted",
            )
            self.rows[spec.name] = row
        elif row.epoch != self.epoch:
            if row.kind == "counted":
                for share in row.shares.values():
                    share.held = share.grant = share.want = share.target = share.amount = 0
                    share.decided, share.barred = False, 0
            else:
                row.shares = {}
            row.epoch, row.out, row.amount = self.epoch, 0, spec.amount
            row.told, row.first_held, row.since = 0, 0, 0
            row.awaits, row.unsure = row.kind == "counted", False
            row.due_ms, row.computed_ms, row.deaths = 0, -NEVER, self.deaths
        row.window_ms = max(row.window_ms, spec.window_ms)
        row.longest_ms = max(row.longest_ms, spec.longest_ms)
        if row.kind == "counted":
            self._forget_cells(row)
        return row

    def _settle(self, row: Row) -> None:
        self._spend(row, self._known(row) - row.spent)
        row.awaits = False
        self.versions += 1
        row.version = self.versions

    def _known(self, row: Row) -> int:
        """Spent units, from the ledger's own data and from the counts that hosts were told."""
        if not row.awaits:
            return row.spent
        # The stored data may be old. Only units in the window at the last answer are certainly
        # among the told ones.
        since_ms = self._day_ms() + EXPIRE_MS - row.window_ms
        size_ms = self._cell_ms(row)
        certain = sum(units for cell, units in row.cells.items() if cell * size_ms > since_ms)
        return row.spent + max(row.told - row.first_held + row.since - certain, 0)

    def _cell_ms(self, row: Row) -> int:
        return max(row.window_ms // CELLS, 1)

    def _forget_cells(self, row: Row) -> None:
        size_ms, day_ms = self._cell_ms(row), self._day_ms()
        over = [cell for cell in row.cells if (cell + 1) * size_ms + row.window_ms <= day_ms]
        for cell in over:
            del row.cells[cell]

    def _spend(self, row: Row, units: int) -> None:
        if units > 0:
            cell = self._day_ms() // self._cell_ms(row)
            row.cells[cell] = row.cells.get(cell, 0) + units
            # Tell all hosts, including those whose shares do not change.
            self.versions += 1
            row.version = self.versions
            self._disturb(row)

    def _disturb(self, row: Row) -> None:
        pause_ms = max(RECOMPUTE_MS, len(row.shares))
        row.due_ms = min(row.due_ms, max(self.now_ms, row.computed_ms + pause_ms))

    def _is_due(self, row: Row) -> bool:
        return row.due_ms <= self.now_ms or (
            row.deaths != self.deaths and row.computed_ms + RECOMPUTE_MS <= self.now_ms
        )

    def _drop(self, name: str, incarnation: str) -> None:
        row = self.rows.get(name)
        share = row.shares.get(incarnation) if row and row.epoch == self.epoch else None
        if row is None or share is None:
            return
        row.out -= share.out
        del row.shares[incarnation]
        self._disturb(row)

    def _usable_wants(self, call: Renewal, known: Member) -> list[int]:
        """A host's wants for rows that a lane could use if the host got the units."""
        barred = known.barred
        useful = [not call.lanes] * len(call.rows)
        for lane in call.lanes:
            first, last = NEVER, -1.0
            for position in lane:
                if barred[position]:
                    first = min(first, position)
                    if self.now_ms - barred[position] >= GRACE_MS:
                        last = max(last, position)
            for position in lane:
                if first >= position >= last:
                    useful[position] = True
        return [
            max(use.want, use.unit) if use.want and useful[position] else 0
            for position, use in enumerate(call.uses)
        ]

    def _state(self, call: Renewal, at: int, want: int) -> None:
        spec, use = call.rows[at], call.uses[at]
        row = self._row(spec)
        share = row.shares.get(call.incarnation)
        if share is None:
            share = Share(call.run, rank(call.host, spec.group or spec.name, call.incarnation))
            row.shares[call.incarnation] = share
        if not share.decided or share.amount != spec.amount or share.unit != use.unit:
            row.amount = min(row.amount, spec.amount)
            self._disturb(row)
        elif share.want != want and not (0 < share.target < min(share.want, want)):
            self._disturb(row)
        if row.kind == "counted":
            if not share.amount:
                # The host was treated as dead, and all its units as spent. It may spend them now.
                share.spent = min(use.spent, share.spent)
            if row.awaits and use.told and not share.decided:
                share.spent = use.spent
            more = max(use.spent - share.spent, 0)
            self._spend(row, more)
            if share.decided:
                row.since += more
            share.spent = max(use.spent, share.spent)
            if row.awaits and use.told and not share.decided:
                row.told = max(row.told, use.told, -1 - use.told)
                row.unsure = row.unsure or use.told < 0
                row.first_held += use.held
        row.out += use.held - share.out
        share.held, share.grant = use.held, 0
        share.want, share.unit, share.amount = want, use.unit, spec.amount
        share.decided = True

    def _grant(self, row: Row, share: Share) -> RowShare:
        if row.awaits and self.now_ms >= self._opens_ms(row):
            self._settle(row)
        free = row.amount - (row.out - share.out)
        if row.kind == "counted":
            free -= row.spent
        if self.now_ms < self._opens_ms(row):
            free = 0
        grant = min(share.target, max(share.held, free))
        if row.kind != "seats" and share.held < grant < share.unit:
            grant = min(share.held, share.target)
        row.out += max(share.held, grant) - share.out
        share.grant = grant
        if row.kind != "counted":
            return RowShare(grant, row.amount, share.target)
        # If the server is lost again before all have reported, not everything is known.
        known, spent = not row.awaits or (self._complete() and not row.unsure), self._known(row)
        told = spent + row.out if known else -1 - spent - row.out
        closed = self.now_ms < self._opens_ms(row)
        return RowShare(grant, row.amount, share.target, told, spent, closed)

    # Division

    def _divide(self, row: Row, name: str) -> None:
        row.due_ms, row.deaths = NEVER, self.deaths
        ask = self.now_ms - row.computed_ms > FORGOTTEN_MS
        row.computed_ms = self.now_ms
        amount = 0
        runs: dict[str, list[Share]] = {}
        for incarnation, share in list(row.shares.items()):
            died_ms = self.dead.get(incarnation)
            if died_ms is None and ask and incarnation not in self.seen:
                died_ms = 0
            if died_ms is not None:
                free_ms = died_ms + row.lasts_ms
                if free_ms > self.now_ms:
                    row.due_ms = min(row.due_ms, free_ms)
                    share.want = share.target = 0
                elif row.kind != "counted":
                    row.out -= share.out
                    del row.shares[incarnation]
                    continue
                else:
                    lost = share.out
                    row.out -= lost
                    share.held = share.grant = share.want = share.target = share.amount = 0
                    share.spent += lost
                    row.since += lost
                    self._spend(row, lost)
            if share.amount:
                amount = min(amount or share.amount, share.amount)
            runs.setdefault(share.run, []).append(share)
        row.amount = amount or row.amount
        left = row.amount
        if row.kind == "counted":
            left = max(left - row.spent, 0)
            row.due_ms = min(
                [
                    row.due_ms,
                    *(
                        (cell + 1) * self._cell_ms(row) + row.window_ms - self.shift_ms
                        for cell in row.cells
                    ),
                ]
            )
            wanting = sum(share.want > 0 for shares in runs.values() for share in shares)
            most = min(left // (2 * max(wanting, 1)), row.amount // 20)
        else:
            most = left
        changed = row.amount != row.shown
        row.shown = row.amount
        parts = self._of_runs(row, name, runs, left)
        # The part of a run that wants little excludes no other, while units are left.
        spare = 0 if len(runs) == 1 else left - sum(parts.values())
        for run, part in parts.items():
            changed = self._within(row, runs[run], part, most, spare) or changed
        if changed:
            self.versions += 1
            row.version = self.versions

    def _of_runs(
        self, row: Row, name: str, runs: dict[str, list[Share]], amount: int
    ) -> dict[str, int]:
        if len(runs) == 1:
            return dict.fromkeys(runs, amount)
        asks = []
        part = 1
        for run, shares in runs.items():
            want = sum(share.want for share in shares)
            unit = max((share.unit for share in shares if share.want), default=1)
            part = max(part, unit)
            asks.append(Ask(rank(run, name, run), want, unit, run))
        asks.sort()
        wanting = [ask for ask in asks if ask.want]
        part = min(part, amount)
        if len(wanting) > 1 and amount // max(part, 1) < 2 * len(wanting):
            turn_ms = max(TURN_MS, 10 * row.window_ms) if row.kind == "paced" else TURN_MS
            turn = self.now_ms // turn_ms
            row.due_ms = min(row.due_ms, (turn + 1) * turn_ms)
            first = turn % len(wanting)
            wanting = wanting[first:] + wanting[:first]
        parts, _, _ = fill(wanting, amount, part)
        found = dict.fromkeys(runs, 0)
        found.update({ask.key: units for ask, units in zip(wanting, parts, strict=True)})
        return found

    def _within(self, row: Row, shares: list[Share], amount: int, most: int, spare: int) -> bool:
        """Divide a run's part between its hosts; return whether anything changed."""
        wanting = sorted((share for share in shares if share.want), key=lambda share: share.rank)
        unit = max((share.unit for share in wanting), default=1)
        # A unit that only one host can use stays with its holder, even if others join.
        whole = unit >= row.amount
        if whole:
            wanting.sort(key=lambda share: not share.target)
        useful = max(unit, LEAST_PACED if row.kind == "paced" else 1)
        asks = [
            Ask(share.rank, min(share.want, max(most, share.unit)), share.unit, "")
            for share in wanting
        ]
        parts, cut, room = fill(asks, amount, min(useful, amount))
        # A host that wants nothing is excluded by no other: it could not ask for units again.
        full = bool(wanting) and room + spare < max(min(useful, amount + spare), 1)
        parts = keep([share.target for share in wanting], parts, [ask.want for ask in asks])
        changed = False
        targets = {id(share): units for share, units in zip(wanting, parts, strict=True)}
        for share in shares:
            target = targets.get(id(share), 0)
            barred: float = 0
            if full and not target and (whole or share.rank > cut):
                barred = share.barred or self.now_ms
            if target != share.target or barred != share.barred:
                changed = True
                share.target, share.barred = target, barred
        return changed

    # News

    def _hear(self, news: tuple[Notice, ...]) -> None:
        for notice in news:
            known = self.news.get(notice.name)
            until_ms = self.now_ms + notice.for_ms if notice.for_ms else NEVER
            if (
                known
                and known.notice.reason == notice.reason
                and known.notice.run == notice.run
                and (until_ms <= known.until_ms + SKIP_MS)
            ):
                continue
            self.news_number += 1
            self.news[notice.name] = Told(self.news_number, until_ms, notice)

    def _answer(self, call: Renewal, shares: list[RowShare], *, stale: bool) -> Answer:
        seen = call.news_seen if call.epoch == self.epoch else 0
        news = []
        if not stale and seen < self.news_number:
            for name, told in list(self.news.items()):
                if told.until_ms <= self.now_ms:
                    del self.news[name]
                elif told.number > seen and told.notice.run in {"", call.run}:
                    left = 0 if told.until_ms == NEVER else int(told.until_ms) - self.now_ms
                    notice = told.notice
                    news.append((told.number, Notice(name, notice.reason, left, notice.run)))
        return Answer(
            epoch=self.epoch,
            stale=stale,
            now_ms=self._day_ms(),
            server_ms=self.server_ms,
            epoch_age_ms=self.now_ms - self.begun_ms,
            peers=len(self.seen),
            shares=tuple(shares),
            news=tuple(notice for _, notice in sorted(news)),
            news_seen=self.news_number,
        )


class Ask(NamedTuple):
    """A host's request for units, and the rank by which it gets them."""

    rank: int
    want: int
    unit: int
    key: str


def rank(who: str, what: str, also: str) -> int:
    """The rank of a host in a row, or of a run: the smallest first. Source: rendezvous hashing.

    Args:
        who: The name of the host.
        what: The row's group.
        also: Distinguishes two hosts of one name.
    """
    return _digits(f"{who}\n{what}", 10) * 4096 + _digits(also, 3)


def _digits(text: str, count: int) -> int:
    return int(hashlib.sha1(text.encode()).hexdigest()[:count], 16)


def fill(asks: list[Ask], amount: int, part: int) -> tuple[list[int], int, int]:
    """Divide an amount between the first asks that can get a useful part, max-min fair by want.

    Args:
        asks: The asks, in the order of their ranks.
        amount: Units.
        part: The smallest part, except for asks of less.

    Returns:
        Units of each; the rank of the last ask that got a part; the remaining units, 0 if an ask
        got too few.
    """
    found = [0] * len(asks)
    room, taken, cut = amount, 0, -1
    for ask in asks:
        need = min(ask.want, part)
        if need > room or amount <= 0:
            break
        room -= need
        taken += 1
        cut = ask.rank
    active, left = list(range(taken)), amount
    while active:
        level = left // len(active)
        small = [at for at in active if asks[at].want <= level]
        if not small:
            more = left - level * len(active)
            for order, at in enumerate(active):
                found[at] = level + (order < more)
            left = 0
            break
        for at in small:
            found[at] = asks[at].want
            left -= asks[at].want
        active = [at for at in active if asks[at].want > level]
    for at in range(taken, len(asks)):
        if left <= 0:
            break
        if left >= asks[at].unit:
            found[at] = min(asks[at].want, left)
            left -= found[at]
    return found, cut, room if taken == len(asks) else 0


def keep(old: list[int], new: list[int], wants: list[int]) -> list[int]:
    """The new shares, without small changes that cancel each other."""
    small = [
        0 < before != after and abs(after - before) * 100 <= before * KEPT_PERCENT
        for before, after in zip(old, new, strict=True)
    ]
    gains = cuts = 0
    for at, little in enumerate(small):
        change = new[at] - old[at]
        if little and change > 0:
            gains += change
        elif little and old[at] <= wants[at]:
            cuts -= change
    budget = min(gains, cuts)
    found = list(new)
    for sign in (1, -1):
        left = budget
        for at, little in enumerate(small):
            change = (new[at] - old[at]) * sign
            if little and change > 0 and left and (sign > 0 or old[at] <= wants[at]):
                back = min(change, left)
                found[at] -= back * sign
                left -= back
    return found
