"""A plan: the steps that lead to a task's goal, and the text that the model sees."""

from __future__ import annotations

import json
from dataclasses import dataclass

from bench_suites.workflow.tool import Value


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan.

    Attributes:
        tool: Name of the tool to call.
        purpose: The purpose of the step, in words.
        parameters: Pairs of name and value, since a flawed plan may name a parameter twice.
        needs: Names of the tools of this plan whose results the step needs.
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
        """The steps' tools in order, with repeats."""
        return tuple(step.tool for step in self.steps)

    def rendered(self) -> str:
        """The text of the whole plan: four lines per step."""
        return "\n".join(_rendered(number, step) for number, step in enumerate(self.steps, 1))

    def outlined(self) -> str:
        """The text without tools and parameters: two lines per step. Needs are numbers of steps."""
        numbers = {step.tool: number for number, step in enumerate(self.steps, 1)}
        return "\n".join(
            f"{number}. {step.purpose}\n"
            f"   Needs: {', '.join(f'step {numbers[need]}' for need in step.needs) or 'nothing'}"
            for number, step in enumerate(self.steps, 1)
        )


def shown(value: Value) -> str:
    """A value as JSON, as prompts and plans show it."""
    return json.dumps(value, ensure_ascii=False)


def _rendered(number: int, step: PlanStep) -> str:
    parameters = "; ".join(f"{name} = {shown(value)}" for name, value in step.parameters)
    return (
        f"{number}. {step.tool}\n"
        f"   Purpose: {step.purpose}\n"
        f"   Parameters: {parameters or 'not given'}\n"
        f"   Needs: {', '.join(step.needs) or 'nothing before it'}"
    )
