"""`ultrapar cluster status`: show the runs, hosts and limits of a server, as text or as JSON.

This module does no I/O. A cluster may have 1,000 hosts, but a screen has 40 lines. So the most
important lines come first: hosts that are silent or waiting, and limits for which hosts want more
units than there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.broker.shares import BUDGET_ROW
from pytest_ultrapar.cluster.ledger_rows import BUDGET_UNITS
from pytest_ultrapar.pool.model import LIMIT_KINDS
from pytest_ultrapar.report.text import counted, duration, one_line, rate, shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.cluster.ledger_view import (
        LedgerView,  # noqa: TC004 - no field is read
        NoticeView,
        RowView,
        ShareView,
    )
    from pytest_ultrapar.cluster.server import HostState, RunState  # noqa: TC004 - as above

MOST_HOSTS, MOST_ROWS, MOST_NEWS = 20, 20, 10
"""The maximum numbers of lines about hosts, limits and notices."""
_SHARES = 6
_SILENT_S = 3.0
"""A host whose last call is at least this many seconds ago is shown as silent. Hosts call about
once a second."""
_LONGEST = 100
_NAME = 30


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a server.

    Attributes:
        server: Its URL, without a password.
        software: Its name and version.
        forgets: Whether it loses recent writes when it is killed (`appendonly no`).
        runs: The runs to show.
        unreadable: The runs whose data was written by another version or program, each with the
            error.
        ledger: The limits that hosts share.
    """

    server: str
    software: str
    forgets: bool
    runs: tuple[RunState, ...]
    unreadable: tuple[tuple[str, str], ...]
    ledger: LedgerView


def status_json(status: Status) -> str:
    """Return indented JSON, whose content is documented in `docs/how-to/cluster.md`."""
    shape = {
        "server": status.server,
        "software": status.software,
        "forgets": status.forgets,
        "runs": [_run_json(one) for one in status.runs],
        "limits": [_limit_json(one) for one in status.ledger.rows],
        "news": [msgspec.to_builtins(one) for one in status.ledger.news],
        "problems": [f"run {name}: {said}" for name, said in status.unreadable],
    }
    return msgspec.json.format(msgspec.json.encode(shape), indent=2).decode()


def _run_json(run: RunState) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(run)
    # Leave digests out: they are of no use to readers.
    del plain["identity"]
    plain |= {"version": run.version, "per_min": run.per_min, "left_s": run.left_s}
    for own, host in zip(plain["hosts"], run.hosts, strict=True):
        own["is_alive"] = host.is_alive
    return plain


def _limit_json(row: RowView) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(row)
    plain["granted"] = row.granted
    for own, share in zip(plain["shares"], row.shares, strict=True):
        own["coming"] = share.coming
    return plain


def status_lines(status: Status, *, everything: bool = False) -> Iterator[str]:
    """Yield human-readable lines, without control characters.

    Args:
        status: The state of the server.
        everything: Whether to show all lines, however many hosts there are.
    """
    forgets = ", appendonly no (loses its runs if it is killed)" if status.forgets else ""
    n_runs = len(status.runs) + len(status.unreadable)
    yield f"{status.server}: {status.software}{forgets}; {counted(n_runs, 'run')}"
    for name, said in status.unreadable:
        yield ""
        yield f"run {_run_name(name)}: {one_line(said)}"
    for run in status.runs:
        yield ""
        yield from _run_lines(run, everything=everything)
    yield from _ledger_lines(status.ledger, everything=everything)


def _run_lines(run: RunState, *, everything: bool) -> Iterator[str]:
    version = f", pytest-ultrapar {one_line(run.version)[:_NAME]}" if run.version else ""
    yield f"run {_run_name(run.name)}, began {duration(run.began_s)} ago{version}"
    failed = f" ({run.n_failed:,} without an answer)" if run.n_failed else ""
    parts = [
        f"{run.n_done:,} of {counted(run.n_cases, 'case')} done{failed}",
        f"{run.n_open:,} in progress",
        f"{run.n_unclaimed:,} not begun",
    ]
    if run.left_s is not None:
        parts += [rate(run.per_min / 60), f"about {duration(run.left_s)} left"]
    yield f"  {', '.join(parts)}"
    if not run.hosts:
        over = "the run is over" if run.n_done >= run.n_cases else "join the run to finish it"
        yield f"  no hosts: {over}"
        return
    hosts = sorted(run.hosts, key=_most_important)
    kept = hosts if everything else hosts[:MOST_HOSTS]
    width = max(len("host"), *(len(_name(host.name)) for host in kept))
    yield f"  {'host':{width}}  {'done':>9}  {'running':>9}  {'rate':>9}  state"
    for host in kept:
        per = rate(host.per_min / 60) if host.per_min else "-"
        yield (
            f"  {_name(host.name):{width}}  {host.n_done:>9,}  {host.n_open:>9,}  {per:>9}  "
            f"{_state(host)}"
        )
    yield from _more(hosts, kept, "host")


