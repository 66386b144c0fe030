"""Find the cases that were solved or graded in only one of two runs, with both runs' answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.errors import unusable
from pytest_ultrapar.report.pages.transcripts import Packed, pack
from pytest_ultrapar.report.text import shortened, visible
from pytest_ultrapar.store.table_rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.analysis.measured_run import CaseRow, MeasuredRun
    from pytest_ultrapar.compare.changes import Grid
    from pytest_ultrapar.compare.pairing import Pairing

LOST = "solved before, not now"
GAINED = "solved now, not before"
NO_GRADE_NOW = "no grade now"
NO_GRADE_BEFORE = "no grade before"
TURNS = (LOST, GAINED, NO_GRADE_NOW, NO_GRADE_BEFORE)
"""The possible changes. The most interesting ones come first: cases whose grade changed, and then
cases that have no grade in one of the runs."""
_LONGEST_NAME = 300
_LONGEST_ERROR = 4_000


class Side(msgspec.Struct, frozen=True):
    """How a case ended in one of the two runs.

    Attributes:
        shard: The index in `Flips.parts` of the part that contains the case's transcript; None if
            the transcript is left out.
    """

    outcome: str
    kind: str
    error: str
    duration_s: float
    shard: int | None


class Flip(msgspec.Struct, frozen=True):
    """A case that ended differently in the two runs.

    Attributes:
        model: The index of the case's model in the grid.
        at: For each parameter of the grid, the index of the case's value; None if the case has no
            value.
        turn: The index in `TURNS` of the case's change.
    """

    case_id: str
    name: str
    model: int
    params: dict[str, str]
    at: list[int | None]
    turn: int
    before: Side
    now: Side


class Flips(msgspec.Struct, frozen=True):
    """All cases that flipped, and the packed transcripts from both runs.

    Attributes:
        n_left_out: How many conversations are left out because they did not fit on the page.
    """

    lines: list[Flip]
    parts: list[str]
    n_left_out: int


def turn_of(base: CaseRow, new: CaseRow) -> str | None:
    """Return how a case's result changed, as one of `TURNS`; None if it did not change."""
    if base.rated and new.rated:
        if (base.outcome == "solved") == (new.outcome == "solved"):
            return None
        return LOST if base.outcome == "solved" else GAINED
    if base.graded == new.graded:
        return None
    return NO_GRADE_NOW if base.graded else NO_GRADE_BEFORE


def read_flips(pairing: Pairing, grid: Grid) -> Flips:
    """Read the cases that flipped between two runs.

    Args:
        pairing: The two runs.
        grid: The grid of the two runs.

    Raises:
        ConfigError: A table of a run cannot be read.
    """
    turns = {
        case_id: turn
        for case_id, base in pairing.base_rows.items()
        if (turn := turn_of(base, pairing.new_rows[case_id])) is not None
    }
    # Sort the cases, because only the first transcripts are kept if not all of them fit.
    ids = sorted(turns, key=lambda case_id: TURNS.index(turns[case_id]))
    packed_before, before = _ends(pairing.base, pairing.base_rows, ids, 0)
    packed_now, now = _ends(pairing.new, pairing.new_rows, ids, len(packed_before.parts))
    cases = {case.case_id: case for case in pairing.cases}
    lines = [
        Flip(
            case_id,
            shortened(cases[case_id].nodeid, _LONGEST_NAME),
            grid.models.index(cases[case_id].model),
            {
                visible(name): shortened(str(value), _LONGEST_NAME)
                for name, value in cases[case_id].facts.items()
                if value is not None
            },
            grid.at(cases[case_id]),
            TURNS.index(turns[case_id]),
            before[case_id],
            now[case_id],
        )
        for case_id in ids
    ]
    n_left_out = packed_before.n_left_out + packed_now.n_left_out
    return Flips(lines, [*packed_before.parts, *packed_now.parts], n_left_out)


def _ends(
    run: MeasuredRun, rows: Mapping[str, CaseRow], case_ids: list[str], first: int
) -> tuple[Packed, dict[str, Side]]:
    """Return the packed conversations of some cases in a run, and how each case ended.

    The numbers of the packed parts begin at `first`.
    """
    columns = ("case_id", "kind", "error")
    with unusable():
        packed = pack(run.directory, case_ids, n_runs=2)
        # The results from earlier versions have no column `reason`.
        ends = read_rows(
            run.directory, "results", columns, beginning="reason", of_cases=set(case_ids)
        )
    sides = {}
    for end in ends:
        row = rows[end["case_id"]]
        shard = packed.of_case.get(row.case_id)
        sides[row.case_id] = Side(
            row.outcome,
            shortened(end["kind"] or "", _LONGEST_NAME),
            shortened(end["error"] or end.get("reason") or "", _LONGEST_ERROR),
            row.duration_s,
            None if shard is None else first + shard,
        )
    return packed, sides
