"""The workflow benchmark: tools, tasks, plans, flaws, the agent loop and its scores.

The package is independent of lanes, keys, limits and pytest: a model is any object with an async
method `chat`.
"""

from __future__ import annotations

from bench_suites.workflow.agent import run_episode
from bench_suites.workflow.chat_model import ChatModel
from bench_suites.workflow.data_file import LibraryError
from bench_suites.workflow.episode import Call, Episode
from bench_suites.workflow.flaw import (
    FLAW_SETS,
    FLAWS,
    Flaw,
    FlawedTask,
    FlawError,
    check_room,
    draw_flawed,
    flaw,
    flaw_set,
)
from bench_suites.workflow.library import TASKS
from bench_suites.workflow.plan import Plan, PlanStep
from bench_suites.workflow.prompts import PROMPT_TYPES, PromptType
from bench_suites.workflow.severity import SEVERITIES
from bench_suites.workflow.simulation import luck
from bench_suites.workflow.task import DIFFICULTIES, TASK_TYPES, Difficulty, Task, TaskType
from bench_suites.workflow.tool import Tool, load_tools
from bench_suites.workflow.verdict import Verdict, score

__all__ = [
    "DIFFICULTIES",
    "FLAWS",
    "FLAW_SETS",
    "PROMPT_TYPES",
    "SEVERITIES",
    "TASKS",
    "TASK_TYPES",
    "Call",
    "ChatModel",
    "Difficulty",
    "Episode",
    "Flaw",
    "FlawError",
    "FlawedTask",
    "LibraryError",
    "Plan",
    "PlanStep",
    "PromptType",
    "Task",
    "TaskType",
    "Tool",
    "Verdict",
    "check_room",
    "draw_flawed",
    "flaw",
    "flaw_set",
    "load_tools",
    "luck",
    "run_episode",
    "score",
]
