"""Flaws of a plan's operations: missing or repeated steps, missing details, wrong names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench_suites.workflow.severity import Severity, n_described, n_touched, some_of
from bench_suites.workflow.tool import load_tools

if TYPE_CHECKING:
    from bench_suites.workflow.plan import Plan, PlanStep
    from bench_suites.workflow.task_values import Draw

_ENDS = 2
_INNER_FROM = 3
_VAGUE = ("Process the data.", "Do what is usual here.", "Handle this part.", "Continue the work.")


def drop_steps(plan: Plan, severity: Severity, draw: Draw) -> Plan:
    """Drop steps between the first and the last: one, up to two, or all.

    If the two ends are more than half of the plan, `severe` keeps only the last step. With `light`,
    other steps still name a missing step as a dependency; with `medium` and `severe`, they do not.
    """
    steps = list(plan.steps)
    if len(steps) < _INNER_FROM or severity == "severe":
        ends = {0, len(steps) - 1} if len(steps) >= 2 * _ENDS else {len(steps) - 1}
        dropped = set(range(len(steps))) - ends
    else:
        inner = range(1, len(steps) - 1)
        dropped = set(some_of(inner, min(n_touched(len(steps), severity), len(inner)), draw))
    kept = [step for index, step in enumerate(steps) if index not in dropped]
    if severity != "light":
        left = {step.tool for step in kept}
        kept = [replace(s, needs=tuple(need for need in s.needs if need in left)) for s in kept]
    return replace(plan, steps=tuple(kept))


def repeat_steps(plan: Plan, severity: Severity, draw: Draw) -> Plan:
    """Repeat one step, up to two steps, or all steps, each directly after itself."""
    n_steps = len(plan.steps)
    n = n_steps if severity == "severe" else n_touched(n_steps, severity)
    twice = set(some_of(range(n_steps), n, draw))
    steps = [step for index, step in enumerate(plan.steps) for _ in range(1 + (index in twice))]
    return replace(plan, steps=tuple(steps))


def withhold_detail(plan: Plan, severity: Severity, draw: Draw) -> Plan:
    """Reduce steps to their tool and a vague purpose, without parameters or needs."""
    steps = list(plan.steps)
    for index in some_of(range(len(steps)), n_described(len(steps), severity), draw):
        vague = draw.one_of(_VAGUE)
        steps[index] = replace(steps[index], purpose=vague, parameters=(), needs=())
    return replace(plan, steps=tuple(steps))


def spoil_names(plan: Plan, severity: Severity, draw: Draw) -> Plan:
    """Give parameters names that are unknown to their tool, or drop a required parameter.

    `light` and `medium` change one parameter of a step in one of these two ways. `severe` renames
    all parameters of a step.
    """
    steps = list(plan.steps)
    candidates = [index for index, step in enumerate(steps) if step.parameters]
    n = min(n_touched(len(steps), severity), len(candidates))
    for index in some_of(candidates, n, draw):
        steps[index] = _renamed(steps[index], severity, draw)
    return replace(plan, steps=tuple(steps))


def _renamed(step: PlanStep, severity: Severity, draw: Draw) -> PlanStep:
    if severity == "severe":
        return replace(step, parameters=tuple((_misspelt(n), v) for n, v in step.parameters))
    required = [p.name for p in load_tools()[step.tool].parameters if p.required]
    places = [i for i, (name, _) in enumerate(step.parameters) if name in required]
    place = draw.one_of(places or range(len(step.parameters)))
    parameters = list(step.parameters)
    if draw.chance(0.5):
        del parameters[place]
    else:
        name, value = parameters[place]
        parameters[place] = (_misspelt(name), value)
    return replace(step, parameters=tuple(parameters))


def _misspelt(name: str) -> str:
    """A wrong name, such as `groupByParam` for `group_by`: no tool has names of this form."""
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others) + "Param"


CHANGES = {
    "missing_step": drop_steps,
    "redundant_operations": repeat_steps,
    "insufficient_detail": withhold_detail,
    "parameter_issues": spoil_names,
}
"""For each flaw's name, the function that makes the flaw."""
