"""The eleven flaws of a plan, by name, group and set."""

from __future__ import annotations

import hashlib
import itertools
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal, get_args

from bench_suites.workflow import flaws_logic, flaws_operation, flaws_structure
from bench_suites.workflow.library import TASKS
from bench_suites.workflow.severity import SEVERITIES, Severity
from bench_suites.workflow.spots import spots
from bench_suites.workflow.task_values import Draw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench_suites.workflow.plan import Plan
    from bench_suites.workflow.task import Task

FlawGroup = Literal["structure", "operation", "logic"]
FlawSet = Literal["core", "document", "all"]
FLAW_SETS: tuple[FlawSet, ...] = get_args(FlawSet)

PREFIX = "flawed_"


class FlawError(ValueError):
    """A flaw cannot change a plan, or its name is unknown."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One way to break a plan.

    Attributes:
        group: Its flaw group, one of WorkflowBench's three.
        severity: How much of the plan it changes.
    """

    name: str
    group: FlawGroup
    change: Callable[[Plan, Severity, Draw], Plan]
    severity: Severity = "severe"

    def apply(self, plan: Plan, *, seed: int = 0) -> Plan:
        """Return the flawed plan. The same plan and seed give the same result.

        A model that follows it does not follow the sound plan: it uses different tools, an order
        that violates a dependency, or different arguments.

        Raises:
            FlawError: The flaw cannot change the plan.
        """
        text = f"{seed}/{self.name}/{self.severity}/{plan.task_id}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        spoilt = self.change(plan, self.severity, Draw(int.from_bytes(digest, "big")))
        if spoilt.steps and spots(plan, spoilt):
            return spoilt
        msg = (
            f"flaw {self.name} ({self.severity}) cannot change the plan of {plan.task_id}: "
            "following the flawed plan changes nothing"
        )
        raise FlawError(msg)


_CHANGES: dict[FlawGroup, Mapping[str, Callable[[Plan, Severity, Draw], Plan]]] = {
    "structure": flaws_structure.CHANGES,
    "operation": flaws_operation.CHANGES,
    "logic": flaws_logic.CHANGES,
}
FLAWS: dict[str, Flaw] = {
    name: Flaw(name, group, change)
    for group, changes in _CHANGES.items()
    for name, change in changes.items()
}

_CORE = (
    "sequence_disorder tool_misuse parameter_error missing_step redundant_operations "
    "logical_inconsistency semantic_drift"
)
_DOCUMENT = (
    "sequence_disorder incomplete_description missing_step insufficient_detail parameter_issues "
    "logical_inconsistency contradictory_instructions"
)


def flaw(name: str, *, severity: str = "severe") -> Flaw:
    """The flaw with that name, with or without WorkflowBench's prefix `flawed_`.

    Raises:
        FlawError: The flaw or severity is unknown.
    """
    found = FLAWS.get(name.removeprefix(PREFIX))
    if found is None:
        msg = f"flaw {name!r} is unknown; allowed are {', '.join(FLAWS)}"
        raise FlawError(msg)
    for allowed in SEVERITIES:
        if severity == allowed:
            return replace(found, severity=allowed)
    msg = f"severity {severity!r} is unknown; allowed are {', '.join(SEVERITIES)}"
    raise FlawError(msg)


@dataclass(frozen=True, slots=True)
class FlawedTask:
    """A task and its flawed plan.

    Attributes:
        is_substitute: Whether the task is a substitute for the repetition's own task, which the
            flaw cannot change.
    """

    task: Task
    plan: Plan
    is_substitute: bool


def check_room(chosen: Flaw, task_type: str) -> None:
    """Refuse a flaw that cannot change any task of a type. This happens in an edited library.

    Raises:
        FlawError: The flaw can change no task of the type.
        ValueError: The type is unknown.
    """
    for task in TASKS.of_type(task_type):
        with suppress(FlawError):
            chosen.apply(task.plan)
            return
    raise FlawError(_no_room(chosen, task_type))


def draw_flawed(chosen: Flaw, task_type: str, repeat: int, run_seed: int) -> FlawedTask:
    """The task of a repetition with a flawed plan: the same for every model.

    It is the task that the repetition has in all phases (`TaskLibrary.draw`), unless the flaw
    cannot change its plan. Substitutes come from the end of the order in which repetitions draw
    tasks, so that few repetitions get the same task twice.

    Args:
        chosen: The flaw.
        task_type: One of `TASK_TYPES`.
        repeat: Number of the repetition, from 0.
        run_seed: Seed of the run.

    Raises:
        FlawError: The flaw can change no task of the type.
        ValueError: The type is unknown.
    """
    order = TASKS.in_order(task_type, run_seed)
    place = repeat % len(order)
    plan = _spoilt(chosen, order[place].task_id, run_seed)
    if plan is not None:
        return FlawedTask(order[place], plan, is_substitute=False)
    # Search from the end, and no further than necessary. Making all plans with all flaws takes
    # 1.4 s, and the digest of the prompts needs one plan of each type before a run's first request.
    n_before = sum(_spoilt(chosen, task.task_id, run_seed) is None for task in order[:place])
    spoilt = ((task, _spoilt(chosen, task.task_id, run_seed)) for task in reversed(order))
    others = itertools.cycle((task, plan) for task, plan in spoilt if plan is not None)
    for task, other in itertools.islice(others, n_before, None):
        return FlawedTask(task, other, is_substitute=True)
    raise FlawError(_no_room(chosen, task_type))


@cache
def _spoilt(chosen: Flaw, task_id: str, run_seed: int) -> Plan | None:
    """The flawed plan of a task; None if the flaw cannot change it."""
    try:
        return chosen.apply(TASKS.by_id[task_id].plan, seed=run_seed)
    except FlawError:
        return None


def _no_room(chosen: Flaw, task_type: str) -> str:
    return (
        f"flaw {chosen.name} ({chosen.severity}) cannot change the plan of any task of type "
        f"{task_type}: following the flawed plan changes nothing"
    )


def flaw_set(name: str) -> tuple[str, ...]:
    """The names of the flaws in a set, group by group.

    Raises:
        FlawError: The set is unknown.
    """
    sets = {"core": _CORE.split(), "document": _DOCUMENT.split(), "all": list(FLAWS)}
    if name not in sets:
        msg = f"flaw set {name!r} is unknown; allowed are {', '.join(sets)}"
        raise FlawError(msg)
    return tuple(sets[name])
