"""Tasks, their types and their difficulties."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, get_args

import msgspec

from bench_suites.workflow.plan import Plan, PlanStep
from bench_suites.workflow.tool import Value, load_tools

TaskType = Literal[
    "simple_task", "basic_task", "data_pipeline", "api_integration", "multi_stage_pipeline"
]
TASK_TYPES: tuple[TaskType, ...] = get_args(TaskType)

Difficulty = Literal["very_easy", "easy", "medium", "hard", "very_hard"]
DIFFICULTIES: tuple[Difficulty, ...] = get_args(Difficulty)
"""The wordings of a task, the plainest first."""
OUTLINED: tuple[Difficulty, ...] = ("medium", "hard", "very_hard")
"""Difficulties at which a sound plan is shown without tools and parameters."""


class Task(msgspec.Struct, frozen=True, dict=True):
    """One task of the library.

    Attributes:
        required: The tools of the sound plan, in an order that their dependencies allow.
        purposes: The purpose of each of these steps.
        inputs: The task's concrete values, by parameter name.
        expected_outputs: The outputs of the finished task.
    """

    task_id: str
    task_type: TaskType
    required: tuple[str, ...]
    purposes: tuple[str, ...]
    inputs: dict[str, Value]
    expected_outputs: tuple[str, ...]

    @cached_property
    def plan(self) -> Plan:
        """The sound plan. It names all tools and arguments that the task needs."""
        return Plan(
            self.task_id,
            tuple(
                self._step(tool, purpose)
                for tool, purpose in zip(self.required, self.purposes, strict=True)
            ),
        )

    def _step(self, name: str, purpose: str) -> PlanStep:
        tool = load_tools()[name]
        before = self.required[: self.required.index(name)]
        return PlanStep(
            tool=name,
            purpose=purpose,
            parameters=tuple(
                (p.name, self.inputs[p.name]) for p in tool.parameters if p.name in self.inputs
            ),
            needs=tuple(need for need in (*tool.dependencies, *tool.takes) if need in before),
        )
