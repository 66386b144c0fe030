"""The cells of a phase's table: its own, and the cells that it took from another phase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench_suites.workflow import DIFFICULTIES, FLAWS, PROMPT_TYPES
from bench_suites.workflow_results.bench_case import BenchCase, Dimension, Value
from bench_suites.workflow_results.counted import Counted
from bench_suites.workflow_results.merge import each_once
from bench_suites.workflow_results.model_size import model_size_b
from bench_suites.workflow_results.phase import PHASE_52, Phase, question

_ORDER = {
    name: float(at)
    for names in (DIFFICULTIES, PROMPT_TYPES, FLAWS)
    for at, name in enumerate(names)
}

_Place = tuple[str, tuple[Value, ...], Value]
"""Model, values of the dimensions in `PhaseCells.apart`, level."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The cases of one row of a table.

    Attributes:
        apart: Its values in the dimensions of `PhaseCells.apart`.
        level: Its value in the dimension that the phase varies; None if the phase does not vary
            any.
        cases: One or more cases.
    """

    model: str
    apart: tuple[Value, ...]
    level: Value
    cases: tuple[BenchCase, ...]


@dataclass(frozen=True, slots=True)
class PhaseCells:
    """The cells of a phase, in the order of its table.

    Attributes:
        apart: Dimensions with more than one value. They separate rows, as model and level do.
        common: The value of every other dimension, if it has a value.
        cells: One or more cells.
    """

    phase: Phase
    apart: tuple[Dimension, ...]
    common: dict[Dimension, Value]
    cells: tuple[Cell, ...]


def phase_cells(phase: Phase, counted: Counted) -> PhaseCells | None:
    """The phase's own cells and the cells that it took; None without cells.

    If one run took a cell and another run ran its cases, the table shows the cases that ran. The
    cells include the reference of the phase if its model, task type and other fixed values are the
    same as in some of the phase's own cells.
    """
    own = [case for case in counted.cases if case.suite == phase.suite]
    asked = {question(case) for case in own}
    taken = [case for case in counted.taken.get(phase.suite, ()) if question(case) not in asked]
    if not own and not taken:
        return None
    # A reference has the same values of all of these except the severity, which it lacks.
    values = {
        each: _distinct(case.value(each) for case in (*own, *taken)) for each in phase.may_vary
    }
    apart = tuple(each for each, found in values.items() if len(found) > 1)
    conditions = {phase.conditions(case) for case in own}
    # Only phase 5.4 repeats cells that 5.1 ran in another run.
    reference = each_once(
        (
            case
            for case in (*counted.cases, *counted.reference)
            if phase.is_reference(case) and phase.conditions(case) in conditions
        ),
        key=lambda case: (*question(case), case.run_seed),
    )
    cells = _by_place(phase, apart, [*own, *taken, *reference])
    models = _distinct(case.result.model for case in (*own, *taken))

    def rank(place: _Place) -> tuple[float, int, list[tuple[float, str]]]:
        model, told_apart, level = place
        size_b = model_size_b(model) if phase is PHASE_52 else None
        largest_first = -size_b if size_b is not None else 0.0
        return largest_first, models.index(model), [*map(_value_rank, (*told_apart, level))]

    return PhaseCells(
        phase,
        apart,
        {each: found[0] for each, found in values.items() if found != [None] and len(found) == 1},
        tuple(Cell(*place, tuple(cells[place])) for place in sorted(cells, key=rank)),
    )


def _by_place(
    phase: Phase, apart: Sequence[Dimension], cases: Iterable[BenchCase]
) -> dict[_Place, list[BenchCase]]:
    found: dict[_Place, list[BenchCase]] = {}
    for case in cases:
        level = case.value(phase.level) if phase.level is not None else None
        place = (case.result.model, tuple(case.value(each) for each in apart), level)
        found.setdefault(place, []).append(case)
    return found


def _distinct(values: Iterable[Value]) -> list[Value]:
    return list(dict.fromkeys(values))


def _value_rank(value: Value) -> tuple[float, str]:
    """The rank of a value in its dimension: None first, high rates first, names as listed."""
    match value:
        case None:
            return (-1.0, "")
        case str():
            return (_ORDER.get(value.removeprefix("flawed_"), float(len(_ORDER))), value)
        case _:
            return (1.0 - value, "")
