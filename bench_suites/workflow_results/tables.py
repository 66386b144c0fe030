"""One table for each phase, in the form that its question needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench_suites.workflow.aggregate import Tally
from bench_suites.workflow_results import figures
from bench_suites.workflow_results.bench_case import BenchCase, Value
from bench_suites.workflow_results.counted import Counted
from bench_suites.workflow_results.model_size import model_size_b
from bench_suites.workflow_results.origin import Footnotes
from bench_suites.workflow_results.phase import ALL_PHASES, Phase
from bench_suites.workflow_results.phase_cells import Cell, PhaseCells, phase_cells
from pytest_ultrapar.report.markdown_table import markdown_table

SIMULATED = (
    "SIMULATED: all of this comes from the simulated provider and says nothing of a real model"
)
LEGEND = (
    "n: measured cases. infra: cases that the infrastructure failed to answer; they are in no other"
    " figure. coverage %: n of the planned cases. In brackets: 95 % Wilson interval."
)
ALL_MODELS = "all models"
ALL_FLAWS = "all flaws"
NO_FLAW = "none"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of figures: its head and how a row of the table gets its text."""

    head: str
    text: Callable[[Cell], str]


def tables(counted: Counted, run_id: str, suites: Sequence[str]) -> Iterator[list[str]]:
    """The lines of a table for each of the phases that asked or took cases, in the phases' order.

    Args:
        counted: The cases.
        run_id: The run that the tables are of; cells from another one get a footnote.
        suites: Phases whose tables are wanted.
    """
    for phase in ALL_PHASES:
        if phase.suite in suites:
            found = phase_cells(phase, counted)
            if found is not None:
                yield _table(found, run_id)


def _table(found: PhaseCells, run_id: str) -> list[str]:
    phase = found.phase
    notes = Footnotes(phase, run_id)
    names = ["model", *(_words(each) for each in found.apart)]
    if phase.level is not None:
        names.append(_words(phase.level))
    columns = [*_COLUMNS[phase.suite]]
    if phase.suite == "phase53":
        columns.append(_no_flaw(found, notes))
    rows = [
        [*_names(phase, cell, notes), *(column.text(cell) for column in columns)]
        for cell in _with_totals(found)
    ]
    common = ", ".join(f"{_words(each)} {_shown(value)}" for each, value in found.common.items())
    lines = [f"## Phase {phase.number}: {phase.question}", ""]
    if common:
        lines += [f"All with {common}.", ""]
    header = [*names, *(column.head for column in columns)]
    lines += markdown_table(header, rows, n_names=len(names))
    if notes.lines:
        # Two spaces: Markdown would else join the notes to one line.
        lines += ["", *(f"{line}  " for line in notes.lines)]
    return lines


def _names(phase: Phase, cell: Cell, notes: Footnotes) -> list[str]:
    names = [cell.model, *(_shown(value) for value in cell.apart)]
    if phase.level is not None:
        names.append(_shown(cell.level))
    return [*names[:-1], notes.marked(names[-1], cell.cases)]


def _with_totals(found: PhaseCells) -> Iterator[Cell]:
    """The cells, in 5.3 with all flaws of a model together, in 5.5 with all models together."""
    if found.phase.suite == "phase55":
        yield from _all_models(found.cells)
    for at, cell in enumerate(found.cells):
        yield cell
        if found.phase.suite != "phase53":
            continue
        after = found.cells[at + 1] if at + 1 < len(found.cells) else None
        if after is None or after.model != cell.model:
            yield from _all_flaws([each for each in found.cells if each.model == cell.model])


def _all_flaws(cells: Sequence[Cell]) -> Iterator[Cell]:
    """For each condition the flaws together, the sound plan not among them."""
    for apart in dict.fromkeys(cell.apart for cell in cells if cell.level is not None):
        flawed = [cell for cell in cells if cell.apart == apart and cell.level is not None]
        if len(flawed) > 1:
            yield Cell(flawed[0].model, apart, ALL_FLAWS, _cases(flawed))


