"""Make the rows for a host's call to the ledger, and read the answer for the host's broker.

The ledger (see `ledger`) divides the units of each row between hosts. Usually, each row of the pool
corresponds to a row of its own in the ledger. Around midnight, a row with calendar days corresponds
to two, one for each day. When a day is over, the host tells the ledger once that it no longer holds
any units for that day.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pytest_ultrapar.cluster.ledger import RowSpec, RowUse
from pytest_ultrapar.cluster.spent_rows import CountedShare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_ultrapar.broker.demand import RowDemand
    from pytest_ultrapar.broker.shares import HeldUnits, Row
    from pytest_ultrapar.cluster.ledger import RowShare
    from pytest_ultrapar.cluster.ledger_rows import SharedRows
    from pytest_ultrapar.cluster.spent_rows import CountedRow


class AskedRow(NamedTuple):
    """A row of the ledger in the next call.

    Attributes:
        at: The position of the corresponding row in the pool's rows.
        day: The calendar day; empty for a row without calendar days.
        is_over: Whether the day is over. The host then wants no more units for it.
        spec: The name and properties of the row in the ledger.
        use: The units that the host holds and wants.
    """

    at: int
    day: str
    is_over: bool
    spec: RowSpec
    use: RowUse


class AskedRows:
    """Makes the rows of each call, and keeps them until the answer is read.

    Attributes:
        last: The rows of the last call. The answer gives the shares in the same order.
    """

    def __init__(self, rows: SharedRows, spent_before: Callable[[int, str], int]) -> None:
        """Start without rows.

        Args:
            rows: The pool's rows, without days in their names.
            spent_before: Takes the position of a row, and a day. Returns how many of the row's
                units for that day this host had spent before it joined.
        """
        self._limits, self._specs = rows.limits, rows.specs
        self._lanes, self._counted = rows.lanes, rows.counted
        self._spent_before = spent_before
        self._days: tuple[dict[str, CountedShare], ...] = tuple({} for _ in rows.limits)
        self.last: tuple[AskedRow, ...] = ()

    def ask(
        self,
        held: Mapping[Row, HeldUnits],
        wants: Mapping[Row, RowDemand],
        wall_s: float,
        *,
        leaving: bool,
    ) -> tuple[tuple[int, ...], ...]:
        """Prepare a call, and set `last` to its rows.

        Args:
            held: For each row of the pool, the units that the broker holds.
            wants: For each row of the pool, the units that the broker could use.
            wall_s: The time on the server's clock, in seconds since 1970.
            leaving: Whether the host is leaving and wants no more units.

        Returns:
            For each different set of rows that apply to a lane, the positions of these rows in
            `last`.
        """
        before = {(row.at, row.day) for row in self.last}
        rows: list[AskedRow] = []
        for at, name in enumerate(self._limits):
            if (counted := self._counted[at]) is None:
                units = 0 if leaving else wants[name].units
                use = RowUse(held=held[name].units, want=units, unit=wants[name].unit)
                rows.append(AskedRow(at, day="", is_over=False, spec=self._specs[at], use=use))
                continue
            days = counted.days(wall_s)
            self._open_days(at, counted, days, held[name])
            for day, share in list(self._days[at].items()):
                is_over = day not in days
                if is_over and (at, day) not in before:
                    del self._days[at][day]
                    continue
                use = share.use(held[name], wants[name], leaving=leaving or is_over)
                rows.append(AskedRow(at, day, is_over, share.spec, use))
        self.last = tuple(rows)
        places: list[list[int]] = [[] for _ in self._limits]
        for place, row in enumerate(rows):
            if not row.is_over:
                places[row.at].append(place)
        return tuple(tuple(one for at in lane for one in places[at]) for lane in self._lanes)

    def granted(
        self, shares: Iterable[RowShare], held: Mapping[Row, HeldUnits], *, forfeits: bool
    ) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], float]]:
        """Return the units that the broker may use, according to the answer to the last call.

        Args:
            shares: The shares in the answer.
            held: The units that the broker holds now.
            forfeits: Whether other hosts may now have the units that this host was granted earlier.

        Returns:
            The units of each row. Also, for each counted row, the units that are left for all hosts
            together.
        """
        units: dict[tuple[str, str], int] = {}
        left: dict[tuple[str, str], float] = {}
        for row, share in zip(self.last, shares, strict=True):
            name = self._limits[row.at]
            if row.is_over:
                continue
            if self._counted[row.at] is None:
                units[name] = 0 if forfeits else share.grant
                continue
            # If two days count, a request needs room in both.
            of_day = self._days[row.at][row.day]
            n, rest = of_day.answered(share, held[name], forfeits=forfeits)
            units[name] = min(n, units.get(name, n))
            left[name] = min(rest, left.get(name, math.inf))
        return units, left

    def _open_days(
        self, at: int, counted: CountedRow, days: Iterable[str], held: HeldUnits
    ) -> None:
        spec, shares = self._specs[at], self._days[at]
        for day in days:
            if day not in shares:
                name = f"{spec.name}:{counted.zone}:{day}" if day else spec.name
                own = msgspec.structs.replace(spec, name=name)
                shares[day] = CountedShare(counted, own, held, self._spent_before(at, day))
