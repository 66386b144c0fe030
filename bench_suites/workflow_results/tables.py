"""One table for each phase, with the columns that its question needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from bench_suites.workflow.aggregate import CaseResult
from bench_suites.workflow_results import figures
from bench_suites.workflow_results.bench_case import BenchCase, Value
from bench_suites.workflow_results.counted import Counted
from bench_suites.workflow_results.model_size import model_size_b
from bench_suites.workflow_results.origin import Footnotes
from bench_suites.workflow_results.phase import ALL_PHASES, Phase
from bench_suites.workflow_results.phase_cells import Cell, PhaseCells, phase_cells
from pytest_ultrapar.records import by_key
from pytest_ultrapar.report.text import markdown_table

SIMULATED = (
    "SIMULATED: all answers come from the simulated provider and say nothing about a real model"
)
LEGEND = (
    "`n`: measured cases. `unscored`: how many of them are refused prompts, which count as not "
    "solved and are in no mean. `infra`: cases without an answer because the infrastructure "
    "failed; they are in no other figure. `coverage %`: n / planned cases. In brackets: 95 % "
    "interval; cases with the same task and tool failures are one cluster. `best reachable`: the "
    "result of a perfect model with the same tasks and tool failures."
)
LEGEND_53 = (
    "`obeyed`, `repaired`, `neither`: of the places where the two plans differ, the mean share "
    "at which the model followed the flawed plan, the sound plan, or neither. Only reachable "
    "cases count, so tool failures have little effect. `substitutes`: cases with another task, "
    "because the flaw cannot change the plan of the repetition's own task. `flaw / no flaw`: "
    "the share solved with the flaw and with the sound plan. Both are over the cases (n in "
    "brackets) that are not substitutes and whose task was also measured with the sound plan."
)
BEST = "best reachable"
ALL_MODELS = "all models"
ALL_FLAWS = "all flaws"
EVERY = "all"
NO_FLAW = "none"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of figures.

    Attributes:
        head: Its name.
        text: The function that makes the text of a row.
        of_best: Whether the row of a perfect model also contains the figure.
    """

    head: str
    text: Callable[[Cell], str]
    of_best: bool = False

    def shown(self, cell: Cell) -> str:
        """The text of a row."""
        return self.text(cell) if self.of_best or cell.model != BEST else figures.UNKNOWN


