"""Models without a network for the tests of the workflow domain."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from bench_suites import workflow
from pytest_ultrapar.simulator.persona import ChatMessage, Persona


@dataclass(frozen=True)
class Native:
    name: str
    arguments: str


@dataclass(frozen=True)
class Said:
    text: str = ""
    reasoning: str | None = None
    tool_calls: tuple[Native, ...] = ()
    finish_reason: str | None = "stop"
    refusal: str | None = None


@dataclass
class Scripted:
    """Sends the messages of a script, and then `TASK_COMPLETED`."""

    script: Sequence[str | Said]
    heard: list[str] = field(default_factory=list)

    async def chat(self, messages: Sequence[Mapping[str, str]], /) -> Said:
        turn = len(self.heard)
        self.heard.append(messages[-1]["content"])
        said = self.script[turn] if turn < len(self.script) else "TASK_COMPLETED"
        return said if isinstance(said, Said) else Said(said)


@dataclass
class Acting:
    """A persona as the simulated provider runs it: the conversation seeds its draws."""

    persona: Persona
    skill: float
    name: str = "model"

    async def chat(self, messages: Sequence[Mapping[str, str]], /) -> Said:
        heard = [ChatMessage(message["role"], message["content"]) for message in messages]
        content = self.name + "\0".join(message.content for message in heard)
        digest = hashlib.blake2b(content.encode(), digest_size=8).digest()
        return Said(self.persona(heard, random.Random(digest), self.skill).content)


def call(tool: str, **arguments: Any) -> str:
    return f"<tool_call>{tool} {json.dumps(arguments)}</tool_call>"


def calls_of(plan: workflow.Plan) -> list[str]:
    return [call(step.tool, **dict(step.parameters)) for step in plan.steps]


def run(llm: workflow.ChatModel, task: workflow.Task, **options: Any) -> workflow.Episode:
    options.setdefault("seed", 1)
    return asyncio.run(workflow.run_episode(llm, task, **options))


@cache
def run_arm(
    persona: Persona,
    *,
    skill: float = 0.95,
    flaw: str | None = None,
    prompt_type: workflow.PromptType = "optimal",
    rate: float = 0.8,
    repeats: int = 30,
) -> tuple[workflow.Episode, ...]:
    """Episodes of one cell per task type, with paired tasks and tool failures; cached."""

    async def episodes() -> Iterable[workflow.Episode]:
        return [
            await workflow.run_episode(
                Acting(persona, skill),
                task,
                plan=plan if prompt_type == "optimal" else None,
                prompt_type=prompt_type,
                tool_success_rate=rate,
                seed=workflow.luck(7, task.task_id, repeat),
            )
            for task_type in workflow.TASK_TYPES
            for repeat in range(repeats)
            for task, plan in [_drawn(task_type, repeat, flaw)]
        ]

    return tuple(asyncio.run(episodes()))


def _drawn(task_type: str, repeat: int, flaw: str | None) -> tuple[workflow.Task, workflow.Plan]:
    if flaw is None:
        task = workflow.TASKS.draw(task_type, repeat, 7)
        return task, task.plan
    drawn = workflow.draw_flawed(workflow.flaw(flaw), task_type, repeat, 7)
    return drawn.task, drawn.plan
