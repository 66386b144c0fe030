"""Flaws of a plan's logic: steps that contradict each other, the goal, or themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bench_suites.workflow.flaws_structure import arguments_for, finds_all
from bench_suites.workflow.severity import Severity, n_described, some_of, some_that_bite
from bench_suites.workflow.tool import Value, load_tools
from bench_suites.workflow.tool_search import search_tools

if TYPE_CHECKING:
    from bench_suites.workflow.plan import Plan, PlanStep
    from bench_suites.workflow.task_values import Draw

_SHAPES = ("csv rows", "xml text", "yaml text", "json objects", "binary blocks", "log lines")
_FORMATS = frozenset({"format", "target_format"})
_CONTRADICTIONS = (
    "; do not run this step, yet it must not be left out",
    "; run this step before step 1, and only after the last step",
    "; skip this step if it is needed, run it if it is not",
    "; keep the data unchanged while doing so",
)


def break_handover(plan: Plan, severity: Severity, draw: Draw) -> Plan:
    """Make a step pass on data that the next step refuses, and make it need the next step's result.

    Formats in the arguments change and contradict the data. `light` breaks one pair of neighbours,
    `medium` half of the pairs, `severe` all. At least one broken pair contains a format. A plan
    without a format is not changed.
    """
    steps = list(plan.steps)
    pairs = range(len(steps) - 1)
    formats = [at for at in pairs if _FORMATS & {name for name, _ in steps[at].parameters}]
    if not formats:
        return plan
    n = {"light": 1, "medium": max(1, len(pairs) // 2), "severe": len(pairs)}[severity]
    for first in some_that_bite(pairs, n, formats, draw):
        given, taken = some_of(_SHAPES, 2, draw)
        before, after = steps[first], steps[first + 1]
        steps[first] = replace(
            before,
            purpose=f"{before.purpose}; hand {given} on to step {first + 2}",
            parameters=_other_formats(before, draw),
            needs=(*before.needs, after.tool),
        )
        steps[first + 1] = replace(
            after, purpose=f"{after.purpose}; take {taken} only from step {first + 1}"
        )
    return replace(plan, steps=tuple(steps))


def drift(plan: Plan, severity: Severity, draw: Draw) -> Plan:
    """Move the plan to another goal: each drifted step resembles the drifted step before it.

    `light` changes the last step with its tool, and `medium` also the purpose of the step before
    it. `severe` changes the purposes from the second step on, and the tools of the last third to
    half.
    """
    steps = list(plan.steps)
    n = len(steps)
    n_tools = max(1, (n - 1) // 2) if severity == "severe" else 1
    n_purposes = {"light": 1, "medium": min(2, n), "severe": max(1, n - 1)}[severity]
    used = set(plan.tools)
    previous = steps[max(n - n_purposes - 1, 0)].tool
    for index in range(n - n_purposes, n):
        previous = _similar(previous, used, plan, draw)
        aim = load_tools()[previous].description.rstrip(".").lower()
        if index >= n - n_tools:
            used.add(previous)
            steps[index] = replace(
                steps[index],
                tool=previous,
                purpose=f"the step that {aim}",
                parameters=arguments_for(previous, plan),
            )
        else:
            purpose = f"{steps[index].purpose}, or rather a step that {aim}"
            steps[index] = replace(steps[index], purpose=purpose)
    return replace(plan, steps=tuple(steps))


def contradict(plan: Plan, severity: Severity, draw: Draw) -> Plan:
    """Make steps contradict themselves, by their purpose and by a parameter with two values.

    Both values are wrong, since either may be the one that an obedient model uses.
    """
    steps = list(plan.steps)
    doubled = [index for index, step in enumerate(steps) if _doubtful(step)]
    n = min(n_described(len(steps), severity), len(doubled))
    for index in some_of(doubled, n, draw):
        step = steps[index]
        purpose = step.purpose + draw.one_of(_CONTRADICTIONS)
        steps[index] = replace(step, purpose=purpose, parameters=_doubled(step, draw))
    return replace(plan, steps=tuple(steps))


def _similar(tool: str, used: set[str], plan: Plan, draw: Draw) -> str:
    described = load_tools()[tool]
    query = f"{described.description} {' '.join(described.keywords)}"
    free = [name for name in load_tools() if name not in {tool, *used} and finds_all(name, plan)]
    hits = [hit.name for hit in search_tools(query) if hit.name in free]
    return hits[0] if hits else draw.one_of(free)


def _other_formats(step: PlanStep, draw: Draw) -> tuple[tuple[str, Value], ...]:
    return tuple(
        (name, draw.one_of(_others(step, name, value)) if name in _FORMATS else value)
        for name, value in step.parameters
    )


def _doubled(step: PlanStep, draw: Draw) -> tuple[tuple[str, Value], ...]:
    place = draw.one_of(_doubtful(step))
    name, value = step.parameters[place]
    pair = ((name, other) for other in some_of(_others(step, name, value), 2, draw))
    return (*step.parameters[:place], *pair, *step.parameters[place + 1 :])


def _doubtful(step: PlanStep) -> list[int]:
    """The indices of the parameters that can have two wrong values."""
    return [
        place
        for place, (name, value) in enumerate(step.parameters)
        if len(_others(step, name, value)) > 1
    ]


def _others(step: PlanStep, name: str, value: Value) -> list[Value]:
    """Values of the same kind with another meaning."""
    parameter = load_tools()[step.tool].parameter(name)
    choices = parameter.constraints.enum if parameter else None
    if choices:
        return [choice for choice in choices if choice != value]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, value + 2]
    if isinstance(value, tuple):
        return [(*value, "another"), (*value, "one more")]
    return [f"{value}-2", f"{value}-3"]


CHANGES = {
    "logical_inconsistency": break_handover,
    "semantic_drift": drift,
    "contradictory_instructions": contradict,
}
"""For each flaw's name, the function that makes the flaw."""
