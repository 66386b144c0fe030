"""Turn comparisons and gate results into report sections, for terminals and for Markdown.

All functions are pure.
"""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.equivalence import (
    ALL_MODELS,
    RATE_MARGIN,
    SCORE_MARGIN_LEAST,
    SCORE_MARGIN_SD,
)
from pytest_ultrapar.analysis.repetitions import repetitions_of
from pytest_ultrapar.compare.comparison import CHANCE, SPEED
from pytest_ultrapar.compare.figures import (
    CELL_FIGURES,
    NONE,
    SERVICE_MEANS,
    client_notes,
    figure_text,
    interval_text,
    speedup_notes,
)
from pytest_ultrapar.compare.rules import FIGURE, SCORE
from pytest_ultrapar.pool.money import money
from pytest_ultrapar.report.sections import Section
from pytest_ultrapar.report.summary import SIMULATED
from pytest_ultrapar.report.text import (
    columns_of,
    counted,
    duration,
    or_dash,
    percent,
    rate,
    text_table,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.analysis.equivalence import ComparedFigure
    from pytest_ultrapar.analysis.measured_run import MeasuredRun
    from pytest_ultrapar.compare.comparison import Cell, Comparison
    from pytest_ultrapar.compare.figures import Figure
    from pytest_ultrapar.compare.gate import GateResult, Judged
    from pytest_ultrapar.compare.pairing import Pairing
    from pytest_ultrapar.compare.rules import Form, Rule


MOST_LINES = 15
_MOST_RATES = 5
MOST_CELLS = 50
_LOOK = ("model", "figure", "n", "baseline", "new", "change", "95 % interval", "p")
_CELL = ("n", "baseline", "new", "change", "solved in baseline only", "in new only", "p")
"""The columns to the right of those that name the cell."""
_ANSWERS = {
    "same": "the answers are the same",
    "different": "the answers are DIFFERENT",
    "undecided": "it is undecided whether the answers are the same",
}


def _is_telling(look: ComparedFigure) -> bool:
    """Whether to show a figure. A score is not shown if the interval of its change includes 0."""
    if not look.figure.startswith(SCORE):
        return True
    return (look.low is not None and look.low > 0) or (look.high is not None and look.high < 0)


def comparison_sections(
    base: MeasuredRun, comparisons: Sequence[Comparison], *, every_look: bool = False
) -> Iterator[Section]:
    """Yield sections: the verdict, the runs, the speed, and each run's answers and changed cells.

    Args:
        base: The baseline.
        comparisons: One or more comparisons of other runs with the baseline.
        every_look: Whether to include scores whose change may be due to chance.
    """
    yield _verdict(base, comparisons)
    yield _runs(base, comparisons)
    yield _speed(comparisons)
    for comparison in comparisons:
        yield _answers(f"answers{_of(comparison)}", comparison.looks, every_look=every_look)
        for test, looks in comparison.tests.items():
            section = _answers(f"answers of {test}{_of(comparison)}", looks, every_look=every_look)
            yield replace(section, notes=())
        if comparison.n_cells:
            yield _cells(comparison)


def brief_lines(base: MeasuredRun, comparisons: Sequence[Comparison], width: int) -> list[str]:
    """Return at most `MOST_LINES` lines for a terminal: verdict, solve rates and differences.

    Args:
        base: The baseline.
        comparisons: One or more comparisons of other runs with the baseline. The solve rates are
            from the last one.
        width: The width of a line, in characters.
    """
    verdict, last = _verdict(base, comparisons), comparisons[-1]
    simulated = any(one.manifest.simulated for one in (base, last.pairing.new))
    of_whole = [one for one in last.looks if one.figure.startswith(("solved_rate", FIGURE))]
    rates = of_whole or [*last.looks]
    rates.sort(key=lambda one: (one.model != ALL_MODELS, one.chance or 0.0))
    rows = [[visible(text) for text in _look_row(one)] for one in rates[:_MOST_RATES]]
    answers, *others = verdict.notes
    said = (verdict.title, *[SIMULATED] * simulated, answers, *differences(last.pairing), *others)
    parts = [
        textwrap.wrap(visible(one), width, subsequent_indent="  ", break_on_hyphens=False)
        for one in said
    ]
    # Insert the solve rates after the verdict on the answers.
    parts.insert(2 + simulated, text_table(_LOOK, rows, n_names=2, width=width))
    lines: list[str] = []
    n_more = max(0, len(rates) - _MOST_RATES)
    for part in parts:
        fits = len(lines) + len(part) < MOST_LINES
        lines += part if fits else []
        n_more += not fits
    more = f"{counted(n_more, 'more line')}, " if n_more else ""
    return [*lines, f"--full: {more}speed, scores and cells; --html FILE: an HTML comparison"]


def differences(pairing: Pairing) -> Iterator[str]:
    """Yield sentences about the differences between two runs. Differences in prompts come first."""
    yield from (f"different: {each}" for each in pairing.questions)
    yield from (f"left out: {each}" for each in pairing.left_out)
    yield from (f"different: {each}" for each in pairing.conditions)


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
            slowed = "; ".join(client_notes({"the baseline": base, name: pairing.new}))
            undecided = f"undecided, because {slowed}; measured: " if slowed else ""
            notes.append(f"{prefix}speed: {undecided}{measured}")
        n_changed = sum(cell.changed for cell in comparison.cells)
        of_cells = f"{n_changed} of {counted(comparison.n_cells, 'cell')} changed; "
        notes.append(
            f"{prefix}{of_cells if comparison.n_cells else ''}"
            f"{pairing.n_kept:,} of {counted(pairing.n_base, 'baseline case')}"
            f"{' in the sample' if pairing.new.manifest.drawn_from else ''} retained"
        )
    others = ", ".join(comparison.pairing.new.run_id for comparison in comparisons)
    return Section(title=f"{others} against {base.run_id}", notes=tuple(notes))


def _runs(base: MeasuredRun, comparisons: Sequence[Comparison]) -> Section:
    """Return a section with figures for each run as a whole."""
    runs = [base, *(comparison.pairing.new for comparison in comparisons)]
    named = ["baseline", *(name for name, _ in _named(comparisons))]
    common = [NONE, *(f"{len(each.pairing.base_rows):,}" for each in comparisons)]
    rows = []
    for name, run, n_common in zip(named, runs, common, strict=True):
        statistics = run.summary.statistics
        row = {
            "": name,
            "run": run.run_id,
            "started, UTC": f"{run.manifest.started_at:%Y-%m-%d %H:%M}",
            "mode": run.summary.mode,
            "graded": f"{statistics.n_graded:,}",
            "solved": or_dash(statistics.solved_rate, percent),
            "speed": or_dash(statistics.throughput, rate),
            "time": or_dash(statistics.makespan_s, duration),
            "efficiency": or_dash(run.summary.efficiency, percent),
            "cost": _cost(run),
            "planned": f"{statistics.n_planned:,}",
            "in common": n_common,
            "directory": str(run.directory),
        }
        rows.append(row)
    notes: list[str] = []
    for name, comparison in _named(comparisons):
        prefix = f"{name}: " if len(comparisons) > 1 else ""
        notes += [f"{prefix}{each}" for each in differences(comparison.pairing)]
    notes += [
        f"{run.summary.run_id} is a replay of {run.manifest.replayed}, so its speed is unknown"
        for run in runs
        if run.manifest.replayed is not None
    ]
    if any(run.manifest.simulated for run in runs):
        notes.append(SIMULATED)
    header, cells = columns_of(rows)
    return Section("runs", header, tuple(cells), n_names=4, notes=tuple(notes))


def _cost(run: MeasuredRun) -> str:
    """Return a cost such as `1.25 USD`, with "at least" if the cost of some requests is unknown."""
    cost = run.summary.cost
    if cost is None:
        return NONE
    return f"{'at least ' if cost.n_unknown else ''}{money(cost.total, cost.currency)}"


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
        "intervals reflect only which cases were chosen; another machine or another day may "
        "change the speed by more",
    ]
    for name, comparison in _named(comparisons):
        if "throughput" not in comparison.figures:
            share = comparison.pairing.timed_share
            notes.append(
                f"{name}: throughput is not compared, because only {share * 100:.0f} % of the "
                "timed cases are in both runs"
            )
        elif not comparison.pairing.same_timed:
            notes.append(f"{name}: throughput and makespan cover only the common cases")
    measured = {"the baseline": comparisons[0].pairing.base} | {
        name: comparison.pairing.new for name, comparison in _named(comparisons)
    }
    if any("speedup" in comparison.figures for comparison in comparisons):
        notes += speedup_notes(measured)
    notes += client_notes(measured)
    return Section("speed", tuple(header), tuple(rows), notes=tuple(notes))


