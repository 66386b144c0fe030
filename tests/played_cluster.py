"""Hosts of a cluster in virtual time: the production brokers, shares and ledger."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest.mock import patch

import msgspec

from pytest_ultrapar.broker.shares import declared_row, rows_of
from pytest_ultrapar.cluster import host_shares
from pytest_ultrapar.cluster.host_shares import HostShares, Line, SharingSettings
from pytest_ultrapar.cluster.ledger import RowSpec
from pytest_ultrapar.cluster.ledger_rows import SharedRows
from tests.ledger_model import Ledger

if TYPE_CHECKING:
    from pytest_ultrapar.cluster.ledger import Answer, Renewal
    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.testing import BrokerPlay

CALL_S = 0.005
"""Seconds of a call and its answer."""
_PHASE = (5**0.5 - 1) / 2
"""Seconds between renewals: each host's moments are multiples of this, and never coincide."""


class Cluster:
    """Hosts that renew their shares of one ledger, on one clock.

    Attributes:
        ledger: The model of the ledger, open from the start.
        plays: The plays of all hosts that have not ended.
    """

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.plays: list[BrokerPlay] = []
        self.now_s = 0.0
        self._numbers = itertools.count()
        self._shares: dict[int, HostShares] = {}
        self._clocks: dict[int, tuple[float, float]] = {}

    def join(self, play: BrokerPlay, pool: Pool, *, run: str = "r", unclaimed: int = 10**6) -> None:
        """Add a host.

        Args:
            play: The host's broker, all rows of which must be shared.
            pool: The broker's pool: limits of the same name are shared by all hosts of all runs.
            run: The host's run.
            unclaimed: Cases of each model that it may always claim.
        """
        number = next(self._numbers)
        rows = rows_of(pool)
        place = {row: at for at, row in enumerate(rows)}
        models = tuple(dict.fromkeys(lane.model for lane in pool.lanes))
        settings = SharingSettings(
            url="redis://127.0.0.1:1",
            run=run,
            claims=run,
            host=f"host{number}",
            rows=SharedRows(
                tuple(_spec(pool, row) for row in rows),
                rows,
                tuple(
                    tuple(sorted(place[row] for row in rows if row.limit in lane.limits))
                    for lane in pool.lanes
                ),
                (None,) * len(rows),
            ),
            days=(None,) * len(rows),
            lines=tuple(Line(model) for model in models),
            n_cases=(unclaimed,) * len(models),
            epoch_path="/dev/null/epoch",
        )
        play.now_s = self.now_s
        host = SimpleNamespace(
            broker=play.broker, now_s=lambda: play.now_s, move=lambda do: play.book(do())
        )
        self._shares[id(play)] = HostShares(settings, host, {})
        self.plays.append(play)
        play.later(number * _PHASE % 1 * host_shares.RENEW_S, self._renew, play)

    def kill(self, play: BrokerPlay) -> None:
        """End a host without notice."""
        self.plays.remove(play)

    def speed(self, play: BrokerPlay, rate: float) -> None:
        """Set the speed of a host's clock from now on, relative to the server's.

        The host is played on the one clock of all plays, and sees the server's time run slower.
        """
        self._clocks[id(play)] = (self.now_s, rate)

    def wait(self, seconds: float) -> None:
        """Advance the time on all hosts, and run the events in order."""
        until_s = self.now_s + seconds
        with patch.object(host_shares, "boot_s", lambda: self.now_s):
            while self.plays:
                play = min(self.plays, key=lambda one: one.next_s())
                if play.next_s() > until_s:
                    break
                self.now_s = max(self.now_s, play.next_s())
                play.step()
        self.now_s = until_s
        for play in self.plays:
            play.now_s = until_s

    def _renew(self, play: BrokerPlay) -> None:
        call = msgspec.structs.replace(self._shares[id(play)]._next_call(), fresh=True)
        answer = self.ledger.renew(call, round(self.now_s * 1000) + 10**9)
        since_s, rate = self._clocks.get(id(play), (self.now_s, 1.0))
        seen_ms = answer.server_ms - round((self.now_s - since_s) * (1 - 1 / rate) * 1000)
        answer = msgspec.structs.replace(answer, server_ms=seen_ms)
        play.later(CALL_S, self._answered, play, answer, call, self.now_s)

    def _answered(self, play: BrokerPlay, answer: Answer, call: Renewal, begun_s: float) -> None:
        pause_s = self._shares[id(play)]._apply(answer, call, begun_s)
        play.later(max(0.0, begun_s + pause_s - self.now_s), self._renew, play)


def _spec(pool: Pool, row: tuple[str, str]) -> RowSpec:
    amount, window_s = declared_row(pool, row)
    return RowSpec(
        name=":".join(row),
        kind="paced" if window_s else "seats",
        amount=amount,
        window_ms=math.ceil(window_s * 1000),
        longest_ms=600_000,
        group=row[0],
    )
