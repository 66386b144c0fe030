"""One case of a phase in the results of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench_suites.workflow.aggregate import CaseResult
from pytest_ultrapar.records import GRADED

PHASES = ("phase51", "phase52", "phase53", "phase54", "phase55")
"""The suites of the phases, in their order."""

NEVER_RAN = "never ran"
"""The outcome of a planned case without a final grade."""

Dimension = Literal["prompt_type", "difficulty", "tool_success_rate", "flaw", "severity"]
Value = str | float | None


@dataclass(frozen=True, slots=True)
class BenchCase:
    """A planned case of a phase, which may not have run.

    Attributes:
        run_id: The id of its run.
        suite: One of `PHASES`.
        repeat: Repetition number, from 0.
        flaw: Name of the plan's flaw; None without a flaw.
        severity: Severity of that flaw.
        result: Its result, in the form that the aggregate uses.
        run_seed: The seed of its run, which determines tasks and tool failures.
    """

    run_id: str
    suite: str
    case_id: str
    repeat: int
    flaw: str | None
    severity: str | None
    result: CaseResult
    run_seed: int = 0

    @property
    def measured(self) -> bool:
        """Whether the case measured the model."""
        return self.result.outcome in GRADED

    @property
    def draw(self) -> tuple[int, str, int]:
        """Seed, task type and repetition: the values that determine the task and its tool failures.

        Only a flaw can replace the task, and then all models get the same substitute.
        """
        return self.run_seed, self.result.task_type, self.repeat

    def value(self, dimension: Dimension) -> Value:
        """The value of one dimension."""
        holder = self if dimension in {"flaw", "severity"} else self.result
        found: Value = getattr(holder, dimension)
        return found
