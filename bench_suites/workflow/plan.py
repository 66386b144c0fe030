"""A plan: the steps that lead to a task's goal, as they are shown to the model."""

from __future__ import annotations

import json
from dataclasses import dataclass

from bench_suites.workflow.tool import Value


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan.

    Attributes:
        tool: Name of the tool to call.
        purpose: What the step is for, in words.
        parameters: Arguments by name. Pairs, since a flawed plan may name one twice.
        needs: Names of the tools of this plan whose work the step builds on.
    """

    tool: str
    purpose: str
    parameters: tuple[tuple[str, Value], ...] = ()
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a task in order.

    Attributes:
        task_id: The task that the plan is for.
    """

    task_id: str
    steps: tuple[PlanStep, ...]

    @property
    def tools(self) -> tuple[str, ...]:
        """The steps' tools in order, repeats included."""
        return tuple(step.tool for step in self.steps)

    def rendered(self) -> str:
        """The plan as the model sees it: four lines per step."""
        return "\n".join(_rendered(number, step) for number, step in enumerate(self.steps, 1))

    def outlined(self) -> str:
        """The plan without tools and parameters: two lines per step, needs by number."""
        numbers = {step.tool: number for number, step in enumerate(self.steps, 1)}
        return "\n".join(
            f"{number}. {step.purpose}\n"
            f"   Needs: {', '.join(f'step {numbers[need]}' for need in step.needs) or 'nothing'}"
            for number, step in enumerate(self.steps, 1)
        )


def shown(value: Value) -> str:
    """A value as prompts and plans show it: as JSON."""
    return json.dumps(value, ensure_ascii=False)


def _rendered(number: int, step: PlanStep) -> str:
    parameters = "; ".join(f"{name} = {shown(value)}" for name, value in step.parameters)
    return (
        f"{number}. {step.tool}\n"
        f"   Purpose: {step.purpose}\n"
        f"   Parameters: {parameters or 'not given'}\n"
        f"   Needs: {', '.join(step.needs) or 'nothing before it'}"
    )
