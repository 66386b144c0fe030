"""Read the content of the ledger without changing it, for people who inspect a cluster.

`division.lua` writes this data. But other programs that have access to the server may have written
there, too. Data in another format is refused with a one-sentence error.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.cluster.ledger import EXPIRE_MS
from pytest_ultrapar.cluster.notices import notice_text
from pytest_ultrapar.system.files import NOT_THAT_JSON

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHARE = struct.Struct("<7d")
_HEADER = struct.Struct("<5d")
_PACKED = msgspec.msgpack.Decoder()
NOT_THAT_LEDGER = (ValueError, LookupError, TypeError, OverflowError, RecursionError, struct.error)
"""The errors that occur when another program's data is read. The errors of msgspec are
`ValueError`s."""


@dataclass(frozen=True, slots=True)
class ShareView:
    """One host's share of a row.

    Attributes:
        host: The host's name, or its incarnation if the ledger has no name.
        run: The host's run.
        silent_s: Seconds since the host's last call; None if it was treated as dead.
        held: The units that it holds.
        granted: The units that it may use now.
        wanted: The units that it could use.
        target: The units that the host gets once other hosts have returned some.
    """

    host: str
    run: str
    silent_s: float | None
    held: int
    granted: int
    wanted: int
    target: int

    @property
    def out(self) -> int:
        """The units that no other host can have at present, because this host has them."""
        return max(self.held, self.granted)

    @property
    def coming(self) -> int:
        """The units that the host gets later, in addition to the granted ones."""
        return max(0, self.target - self.granted)


@dataclass(frozen=True, slots=True)
class RowView:
    """A row and the shares of its hosts.

    Attributes:
        row: The row's name on the server, with digests in place of keys.
        limit: The name that a run uses for the limit; empty if no run has named it.
        word: The kind of limit: its field in the pool, such as `qps`.
        kind: `seats`, `paced` or `counted`.
        amount: The total number of units.
        window_s: The period over which units are counted; 0 if the limit applies at any moment.
        spent: For counted rows: the units spent in the window.
        closed_s: After a restart of the server: seconds until hosts can get more units than they
            hold. 0 means that the row is open.
        awaits: For counted rows: whether the server lost the count of spent units, and some hosts
            have not reported their spending yet.
        shares: The shares of hosts that have or want units, the largest first.
    """

    row: str
    limit: str
    word: str
    kind: str
    amount: int
    window_s: float
    spent: int
    closed_s: float
    awaits: bool
    shares: tuple[ShareView, ...]

    @property
    def granted(self) -> int:
        """The units that all hosts together have now, including units that they are returning."""
        return sum(share.out for share in self.shares)


@dataclass(frozen=True, slots=True)
class NoticeView:
    """A notice from one host to the others: a lane, key or instance is removed or paused.

    Attributes:
        run: The run whose hosts receive the notice; empty means all hosts.
        lane: The lane on which the failure occurred.
        removes: The removed part of the lane (`key`, `lane`, ...); empty for a pause.
        reason: A sentence; empty for a pause.
        left_s: How many more seconds the notice applies; 0 if it has no fixed end.
    """

    run: str
    lane: str
    removes: str
    reason: str
    left_s: float


@dataclass(frozen=True, slots=True)
class LedgerView:
    """All shared limits and notices.

    Attributes:
        epoch_age_s: Seconds since the ledger's epoch began, for example with a restart of the
            server; None if nothing has been shared yet.
        n_hosts: The number of hosts that are alive, in all runs.
        rows: The rows. Closed rows come first, then rows whose hosts want more than the amount.
        news: The notices that apply now.
    """

    epoch_age_s: float | None
    n_hosts: int
    rows: tuple[RowView, ...]
    news: tuple[NoticeView, ...]


@dataclass(frozen=True, slots=True)
class LedgerKeys:
    """The content of the ledger's Redis keys.

    Attributes:
        ledger: The ledger's own fields.
        seen: For each incarnation of a host, the ledger's time when it made its last call.
        rows: The packed rows, by name.
        shares: For each row, its packed shares by incarnation.
        hosts: The name and the run of each incarnation.
        names: The names that runs have given to the rows: the limit and the kind of each row.
        news: The packed notices.
        server_ms: The server's time.
    """

    ledger: Mapping[bytes, bytes]
    seen: Mapping[bytes, float]
    rows: Mapping[bytes, bytes]
    shares: Mapping[bytes, Mapping[bytes, bytes]]
    hosts: Mapping[bytes, tuple[str, str]]
    names: Mapping[str, tuple[str, str]]
    news: Mapping[bytes, bytes]
    server_ms: float


def view_of(keys: LedgerKeys) -> LedgerView:
    """Unpack the content of the ledger's Redis keys.

    Raises:
        NOT_THAT_LEDGER: Another program wrote it.
    """
    if not keys.ledger:
        return LedgerView(None, 0, (), ())
    # The ledger's time does not advance between calls, but the server's time does.
    now_ms = _number(keys.ledger[b"now"])
    now_ms += max(0.0, keys.server_ms - _number(keys.ledger[b"server"]))
    rows = [_row(name, text, keys, now_ms) for name, text in keys.rows.items()]
    # The rows of finished runs remain on the server for a week, without shares.
    used = [row for row in rows if row.shares or row.spent or row.awaits]
    news = [one for text in keys.news.values() if (one := _notice(text, now_ms)) is not None]
    news.sort(key=lambda one: (not one.removes, one.run, one.lane))
    alive = [at_ms for at_ms in keys.seen.values() if now_ms - at_ms < EXPIRE_MS]
    age_s = (now_ms - _number(keys.ledger[b"begun"])) / 1000
    return LedgerView(age_s, len(alive), tuple(sorted(used, key=_tightest)), tuple(news))


def _row(name: bytes, text: bytes, keys: LedgerKeys, now_ms: float) -> RowView:
    amount = int(_HEADER.unpack_from(text)[4])
    rest: list[Any] = _PACKED.decode(text[_HEADER.size :])
    kind, row_epoch = rest[0], rest[1]
    window_ms, longest_ms = _number(rest[3]), _number(rest[4])
    if kind not in {"seats", "paced", "counted"}:
        raise ValueError(f"a row of kind {kind!r:.40}")
    cells = rest[12:]
    spent = sum(int(units) for units in cells[1::2]) if kind == "counted" else 0
    shares = []
    # Shares of an earlier epoch are removed at the next call for the row.
    is_of_epoch = row_epoch == int(keys.ledger[b"epoch"])
    own = keys.shares.get(name, {}) if is_of_epoch else {}
    for incarnation, packed in own.items():
        held, granted, wanted, _, _, _, target = (int(one) for one in _SHARE.unpack_from(packed))
        host, run = keys.hosts.get(incarnation, (incarnation.decode(errors="replace"), ""))
        at_ms = keys.seen.get(incarnation)
        silent_s = None if at_ms is None else max(0.0, now_ms - _number(at_ms)) / 1000
        if held or granted or (wanted and at_ms is not None):
            shares.append(ShareView(host, run, silent_s, held, granted, wanted, target))
    opens_ms, closing = -math.inf, keys.ledger[b"closing"]
    if closing != b"open":
        opens_ms = _number(keys.ledger[b"begun"]) + EXPIRE_MS
        if closing == b"all":
            opens_ms += {"seats": longest_ms, "paced": window_ms, "counted": 0}[kind]
    row = name.decode(errors="replace")
    limit, word = keys.names.get(row, ("", row.rpartition(":")[2]))
    return RowView(
        row,
        limit,
        word,
        kind,
        amount,
        window_ms / 1000,
        spent,
        max(0.0, opens_ms - now_ms) / 1000,
        kind == "counted" and is_of_epoch and bool(rest[9]),
        tuple(sorted(shares, key=lambda one: (-one.out, -one.wanted, one.host))),
    )


def _tightest(row: RowView) -> tuple[bool, bool, bool, str, str, str]:
    wanted = sum(share.wanted for share in row.shares)
    is_closed = row.awaits or row.closed_s > 0
    return (not is_closed, wanted <= row.amount, not row.shares, row.limit, row.word, row.row)


def _notice(text: bytes, now_ms: float) -> NoticeView | None:
    """Unpack a notice; None if it no longer applies."""
    _, until_ms, reason, run = _PACKED.decode(text)
    until_ms = _number(until_ms)
    if not reason or (until_ms != -1 and until_ms <= now_ms):
        return None
    lane, removes, said = "", "", _text(reason)
    with suppress(*NOT_THAT_JSON):
        news = notice_text(reason).news
        lane, removes, said = str(news.lane_id), news.removes or "", news.reason
    # A removal is renewed as long as hosts of the run are alive.
    left_s = 0.0 if until_ms == -1 or removes else (until_ms - now_ms) / 1000
    return NoticeView(_text(run), lane, removes, said, left_s)


def _number(text: bytes | float) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"a time of {value}")
    return value


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def names_of(texts: Sequence[Mapping[bytes, bytes]]) -> dict[str, tuple[str, str]]:
    """Return the names that runs have given to the rows.

    If runs have given different names to a row, the last one counts.

    Raises:
        ValueError: Another program wrote it.
    """
    return {
        row.decode(errors="replace"): msgspec.json.decode(text, type=tuple[str, str])
        for one in texts
        for row, text in one.items()
    }
