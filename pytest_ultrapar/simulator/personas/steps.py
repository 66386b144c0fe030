"""Working through a list of steps: which one is due, and with which arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.personas.intent import CallTool, Finish, Intent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.simulator.personas.feedback_text import Answered

_ARGUMENT_ERRORS = frozenset({"INVALID_INPUT", "FILE_NOT_FOUND"})
_UNKNOWN = re.compile(r"allowed are ([\w, ]+)$")
_MISSING = re.compile(r"^parameter (\w+) is missing; (.*) is required")
_WRONG = re.compile(r"^parameter (\w+)(?: must be|: there is nothing)")
_EXAMPLE = re.compile(r"(?:one of|such as) \"?([^\",]+)")


@dataclass(frozen=True, slots=True)
class Step:
    """One step to be done."""

    tool: str
    arguments: dict[str, object]


def next_call(
    steps: Sequence[Step],
    answered: Sequence[Answered],
    inputs: Mapping[str, object],
    *,
    patience: int,
) -> Intent:
    """The call that is due; `Finish` when none is left.

    A step is left behind when it succeeded, when it failed `patience` times, or when a later one
    succeeded: what was skipped is forgotten, as models do.
    """
    due, failures = _due(steps, answered, patience)
    if due >= len(steps):
        return Finish()
    step = steps[due]
    arguments = step.arguments
    for failure in failures:
        if failure.error in _ARGUMENT_ERRORS:
            arguments = corrected(arguments, failure.message, inputs)
    following = steps[due + 1] if due + 1 < len(steps) else None
    return CallTool(
        step.tool,
        arguments,
        CallTool(following.tool, following.arguments) if following else None,
    )


def corrected(
    arguments: Mapping[str, object], message: str, inputs: Mapping[str, object]
) -> dict[str, object]:
    """Arguments after a refusal: the names it allows, and what the task's inputs say of them."""
    allowed = _UNKNOWN.search(message)
    names = allowed[1].split(", ") if allowed else list(arguments)
    missing = _MISSING.search(message)
    if missing and missing[1] not in names:
        names.append(missing[1])
    better = {name: inputs.get(name, arguments.get(name)) for name in names}
    blamed = missing or _WRONG.search(message)
    if blamed and blamed[1] not in inputs:
        example = _EXAMPLE.search(message)
        better[blamed[1]] = example[1] if example else None
    return {name: value for name, value in better.items() if value is not None}


def _due(
    steps: Sequence[Step], answered: Sequence[Answered], patience: int
) -> tuple[int, list[Answered]]:
    """Index of the step that is due, and its failures so far."""
    due = 0
    failures: list[Answered] = []
    for answer in answered:
        if due >= len(steps):
            break
        if answer.tool == steps[due].tool:
            if answer.error is not None:
                failures.append(answer)
            if answer.error is None or len(failures) >= patience:
                due, failures = due + 1, []
        elif answer.error is None:
            later = [i for i in range(due, len(steps)) if steps[i].tool == answer.tool]
            if later:
                due, failures = later[0] + 1, []
    return due, failures
