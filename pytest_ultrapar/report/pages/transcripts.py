"""Pack transcripts for a page, in parts that the browser unpacks when you open a case."""

from __future__ import annotations

import base64
import gzip
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow.compute as pc

from pytest_ultrapar.report.pages.columns import (
    LANE,
    all_visible,
    floats,
    lane_names,
    places,
    rounded,
)
from pytest_ultrapar.report.text import shortened, visible
from pytest_ultrapar.store.table_rows import read_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_ultrapar.report.pages.columns import Column, Numbers

CASES_OF_A_PART = 50
_CASES_AT_ONCE = 2_000
"""The number of cases in the first batch. Cases are read in batches, because the tables of a run
may not fit in memory."""
_CHARACTERS_AT_ONCE = 20_000_000
"""The approximate size of each later batch, in characters. How many cases make up this size is
estimated from the previous batch. Batches are large, because all tables are read for each of
them."""
MOST_BYTES = 8_000_000
"""The maximum total size of the parts in the page, in bytes. A larger page would open slowly."""
MOST_CHARACTERS = 200_000_000
"""The maximum total size of the unpacked parts, in bytes. This second limit is needed, because
packing can make repetitive text 1,000 times smaller."""
_LEVEL = 4
"""The level of compression (gzip). Compared with level 6, it takes a third of the time, and 3 %
more space for prose."""
_SCORE = "score."
_LONGEST_TEXT = 100_000
_MOST_OF_A_CASE = 1_000_000
_TEXTS = ("reasoning", "content", "refusal", "tool_calls")
_MESSAGE = ("case_id", "turn", "role", "name", "pool_role", *_TEXTS)
_SHOWN = ("turn", "attempt", "outcome", "status", "tokens_in", "tokens_out")
_ATTEMPT = ("case_id", *LANE, "role", "t_ready_s", "t_send_s", "t_end_s", *_SHOWN)


class Packed(msgspec.Struct, frozen=True):
    """Packed transcripts. Each part is JSON in columns, compressed with gzip and encoded as base64.

    Attributes:
        parts: The packed parts.
        of_case: The index of the part that contains each case, by case id.
        n_left_out: How many cases have no transcript in the parts, because the page was full.
    """

    parts: list[str]
    of_case: dict[str, int]
    n_left_out: int


def pack(run_dir: Path, case_ids: Sequence[str], n_runs: int = 1) -> Packed:
    """Pack scores, conversations and attempts of the cases, in order, until the page is full.

    Args:
        run_dir: The run's directory.
        case_ids: The ids of the cases. The most interesting ones come first.
        n_runs: How many runs share the space on the page.

    Raises:
        ResultsError: A table cannot be read.
    """
    parts: list[str] = []
    of_case: dict[str, int] = {}
    room, characters = MOST_BYTES // n_runs, MOST_CHARACTERS // n_runs
    first, at_once = 0, _CASES_AT_ONCE
    while first < len(case_ids):
        near = case_ids[first : first + at_once]
        told = [
            _messages(_of_cases(run_dir, "transcripts", _MESSAGE, near)),
            _attempts(_of_cases(run_dir, "attempts", _ATTEMPT, near)),
            _scores(_of_cases(run_dir, "results", ("case_id",), near, beginning=_SCORE)),
        ]
        for start in range(0, len(near), CASES_OF_A_PART):
            some = near[start : start + CASES_OF_A_PART]
            messages, attempts, scores = (one.of(start, start + len(some)) for one in told)
            content = {"cases": some, "messages": messages, "attempts": attempts, "scores": scores}
            text = msgspec.json.encode(content)
            packed = base64.b64encode(gzip.compress(text, _LEVEL, mtime=0)).decode()
            if len(packed) > room or len(text) > characters:
                return Packed(parts, of_case, len(case_ids) - len(of_case))
            room -= len(packed)
            characters -= len(text)
            of_case |= dict.fromkeys(some, len(parts))
            parts.append(packed)
        first += len(near)
        n_said = sum(len(said) for name in _TEXTS for said in told[0].columns[name])
        at_once = max(_CASES_AT_ONCE, len(near) * _CHARACTERS_AT_ONCE // (n_said + 100 * len(near)))
    return Packed(parts, of_case, 0)


class _Rows(NamedTuple):
    """The rows of some cases, in the order of the cases.

    Attributes:
        case: For each row, the number of its case.
        columns: All other columns, by name.
    """

    case: Numbers
    columns: Mapping[str, Sequence[Any]]

    def of(self, start: int, end: int) -> dict[str, Any]:
        """Return the rows of cases `start` to `end` - 1, numbered from 0, without empty columns."""
        begin, stop = np.searchsorted(self.case, (start, end)).tolist()
        found = {name: column[begin:stop] for name, column in self.columns.items()}
        kept = {name: own for name, own in found.items() if any(x not in {None, ""} for x in own)}
        return {"case": (self.case[begin:stop] - start).tolist(), "columns": kept}


def _of_cases(
    run_dir: Path,
    table: str,
    columns: tuple[str, ...],
    case_ids: Sequence[str],
    beginning: str | None = None,
) -> tuple[Numbers, Any]:
    """Return the case number of each row, and the rows as an Arrow table; both ordered by case."""
    rows = read_columns(run_dir, table, columns, beginning=beginning, of_cases=set(case_ids))
    case = places(rows["case_id"], case_ids)
    order = np.argsort(case, kind="stable")
    return case[order], rows.take(order)


def _scores(found: tuple[Numbers, Any]) -> _Rows:
    case, rows = found
    columns = {
        visible(name.removeprefix(_SCORE)): [
            None if value is None else f"{value:g}" for value in rows[name].to_pylist()
        ]
        for name in rows.column_names
        if name.startswith(_SCORE)
    }
    return _Rows(case, columns)


def _messages(found: tuple[Numbers, Any]) -> _Rows:
    """Return the messages. The length of each text is limited, and so is the total for a case."""
    case, rows = found
    said = {name: rows[name].to_pylist() for name in _TEXTS}
    n_characters = sum(np.nan_to_num(floats(pc.utf8_length(rows[name]))) for name in _TEXTS)
    is_long = np.bincount(case, n_characters) > _LONGEST_TEXT
    room, last = 0, -1
    for at in np.flatnonzero(is_long[case]).tolist():
        room, last = (room, last) if case[at] == last else (_MOST_OF_A_CASE, case[at])
        for column in said.values():
            text = column[at]
            if text:
                column[at] = shortened(text, min(room, _LONGEST_TEXT))
                room -= min(room, len(text), _LONGEST_TEXT)
    columns = {
        "turn": rows["turn"].to_pylist(),
        "who": _with_role(rows["pool_role"], rows["role"]),
        "name": all_visible(rows["name"].to_pylist()),
        **{name: all_visible(column) for name, column in said.items()},
    }
    return _Rows(case, columns)


def _attempts(found: tuple[Numbers, Any]) -> _Rows:
    case, rows = found
    ready_s, sent_s, ended_s = (floats(rows[f"t_{name}_s"]) for name in ("ready", "send", "end"))
    columns = {
        **{name: rows[name].to_pylist() for name in _SHOWN},
        "lane": _with_role(rows["role"], lane_names(rows)),
        "waited": rounded(sent_s - ready_s, 4),
        "took": rounded(ended_s - sent_s, 4),
    }
    return _Rows(case, columns)


def _with_role(role: Column, texts: Column) -> list[str]:
    """Return the texts. If a request was to a role, the role's name is put before the text."""
    both = pc.binary_join_element_wise(role, texts, ": ")
    return all_visible(pc.if_else(pc.equal(role, ""), texts, both).to_pylist())
