"""Rows whose units are spent and not given back: days and budgets, as one host asks for them.

**Spent once.** A grant answers a call, and says what the host may hold as of that call. What it
spent since then is subtracted before the broker hears of it (`answered`), so nothing is spent
twice, however long the answer was on its way.

**What is reserved.** A request per day is spent when it is sent. Of tokens and money more is
reserved than used: until the answer has come that is held, not spent, so that it can come back.

**Days of a calendar** have a row each, with the date in its name. A request may be counted when it
is sent or when it ends, by a clock that is not ours. So from the longest time before midnight that
a request may take until some seconds after it there are two rows, and each must have room; by the
server's clock, which is the same for all hosts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.cluster.ledger import RowSpec, RowUse

if TYPE_CHECKING:
    from pytest_ultrapar.broker.demand import RowWant
    from pytest_ultrapar.broker.shares import Holding
    from pytest_ultrapar.cluster.ledger import RowShare

SKEW_S = 10
"""A provider's midnight may differ from ours by half of this; the rest is for calls."""


class CountedRow(msgspec.Struct, frozen=True, kw_only=True):
    """How a counted row of a pool is one or more of the ledger.

    Attributes:
        size: Units of the broker in one of the ledger.
        reserves: Whether what is reserved may come back: tokens and money.
        zone: Where its days begin at midnight; empty: it has no days of a calendar.
        late_s: How long after its grant a request may still be counted, seconds.
    """

    size: int = 1
    reserves: bool = True
    zone: str = ""
    late_s: float = 0.0

    def days(self, wall_s: float) -> tuple[str, ...]:
        """The days that count now, as the ends of rows' names; one without a name for no calendar.

        Args:
            wall_s: The time by the server's clock, in seconds since 1970.
        """
        if not self.zone:
            return ("",)
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - few pools count days of a calendar

        zone = ZoneInfo(self.zone)
        found = {
            datetime.fromtimestamp(at_s, UTC).astimezone(zone).date().isoformat()
            for at_s in (wall_s - SKEW_S, wall_s + self.late_s + SKEW_S)
        }
        return tuple(sorted(found))


class CountedShare:
    """What a host holds and has spent of one counted row of the ledger.

    Attributes:
        spec: The row.
    """

    def __init__(self, row: CountedRow, spec: RowSpec, begun: Holding, before: int = 0) -> None:
        """Hold nothing.

        Args:
            row: What kind of row it is.
            spec: The row.
            begun: What the broker holds when the row begins: spent on other days.
            before: Units that this host has spent of it before it joined.
        """
        self.spec = spec
        self._row = row
        self._base = self._said = self._spent(begun)
        self._before = before
        self._granted: int | None = None
        self._told = 0

    def use(self, holding: Holding, want: RowWant, *, leaving: bool = False) -> RowUse:
        """What the host says of the row now; `answered` is about the last call of this."""
        size, spent = self._row.size, self._spent(holding)
        held = 0 if leaving else holding.units
        if self._row.reserves:
            held += holding.reserved
        if self._granted is not None and not leaving:
            held = max(held, self._granted - (spent - self._said))
        self._said, self._granted = spent, held
        return RowUse(
            held=_up(held, size),
            want=0 if leaving else _up(want.units, size),
            unit=max(1, _up(want.unit, size)),
            spent=_up(spent - self._base + self._before, size),
            told=self._told,
        )

    def answered(self, share: RowShare, holding: Holding, *, forfeits: bool) -> tuple[int, float]:
        """Take a grant.

        Args:
            share: The ledger's answer to the last `use`.
            holding: What the broker holds now.
            forfeits: The host was taken for dead, and what it held for spent.

        Returns:
            Units that the broker may spend from now on, and the most that are left on all hosts
            together (infinity where nobody knows).
        """
        size, since = self._row.size, self._spent(holding) - self._said
        self._told = share.told
        self._granted = None if forfeits else share.grant * size
        units = 0 if forfeits else share.grant * size - since
        if self._row.reserves:
            units -= holding.reserved
        left = (share.amount - share.spent) * size - since
        return max(0, units), float("inf") if share.closed else max(0, left)

    def _spent(self, holding: Holding) -> int:
        return holding.spent - holding.reserved if self._row.reserves else holding.spent


def _up(units: int, size: int) -> int:
    return -(-units // size)
