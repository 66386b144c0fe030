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
    "95 % interval",
    "n",
    "n to decide",
)
_MOST_CASES = 1_000_000
_VERDICTS = {"undecided": "pass, not decided"}


def gate_section(result: GateResult) -> Section:
    """The gate as a section of a report: a row for each rule, and what must be known of them."""
    against = f" against {result.base}" if result.base is not None else ""
    passed = len(result.judged) - result.n_failed - result.n_undecided
    verdicts = f"{result.n_failed} failed, {passed} passed"
    if result.n_undecided:
        verdicts += f", {result.n_undecided} not decided"
    notes = [f"{each.rule.text}: {each.note}" for each in result.judged if each.note]
    if any(each.verdict == "undecided" and each.n for each in result.judged):
        notes.append(
            "not decided: the interval holds the bound, so that chance may have done it; n to"
            " decide: about so many cases would tell, if the figure stays what it is (no n: it lies"
            " on the bound, or too little is known)"
        )
    notes += result.notes
    if result.simulated:
        notes.append(SIMULATED)
    return Section(
        title=f"gate: run {result.run}{against}: {verdicts}",
        header=HEADER,
        rows=tuple(map(_row, result.judged)),
        n_names=2,
        notes=tuple(notes),
    )


def failure_line(result: GateResult) -> str:
    """Which rules failed, of a gate with one that did."""
    failed = "; ".join(_failure(each) for each in result.judged if each.failed)
    return f"{counted(result.n_failed, 'rule')} failed: {failed}"


def _failure(judged: Judged) -> str:
    if judged.value is None:
        return f"{judged.rule.text} ({judged.note})"
    value = figure_text(judged.rule.metric, judged.value, judged.form)
    return f"{judged.rule.text} (got {value})"


def _row(judged: Judged) -> tuple[str, ...]:
    metric, form = judged.rule.metric, judged.form
    changed = form in {"difference", "relative"}
    interval = NONE
    if judged.has_interval:
        interval = interval_text(metric, judged.low, judged.high, form)
    return (
        judged.rule.text,
        _VERDICTS.get(judged.verdict, judged.verdict),
        figure_text(metric, judged.base),
        figure_text(metric, judged.new),
        figure_text(metric, judged.value, form) if changed else NONE,
        figure_text(metric, judged.rule.bound, form) if judged.rule.side else NONE,
        interval,
        f"{judged.n:,}" if judged.n else NONE,
        _n_to_decide(judged),
    )


def _n_to_decide(judged: Judged) -> str:
    if judged.verdict != "undecided" or not judged.rule.side:
        return NONE
    n = judged.n_to_decide
    return f"~{int(float(f'{n:.2g}')):,}" if n is not None and n <= _MOST_CASES else "no n"
