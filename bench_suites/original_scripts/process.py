"""One operating-system process of the scripts: a model and a part of a phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar import ConfigError
from pytest_ultrapar.records import Case, Scalar, by_key

if TYPE_CHECKING:
    from collections.abc import Sequence

PART_OF = {
    "phase51": None,
    "phase52": "difficulty",
    "phase53": "flaw_group",
    "phase54": "tool_success_rate",
    "phase55": "prompt_type",
}
"""The parameter that, with the model, splits a phase into processes.

Source: script seed 002, execution modes of the phases."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process.

    Attributes:
        suite: Its phase, such as `phase52`.
        part: Its difficulty, flaw group, rate or prompt type; None if the phase has one part.
    """

    suite: str
    model: str
    part: Scalar = None

    @property
    def name(self) -> str:
        """A readable name, unique in a run."""
        return " ".join(
            str(each) for each in (self.suite, self.model, self.part) if each is not None
        )


def process_of(case: Case) -> Process:
    """The process of the original scripts that ran this kind of case.

    Raises:
        ConfigError: The suite is not a phase, or the case lacks the parameter that splits the
            phase.
    """
    if case.suite not in PART_OF:
        msg = (
            f"--ultrapar-mode phase cannot run suite {case.suite!r} ({case.nodeid}); "
            f"it runs only {', '.join(PART_OF)}"
        )
        raise ConfigError(msg)
    parameter = PART_OF[case.suite]
    if parameter is None:
        return Process(case.suite, case.model)
    if parameter not in case.params:
        msg = (
            f"--ultrapar-mode phase splits {case.suite} by the parameter {parameter!r}, which "
            f"{case.nodeid} lacks; its parameters: {', '.join(case.params) or 'none'}"
        )
        raise ConfigError(msg)
    return Process(case.suite, case.model, case.params[parameter])


def cases_by_process(
    models: Sequence[str], cases: Sequence[Case]
) -> dict[Process, tuple[str, ...]]:
    """The case ids of each process.

    The processes are in the order of their phases, then of `models`, then of the parts in the
    suite.

    Raises:
        ConfigError: As for `process_of`.
    """
    found = by_key((process_of(case), case.case_id) for case in cases)
    # `sorted` is stable: parts stay in the order of the suite.
    order = sorted(found, key=lambda one: (one.suite, models.index(one.model)))
    return {process: tuple(found[process]) for process in order}