def _most_important(host: HostState) -> tuple[bool, bool, bool, int, str]:
    # A silent host may be dead, and a waiting host may have a problem. The others work as usual.
    return (
        host.seen_s < _SILENT_S,
        not host.drained,
        "waits:" not in host.said,
        -host.n_open,
        host.name,
    )


def _state(host: HostState) -> str:
    parts = []
    if not host.is_alive:
        parts.append(f"silent for {duration(host.seen_s)}, treated as dead")
    elif host.seen_s >= _SILENT_S:
        parts.append(f"silent for {duration(host.seen_s)}")
    if host.drained:
        parts.append("drained: starts no more cases")
    if host.said and host.seen_s < _SILENT_S:
        parts.append(shorten(one_line(host.said), _LONGEST))
    return "; ".join(parts) or "alive"


def _ledger_lines(ledger: LedgerView, *, everything: bool) -> Iterator[str]:
    if ledger.epoch_age_s is None:
        return
    rows = [row for row in ledger.rows if row.shares or row.closed_s or row.awaits]
    if rows:
        yield ""
        yield f"limits, and each host's share ({counted(ledger.n_hosts, 'host')} alive)"
    kept = rows if everything else rows[:MOST_ROWS]
    for row in kept:
        yield f"  {_row_text(row, everything=everything)}"
    yield from _more(rows, kept, "limit")
    news = ledger.news if everything else ledger.news[:MOST_NEWS]
    if news:
        yield ""
        yield "removed and paused lanes"
    for one in news:
        yield f"  {_news_text(one)}"
    yield from _more(ledger.news, news, "notice")


def _row_text(row: RowView, *, everything: bool) -> str:
    what = f"{one_line(row.limit)}'s {one_line(row.word)}" if row.limit else one_line(row.row)
    text = f"{shorten(what, 2 * _NAME)} = {_amount(row)}: "
    if row.closed_s:
        text += f"closed for another {duration(row.closed_s)}, because the server restarted; "
    elif row.awaits:
        text += (
            "closed: the server lost count of what was spent, and some hosts are gone (to continue "
            "with the spending that is still known, run ultrapar cluster reset-day); "
        )
    shown = row.shares if everything else row.shares[:_SHARES]
    parts = [_share_text(row, share) for share in shown]
    if rest := row.shares[len(shown) :]:
        have, want = sum(share.out for share in rest), sum(share.wanted for share in rest)
        wants = f" (want {_units(row, want)})" if want > have else ""
        parts.append(f"{counted(len(rest), 'more host')} {_units(row, have)}{wants}")
    text += ", ".join(parts) or "no host has a share"
    if row.spent:
        text += f"; {_units(row, row.spent)} spent"
    return text


def _amount(row: RowView) -> str:
    kind = LIMIT_KINDS.get(row.word)
    # The window of a counted row consists of its day and the possible delay of a request.
    if row.kind != "paced" or (kind is not None and kind.window_s == row.window_s):
        return _units(row, row.amount)
    return f"{_units(row, row.amount)} per {duration(row.window_s)}"


def _units(row: RowView, n: int) -> str:
    return f"{n / BUDGET_UNITS:,.2f}" if row.word == BUDGET_ROW else f"{n:,}"


def _share_text(row: RowView, share: ShareView) -> str:
    parts = []
    if share.silent_s is None:
        parts.append("gone: its share will soon be free")
    elif share.silent_s >= _SILENT_S:
        parts.append(f"silent for {duration(share.silent_s)}")
    if share.held > share.granted and share.silent_s is not None:
        parts.append(f"is returning {_units(row, share.held - share.granted)}")
    if share.coming:
        parts.append(f"{_units(row, share.coming)} on the way")
    # The host waits for the units that it wants beyond its target.
    if share.wanted > max(share.target, share.out):
        parts.append(f"wants {_units(row, share.wanted)}")
    more = f" ({', '.join(parts)})" if parts else ""
    return f"{_name(share.host)} {_units(row, share.out)}{more}"


def _news_text(one: NoticeView) -> str:
    where = one_line(one.lane)[: 2 * _NAME] or "a lane that this version does not know"
    run = f", run {one_line(one.run)[:_NAME]}" if one.run else ""
    reason = f": {shorten(one_line(one.reason), _LONGEST)}" if one.reason else ""
    left = f" for another {duration(one.left_s)}" if one.left_s else ""
    what = f"{one_line(one.removes)} removed" if one.removes else "paused"
    return f"{where}: {what}{left}{run}{reason}"


def _run_name(name: str) -> str:
    return shorten(one_line(name), _LONGEST)


def _name(name: str) -> str:
    return shorten(one_line(name), _NAME)


def _more(rows: Sequence[object], kept: Sequence[object], noun: str) -> Iterator[str]:
    if n := len(rows) - len(kept):
        yield f"  and {counted(n, f'more {noun}')} (--all)"