def _answers(title: str, every: Sequence[ComparedFigure], *, every_look: bool) -> Section:
    looks = [look for look in every if every_look or _is_telling(look)]
    n_hidden = len(every) - len(looks)
    notes = []
    if n_hidden:
        hidden = counted(n_hidden, "more figure")
        notes.append(f"{hidden} changed no more than chance explains; --full lists them")
    if any(repetitions_of(look.figure) is not None for look in looks):
        notes.append(CELL_FIGURES)
    notes.append(
        "p: exact McNemar test of the cases solved in only one run. Each interval holds for its "
        "row alone; the verdict at the top holds for all rows together. The verdict ignores small "
        f"changes: up to {RATE_MARGIN:g} for a rate and, for a score, up to {SCORE_MARGIN_SD:g} "
        f"standard deviations or {SCORE_MARGIN_LEAST * 100:g} % of its largest value, if that is "
        "larger"
    )
    return Section(title, _LOOK, tuple(map(_look_row, looks)), n_names=2, notes=tuple(notes))


def _look_row(look: ComparedFigure) -> tuple[str, ...]:
    interval = interval_text(look.figure, look.low, look.high, "difference")
    return (look.model or "all", look.figure, *_compared(look), interval, _chance(look.chance))


def _compared(look: ComparedFigure) -> tuple[str, ...]:
    """Return table cells with the number of pairs, the figure in each run, and the change."""
    both = (figure_text(look.figure, value) for value in (look.base, look.new))
    return (f"{look.n:,}", *both, figure_text(look.figure, look.new - look.base, "difference"))


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
            f"{counted(len(others), 'more cell')} changed no more than chance explains; the least "
            f"likely change: {_words(others[0])}"
        )
    notes.append(
        f"{counted(comparison.n_cells, 'cell')} by {', '.join(by)}. p: exact McNemar test,"
        " adjusted with the method of Benjamini and Hochberg: at most "
        f"{CHANCE * 100:.0f} % of the listed cells are expected to have changed by chance"
    )
    title = f"changed cells{_of(comparison)}: {len(changed)} of {comparison.n_cells}"
    rows = tuple(map(_cell_row, shown))
    return Section(title, (*by, *_CELL), rows, n_names=len(by), notes=tuple(notes))


