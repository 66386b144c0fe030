"""Transcripts packed for a page: parts that a browser unpacks when somebody looks at a case."""

from __future__ import annotations

import base64
import gzip
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.report.text import shortened, visible
from pytest_ultrapar.store.table_rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CASES_OF_A_PART = 50
_CASES_AT_ONCE = 2_000
"""So many have their rows in memory: a run's tables may be larger than that is."""
MOST_BYTES = 8_000_000
"""Of all parts as the page holds them; beyond that it would open slowly."""
MOST_CHARACTERS = 200_000_000
"""Of all parts unpacked: what says the same all the time packs a thousandfold."""
_SCORE = "score."
_LONGEST_TEXT = 100_000
_MOST_OF_A_CASE = 1_000_000
_MESSAGE = (
    "case_id",
    "turn",
    "role",
    "content",
    "tool_calls",
    "name",
    "reasoning",
    "refusal",
    "pool_role",
)
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
    "tokens_in",
    "tokens_out",
    "role",
)


class Packed(msgspec.Struct, frozen=True):
    """Parts of base64 of gzip of JSON, and which case is in which.

    Attributes:
        n_left_out: Cases whose transcripts had no room.
    """

    parts: list[str]
    of_case: dict[str, int]
    n_left_out: int


def pack(run_dir: Path, case_ids: Sequence[str], n_runs: int = 1) -> Packed:
    """The scores, conversations and attempts of cases, in this order, as far as there is room.

    Args:
        run_dir: The run's directory.
        case_ids: Those that somebody wants most come first.
        n_runs: How many runs share the page's room.

    Raises:
        ResultsError: A table cannot be read.
    """
    parts: list[str] = []
    of_case: dict[str, int] = {}
    room, characters = MOST_BYTES // n_runs, MOST_CHARACTERS // n_runs
    for first in range(0, len(case_ids), _CASES_AT_ONCE):
        near = case_ids[first : first + _CASES_AT_ONCE]
        messages = _by_case(run_dir, "transcripts", _MESSAGE, near)
        attempts = _by_case(run_dir, "attempts", _ATTEMPT, near)
        scores = _by_case(run_dir, "results", ("case_id",), near, beginning=_SCORE)
        for start in range(0, len(near), CASES_OF_A_PART):
            some = near[start : start + CASES_OF_A_PART]
            content = {
                case_id: {
                    "scores": [one for row in scores.get(case_id, ()) for one in _scores(row)],
                    "messages": _conversation(messages.get(case_id, ())),
                    "attempts": [_tried(row) for row in attempts.get(case_id, ())],
                }
                for case_id in some
            }
            text = msgspec.json.encode(content)
            packed = base64.b64encode(gzip.compress(text, 6, mtime=0)).decode()
            if len(packed) > room or len(text) > characters:
                return Packed(parts, of_case, len(case_ids) - len(of_case))
            room -= len(packed)
            characters -= len(text)
            of_case |= dict.fromkeys(some, len(parts))
            parts.append(packed)
    return Packed(parts, of_case, 0)


def _by_case(
    run_dir: Path,
    table: str,
    columns: tuple[str, ...],
    case_ids: Sequence[str],
    beginning: str | None = None,
) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    rows = read_rows(run_dir, table, columns, beginning=beginning, of_cases=set(case_ids))
    for row in rows:
        found[row["case_id"]].append(row)
    return found


def _scores(row: dict[str, Any]) -> list[str]:
    return [
        f"{visible(name.removeprefix(_SCORE))} {value:g}"
        for name, value in row.items()
        if name.startswith(_SCORE) and value is not None
    ]


def _conversation(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages whose texts have a bound, each and together."""
    messages = []
    room = _MOST_OF_A_CASE
    for row in rows:
        who = f"{row['pool_role']}: {row['role']}" if row["pool_role"] else row["role"]
        message = {"turn": row["turn"], "who": visible(who), "name": visible(row["name"] or "")}
        for name in ("reasoning", "content", "refusal", "tool_calls"):
            text = row[name]
            if text:
                message[name] = shortened(text, min(room, _LONGEST_TEXT))
                room -= min(room, len(text), _LONGEST_TEXT)
        messages.append(message)
    return messages


def _tried(row: dict[str, Any]) -> list[Any]:
    waited_s = _between(row["t_ready_s"], row["t_send_s"])
    took_s = _between(row["t_send_s"], row["t_end_s"])
    lane = visible("/".join(row[name] or "" for name in ("provider", "instance", "key")))
    return [
        row["turn"],
        row["attempt"],
        f"{row['role']}: {lane}" if row["role"] else lane,
        row["outcome"],
        row["status"],
        waited_s,
        took_s,
        row["tokens_in"],
        row["tokens_out"],
    ]


def _between(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else round(end_s - start_s, 4)
