"""A run's gate: rules that are validated before the first request and applied at the end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.analysis.measured_run import find_measured_run
from pytest_ultrapar.compare.gate import check_repetitions, judged_by, start_judge
from pytest_ultrapar.compare.pairing import refuse_nothing_common
from pytest_ultrapar.compare.report import failure_line, gate_section
from pytest_ultrapar.compare.rules import (
    Rule,
    check_baseline,
    check_filters,
    check_names,
    parse_rule,
)
from pytest_ultrapar.errors import refuse, unusable
from pytest_ultrapar.pool.settings import Undecided
from pytest_ultrapar.report.sections import text_lines
from pytest_ultrapar.session.answer_source import PoolLanes, Regrade
from pytest_ultrapar.store.run_directory import resolve_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.pool.settings import Options
    from pytest_ultrapar.records import Case
    from pytest_ultrapar.session.answer_source import Source
    from pytest_ultrapar.system.child import Child


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of a gate for a finished run.

    Attributes:
        lines: Lines for the terminal.
        failures: A tuple with one sentence that says why the run does not pass; empty if it passes.
    """

    lines: tuple[str, ...]
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunGate:
    """The rules that a run must meet.

    Attributes:
        rules: The rules; if empty, the default rules apply.
        baseline: Directory of the run to compare with, if any.
        seed: Seed of this run.
        undecided: Whether the run passes or fails if a rule is undecided and no rule fails.
    """

    rules: tuple[Rule, ...]
    baseline: Path | None
    seed: int
    undecided: Undecided

    def check_cases(self, cases: Sequence[Case]) -> None:
        """Check before the first request that the rules and the baseline fit the planned cases.

        Raises:
            ConfigError: A filter matches no case, a rule needs more repetitions than the cases
                have, or the baseline has no case in common with the run.
        """
        check_filters(self.rules, cases)
        base = find_measured_run(str(self.baseline)) if self.baseline is not None else None
        check_repetitions(self.rules, cases, base.cases if base is not None else ())
        if base is not None:
            refuse_nothing_common(base, cases, seed=self.seed, what="--ultrapar-gate: this run")

    def start_judge(self) -> Child:
        """Start the process for `judge` early, before the run's tables exist."""
        return start_judge()

    def judge(self, run_dir: Path, judge: Child) -> Judgement:
        """Check the rules on the finished run.

        Args:
            run_dir: Directory of the run, which contains its tables.
            judge: The process from `start_judge`.

        Raises:
            ResultsError: The run could not be judged.
        """
        result = judged_by(judge, run_dir, self.baseline, self.rules, self.undecided)
        return Judgement(
            lines=tuple(text_lines([gate_section(result)])),
            failures=(f"gate: {failure_line(result)}",) if result.failed else (),
        )


def prepare_gate(options: Options, source: Source) -> RunGate:
    """Read the gate from the options; `latest` means the run before this one.

    Args:
        options: Options that contain a rule, a baseline or both.
        source: The source of the run's answers.

    Raises:
        ConfigError: The baseline cannot be used; or a rule cannot be parsed, needs a missing
            baseline, or measures speed in a regraded or replayed run.
    """
    rules = tuple(map(parse_rule, options.gate))
    timed = next((rule for rule in rules if rule.of_speed), None)
    if not isinstance(source, PoolLanes) and timed is not None:
        how = "a regraded run" if isinstance(source, Regrade) else "a replayed run"
        refuse(
            f"--ultrapar-gate {timed.text}: {how} ({source.option}) does not measure speed; leave "
            "out this rule"
        )
    if options.gate_baseline is None:
        check_baseline(rules)
        return RunGate(rules, None, options.seed, options.gate_undecided)
    with unusable("--ultrapar-gate-baseline: "):
        base = find_measured_run(options.gate_baseline)
    if options.resume is not None and resolve_run(options.resume).resolve() == base.directory:
        refuse(
            f"--ultrapar-gate-baseline: {base.directory} is the run to resume; choose another "
            "baseline"
        )
    check_names(
        [rule for rule in rules if rule.needs_baseline],
        base.summary,
        run=f"the baseline {base.run_id}",
    )
    return RunGate(rules, base.directory, options.seed, options.gate_undecided)
