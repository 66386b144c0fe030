"""Cases that one run solved and the other did not, with what each said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.pages.transcripts import Packed, pack
from pytest_ultrapar.report.text import shortened, visible
from pytest_ultrapar.store.table_rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.analysis.measured_run import CaseRow, MeasuredRun
    from pytest_ultrapar.compare.changes import Grid
    from pytest_ultrapar.compare.pairing import Pairing

LOST = "solved before, not now"
GAINED = "solved now, not before"
NO_GRADE_NOW = "no grade now"
NO_GRADE_BEFORE = "no grade before"
TURNS = (LOST, GAINED, NO_GRADE_NOW, NO_GRADE_BEFORE)
"""Those first that somebody wants to know of; what was not graded is no answer, and apart."""
_LONGEST_NAME = 300
_LONGEST_ERROR = 4_000


class Side(msgspec.Struct, frozen=True):
    """A case in one of the two runs.

    Attributes:
        shard: Which part of the transcripts has its own; None where they were left out.
    """

    outcome: str
    kind: str
    error: str
    duration_s: float
    shard: int | None


class Flip(msgspec.Struct, frozen=True):
    """A case with another end.

    Attributes:
        model: Which of the grid's models.
        at: For each of the grid's parameters, which of its values; None where it has none.
        turn: Which of `TURNS`.
        against: Which of the pairs.
    """

    case_id: str
    name: str
    model: int
    params: dict[str, str]
    at: list[int | None]
    turn: int
    against: int
    before: Side
    now: Side


class Flips(msgspec.Struct, frozen=True):
    """All of them, and transcripts of both runs, packed.

    Attributes:
        n_left_out: Conversations that had no room.
    """

    lines: list[Flip]
    parts: list[str]
    n_left_out: int


class _Told(msgspec.Struct, frozen=True):
    """What one run has to say of some cases; `first` is the number of its first part."""

    packed: Packed
    first: int
    ends: dict[str, dict[str, Any]]


def turn_of(base: CaseRow, new: CaseRow) -> str | None:
    """How a case's end differs, one of `TURNS`; None where that is not what it was solved for."""
    if base.graded and new.graded:
        if (base.outcome == "solved") == (new.outcome == "solved"):
            return None
        return LOST if base.outcome == "solved" else GAINED
    if base.graded == new.graded:
        return None
    return NO_GRADE_NOW if base.graded else NO_GRADE_BEFORE


def read_flips(pairings: Sequence[Pairing], grid: Grid) -> Flips:
    """The cases that flipped between the two runs of each pair.

    Args:
        pairings: Of pairs that end with the same run.
        grid: Of these pairs.

    Raises:
        ConfigError: A table of a run cannot be read.
    """
    flipped = [list(_flipped(pairing)) for pairing in pairings]
    wanted: dict[str, tuple[MeasuredRun, dict[str, None]]] = {}
    for pairing, ids in zip(pairings, flipped, strict=True):
        for run in (pairing.base, pairing.new):
            known = wanted.setdefault(run.run_id, (run, {}))[1]
            known |= dict.fromkeys(case_id for case_id, _ in ids)
    told: dict[str, _Told] = {}
    parts: list[str] = []
    for run_id, (run, own) in wanted.items():
        told[run_id] = _told(run, list(own), len(parts), len(wanted))
        parts += told[run_id].packed.parts
    lines = [
        flip
        for against, (pairing, ids) in enumerate(zip(pairings, flipped, strict=True))
        for flip in _lines(against, pairing, ids, told, grid)
    ]
    lines.sort(key=lambda flip: flip.turn)
    return Flips(lines, parts, sum(one.packed.n_left_out for one in told.values()))


def _flipped(pairing: Pairing) -> Iterator[tuple[str, str]]:
    found = [
        (case_id, turn)
        for case_id, base in pairing.base_rows.items()
        if (turn := turn_of(base, pairing.new_rows[case_id])) is not None
    ]
    # Where there is no room for all transcripts, these are told first, too.
    yield from sorted(found, key=lambda one: TURNS.index(one[1]))


def _told(run: MeasuredRun, case_ids: list[str], first: int, n_runs: int) -> _Told:
    columns = ("case_id", "kind", "error")
    try:
        packed = pack(run.directory, case_ids, n_runs)
        ends = read_rows(run.directory, "results", columns, of_cases=set(case_ids))
    except ResultsError as error:
        raise ConfigError(str(error)) from error
    return _Told(packed, first, {row["case_id"]: row for row in ends})


def _lines(
    against: int,
    pairing: Pairing,
    ids: Sequence[tuple[str, str]],
    told: dict[str, _Told],
    grid: Grid,
) -> Iterator[Flip]:
    cases = {case.case_id: case for case in pairing.cases}
    for case_id, turn in ids:
        case = cases[case_id]
        yield Flip(
            case_id,
            shortened(case.nodeid, _LONGEST_NAME, "results"),
            grid.models.index(case.model),
            {
                visible(name): shortened(str(value), _LONGEST_NAME, "results")
                for name, value in case.params.items()
                if value is not None
            },
            grid.at(case),
            TURNS.index(turn),
            against,
            _side(pairing.base_rows[case_id], told[pairing.base.run_id]),
            _side(pairing.new_rows[case_id], told[pairing.new.run_id]),
        )


def _side(row: CaseRow, told: _Told) -> Side:
    end = told.ends[row.case_id]
    shard = told.packed.of_case.get(row.case_id)
    return Side(
        row.outcome,
        shortened(end["kind"] or "", _LONGEST_NAME, "results"),
        shortened(end["error"] or "", _LONGEST_ERROR, "results"),
        row.duration_s,
        None if shard is None else told.first + shard,
    )
