"""The steps of a task that an episode completed, judging by the tool calls and their order."""

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
    """The result of an episode's calls.

    Attributes:
        done: Tools of the finished steps, in the order in which they were done.
        n_needless: Number of unnecessary calls: calls of a tool that the task does not need, of a
            finished step, or with arguments that differ from the task's. While a dependency has
            succeeded only with wrong arguments, a call with the right tool and arguments cannot do
            its step. The first such call that succeeds is not counted, since the dependency's wrong
            call is already counted.
    """

    done: tuple[str, ...]
    n_needless: int


def work(sound: Plan, calls: Sequence[Call]) -> Work:
    """Return the steps of a task that the calls completed. Has no side effects.

    The first successful call of a step's tool does the step if it has the task's arguments and
    comes after the steps of the tool's dependencies. If another need of the step is done later, the
    step is undone: a model that caches a result and then parses the data must cache it again. The
    order of other steps is free.

    Whether a call is unnecessary does not depend on its result, so calls that failed by chance are
    counted, too. Refused calls did not run, and cost only a turn.

    Args:
        sound: The task's sound plan; no tool is in it twice.
        calls: All calls, in order.
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
    """Whether a call has the step's arguments, and defaults for all other arguments."""
    return sent(call) == asked(step)


def sent(call: Call) -> dict[str, object]:
    """The meaning of a call's arguments, as in `effective`; the tool must be known."""
    return effective(call.tool, arguments_of(call))


def asked(step: PlanStep) -> dict[str, object]:
    """The meaning of a step's arguments for its tool; the last value of a name counts."""
    return effective(step.tool, dict(step.parameters))


def arguments_of(call: Call) -> dict[str, object]:
    """A call's arguments; empty if the model wrote no JSON object."""
    return json.loads(call.arguments) or {}


def effective(tool: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """The meaning of arguments for a tool, to compare calls: without null values and defaults."""
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
            # `price<=4` means `price <= 4`.
            return _BESIDE_OPERATOR.sub(r"\1", value)
    # JSON has no tuples: the model sends a tuple in the task back as a list.
    return list(value) if isinstance(value, tuple) else value


@lru_cache(maxsize=4096)
def _same_path(named: str) -> str:
    """The path in a normal form: `./data/x.csv` means `data/x.csv`.

    The result is cached, since grading compares the few paths of a task repeatedly. Without the
    cache, grading spends a sixth of its time on parsing paths.
    """
    return str(PurePosixPath(named))
