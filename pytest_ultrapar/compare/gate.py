"""Check a finished run against rules, with or without a baseline."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_ultrapar.analysis.equivalence import equivalence, graded_pairs, rated_pairs
from pytest_ultrapar.analysis.measured_run import find_measured_run, labelled, read_rows
from pytest_ultrapar.analysis.paired import CONFIDENCE, NOTHING_KNOWN, Interval
from pytest_ultrapar.analysis.repetitions import cells_of, n_repetitions, repetitions_of
from pytest_ultrapar.compare.figures import (
    CELL_FIGURES,
    SERVICE_MEANS,
    Figure,
    NoFigureError,
    change,
    client_notes,
    figure_of_run,
    speedup_notes,
)
from pytest_ultrapar.compare.pairing import pair, part_notes
from pytest_ultrapar.compare.rules import (
    DEFAULT_RULE_OF_MODEL,
    DEFAULT_RULES,
    SAME_ANSWERS,
    Rule,
    check_baseline,
    check_filters,
    check_names,
    filter_fault,
    parse_rule,
    refuse,
    selected,
)
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.settings import Undecided
from pytest_ultrapar.records import LABEL
from pytest_ultrapar.system.child import Child, output_of
from pytest_ultrapar.system.parent import answer_parent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_ultrapar.analysis.measured_run import MeasuredRun
    from pytest_ultrapar.compare.pairing import Pairing
    from pytest_ultrapar.records import Case


ALIKE = (
    "every case has the same figure in both runs, so there is no change; the interval shows how "
    "large the change could be with other cases"
)
Verdict = Literal["pass", "undecided", "FAIL", "no figure"]
"""The result of one rule. `FAIL` and `no figure` make the run fail."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A rule and its result.

    Attributes:
        verdict: `FAIL` if the whole interval is on the wrong side of the bound. `undecided` if the
            interval contains the bound, or if the rule is about speed and the client limited a run.
            `no figure`, which also makes the run fail, if the figure cannot be computed.
        figure: The figure that is compared with the bound. None if it is missing, or if the rule
            has no bound.
        n: How many cases, or pairs of cases, the figure includes.
        n_to_decide: About how many cases it would take to decide an undecided rule. None if no
            number would be enough, or if the interval is unknown.
        note: A sentence about the result; may be empty.
    """

    rule: Rule
    verdict: Verdict
    figure: Figure | None = None
    n: int = 0
    n_to_decide: int | None = None
    note: str = ""

    @property
    def failed(self) -> bool:
        """Whether this rule makes the run fail; an undecided rule does not count as failed."""
        return self.verdict in {"FAIL", "no figure"}


class GateResult(msgspec.Struct, frozen=True):
    """The results of all rules in a gate.

    Attributes:
        run: The id of the judged run.
        named: The bench that the user named instead of a run; empty if the user named the run.
        base: The id of the baseline; None without a baseline.
        notes: Sentences with caveats about the comparison.
        undecided: Whether the run passes or fails if no rule failed, but some are undecided.
    """

    run: str
    base: str | None
    simulated: bool
    judged: tuple[Judged, ...]
    notes: tuple[str, ...]
    undecided: Undecided = "pass"
    named: str = ""

    @property
    def failed(self) -> bool:
        """Whether the run fails the gate."""
        return bool(self.n_failed or (self.undecided == "fail" and self.n_undecided))

    @property
    def n_failed(self) -> int:
        """How many rules failed."""
        return sum(each.failed for each in self.judged)

    @property
    def n_undecided(self) -> int:
        """How many rules neither passed nor failed with enough confidence."""
        return sum(each.verdict == "undecided" for each in self.judged)


def judge(
    rules: Sequence[Rule],
    run: MeasuredRun,
    baseline: MeasuredRun | None,
    *,
    undecided: Undecided = "pass",
) -> GateResult:
    """Check every rule.

    Args:
        rules: The rules. If this is empty, the default rules are used, which need a baseline.
        run: The run to judge.
        baseline: The run to compare with; None without a baseline.
        undecided: Whether the run passes or fails if no rule failed, but some are undecided.

    Raises:
        ConfigError: A rule names something that the run does not have, or needs a baseline or a
            measured speed-up that is missing. Also raised if the runs have no case in common, are
            the same run, or cannot be read.
    """
    _check_measured(rules, run, baseline)
    rows = read_rows(run)
    run = replace(run, cases=labelled(run.cases, rows))
    pairing = pair(baseline, run, read_rows(baseline), rows) if baseline is not None else None
    if pairing is None:
        check_baseline(rules)
    elif not rules:
        rules = default_rules(pairing)
    check_filters(rules, run.cases)
    check_repetitions(rules, run.cases, baseline.cases if baseline is not None else ())
    check_names(rules, run.summary, run=f"run {run.run_id}")
    measured = {"the run": run} | ({"the baseline": baseline} if baseline is not None else {})
    judged = []
    for rule in rules:
        labels = [one for one in rule.filters if one[0].startswith(LABEL)]
        if faults := [why for one in labels if (why := filter_fault(*one, run.cases))]:
            judged.append(Judged(rule=rule, verdict="no figure", note=faults[0]))
            continue
        try:
            if pairing is None or not rule.needs_baseline:
                figure = figure_of_run(rule, run, rows)
                judged.append(_judged(rule, figure, client_notes({"the run": run})))
            elif rule.metric == SAME_ANSWERS:
                judged.append(_same_answers(rule, pairing))
            else:
                judged.append(_judged(rule, change(rule, pairing), client_notes(measured)))
        except NoFigureError as error:
            judged.append(Judged(rule=rule, verdict="no figure", note=str(error)))
    return GateResult(
        run=run.run_id,
        base=baseline.run_id if baseline is not None else None,
        simulated=run.manifest.simulated or (baseline is not None and baseline.manifest.simulated),
        judged=tuple(judged),
        notes=_notes(run, measured, pairing, judged),
        undecided=undecided,
        named=run.bench.name if run.bench is not None else "",
    )


def _check_measured(rules: Sequence[Rule], run: MeasuredRun, baseline: MeasuredRun | None) -> None:
    for rule in rules:
        of_it = [run, baseline] if rule.needs_baseline else [run]
        benches = [one.bench for one in of_it if one is not None and one.bench is not None]
        why = next((bench.unmeasured for bench in benches if bench.unmeasured), "")
        if rule.metric == "speedup" and why:
            refuse(rule.text, why)


def default_rules(pairing: Pairing) -> list[Rule]:
    """Return the rules to use if the user specified none.

    The intervals of the models' solve rates hold jointly for all models (Bonferroni). Otherwise,
    with many models, one of these rules would often fail by chance.
    """
    graded = graded_pairs(pairing.base_rows.values(), pairing.new_rows.values())
    models = sorted({row.model for row, _ in rated_pairs(graded)})
    pattern = parse_rule(DEFAULT_RULE_OF_MODEL)
    of_models = (
        msgspec.structs.replace(
            pattern,
            text=pattern.text.replace("...", model),
            filters=(("model", model),),
            confidence=1 - (1 - CONFIDENCE) / len(models),
        )
        for model in models
    )
    return [*map(parse_rule, DEFAULT_RULES), *of_models]


def check_repetitions(
    rules: Iterable[Rule], cases: Sequence[Case], baseline: Sequence[Case] = ()
) -> None:
    """Check that no rule needs more repetitions of a cell than the runs have.

    Args:
        rules: The rules. The filters of each rule match at least one case.
        cases: The planned cases of the judged run.
        baseline: The planned cases of the baseline.

    Raises:
        ConfigError: A rule needs more repetitions than the runs have.
    """
    theirs = {case.case_id for case in baseline}
    for rule in rules:
        k = repetitions_of(rule.metric)
        if k is None:
            continue
        own, where = selected(rule, cases), "the run has"
        if rule.needs_baseline:
            own, where = own & theirs, "the run and its baseline share only"
        n = n_repetitions(cells_of(case for case in cases if case.case_id in own).values())
        if own and k > n:
            refuse(
                rule.text,
                f"{rule.metric} needs {k:,} repetitions of a cell, but {where} {n:,}"
                " (--ultrapar-repeats)",
            )


def _judged(rule: Rule, figure: Figure, held_up: Sequence[str]) -> Judged:
    """Judge a rule by its figure; `held_up` says for which runs the client limited the speed."""
    point = Interval(figure.value, figure.value)
    interval = figure.interval or point
    verdict = _verdict(rule, figure, point if rule.point else interval)
    note = ALIKE if figure.alike and figure.interval is not None else ""
    too_few = verdict == "undecided"
    if too_few and figure.interval == NOTHING_KNOWN:
        note = figure.unknown or f"no interval: too few cases ({figure.n:,})"
    if held_up and rule.of_speed:
        verdict, too_few, note = "undecided", False, "; ".join(held_up)
    return Judged(
        rule=rule,
        verdict=verdict,
        figure=figure,
        n=figure.n,
        n_to_decide=_n_to_decide(figure, interval, rule.bound) if too_few else None,
        note=note,
    )


def _verdict(rule: Rule, figure: Figure, interval: Interval) -> Verdict:
    low, high = interval
    better_above = rule.side == ">="
    failed = high < rule.bound if better_above else low > rule.bound
    passed = low >= rule.bound if better_above else high <= rule.bound
    if figure.alike and not failed:
        # No case changed, so the figure itself decides. `same_answers` also passes in this case.
        passed = figure.value >= rule.bound if better_above else figure.value <= rule.bound
    return "FAIL" if failed else "pass" if passed else "undecided"


def _n_to_decide(figure: Figure, interval: Interval, bound: float) -> int | None:
    """Estimate how many cases would bring the end of the interval to the bound.

    The estimate assumes that the figure stays the same. It also assumes that the width of an
    interval is inversely proportional to the square root of the number of cases.
    """
    away = abs(figure.value - bound)
    reach = figure.value - interval.low if figure.value > bound else interval.high - figure.value
    if not away or not math.isfinite(reach):
        return None
    return math.ceil(figure.n * (reach / away) ** 2)


def _same_answers(rule: Rule, pairing: Pairing) -> Judged:
    wanted = selected(rule, pairing.cases)
    base, new = (
        [row for key, row in rows.items() if key in wanted]
        for rows in (pairing.base_rows, pairing.new_rows)
    )
    try:
        found = equivalence(base, new)
    except ConfigError as error:
        raise NoFigureError(str(error)) from error
    verdicts: dict[str, Verdict] = {"same": "pass", "different": "FAIL", "undecided": "undecided"}
    return Judged(rule=rule, verdict=verdicts[found.verdict], n=found.n, note=found.text)


def _notes(
    run: MeasuredRun,
    measured: Mapping[str, MeasuredRun],
    pairing: Pairing | None,
    judged: Sequence[Judged],
) -> tuple[str, ...]:
    notes = (
        [f"the rules were checked on the bench's run in mode {run.manifest.mode}"]
        if run.bench is not None
        else []
    )
    if any(each.rule.confidence != CONFIDENCE for each in judged):
        notes.append("the intervals of all models' solve rates hold jointly (Bonferroni)")
    if any(repetitions_of(each.rule.metric) is not None for each in judged):
        notes.append(CELL_FIGURES)
    if any(each.rule.metric == "speedup" for each in judged):
        notes += speedup_notes(measured)
    if any(each.rule.metric == "service" and each.rule.form == "relative" for each in judged):
        notes.append(SERVICE_MEANS)
    if pairing is None:
        notes += part_notes(measured)
    else:
        notes += [f"left out: {each}" for each in pairing.left_out]
        notes += [f"different: {each}" for each in (*pairing.questions, *pairing.conditions)]
    speed = [each for each in judged if each.rule.metric in {"throughput", "makespan"}]
    compared = any(each.figure is not None and each.figure.base is not None for each in speed)
    if compared and pairing is not None and not pairing.same_timed:
        notes.append("throughput and makespan cover only the common cases")
    return tuple(notes)


class Order(msgspec.Struct, frozen=True):
    """A request to another process to judge a run. If it has no rules, the default rules apply."""

    run: str
    baseline: str | None
    rules: tuple[Rule, ...]
    undecided: Undecided


def start_judge() -> Child:
    """Start a process that loads its modules, and then judges one run for `judged_by`."""
    return Child.start(__name__)


def judged_by(
    judge: Child,
    run_dir: Path,
    baseline: Path | None,
    rules: tuple[Rule, ...],
    undecided: Undecided,
) -> GateResult:
    """Let the given process check a finished run against the rules, and wait until it exits.

    Raises:
        ResultsError: The run could not be judged.
    """
    base = str(baseline) if baseline is not None else None
    order = Order(str(run_dir), base, rules, undecided)
    said = output_of(judge, msgspec.json.encode(order))
    # Use msgpack, because JSON cannot represent an infinite end of an interval.
    return msgspec.msgpack.decode(said, type=GateResult)


def _answer() -> bytes:
    """Judge the run that is named on standard input; do nothing if the input is empty."""
    # Load this before the input arrives, because it takes a fifth of a second.
    import scipy.special  # noqa: F401, PLC0415

    said = sys.stdin.buffer.read()
    if not said:
        return b""
    order = msgspec.json.decode(said, type=Order)
    baseline = find_measured_run(order.baseline) if order.baseline is not None else None
    run = find_measured_run(order.run)
    return msgspec.msgpack.encode(judge(order.rules, run, baseline, undecided=order.undecided))


if __name__ == "__main__":
    raise SystemExit(answer_parent(_answer))
