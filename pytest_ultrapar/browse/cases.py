"""The cases of a run as text for a terminal: the list of them, and one with its conversation."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.report.text import counted, duration, text_table, visible
from pytest_ultrapar.store.table_rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_ORDER = ("error", "infra", "unsolved", "partial", "skipped", "solved")
_COLUMNS = (
    "case_id",
    "nodeid",
    "model",
    "outcome",
    "kind",
    "error",
    "n_attempts",
    "queue_wait_s",
    "rate_wait_s",
    "backoff_s",
    "service_s",
    "duration_s",
)
_MESSAGE = ("case_id", "turn", "role", "content", "tool_calls", "reasoning", "refusal", "pool_role")
_ATTEMPT = (
    "case_id",
    "turn",
    "attempt",
    "provider",
    "instance",
    "key",
    "t_ready_s",
    "t_send_s",
    "t_end_s",
    "status",
    "outcome",
    "role",
)
_NEAREST = 3


def read_cases(run_dir: Path) -> list[dict[str, Any]]:
    """The rows of `results`, failures first.

    Raises:
        ConfigError: The run has no tables yet, or they cannot be read.
    """
    try:
        rows = read_rows(run_dir, "results", _COLUMNS, beginning="score.")
    except ResultsError as error:
        raise ConfigError(str(error)) from error
    return sorted(rows, key=lambda row: (_ORDER.index(row["outcome"]), row["nodeid"]))


def list_lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each case."""
    table = [
        (
            row["outcome"],
            visible(row["kind"] or ""),
            visible(row["nodeid"]),
            f"{row['n_attempts']:,}",
            "-" if row["duration_s"] is None else duration(row["duration_s"]),
        )
        for row in rows
    ]
    header = ("outcome", "kind", "case", "requests", "time")
    if table:
        yield from text_table(header, table, n_names=3, width=10_000)
    yield counted(len(table), "case")


def find_case(rows: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """The case of a name: its id, its node id, or a part that no other case's has.

    Raises:
        ConfigError: There is none, or more than one; the message names the nearest.
    """
    found = [row for row in rows if name in {row["case_id"], row["nodeid"]}]
    found = found or [row for row in rows if name in row["nodeid"]]
    if len(found) == 1:
        return found[0]
    if found:
        some = "; ".join(visible(row["nodeid"]) for row in found[:_NEAREST])
        more = f" and {len(found) - _NEAREST} more" if len(found) > _NEAREST else ""
        msg = f"{visible(name)} is part of the names of {len(found)} cases: {some}{more}"
        raise ConfigError(msg)
    names = [row["nodeid"] for row in rows]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.3)
    meant = f"; did you mean {visible(near[0])}?" if near else ""
    msg = f"the run has no case {visible(name)}{meant}"
    raise ConfigError(msg)


def case_lines(run_dir: Path, row: dict[str, Any]) -> Iterator[str]:
    """One case: its grade, its waits, its conversation, its requests.

    Raises:
        ConfigError: A table cannot be read.
    """
    try:
        messages = read_rows(run_dir, "transcripts", _MESSAGE)
        attempts = read_rows(run_dir, "attempts", _ATTEMPT)
    except ResultsError as error:
        raise ConfigError(str(error)) from error
    yield visible(row["nodeid"])
    kind = f" ({row['kind']})" if row["kind"] else ""
    yield visible(f"{row['outcome']}{kind}, model {row['model']}, case {row['case_id']}")
    if row["error"]:
        yield from visible(row["error"]).splitlines()
    scores = [
        f"{name.removeprefix('score.')} {value:.3g}"
        for name, value in row.items()
        if name.startswith("score.") and value is not None
    ]
    if scores:
        yield visible(f"scores: {', '.join(scores)}")
    waits = (
        ("answers", "service_s"),
        ("waiting for seats", "queue_wait_s"),
        ("waiting for rates", "rate_wait_s"),
        ("back-off", "backoff_s"),
    )
    spent = [f"{said} {duration(row[name])}" for said, name in waits if row[name]]
    if spent:
        yield f"time: {', '.join(spent)}"
    for one in messages:
        if one["case_id"] == row["case_id"]:
            yield from _message(one)
    yield from _attempts([one for one in attempts if one["case_id"] == row["case_id"]])


def _message(said: dict[str, Any]) -> Iterator[str]:
    yield ""
    who = f"{said['pool_role']}: {said['role']}" if said["pool_role"] else said["role"]
    yield visible(f"--- turn {said['turn']}, {who}")
    for name in ("reasoning", "content", "refusal", "tool_calls"):
        if said[name]:
            if name != "content":
                yield f"[{name.replace('_', ' ')}]"
            yield from visible(said[name]).splitlines()


def _attempts(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    table = []
    for row in rows:
        lane = "/".join(row[name] or "" for name in ("provider", "instance", "key"))
        table.append(
            (
                visible(f"{row['role']}: {lane}" if row["role"] else lane),
                visible(row["outcome"]),
                str(row["turn"]),
                str(row["attempt"]),
                str(row["status"] or "-"),
                _between(row["t_ready_s"], row["t_send_s"]),
                _between(row["t_send_s"], row["t_end_s"]),
            )
        )
    header = ("lane", "outcome", "turn", "attempt", "status", "waited", "took")
    yield ""
    yield from text_table(header, table, n_names=2, width=10_000)


def _between(start_s: float | None, end_s: float | None) -> str:
    return "-" if start_s is None or end_s is None else duration(end_s - start_s)
