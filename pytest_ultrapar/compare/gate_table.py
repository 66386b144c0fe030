"""The table of a gate; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.compare.figure_text import NONE, figure_text, interval_text
from pytest_ultrapar.compare.section import Section
from pytest_ultrapar.report.numbers import counted
from pytest_ultrapar.report.summary import SIMULATED

if TYPE_CHECKING:
    from pytest_ultrapar.compare.gate import GateResult, Judged

HEADER = (
    "rule",
    "verdict",
    "baseline",
    "run",
    "change",
    "bound",
    "interval, at least 95 %",
    "n",
    "n to decide",
)
_MOST_CASES = 1_000_000
_WHAT_BECOMES = {"pass": "(passes)", "fail": "(FAILS)"}


def gate_section(result: GateResult) -> Section:
    """The gate as a section of a report: a row for each rule, and what must be known of them."""
    against = f" against {result.base}" if result.base is not None else ""
    passed = len(result.judged) - result.n_failed - result.n_undecided
    verdicts = f"{result.n_failed} failed, {passed} passed"
    if result.n_undecided:
        verdicts += f", {result.n_undecided} undecided {_WHAT_BECOMES[result.undecided]}"
    notes = [f"{each.rule.text}: {each.note}" for each in result.judged if each.note]
    if any(each.verdict == "undecided" and not each.note for each in result.judged):
        notes.append(
            "undecided: the interval holds the bound, so chance may have done it; n to decide:"
            " about so many cases would tell, if the figure stays what it is (-: it lies on the"
            " bound, or more than a million cases are needed)"
        )
    if result.n_undecided and result.undecided == "pass":
        notes.append(
            "undecided rules pass; --undecided fail (in a run --ultrapar-gate-undecided fail) makes"
            " them fail, METRIC.point judges by the figure alone"
        )
    notes += result.notes
    if result.simulated:
        notes.append(SIMULATED)
    return Section(
        title=f"gate: {f'{result.named}, ' if result.named else ''}run {result.run}{against}:"
        f" {verdicts}",
        header=HEADER,
        rows=tuple(map(_row, result.judged)),
        n_names=2,
        notes=tuple(notes),
    )


def failure_line(result: GateResult) -> str:
    """Why a gate fails, of one that does."""
    parts = []
    if result.n_failed:
        failed = "; ".join(_failure(each) for each in result.judged if each.failed)
        parts.append(f"{counted(result.n_failed, 'rule')} failed: {failed}")
    if result.n_undecided and result.undecided == "fail":
        undecided = "; ".join(
            _failure(each) for each in result.judged if each.verdict == "undecided"
        )
        parts.append(
            f"{counted(result.n_undecided, 'rule')} undecided, and undecided rules fail:"
            f" {undecided}"
        )
    return "; ".join(parts)


def _failure(judged: Judged) -> str:
    if judged.value is None:
        return f"{judged.rule.text} ({judged.note})"
    said = f"got {figure_text(judged.rule.metric, judged.value, judged.form)}"
    if judged.verdict == "undecided":
        said += (
            f"; {judged.note}"
            if judged.note
            else f", interval of at least 95 % {_interval(judged)}"
        )
    return f"{judged.rule.text} ({said})"


def _interval(judged: Judged) -> str:
    if not judged.has_interval:
        return NONE
    return interval_text(judged.rule.metric, judged.low, judged.high, judged.form)


def _row(judged: Judged) -> tuple[str, ...]:
    metric, form = judged.rule.metric, judged.form
    changed = form in {"difference", "relative"}
    return (
        judged.rule.text,
        judged.verdict,
        figure_text(metric, judged.base),
        figure_text(metric, judged.new),
        figure_text(metric, judged.value, form) if changed else NONE,
        figure_text(metric, judged.rule.bound, form) if judged.rule.side else NONE,
        _interval(judged),
        f"{judged.n:,}" if judged.n else NONE,
        _n_to_decide(judged),
    )


def _n_to_decide(judged: Judged) -> str:
    if judged.verdict != "undecided" or not judged.rule.side or judged.note:
        return NONE
    n = judged.n_to_decide
    return f"~{int(float(f'{n:.2g}')):,}" if n is not None and n <= _MOST_CASES else NONE