def _all_models(cells: Sequence[Cell]) -> Iterator[Cell]:
    """Each level over all models; only levels that every model has can be compared."""
    n_models = len({cell.model for cell in cells})
    for apart, level in dict.fromkeys((cell.apart, cell.level) for cell in cells):
        those = [cell for cell in cells if (cell.apart, cell.level) == (apart, level)]
        if len(those) == n_models > 1:
            yield Cell(ALL_MODELS, apart, level, _cases(those))


def _cases(cells: Sequence[Cell]) -> tuple[BenchCase, ...]:
    return tuple(case for cell in cells for case in cell.cases)


def _no_flaw(found: PhaseCells, notes: Footnotes) -> Column:
    def conditions(cell: Cell) -> tuple[Value, ...]:
        pairs = zip(found.apart, cell.apart, strict=True)
        return (cell.model, *(value for dimension, value in pairs if dimension != "severity"))

    sound = {conditions(cell): cell for cell in found.cells if cell.level is None}

    def text(cell: Cell) -> str:
        reference = sound.get(conditions(cell))
        if reference is None:
            return figures.UNKNOWN
        counts = figures.tally(reference.cases)
        solved = figures.percent(counts.n_full / counts.n if counts.n else None)
        return notes.marked(solved, reference.cases)

    return Column("solved %, no flaw", text)


def _share(head: str, n_hits: Callable[[Tally], int]) -> Column:
    def text(cell: Cell) -> str:
        counts = figures.tally(cell.cases)
        return figures.percent_of(n_hits(counts), counts.n)

    return Column(f"{head} % (95 %)", text)


def _mean(score: str, head: str, digits: int = 3) -> Column:
    return Column(head, lambda cell: figures.mean(figures.tally(cell.cases), score, digits))


def _weighted(cell: Cell) -> str:
    value = figures.tally(cell.cases).weighted
    return f"{value:.3f}" if value is not None else figures.UNKNOWN


def _size(cell: Cell) -> str:
    size_b = model_size_b(cell.model)
    return f"{size_b:g}" if size_b is not None else figures.UNKNOWN


def _efficiency(cell: Cell) -> str:
    counts = figures.tally(cell.cases)
    return figures.efficiency(counts.n_success, counts.n, model_size_b(cell.model))


_SAMPLE = (
    Column("n", lambda cell: str(figures.tally(cell.cases).n)),
    Column("infra", lambda cell: str(figures.tally(cell.cases).n_infra)),
    Column("coverage %", lambda cell: figures.percent(figures.coverage(cell.cases))),
)
_SOLVED = _share("solved", lambda counts: counts.n_full)
_PARTIAL = _share("partial", lambda counts: counts.n_partial)
_SUCCESS = _share("success", lambda counts: counts.n_success)
_LUCK = (
    Column("reachable %", lambda cell: figures.reachable(figures.tally(cell.cases))),
    Column(
        "solved of reachable % (95 %)", lambda cell: figures.of_reachable(figures.tally(cell.cases))
    ),
)
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "phase51": (
        *_SAMPLE,
        _SOLVED,
        _PARTIAL,
        Column("weighted", _weighted),
        _mean("workflow", "workflow"),
        _mean("phase2", "phase2"),
        _mean("quality", "quality"),
        _mean("tool_coverage", "coverage of tools"),
        _mean("turns", "turns", 1),
    ),
    "phase52": (
        Column("size (B)", _size),
        *_SAMPLE,
        _SUCCESS,
        _SOLVED,
        _PARTIAL,
        Column("efficiency (95 %)", _efficiency),
    ),
    "phase53": (
        *_SAMPLE,
        _SOLVED,
        *_LUCK,
        _mean("obeyed", "obeyed", 2),
        _mean("repaired", "repaired", 2),
        _mean("needless", "needless calls", 1),
        _mean("phase2", "phase2"),
        _mean("execution", "execution"),
        Column("substitutes", lambda cell: figures.total(figures.tally(cell.cases), "substitute")),
    ),
    "phase54": (*_SAMPLE, _SOLVED, *_LUCK, _PARTIAL, _SUCCESS),
    "phase55": (*_SAMPLE, _SOLVED, *_LUCK, _PARTIAL, _SUCCESS),
}


def _words(dimension: str) -> str:
    return dimension.replace("_", " ")


def _shown(value: Value) -> str:
    match value:
        case None:
            return NO_FLAW
        case str():
            return value
        case _:
            return f"{value:g}"
