"""A comparison as sections of a report; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.compare.comparison import CHANCE, SPEED
from pytest_ultrapar.compare.figure_text import (
    NONE,
    SERVICE_MEANS,
    figure_text,
    interval_text,
    speedup_notes,
)
from pytest_ultrapar.compare.section import Section
from pytest_ultrapar.report.numbers import counted
from pytest_ultrapar.report.summary import SIMULATED
from pytest_ultrapar.results.equivalence import (
    RATE_MARGIN,
    SCORE_MARGIN_LEAST,
    SCORE_MARGIN_SD,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_ultrapar.compare.comparison import Cell, Comparison
    from pytest_ultrapar.compare.rules import Form
    from pytest_ultrapar.results.equivalence import Look
    from pytest_ultrapar.results.measured_run import MeasuredRun

MOST_CELLS = 50
_ANSWERS = {
    "same": "the answers are the same",
    "different": "the answers are DIFFERENT",
    "undecided": "whether the answers are the same is not decided",
}


def every_look(looks: Sequence[Look]) -> tuple[Look, ...]:
    """All of them."""
    return tuple(looks)


def telling_looks(looks: Sequence[Look]) -> tuple[Look, ...]:
    """Solved rates, and scores that moved beyond chance: with an interval that leaves 0 out."""
    return tuple(look for look in looks if look.figure == "solved_rate" or _moved(look))


def _moved(look: Look) -> bool:
    return (look.low is not None and look.low > 0) or (look.high is not None and look.high < 0)


def comparison_sections(
    base: MeasuredRun,
    comparisons: Sequence[Comparison],
    listed: Callable[[Sequence[Look]], tuple[Look, ...]] = telling_looks,
) -> Iterator[Section]:
    """The verdict, the runs, then for each speed, answers and changed cells.

    Args:
        base: The baseline.
        comparisons: Each other run beside it, at least one.
        listed: Which figures of the answers have a row.
    """
    yield _verdict(base, comparisons)
    yield _runs(base, comparisons)
    yield _speed(comparisons)
    for comparison in comparisons:
        yield _answers(comparison, listed(comparison.looks))
        yield _cells(comparison)


def _verdict(base: MeasuredRun, comparisons: Sequence[Comparison]) -> Section:
    notes = []
    for name, comparison in _named(comparisons):
        prefix = f"{name}: " if len(comparisons) > 1 else ""
        pairing, answers = comparison.pairing, comparison.answers
        notes.append(f"{prefix}{_ANSWERS[answers.verdict]}: {answers.text}")
        changes = [
            f"{metric} {figure_text(metric, figure.value, 'relative')}"
            + (f" ({interval_text(metric, *figure.interval.known, 'relative')})")
            for metric in ("throughput", "service")
            if (figure := comparison.figures.get(metric)) is not None and figure.interval
        ]
        if changes:
            measured = "; ".join(changes)
            slowed = _slowed(base, name, comparison)
            undecided = (
                f"undecided, for the client itself was the limit of {' and of '.join(slowed)};"
                " measured were "
            )
            notes.append(f"{prefix}speed: {undecided if slowed else ''}{measured}")
        n_changed = sum(cell.changed for cell in comparison.cells)
        notes.append(
            f"{prefix}{n_changed} of {counted(comparison.n_cells, 'cell')} changed;"
            f" {pairing.n_kept:,} of {counted(pairing.n_base, 'case')} of the baseline kept"
        )
    others = ", ".join(comparison.pairing.new.run_id for comparison in comparisons)
    return Section(title=f"{others} against {base.run_id}", notes=tuple(notes))


def _slowed(base: MeasuredRun, name: str, comparison: Comparison) -> list[str]:
    """The runs, by their names here, of which the client was the limit and not the pool."""
    runs = {"the baseline": base, name: comparison.pairing.new}
    return [each for each, run in runs.items() if run.summary.client_bound]


def _runs(base: MeasuredRun, comparisons: Sequence[Comparison]) -> Section:
    runs = [base, *(comparison.pairing.new for comparison in comparisons)]
    rows = tuple(
        (
            "baseline" if number == 0 else f"new {number}" if len(runs) > 2 else "new",  # noqa: PLR2004
            run.run_id,
            str(run.directory),
            run.summary.mode,
            f"{run.summary.statistics.n_planned:,}",
            f"{run.summary.statistics.n_graded:,}",
            figure_text("coverage", run.summary.statistics.coverage),
            NONE if number == 0 else f"{len(comparisons[number - 1].pairing.base_rows):,}",
        )
        for number, run in enumerate(runs)
    )
    notes: list[str] = []
    for name, comparison in _named(comparisons):
        pairing = comparison.pairing
        prefix = f"{name}: " if len(comparisons) > 1 else ""
        notes += [f"{prefix}left out: {each}" for each in pairing.left_out]
        notes += [
            f"{prefix}not the same: {each}" for each in (*pairing.questions, *pairing.conditions)
        ]
    if any(run.manifest.simulated for run in runs):
        notes.append(SIMULATED)
    return Section(
        title="runs",
        header=("", "run", "directory", "mode", "planned", "graded", "coverage", "in common"),
        rows=rows,
        n_names=4,
        notes=tuple(notes),
    )


def _speed(comparisons: Sequence[Comparison]) -> Section:
    names = [name for name, _ in _named(comparisons)]
    header = ["on the common cases", "n", "baseline"]
    for name in names:
        header += [name, "change", "95 % interval"]
    rows = []
    for metric in SPEED:
        found = [comparison.figures.get(metric) for comparison in comparisons]
        first = next((figure for figure in found if figure is not None), None)
        if first is None:
            continue
        form: Form = "difference" if metric == "coverage" else "relative"
        row = [metric, f"{first.n:,}", figure_text(metric, first.base)]
        for figure in found:
            if figure is None:
                row += [NONE, NONE, NONE]
                continue
            row += [
                figure_text(metric, figure.new),
                figure_text(metric, figure.value, form),
                interval_text(metric, *figure.interval.known, form) if figure.interval else NONE,
            ]
        rows.append(tuple(row))
    notes = [
        SERVICE_MEANS,
        "intervals are those of other cases of the kind; another machine or another day changes"
        " more",
    ]
    for name, comparison in _named(comparisons):
        if "throughput" not in comparison.figures:
            share = comparison.pairing.timed_share
            notes.append(
                f"{name}: throughput is not compared, since only {share * 100:.0f} % of the"
                " timed cases are in both runs"
            )
        elif not comparison.pairing.same_timed:
            notes.append(f"{name}: throughput and makespan are those of the common cases alone")
    measured = {"the baseline": comparisons[0].pairing.base} | {
        name: comparison.pairing.new for name, comparison in _named(comparisons)
    }
    if any("speedup" in comparison.figures for comparison in comparisons):
        notes += speedup_notes(measured)
    notes += [
        f"the client itself was the limit of {name}: {run.summary.client_bound}"
        for name, run in measured.items()
        if run.summary.client_bound
    ]
    return Section("speed", tuple(header), tuple(rows), notes=tuple(notes))


def _answers(comparison: Comparison, looks: Sequence[Look]) -> Section:
    n_hidden = len(comparison.looks) - len(looks)
    hidden = (f"{counted(n_hidden, 'more figure')} did not move beyond chance; --all lists them",)
    return Section(
        title=f"answers{_of(comparison)}",
        header=("model", "figure", "n", "baseline", "new", "change", "95 % interval", "p"),
        rows=tuple(map(_look_row, looks)),
        n_names=2,
        notes=(
            *(hidden if n_hidden else ()),
            "p: exact McNemar test of the cases solved in one run only; intervals hold for each row"
            " alone, the sentence at the top for all of them together, where changes up to"
            f" {RATE_MARGIN:g} of a rate and {SCORE_MARGIN_SD:g} standard deviations of a score (at"
            f" least {SCORE_MARGIN_LEAST * 100:g} % of its largest value) are taken as none",
        ),
    )


def _look_row(look: Look) -> tuple[str, ...]:
    metric = look.figure
    return (
        look.model or "all",
        metric,
        f"{look.n:,}",
        figure_text(metric, look.base),
        figure_text(metric, look.new),
        figure_text(metric, look.new - look.base, "difference"),
        interval_text(metric, look.low, look.high, "difference"),
        _chance(look.chance),
    )


def _cells(comparison: Comparison) -> Section:
    by = comparison.pairing.base.manifest.summary_by
    changed = [cell for cell in comparison.cells if cell.changed]
    others = [cell for cell in comparison.cells if not cell.changed]
    shown = changed[:MOST_CELLS]
    notes = []
    if len(changed) > len(shown):
        notes.append(f"{counted(len(changed) - len(shown), 'more cell')} changed")
    if others:
        notes.append(
            f"{counted(len(others), 'cell')} more with another solved rate, which chance explains;"
            f" the least likely: {_words(others[0])}"
        )
    notes.append(
        f"of {counted(comparison.n_cells, 'cell')} by {', '.join(by)}; p: exact McNemar test,"
        f" adjusted by Benjamini and Hochberg: of the cells listed {CHANCE * 100:.0f} % at most are"
        " expected to be chance"
    )
    return Section(
        title=f"changed cells{_of(comparison)}: {len(changed)} of {comparison.n_cells}",
        header=(
            *by,
            "n",
            "baseline",
            "new",
            "change",
            "solved in baseline only",
            "in new only",
            "p",
        ),
        rows=tuple(_cell_row(cell) for cell in shown),
        n_names=len(by),
        notes=tuple(notes),
    )


def _cell_row(cell: Cell) -> tuple[str, ...]:
    look = cell.look
    return (
        *cell.names,
        f"{look.n:,}",
        figure_text(look.figure, look.base),
        figure_text(look.figure, look.new),
        figure_text(look.figure, look.new - look.base, "difference"),
        f"{look.n_lost:,}",
        f"{look.n_gained:,}",
        _chance(cell.chance),
    )


def _words(cell: Cell) -> str:
    look = cell.look
    change = figure_text(look.figure, look.new - look.base, "difference")
    return f"{', '.join(cell.names)} ({change}, n = {look.n}, p = {_chance(cell.chance)})"


def _chance(chance: float | None) -> str:
    if chance is None:
        return NONE
    return f"{chance:.3f}" if chance >= 0.001 else "< 0.001"  # noqa: PLR2004 - three digits


def _named(comparisons: Sequence[Comparison]) -> list[tuple[str, Comparison]]:
    if len(comparisons) == 1:
        return [("new", comparisons[0])]
    return [(f"new {number}", each) for number, each in enumerate(comparisons, start=1)]


def _of(comparison: Comparison) -> str:
    return f" of {comparison.pairing.new.run_id}"
