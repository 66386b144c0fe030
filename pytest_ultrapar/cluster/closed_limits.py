"""Reopen daily limits and budgets that are closed because the server lost the spent amounts.

These limits reopen by themselves when all hosts have reported what they spent, or when the lost
amounts no longer count. An operator can reopen them earlier with `ultrapar cluster reset-day`, for
example if some hosts are gone.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from pytest_ultrapar.cluster.ledger import Renewal, RowSpec, RowUse
from pytest_ultrapar.report.text import counted, duration, listed
from pytest_ultrapar.system.clock import boot_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.cluster.ledger_view import RowView
    from pytest_ultrapar.cluster.server import ClusterServer

_SHOWN = 8


def reset_day(server: ClusterServer) -> Iterator[str]:
    """Reopen all closed daily limits and budgets, with the spent amounts that are still known.

    Raises:
        NoAnswerError, ConfigError: As for `ClusterServer.renew`.
    """
    closed = [row for row in server.ledger().rows if row.awaits]
    if soon_s := max((row.closed_s for row in closed), default=0.0):
        yield (
            f"all limits stay closed for another {duration(soon_s)}, because the server "
            "restarted; after that, repeat this command"
        )
        return
    if not closed:
        yield "no daily limit or budget is closed"
        return
    facts = server.facts or server.read_facts()
    token = secrets.token_hex(8)
    server.renew(
        Renewal(
            host="operator",
            incarnation=token,
            seq=1,
            run="",
            server_run_id=facts.run_id,
            clock=f"operator:{token}",
            clock_ms=round(boot_s() * 1000),
            rows=tuple(_spec(row) for row in closed),
            uses=(RowUse(),) * len(closed),
            lanes=(),
            leaving=True,
            open_days=True,
        )
    )
    named = [f"{row.limit}'s {row.word}" if row.limit else row.row for row in closed]
    names = listed(named, _SHOWN)
    yield (
        f"reopened {counted(len(closed), 'limit')}: {names}; amounts that the server lost and "
        "that no host reported may be spent twice"
    )


def _spec(row: RowView) -> RowSpec:
    return RowSpec(
        name=row.row, kind="counted", amount=row.amount, window_ms=round(row.window_s * 1000)
    )
