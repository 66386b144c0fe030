"""Report on the parts of a merged run, and on missing shards. All functions are pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.report.sections import Section
from pytest_ultrapar.report.text import counted, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.store.manifest import Merged, MergedPart


def merged_section(merged: Merged) -> Section:
    """Return a section with a row for each part of a merged run, and notes on all parts."""
    rows = tuple(
        (
            visible(one.run_id),
            one.shard or "-",
            visible(one.host or "-"),
            f"{one.n_cases:,}",
            "-" if one.n_results is None else f"{one.n_results:,}",
            f"{one.started_at:%Y-%m-%d %H:%M:%S}",
            f"{one.ended_at:%Y-%m-%d %H:%M:%S}" if one.ended_at is not None else "never",
        )
        for one in merged.parts
    )
    header = ("run", "shard", "host", "planned", "results", "began (UTC)", "ended (UTC)")
    return Section("Merged from", header, rows, n_names=3, notes=tuple(merged_lines(merged)))


def merged_lines(merged: Merged) -> Iterator[str]:
    """Yield sentences on the parts, safe for a terminal. The most serious problems come first."""
    yield from missing_lines(merged)
    for one in merged.parts:
        if one.exceeded:
            limits = visible(", ".join(one.exceeded))
            yield f"LIMIT EXCEEDED by {_name(one)} alone: {limits}"
    for said in merged.asked_otherwise:
        yield f"parts sent different requests, so their answers may differ: {visible(said)}"
    if merged.n_repeated:
        cases = counted(merged.n_repeated, "case")
        yield (
            f"{cases} had a result in more than one part: the first measured one is used (infra "
            "only if no part has another result); requests and costs include all parts"
        )
    resumed = [one for one in merged.parts if one.resumed]
    if resumed:
        names = ", ".join(map(_name, resumed))
        were = "was" if len(resumed) == 1 else "were"
        yield f"{names} {were} resumed: the time includes the pauses between sessions"
    if merged.clock_error_s is not None:
        error_ms = math.ceil(merged.clock_error_s * 1e3)
        yield (
            f"the hosts' clocks were compared with the server's (error: at most {error_ms} ms): "
            "limits are checked across all hosts, but an excess within this error is ignored"
        )
    if merged.not_compared:
        yield (
            "the hosts' clocks could not be compared with the server's: "
            f"{visible(merged.not_compared)}; limits are checked for each host alone, and for "
            "all hosts together. The second check may be off by as much as the clocks differ"
        )
    elif merged.n_clocks > 1 and merged.clock_error_s is None:
        yield (
            f"times come from {merged.n_clocks} clocks that were not compared: the run's time and "
            "the use of limits may be off by as much as these clocks differ"
        )


def missing_lines(merged: Merged) -> Iterator[str]:
    """Yield a line for each shard that has no run, and one on their maximum number of cases."""
    n = merged.n_missing
    for shard in merged.missing if n != 0 else ():
        yield f"shard {shard} is missing: its cases never ran and are excluded from all figures"
    if merged.missing and n:
        yield f"missing shards contain at most {counted(n, 'case')}"


def _name(one: MergedPart) -> str:
    if one.shard is not None and one.host in {None, f"shard-{one.shard.replace('/', '-of-')}"}:
        return f"shard {one.shard}"
    return visible(f"host {one.host}" if one.host is not None else f"run {one.run_id}")
