"""Which rows of the ledger a host asks for, and what its broker may use by the answer.

Most rows of a pool are one of the ledger. One that counts days of a calendar is two around
midnight; and once after a day the ledger is told that nothing is held of it any more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pytest_ultrapar.cluster.ledger import RowSpec, RowUse
from pytest_ultrapar.cluster.spent_rows import CountedShare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_ultrapar.broker.demand import RowWant
    from pytest_ultrapar.broker.shares import Holding, Row
    from pytest_ultrapar.cluster.ledger import RowShare
    from pytest_ultrapar.cluster.rows import SharedRows
    from pytest_ultrapar.cluster.spent_rows import CountedRow


class AskedRow(NamedTuple):
    """A row of the ledger as the next call asks for it.

    Attributes:
        at: Position of the pool's row.
        day: Of a calendar; empty for all others.
        is_over: Whether its day is over: nothing is wanted of it.
        spec: What it is called in the ledger, and what it is.
        use: What the host holds and wants of it.
    """

    at: int
    day: str
    is_over: bool
    spec: RowSpec
    use: RowUse


class AskedRows:
    """The rows of the last call, so that its answer can be read.

    Attributes:
        last: Those rows, in the order of the answer's shares.
    """

    def __init__(self, rows: SharedRows, spent_before: Callable[[int, str], int]) -> None:
        """Ask for none.

        Args:
            rows: Of the pool, before days are added to their names.
            spent_before: What a row, by its position, had spent on a day before it joined.
        """
        self._limits, self._specs = rows.limits, rows.specs
        self._lanes, self._counted = rows.lanes, rows.counted
        self._spent_before = spent_before
        self._days: tuple[dict[str, CountedShare], ...] = tuple({} for _ in rows.limits)
        self.last: tuple[AskedRow, ...] = ()

    def ask(
        self,
        held: Mapping[Row, Holding],
        wants: Mapping[Row, RowWant],
        wall_s: float,
        *,
        leaving: bool,
    ) -> tuple[tuple[int, ...], ...]:
        """Begin a call; `last` is what it asks for.

        Args:
            held: What the broker holds of each row of the pool.
            wants: What it could use.
            wall_s: The time by the server's clock, in seconds since 1970.
            leaving: Whether the host wants nothing more.

        Returns:
            For each way through the limits, the positions of its rows in `last`.
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
        self, shares: Iterable[RowShare], held: Mapping[Row, Holding], *, forfeits: bool
    ) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], float]]:
        """What the broker may use by the answer to the last call.

        Args:
            shares: The answer's.
            held: What the broker holds now.
            forfeits: Whether others may have what it was granted before.

        Returns:
            Units by row; and of counted rows how much is left of them on all hosts.
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
            # Where two days count, both must have room.
            of_day = self._days[row.at][row.day]
            n, rest = of_day.answered(share, held[name], forfeits=forfeits)
            units[name] = min(n, units.get(name, n))
            left[name] = min(rest, left.get(name, math.inf))
        return units, left

    def _open_days(self, at: int, counted: CountedRow, days: Iterable[str], held: Holding) -> None:
        spec, shares = self._specs[at], self._days[at]
        for day in days:
            if day not in shares:
                name = f"{spec.name}:{counted.zone}:{day}" if day else spec.name
                own = msgspec.structs.replace(spec, name=name)
                shares[day] = CountedShare(counted, own, held, self._spent_before(at, day))
