"""One host's part of counted rows, that is, of daily limits and budgets.

**Nothing is spent twice.** A grant is the answer to a call: the number of units that the host may
hold, as of the time of the call. Before the broker gets the grant, the host subtracts the units
that it has spent since the call (`answered`). Therefore nothing is spent twice, even if the answer
takes a long time.

**Reserved units.** A request counts towards a daily limit on requests when it is sent. For tokens
and money, it reserves more than it then uses. Until the answer arrives, the reserved units count as
held and not as spent, so that unused units can be returned.

**Calendar days.** Each day has its own row, with the date in its name. A provider may count a
request when it is sent or when it ends, according to the provider's clock. Therefore two rows exist
around midnight, and a request needs room in both. A request may be sent a minute after its grant.
So if it may take ten minutes, the second row exists from about eleven minutes before midnight. The
first row ends some seconds after midnight. These times are measured with the server's clock, which
is the same for all hosts.
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
"""A provider's midnight may differ from the host's by half of this time (in seconds). The other
half is a margin for the duration of calls."""


class CountedRow(msgspec.Struct, frozen=True, kw_only=True):
    """The rules that map a counted row of a pool to rows of the ledger.

    Attributes:
        size: How many units of the broker make up one unit of the ledger.
        reserves: Whether reserved units may be returned, as for tokens and money.
        zone: The time zone of its calendar days; empty if it has no calendar days.
        late_s: The longest time from a grant until the provider counts the request, in seconds.
    """

    size: int = 1
    reserves: bool = True
    zone: str = ""
    late_s: float = 0.0

    def days(self, wall_s: float) -> tuple[str, ...]:
        """Return the days that count now, as suffixes of row names.

        If the row has no calendar days, the result is a single empty suffix.

        Args:
            wall_s: The time on the server's clock, in seconds since 1970.
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
    """The units that one host holds and has spent in one counted row of the ledger.

    Attributes:
        spec: The row.
    """

    def __init__(self, row: CountedRow, spec: RowSpec, begun: HeldUnits, before: int = 0) -> None:
        """Start without any units.

        Args:
            row: The rules of the row.
            spec: The row.
            begun: The broker's holding when the row began. Units spent before then belong to other
                days.
            before: How many of the row's units this host spent before it joined the cluster.
        """
        self.spec = spec
        self._row = row
        self._base = self._said = self._spent(begun)
        self._before = before
        self._granted: int | None = None
        self._told = 0

    def use(self, holding: HeldUnits, want: RowDemand, *, leaving: bool = False) -> RowUse:
        """Return the report for the ledger. Pass the ledger's answer to `answered`."""
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
            holding: The broker's present holding.
            forfeits: Whether the host was treated as dead, so that its held units count as spent.

        Returns:
            How many units the broker may spend from now on, and how many units all hosts together
            have left at most (infinity if unknown).
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
