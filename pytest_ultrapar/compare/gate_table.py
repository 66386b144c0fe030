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
)
_VERDICTS = {"undecided": "pass, not decided"}


def gate_section(result: GateResult) -> Section:
    """The gate as a section of a report: a row for each rule, and what must be known of them."""
    against = f" against {result.base}" if result.base is not None else ""
    n_rules = counted(len(result.judged), "rule")
    notes = [f"{each.rule.text}: {each.note}" for each in result.judged if each.note]
    if any(each.verdict == "undecided" and each.n for each in result.judged):
        notes.append(
            "not decided: the interval holds the bound, so that chance may have done it; more cases"
            " tell more"
        )
    notes += result.notes
    if result.simulated:
        notes.append(SIMULATED)
    return Section(
        title=f"gate: run {result.run}{against}: {result.n_failed} of {n_rules} failed",
        header=HEADER,
        rows=tuple(map(_row, result.judged)),
        n_names=2,
        notes=tuple(notes),
    )


def failure_line(result: GateResult) -> str:
    """Which rules failed, of a gate with one that did."""
    n = len(result.judged)
    failed = "; ".join(_failure(each) for each in result.judged if each.failed)
    return f"{result.n_failed} of {counted(n, 'rule')} failed: {failed}"


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
    )
