"""The question of each phase, and the cases with which 5.3 is compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from bench_suites.workflow_results.bench_case import BenchCase, Dimension, Value

_DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
_SHARED: tuple[Dimension, ...] = ("prompt_type", "difficulty", "tool_success_rate")
"""The dimensions for which every case of every phase has a value."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase and its question.

    Attributes:
        suite: Its name in the results.
        number: Its number in WorkflowBench.
        question: Its question in a few words.
        level: The dimension that it varies; None if it only compares models.
        reference: The prompt type of the cases in other phases with which this phase is compared.
            The phase never runs this prompt type itself. None if the phase runs all its levels.
    """

    suite: str
    number: str
    question: str
    level: Dimension | None = None
    reference: str | None = None

    @property
    def may_vary(self) -> tuple[Dimension, ...]:
        """The dimensions that only an option of the suites can vary, not the phase itself."""
        # The name of the prompt type contains the flaw.
        fixed = {self.level} if self.reference is None else {self.level, "prompt_type"}
        return tuple(each for each in _DIMENSIONS if each not in fixed)

    def is_reference(self, case: BenchCase) -> bool:
        """Whether the phase is compared with a case of another phase, under equal conditions."""
        return (
            self.reference is not None
            and case.suite != self.suite
            and case.result.prompt_type == self.reference
        )

    def conditions(self, case: BenchCase) -> tuple[Value, ...]:
        """The values that a case must share with its reference, so that only the plan differs."""
        shared = (case.value(each) for each in _SHARED if each in self.may_vary)
        return (case.result.model, case.result.task_type, *shared)


def question(case: BenchCase) -> tuple[Value, ...]:
    """The values that identify a prompt. They are equal for equal prompts of different phases."""
    shared = (case.value(each) for each in _SHARED)
    return (case.result.model, case.result.task_type, *shared, case.repeat)


PHASE_51 = Phase("phase51", "5.1", "the baseline, by model")
PHASE_52 = Phase("phase52", "5.2", "scale, by model size and difficulty", "difficulty")
PHASE_53 = Phase("phase53", "5.3", "flawed plans, by model and flaw", "flaw", "optimal")
PHASE_54 = Phase(
    "phase54",
    "5.4",
    "reliability of the tools, by model and tool success rate",
    "tool_success_rate",
)
PHASE_55 = Phase("phase55", "5.5", "sensitivity to the prompt", "prompt_type")
ALL_PHASES = (PHASE_51, PHASE_52, PHASE_53, PHASE_54, PHASE_55)
