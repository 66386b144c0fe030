"""Which steps of a task an episode carried out: judged by what reached the tools, and when."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from bench_suites.workflow.simulation import REFUSALS
from bench_suites.workflow.tool import load_tools, needed_by

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_suites.workflow.episode import Call
    from bench_suites.workflow.plan import Plan, PlanStep
    from bench_suites.workflow.tool import Parameter


_BESIDE_OPERATOR = re.compile(r" *([=<>!()/+,]) *")


@dataclass(frozen=True, slots=True)
class Work:
    """What the calls of an episode came to.

    Attributes:
        done: Tools of the steps that were done, in the order in which they were.
        n_needless: Calls of a tool that the task does not need, of a step that was done already, or
            with other arguments than the task's. A right call of a step whose needs were met with
            wrong arguments does no step, but only the first that succeeds is free: the call that
            met the need counts already.
    """

    done: tuple[str, ...]
    n_needless: int


def work(sound: Plan, calls: Sequence[Call]) -> Work:
    """What calls did of a task's steps. Pure.

    A step is done by the first successful call of its tool that has the task's arguments and comes
    after all that its tool depends on was done. What else the step needs undoes it when it is done
    later: who caches a result and then parses the data has to cache it again. The order of other
    steps is free.

    A call is needless by what it asked for, whether or not it had luck. What was refused did not
    run: that costs a turn and nothing else.

    Args:
        sound: The task's own plan; no tool is in it twice.
        calls: In order.
    """
    steps = {step.tool: step for step in sound.steps}
    done: dict[str, None] = {}
    in_vain: set[str] = set()
    n_needless = 0
    for call in calls:
        if call.error in REFUSALS:
            continue
        step = steps.get(call.tool)
        if step is None or step.tool in done or not as_asked(step, call):
            n_needless += 1
        elif done.keys() >= steps.keys() & needed_by(step.tool):
            if call.ok:
                done = {tool: None for tool in done if step.tool not in steps[tool].needs}
                done[step.tool] = None
        elif step.tool in in_vain:
            n_needless += 1
        elif call.ok:
            in_vain.add(step.tool)
    return Work(tuple(done), n_needless)


def as_asked(step: PlanStep, call: Call) -> bool:
    """Whether a call has a step's arguments, and whatever else there is at its default."""
    return sent(call) == asked(step)


def sent(call: Call) -> dict[str, object]:
    """What a call's arguments mean to its tool, which there must be; comparable."""
    return effective(call.tool, arguments_of(call))


def asked(step: PlanStep) -> dict[str, object]:
    """What a step's arguments mean to its tool, comparable; of two values of a name the last."""
    return effective(step.tool, dict(step.parameters))


def arguments_of(call: Call) -> dict[str, object]:
    """A call's arguments; none where the model wrote no JSON object."""
    return json.loads(call.arguments) or {}


def effective(tool: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """What arguments mean to a tool, comparable: what is null or at its default is left out."""
    found = {}
    known = load_tools()[tool]
    for name, value in arguments.items():
        parameter = known.parameter(name)
        plain = _plain(parameter, value)
        absent = [] if parameter is None or parameter.required else [None, parameter.default]
        if plain not in [_plain(None, one) for one in absent]:
            found[name] = plain
    return found


def _plain(parameter: Parameter | None, value: object) -> object:
    if isinstance(value, str) and parameter is not None:
        if parameter.constraints.resource:
            return _same_path(value)
        if parameter.constraints.pattern:
            # `price<=4` says what `price <= 4` says.
            return _BESIDE_OPERATOR.sub(r"\1", value)
    # JSON has no tuples: what the task holds as one comes back as a list.
    return list(value) if isinstance(value, tuple) else value


@lru_cache(maxsize=4096)
def _same_path(named: str) -> str:
    """`./data/x.csv` names what `data/x.csv` names, as the tools see it.

    Grading compares the few paths of a task over and over: a sixth of its time went into parsing.
    """
    return str(PurePosixPath(named))
