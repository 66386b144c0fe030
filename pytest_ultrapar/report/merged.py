"""What there is to say of a run that was merged of several: its parts, and what they lack; pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.report.sections import Section
from pytest_ultrapar.report.text import counted, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.store.manifest import Merged, MergedPart


def merged_section(merged: Merged) -> Section:
    """The parts of a merged run, a row each, and what is to be known of them together."""
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
    return Section("Merged of", header, rows, n_names=3, notes=tuple(merged_lines(merged)))


def merged_lines(merged: Merged) -> Iterator[str]:
    """Sentences safe for a terminal, the worst first."""
    yield from missing_lines(merged)
    for one in merged.parts:
        if one.exceeded:
            limits = visible(", ".join(one.exceeded))
            yield f"LIMIT EXCEEDED by {_name(one)}, which had this much for itself: {limits}"
    for said in merged.asked_otherwise:
        yield f"parts were asked otherwise, and their answers may differ by that: {visible(said)}"
    if merged.n_repeated:
        cases = counted(merged.n_repeated, "case")
        yield (
            f"{cases} had a result in more than one part: a measurement counts before infra, then"
            " the first; requests and costs are those of all"
        )
    resumed = [one for one in merged.parts if one.resumed]
    if resumed:
        names = ", ".join(map(_name, resumed))
        were = "was" if len(resumed) == 1 else "were"
        yield f"{names} {were} resumed: pauses between the sessions are in the time"
    if merged.clock_error_s is not None:
        error_ms = math.ceil(merged.clock_error_s * 1e3)
        yield (
            f"clocks of the hosts were compared by the server's to within {error_ms} ms: limits are"
            " judged over all hosts, and only what passes them by more counts as exceeded"
        )
    if merged.not_compared:
        yield (
            f"clocks of the hosts could not be compared by the server's, since"
            f" {visible(merged.not_compared)}: limits are judged for each host by itself, and over"
            " all hosts only as well as the times of day agree"
        )
    elif merged.n_clocks > 1 and merged.clock_error_s is None:
        yield (
            f"times of {merged.n_clocks} clocks stand side by side by the time of day of their"
            " hosts: makespan and use of limits are right up to what these clocks differed by"
        )


def missing_lines(merged: Merged) -> Iterator[str]:
    """What shards there was no run of, and how many cases they have."""
    n = merged.n_missing
    for shard in merged.missing if n != 0 else ():
        yield f"shard {shard} is missing: its cases never ran, and no figure counts them"
    if merged.missing and n:
        yield f"what is missing has {counted(n, 'case')} at most"


def _name(one: MergedPart) -> str:
    if one.shard is not None and one.host in {None, f"shard-{one.shard.replace('/', '-of-')}"}:
        return f"shard {one.shard}"
    return visible(f"host {one.host}" if one.host is not None else f"run {one.run_id}")
