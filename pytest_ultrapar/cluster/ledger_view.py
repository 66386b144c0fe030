"""What the ledger of shares holds, read without changing it: for people who look at a cluster.

`division.lua` writes all of it. Anybody with access to the server may have written it instead, so
whatever is not as the script leaves it is refused with a sentence.
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
from pytest_ultrapar.cluster.notices import told
from pytest_ultrapar.system.files import NOT_THAT_JSON

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHARE = struct.Struct("<7d")
_HEADER = struct.Struct("<5d")
_PACKED = msgspec.msgpack.Decoder()
NOT_THAT_LEDGER = (ValueError, LookupError, TypeError, OverflowError, RecursionError, struct.error)
"""What is raised where somebody else wrote there; msgspec's errors are `ValueError`s."""


@dataclass(frozen=True, slots=True)
class ShareView:
    """What a row knows of one host.

    Attributes:
        host: Its name; that of its incarnation where the ledger knows no other.
        run: Which run it is in.
        silent_s: Seconds since it was heard of; None: it was taken for dead.
        held: Units that it holds.
        granted: Units that it may use now.
        wanted: Units that it could use.
        target: Units that it will have.
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
        """Units that are nobody else's."""
        return max(self.held, self.granted)

    @property
    def coming(self) -> int:
        """Units that are on their way to it."""
        return max(0, self.target - self.granted)


@dataclass(frozen=True, slots=True)
class RowView:
    """A row and who has how much of it.

    Attributes:
        row: Its name on the server, in which keys are digests.
        limit: What a run calls the limit; empty where nobody said.
        word: Of its kind, such as `qps`.
        kind: `seats`, `paced` or `counted`.
        amount: Units in all.
        window_s: Over which they are counted; 0: at every moment.
        spent: Of counted rows: units spent in the window.
        closed_s: Nobody gets more than it holds for so long, as the server began anew; 0: it is
            open.
        awaits: Of counted rows: the server forgot what was spent, and not all hosts have told it.
        shares: Of hosts that have or want some, those with most first.
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
        """Units that are hosts' now, with those that are on their way back."""
        return sum(share.out for share in self.shares)


@dataclass(frozen=True, slots=True)
class NoticeView:
    """What one host learned and all know: a lane, key or instance is removed, or pauses.

    Attributes:
        run: Only hosts of this run are told; empty: all.
        lane: Where it was learned.
        removes: What of the lane is removed (`key`, `lane`, ...); empty: it pauses.
        reason: In a sentence; empty for a pause.
        left_s: Seconds for which it still holds; 0: until the end.
    """

    run: str
    lane: str
    removes: str
    reason: str
    left_s: float


@dataclass(frozen=True, slots=True)
class LedgerView:
    """All that hosts share.

    Attributes:
        epoch_age_s: Seconds since the server began anew; None: nothing was shared yet.
        n_hosts: Hosts that are alive, of all runs.
        rows: From the tightest: those whose hosts want more than they have come first.
        news: What holds now.
    """

    epoch_age_s: float | None
    n_hosts: int
    rows: tuple[RowView, ...]
    news: tuple[NoticeView, ...]


@dataclass(frozen=True, slots=True)
class LedgerKeys:
    """What stands in the ledger's keys.

    Attributes:
        ledger: Its own fields.
        seen: When each incarnation was heard of last, by the ledger's time.
        rows: Each row, packed.
        shares: For each row its shares, packed, by incarnation.
        hosts: Name and run of each incarnation.
        names: What runs call rows: limit and kind.
        news: Each notice, packed.
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
    """What the ledger's keys say.

    Raises:
        Those of NOT_THAT_LEDGER: Somebody else wrote there.
    """
    if not keys.ledger:
        return LedgerView(None, 0, (), ())
    # The ledger's time stands still between calls; the server's goes on.
    now_ms = _number(keys.ledger[b"now"])
    now_ms += max(0.0, keys.server_ms - _number(keys.ledger[b"server"]))
    rows = [_row(name, text, keys, now_ms) for name, text in keys.rows.items()]
    # Rows of runs that are over stay for a week, and say nothing.
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
    # Those of an earlier epoch are forgotten at the next call about the row.
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
    """A notice; None where it does not hold any more."""
    _, until_ms, reason, run = _PACKED.decode(text)
    until_ms = _number(until_ms)
    if not reason or (until_ms != -1 and until_ms <= now_ms):
        return None
    lane, removes, said = "", "", _text(reason)
    with suppress(*NOT_THAT_JSON):
        news = told(reason).news
        lane, removes, said = str(news.lane_id), news.removes or "", news.reason
    # A removal is told again for as long as hosts of the run are alive.
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
    """What runs call rows; where they differ, the last one's word.

    Raises:
        ValueError: Somebody else wrote there.
    """
    return {
        row.decode(errors="replace"): msgspec.json.decode(text, type=tuple[str, str])
        for one in texts
        for row, text in one.items()
    }
