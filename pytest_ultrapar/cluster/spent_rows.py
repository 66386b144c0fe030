"""Rows whose units are spent for good, days and budgets, from the view of one host.

**Spent once.** A grant is the answer to a call, and gives the units that the host may hold as of
that call. The host subtracts the units that it spent since the call before the broker gets the
grant (`answered`). Therefore nothing is spent twice, even if the answer takes long.

**Reserved units.** A request per day is spent when it is sent. For tokens and money, a request
reserves more than it uses. Reserved units are held, not spent, until the answer arrives, so that
the rest can be returned.

**Calendar days** have a row each, with the date in its name. A provider may count a request when
it is sent or when it ends, by the provider's clock. Therefore two rows exist around midnight, and a
request needs room in both. This time begins before midnight by the longest time of a request, and
ends some seconds after. It uses the server's clock, which is the same for all hosts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.cluster.ledger import RowSpec, RowUse

if TYPE_CHECKING:
    from pytest_ultrapar.broker.demand import RowDemand
    from pytest_ultrapar.broker.shares import HeldUnits
    from pytest_ultrapar.cluster.ledger import RowShare

SKEW_S = 10
"""A provider's midnight may differ from the host's by half of this; the rest is for calls."""


class CountedRow(msgspec.Struct, frozen=True, kw_only=True):
    """The rules that map a counted row of a pool to rows of the ledger.

    Attributes:
        size: Units of the broker in a unit of the ledger.
        reserves: Whether reserved units may be returned: tokens and money.
        zone: The time zone of its calendar days, or empty.
        late_s: Longest time in seconds from a grant until the request is counted.
    """

    size: int = 1
    reserves: bool = True
    zone: str = ""
    late_s: float = 0.0

    def days(self, wall_s: float) -> tuple[str, ...]:
        """The days that count now, as suffixes of row names; one empty suffix without a calendar.

        Args:
            wall_s: The time of the server's clock, in seconds since 1970.
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
    """The held and spent units of one host in one counted row of the ledger.

    Attributes:
        spec: The row.
    """

    def __init__(self, row: CountedRow, spec: RowSpec, begun: HeldUnits, before: int = 0) -> None:
        """Hold nothing.

        Args:
            row: The rules of the row.
            spec: The row.
            begun: The broker's holding when the row begins, spent on other days.
            before: Units that this host spent of it before it joined.
        """
        self.spec = spec
        self._row = row
        self._base = self._said = self._spent(begun)
        self._before = before
        self._granted: int | None = None
        self._told = 0

    def use(self, holding: HeldUnits, want: RowDemand, *, leaving: bool = False) -> RowUse:
        """The use to report to the ledger now; `answered` takes the answer to the last one."""
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

    def answered(self, share: RowShare, holding: HeldUnits, *, forfeits: bool) -> tuple[int, float]:
        """Apply a grant.

        Args:
            share: The ledger's answer to the last `use`.
            holding: The broker's holding now.
            forfeits: The host was treated as dead, and its held units as spent.

        Returns:
            Units that the broker may spend from now on, and the most that are left on all hosts
            together (infinity if it is unknown).
        """
        size, since = self._row.size, self._spent(holding) - self._said
        self._told = share.told
        self._granted = None if forfeits else share.grant * size
        units = 0 if forfeits else share.grant * size - since
        if self._row.reserves:
            units -= holding.reserved
        left = (share.amount - share.spent) * size - since
        return max(0, units), float("inf") if share.closed else max(0, left)

    def _spent(self, holding: HeldUnits) -> int:
        return holding.spent - holding.reserved if self._row.reserves else holding.spent


def _up(units: int, size: int) -> int:
    return -(-units // size)