def tables(counted: Counted, run_id: str, suites: Sequence[str]) -> Iterator[list[str]]:
    """The lines of a table for each phase that ran or took cases, in the phases' order.

    Args:
        counted: The cases.
        run_id: The run of the tables; cells of another run get a footnote.
        suites: The wanted phases.
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
        columns.append(_same_tasks(found, notes))
    rows = [
        [*_names(phase, cell, notes), *(column.shown(cell) for column in columns)]
        for cell in _with_totals(found)
    ]
    common = ", ".join(f"{_words(each)} {_shown(value)}" for each, value in found.common.items())
    lines = [f"## Phase {phase.number}: {phase.question}", ""]
    if common:
        lines += [f"All rows: {common}.", ""]
    header = [*names, *(column.head for column in columns)]
    lines += markdown_table(header, rows, n_names=len(names))
    below = [*notes.lines, *_cut(found), *([LEGEND_53] if phase.suite == "phase53" else [])]
    if below:
        # Two spaces keep Markdown from joining the notes into one line.
        lines += ["", *(f"{line}  " for line in below)]
    return lines


def _cut(found: PhaseCells) -> Iterator[str]:
    """Yield lines about models with truncated answers: their results understate these models."""
    for model in dict.fromkeys(cell.model for cell in found.cells):
        own = _cases([cell for cell in found.cells if cell.model == model])
        told = [one.result.scores for one in own if one.measured]
        n_cut, n = (sum(one.get(name, 0) for one in told) for name in ("cut_answers", "turns"))
        if n_cut:
            share = f"{n_cut:g} of {n:g} answers ({100 * n_cut / n:.0f} %)"
            yield f"{model}: {share} were truncated at their token limit"


def _names(phase: Phase, cell: Cell, notes: Footnotes) -> list[str]:
    names = [cell.model, *(_shown(value) for value in cell.apart)]
    if phase.level is not None:
        names.append(_shown(cell.level))
    return [*names[:-1], notes.marked(names[-1], cell.cases)]


def _with_totals(found: PhaseCells) -> Iterator[Cell]:
    """Yield the rows of a perfect model, if the phase shows them, and then the cells.

    Phase 5.3 also has a row for all flaws of a model together, and 5.5 one for all models together.
    """
    if found.phase.suite in _WITH_BEST:
        yield from _best(found.cells)
    if found.phase.suite == "phase55":
        yield from _all_models(found.cells)
    for at, cell in enumerate(found.cells):
        yield cell
        if found.phase.suite != "phase53":
            continue
        after = found.cells[at + 1] if at + 1 < len(found.cells) else None
        if after is None or after.model != cell.model:
            yield from _all_flaws([each for each in found.cells if each.model == cell.model])


def _best(cells: Sequence[Cell]) -> Iterator[Cell]:
    """Yield the rows of a perfect model, for each level at which all models have the same cases.

    All models have the same tool failures, so the cases of any model show which cases are
    reachable. Levels with equal figures share a row.
    """
    places: dict[frozenset[tuple[tuple[int, str, int], float]], list[Cell]] = {}
    for cell in _reached(cells):
        known = frozenset((case.draw, case.result.scores["reachable"]) for case in cell.cases)
        places.setdefault(known, []).append(cell)
    every = _by_level(cells)
    for those in places.values():
        if len(those) == len(every) > 1:
            first = those[0]
            yield replace(first, apart=tuple(EVERY for _ in first.apart), level=EVERY)
        else:
            yield from _named_together(those)


def _named_together(cells: Sequence[Cell]) -> Iterator[Cell]:
    """Join levels with equal figures into one cell, and also conditions with the same levels."""
    levels = by_key((cell.apart, cell.level) for cell in cells)
    conditions = by_key((tuple(those), apart) for apart, those in levels.items())
    for alike, aparts in conditions.items():
        # Join the values of one dimension only: with several, some combinations might be missing.
        is_list = len(aparts[0]) == 1
        for apart in [(_joined([one for (one,) in aparts]),)] if is_list else aparts:
            yield replace(cells[0], apart=apart, level=_joined(alike))


def _joined(values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else ", ".join(map(_shown, values))


def _reached(cells: Sequence[Cell]) -> Iterator[Cell]:
    for (apart, level), those in _by_level(cells).items():
        if len({frozenset(case.draw for case in cell.cases) for cell in those}) == 1:
            known = {
                case.draw: case
                for case in _cases(those)
                if case.measured and "reachable" in case.result.scores
            }
            if known:
                yield Cell(BEST, apart, level, tuple(map(_played_flawlessly, known.values())))


def _played_flawlessly(case: BenchCase) -> BenchCase:
    is_reachable = case.result.scores["reachable"]
    outcome = "solved" if is_reachable else "unsolved"
    result = replace(case.result, outcome=outcome, scores={"reachable": is_reachable})
    return replace(case, result=result)


def _by_level(cells: Sequence[Cell]) -> dict[tuple[tuple[Value, ...], Value], list[Cell]]:
    return by_key(((cell.apart, cell.level), cell) for cell in cells)


def _all_flaws(cells: Sequence[Cell]) -> Iterator[Cell]:
    """Yield a row for each condition with all flaws together, excluding the sound plan."""
    for apart in dict.fromkeys(cell.apart for cell in cells if cell.level is not None):
        flawed = [cell for cell in cells if cell.apart == apart and cell.level is not None]
        if len(flawed) > 1:
            yield Cell(flawed[0].model, apart, ALL_FLAWS, _cases(flawed))


def _all_models(cells: Sequence[Cell]) -> Iterator[Cell]:
    """Yield a row for each level, over all models. Only levels of all models are comparable."""
    n_models = len({cell.model for cell in cells})
    for (apart, level), those in _by_level(cells).items():
        if len(those) == n_models > 1:
            yield Cell(ALL_MODELS, apart, level, _cases(those))


def _cases(cells: Sequence[Cell]) -> tuple[BenchCase, ...]:
    return tuple(case for cell in cells for case in cell.cases)


def _same_tasks(found: PhaseCells, notes: Footnotes) -> Column:
    """The shares solved with the flaw and with the sound plan, over pairs with the same task."""
    phase = found.phase
    cases = _cases(found.cells)
    sound = {
        (phase.conditions(case), case.draw): case
        for case in cases
        if case.flaw is None and case.measured
    }
    # A refused prompt has no score that shows whether its task is a substitute.
    substitutes = {_spoilt(case) for case in cases if case.result.scores.get("substitute")}

    def text(cell: Cell) -> str:
        pairs = [
            (case, sound[phase.conditions(case), case.draw])
            for case in cell.cases
            if case.flaw is not None
            and case.measured
            and _spoilt(case) not in substitutes
            and (phase.conditions(case), case.draw) in sound
        ]
        if not pairs:
            return figures.UNKNOWN
        flawed, reference = zip(*pairs, strict=True)
        shares = (figures.percent(_solved_share(each)) for each in (flawed, reference))
        return notes.marked(f"{' / '.join(shares)} ({len(pairs)})", reference)

    return Column("same tasks, solved %: flaw / no flaw (n)", text)


def _spoilt(case: BenchCase) -> tuple[Value, ...]:
    return (case.flaw, case.severity, *case.draw)


def _solved_share(cases: Sequence[BenchCase]) -> float:
    return sum(case.result.outcome == "solved" for case in cases) / len(cases)


def _share(head: str, is_hit: Callable[[CaseResult], bool], *, of_best: bool = False) -> Column:
    def text(cell: Cell) -> str:
        return figures.with_interval(figures.share(cell.cases, is_hit))

    return Column(f"{head} % (95 %)", text, of_best)


def _mean(score: str, head: str, digits: int = 3) -> Column:
    return Column(head, lambda cell: figures.mean(cell.cases, score, digits))


def _followed(head: str, share: Callable[[CaseResult], float]) -> Column:
    """The mean over the reachable cases. In other cases, tool failures hide parts of the plan."""

    def text(cell: Cell) -> str:
        reachable = (
            case for case in cell.cases if case.measured and case.result.scores.get("reachable")
        )
        shares = [share(case.result) for case in reachable if "obeyed" in case.result.scores]
        return f"{math.fsum(shares) / len(shares):.2f}" if shares else figures.UNKNOWN

    return Column(head, text)


def _weighted(cell: Cell) -> str:
    value = figures.tally(cell.cases).weighted
    return f"{value:.3f}" if value is not None else figures.UNKNOWN


def _size(cell: Cell) -> str:
    size_b = model_size_b(cell.model)
    return f"{size_b:g}" if size_b is not None else figures.UNKNOWN


def _is_success(result: CaseResult) -> bool:
    return result.outcome in {"solved", "partial"}


def _efficiency(cell: Cell) -> str:
    return figures.efficiency(figures.share(cell.cases, _is_success), model_size_b(cell.model))


_SAMPLE = (
    Column("n", lambda cell: str(figures.tally(cell.cases).n), of_best=True),
    Column("unscored", lambda cell: figures.unscored(cell.cases)),
    Column("infra", lambda cell: str(figures.tally(cell.cases).n_infra)),
    Column("coverage %", lambda cell: figures.percent(figures.coverage(cell.cases))),
)
_SOLVED = _share("solved", lambda result: result.outcome == "solved", of_best=True)
_PARTIAL = _share("partial", lambda result: result.outcome == "partial")
_SUCCESS = _share("success", _is_success)
_ORIGINAL = _share(
    "solved by the original", lambda result: result.scores.get("verdict_original") == 1
)
_LUCK = (
    Column("reachable %", lambda cell: figures.reachable(cell.cases), of_best=True),
    Column("solved of reachable % (95 %)", lambda cell: figures.of_reachable(cell.cases)),
)
_WITH_BEST = ("phase53", "phase54", "phase55")
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "phase51": (
        *_SAMPLE,
        _SOLVED,
        _PARTIAL,
        _ORIGINAL,
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
        _ORIGINAL,
        Column("efficiency (95 %)", _efficiency),
    ),
    "phase53": (
        *_SAMPLE,
        _SOLVED,
        *_LUCK,
        _followed("obeyed", lambda result: result.scores["obeyed"]),
        _followed("repaired", lambda result: result.scores["repaired"]),
        _followed(
            "neither",
            lambda result: max(0.0, 1 - result.scores["obeyed"] - result.scores["repaired"]),
        ),
        _mean("needless", "unnecessary calls", 1),
        _PARTIAL,
        _SUCCESS,
        _ORIGINAL,
        _mean("phase2", "phase2"),
        _mean("execution", "execution"),
        Column("substitutes (n)", lambda cell: figures.count(cell.cases, "substitute")),
    ),
    "phase54": (*_SAMPLE, _SOLVED, *_LUCK, _PARTIAL, _SUCCESS, _ORIGINAL),
    "phase55": (*_SAMPLE, _SOLVED, *_LUCK, _PARTIAL, _SUCCESS, _ORIGINAL),
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
