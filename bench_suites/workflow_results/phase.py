"""What each phase asks, and which level it takes from phase 5.1 instead of asking again."""

from __future__ import annotations

from dataclasses import dataclass

from bench_suites.workflow_results.bench_case import BenchCase, Dimension, Value

BASELINE = "phase51"

_DIMENSIONS: tuple[Dimension, ...] = (
    "prompt_type",
    "difficulty",
    "tool_success_rate",
    "flaw",
    "severity",
)
_SHARED: tuple[Dimension, ...] = ("prompt_type", "difficulty", "tool_success_rate")
"""On these, every case of every phase stands somewhere."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What a phase asks.

    Attributes:
        suite: Its name in the results.
        number: As the documents count it.
        question: In a few words.
        level: What it varies; None where it only compares models.
        taken_by: The dimension that tells the cases of 5.1 which it takes.
        taken: Their value of it.
    """

    suite: str
    number: str
    question: str
    level: Dimension | None = None
    taken_by: Dimension | None = None
    taken: Value = None

    @property
    def may_vary(self) -> tuple[Dimension, ...]:
        """What an option of the suites, and not the phase itself, may vary."""
        return tuple(each for each in _DIMENSIONS if each not in {self.level, self.taken_by})

    def takes(self, case: BenchCase) -> bool:
        """Whether a case of 5.1 stands for the level that the phase leaves out."""
        if self.taken_by is None or case.suite != BASELINE:
            return False
        return case.value(self.taken_by) == self.taken

    def conditions(self, case: BenchCase) -> tuple[Value, ...]:
        """What a case must share with another one, so that only the level differs."""
        shared = (case.value(each) for each in _SHARED if each != self.taken_by)
        return (case.result.model, case.result.task_type, *shared)


def question(case: BenchCase) -> tuple[Value, ...]:
    """What two cases share that ask a model the same, whichever phase they are of."""
    shared = (case.value(each) for each in _SHARED)
    return (case.result.model, case.result.task_type, *shared, case.repeat)


PHASE_51 = Phase(BASELINE, "5.1", "the baseline, by model")
PHASE_52 = Phase(
    "phase52", "5.2", "scale, by model size and difficulty", "difficulty", "difficulty", "easy"
)
PHASE_53 = Phase(
    "phase53", "5.3", "flawed plans, by model and flaw", "flaw", "prompt_type", "optimal"
)
PHASE_54 = Phase(
    "phase54",
    "5.4",
    "reliability of the tools, by model and tool success rate",
    "tool_success_rate",
    "tool_success_rate",
    0.8,
)
PHASE_55 = Phase(
    "phase55", "5.5", "sensitivity to the prompt", "prompt_type", "prompt_type", "optimal"
)
ALL_PHASES = (PHASE_51, PHASE_52, PHASE_53, PHASE_54, PHASE_55)