def _cell_row(cell: Cell) -> tuple[str, ...]:
    look = cell.look
    turns = (f"{look.n_lost:,}", f"{look.n_gained:,}")
    return (*cell.names, *_compared(look), *turns, _chance(cell.chance))


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
    return f" in {comparison.pairing.new.run_id}"


_MOST_CASES = 1_000_000
_WHAT_BECOMES = {"pass": "(passes)", "fail": "(FAILS)"}


def gate_section(result: GateResult) -> Section:
    """Turn a gate's result into a report section with a row for each rule, and with notes."""
    against = f" against {result.base}" if result.base is not None else ""
    passed = len(result.judged) - result.n_failed - result.n_undecided
    verdicts = f"{result.n_failed} failed, {passed} passed"
    if result.n_undecided:
        verdicts += f", {result.n_undecided} undecided {_WHAT_BECOMES[result.undecided]}"
    notes = [f"{each.rule.text}: {each.note}" for each in result.judged if each.note]
    notes += [
        f"{each.rule.text}: {each.figure.left_out}"
        for each in result.judged
        if each.figure is not None and each.figure.left_out
    ]
    if any(each.verdict == "undecided" and not each.note for each in result.judged):
        notes.append(
            "undecided: the interval contains the bound, so the difference may be due to chance. "
            "n to decide: about how many cases a decision needs if the figure stays the same. "
            "The column shows - if the figure equals the bound or a million cases are not enough"
        )
    if result.n_undecided and result.undecided == "pass":
        notes.append(
            "undecided rules pass. To make them fail, use --undecided fail (in a run: "
            "--ultrapar-gate-undecided fail). To check the figure alone, write METRIC.point"
        )
    notes += result.notes
    if result.simulated:
        notes.append(SIMULATED)
    header, rows = columns_of([_row(each) for each in result.judged])
    named = f"{result.named}, " if result.named else ""
    title = f"gate: {named}run {result.run}{against}: {verdicts}"
    return Section(title, header, tuple(rows), n_names=2, notes=tuple(notes))


def failure_line(result: GateResult) -> str:
    """Return a sentence that names a gate's failed rules; the gate's table shows their figures."""
    failed = [each.rule.text for each in result.judged if each.failed]
    parts = [f"{counted(len(failed), 'rule')} failed: {'; '.join(failed)}"] if failed else []
    if result.n_undecided and result.undecided == "fail":
        undecided = [each.rule.text for each in result.judged if each.verdict == "undecided"]
        parts.append(
            f"{counted(len(undecided), 'rule')} undecided, and undecided rules fail:"
            f" {'; '.join(undecided)}"
        )
    return "; ".join(parts)


def _interval(figure: Figure, rule: Rule) -> str:
    if figure.interval is None:
        return NONE
    return interval_text(rule.metric, *figure.interval.known, rule.form)


def _row(judged: Judged) -> dict[str, str]:
    rule, figure = judged.rule, judged.figure
    metric, is_change = rule.metric, rule.form in {"difference", "relative"}
    change = figure.value if figure is not None and is_change else None
    return {
        "rule": rule.text,
        "verdict": judged.verdict,
        "baseline": NONE if figure is None else figure_text(metric, figure.base),
        "run": NONE if figure is None else figure_text(metric, figure.new),
        "change": figure_text(metric, change, rule.form),
        "bound": figure_text(metric, rule.bound, rule.form) if rule.side else NONE,
        "interval, at least 95 %": NONE if figure is None else _interval(figure, rule),
        "n": f"{judged.n:,}" if judged.n else NONE,
        "n to decide": _n_to_decide(judged),
    }


def _n_to_decide(judged: Judged) -> str:
    if judged.verdict != "undecided" or not judged.rule.side or judged.note:
        return NONE
    n = judged.n_to_decide
    return f"~{int(float(f'{n:.2g}')):,}" if n is not None and n <= _MOST_CASES else NONE
