"""Flaws of a plan's structure: wrong order, tools or values, and incomplete text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from bench_suites.workflow.severity import (
    Severity,
    n_described,
    n_touched,
    some_of,
    some_that_bite,
)
from bench_suites.workflow.steps import asked
from bench_suites.workflow.tool import Parameter, Resource, Value, load_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_suites.workflow.plan import Plan, PlanStep
    from bench_suites.workflow.task_values import Draw

_PAIRS = 4
_ALIKE: dict[str, tuple[Resource, ...]] = {
    "file": ("file", "file_or_url"),
    "url": ("url",),
    "file_or_url": ("file_or_url", "file", "url"),
}
"""For each kind of resource, the kinds that can replace it, best first. A kind that is not listed
can be replaced only with its own kind."""


def disorder(plan: Plan, severity: Severity, draw: Draw) -> Plan:
    """Reorder steps: swap one pair of neighbours or two pairs, or reverse the plan.

    With three steps or fewer, `medium` moves the first or the last step to the other end. Only
    orders that violate a dependency are drawn; without such an order, the plan does not change.
    Steps keep their dependencies, so that a model can find the right order.
    """
    forbidden = [
        steps
        for order in _orders(len(plan.steps), severity)
        if not _is_allowed(steps := tuple(plan.steps[place] for place in order))
    ]
    return replace(plan, steps=draw.one_of(forbidden)) if forbidden else plan


def _orders(n: int, severity: Severity) -> list[list[int]]:
    whole = list(range(n))
    if severity == "severe":
        return [whole[::-1]]
    if severity == "light":
        return [_swapped(whole, at) for at in range(n - 1)]
    if n < _PAIRS:
        return [[*whole[-1:], *whole[:-1]], [*whole[1:], *whole[:1]]]
    return [
        _swapped(_swapped(whole, first), second)
        for first in range(n - 1)
        for second in range(first + 2, n - 1)
    ]


def _swapped(order: list[int], at: int) -> list[int]:
    return [*order[:at], order[at + 1], order[at], *order[at + 2 :]]


def _is_allowed(steps: Sequence[PlanStep]) -> bool:
    tools = [step.tool for step in steps]
    return all(tools.index(need) < place for place, step in enumerate(steps) for need in step.needs)


def misuse_tools(plan: Plan, severity: Severity, draw: Draw) -> Plan:
    """Replace tools with others of the same category. Each step keeps its purpose."""
    steps = list(plan.steps)
    used = set(plan.tools)
    for index in some_of(range(len(steps)), n_touched(len(steps), severity), draw):
        replacement = _neighbour(steps[index].tool, used, plan, draw)
        used.add(replacement)
        parameters = arguments_for(replacement, plan)
        steps[index] = replace(steps[index], tool=replacement, parameters=parameters)
    return replace(plan, steps=tuple(steps))


def arguments_for(tool: str, plan: Plan) -> tuple[tuple[str, Value], ...]:
    """Arguments that a tool accepts: from the plan if it has them, otherwise examples.

    If the tool needs a file or place that the plan does not name, the argument is the example,
    which does not exist.
    """
    named = [(step, name, value) for step in plan.steps for name, value in step.parameters]
    values = {name: value for _, name, value in named}
    places = {_parameter(step, name).constraints.resource: value for step, name, value in named}
    found: dict[str, Value] = {}
    for one in load_tools()[tool].parameters:
        if one.required:
            kinds = _ALIKE.get(one.constraints.resource or "", (one.constraints.resource,))
            there = [places[kind] for kind in kinds if kind is not None and kind in places]
            found[one.name] = values.get(one.name, there[0] if there else one.example)
    if "source" in found and "format" in found:
        # The format must match the source.
        found["format"] = PurePosixPath(str(found["source"])).suffix.removeprefix(".")
    return tuple(found.items())


def spoil_values(plan: Plan, severity: Severity, draw: Draw) -> Plan:
    """Give arguments values that their tool refuses: of a wrong type, out of range, or nonexistent.

    `light` and `medium` change one argument of a step, `severe` all of them.
    """
    steps = list(plan.steps)
    candidates = [index for index, step in enumerate(steps) if step.parameters]
    n = min(n_touched(len(steps), severity), len(candidates))
    for index in some_of(candidates, n, draw):
        step = steps[index]
        every = range(len(step.parameters))
        spoilt = every if severity == "severe" else [draw.one_of(every)]
        parameters = list(step.parameters)
        for place in spoilt:
            name, _ = parameters[place]
            parameters[place] = (name, _refused(_parameter(step, name), draw))
        steps[index] = replace(step, parameters=tuple(parameters))
    return replace(plan, steps=tuple(steps))


def break_off(plan: Plan, severity: Severity, draw: Draw) -> Plan:
    """Truncate steps: keep one word of the purpose, half of the parameters, and no needs."""
    steps = list(plan.steps)
    places = range(len(steps))
    # Skip steps that only lose values equal to the tool's defaults.
    biting = [place for place in places if asked(_broken_off(steps[place])) != asked(steps[place])]
    if not biting:
        return plan
    for place in some_that_bite(places, n_described(len(steps), severity), biting, draw):
        steps[place] = _broken_off(steps[place])
    return replace(plan, steps=tuple(steps))


def _broken_off(step: PlanStep) -> PlanStep:
    return replace(
        step,
        purpose=f"{step.purpose.split(' ', 1)[0]} ...",
        parameters=step.parameters[: len(step.parameters) // 2],
        needs=(),
    )


def finds_all(tool: str, plan: Plan) -> bool:
    """Whether all resources that a tool needs exist, given the plan's arguments for the tool."""
    examples = {one.name: one.example for one in load_tools()[tool].parameters if _is_there(one)}
    return all(examples.get(name) != value for name, value in arguments_for(tool, plan))


def _is_there(parameter: Parameter) -> bool:
    return parameter.constraints.resource not in {None, "new_file"}


def _neighbour(tool: str, used: set[str], plan: Plan, draw: Draw) -> str:
    category = load_tools()[tool].category
    # The wrong tool must work: only the choice is wrong.
    free = [name for name in load_tools() if name not in used and finds_all(name, plan)]
    return draw.one_of([name for name in free if load_tools()[name].category == category] or free)


def _parameter(step: PlanStep, name: str) -> Parameter:
    parameter = load_tools()[step.tool].parameter(name)
    assert parameter is not None, f"{step.tool} has no parameter {name}"
    return parameter


def _refused(parameter: Parameter, draw: Draw) -> Value:
    limits = parameter.constraints
    if limits.resource == "new_file":
        return "/result"
    if limits.resource == "url":
        return "https://unknown.example/nowhere"
    if limits.resource is not None:
        return f"data/missing/{draw.between(100, 999)}.csv"
    if limits.enum is not None:
        return f"{draw.one_of(limits.enum)}-or-similar"
    if limits.maximum is not None:
        return int(limits.maximum * 10) + draw.between(1, 9)
    if parameter.type == "string":
        # Shorter than any minimum length, and no pattern of the registry matches it.
        return ""
    return "as usual"


CHANGES = {
    "sequence_disorder": disorder,
    "tool_misuse": misuse_tools,
    "parameter_error": spoil_values,
    "incomplete_description": break_off,
}
"""For each flaw's name, the function that makes the flaw."""
