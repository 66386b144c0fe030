"""One case of a phase, as a run's results tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench_suites.workflow.aggregate import CaseResult
from pytest_ultrapar.records import GRADED

PHASES = ("phase51", "phase52", "phase53", "phase54", "phase55")
"""The suites, in the order of their numbers."""

NEVER_RAN = "never ran"
"""The outcome of a planned case without a final grade."""

Dimension = Literal["prompt_type", "difficulty", "tool_success_rate", "flaw", "severity"]
Value = str | float | None


@dataclass(frozen=True, slots=True)
class BenchCase:
    """A planned case of a phase, whether it ran or not.

    Attributes:
        run_id: Of the run that it is from.
        suite: One of `PHASES`.
        repeat: Repetition number, from 0.
        flaw: Name of the plan's flaw; None where it has none.
        severity: Of that flaw.
        result: What it brings to its cell.
        run_seed: Of its run; it decides tasks and luck.
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
        """Whether it says something of the model."""
        return self.result.outcome in GRADED

    @property
    def draw(self) -> tuple[int, str, int]:
        """What cases share that got the same task and the same luck: seed, task type, repetition.

        Only a flaw may replace the task; then all models get the same other one.
        """
        return self.run_seed, self.result.task_type, self.repeat

    def value(self, dimension: Dimension) -> Value:
        """Where it stands on one dimension."""
        holder = self if dimension in {"flaw", "severity"} else self.result
        found: Value = getattr(holder, dimension)
        return found
