"""The agent loop: a model works on a task through the text protocol, at most ten turns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bench_suites.workflow.ceiling import is_reachable
from bench_suites.workflow.conversation import Conversation
from bench_suites.workflow.episode import Episode
from bench_suites.workflow.prompts import PromptType, build_messages
from bench_suites.workflow.reply_parser import ParsedReply, parse_reply

if TYPE_CHECKING:
    from bench_suites.workflow.chat_model import ChatModel
    from bench_suites.workflow.plan import Plan
    from bench_suites.workflow.task import Difficulty, Task

MAX_TURNS = 10


async def run_episode(
    llm: ChatModel,
    task: Task,
    *,
    plan: Plan | None = None,
    prompt_type: PromptType | None = None,
    difficulty: Difficulty = "easy",
    tool_success_rate: float = 0.8,
    seed: int,
    max_turns: int = MAX_TURNS,
    substitute: bool = False,
) -> Episode:
    """Let a model work on a task, and return the episode.

    Args:
        llm: The model. Its exceptions are passed on: a failed request is not an answer.
        task: A task from `TASKS`.
        plan: The plan in the prompt; by default the task's sound plan for prompt type `optimal`,
            and no plan for other types.
        prompt_type: By default `optimal` if a plan is given, otherwise `baseline`.
        difficulty: The wording of the task's description.
        tool_success_rate: Nominal chance that a well-formed call succeeds, 0 to 1.
        seed: The seed of tool failures, from `luck`. The same seed and the same answers give the
            same episode.
        max_turns: The maximum number of the model's answers, at least 1.
        substitute: The same as `FlawedTask.is_substitute`.

    Raises:
        ValueError: The prompt type or difficulty is unknown, the rate is not from 0 to 1, or the
            prompt type does not show the given plan.
    """
    if prompt_type is None:
        prompt_type = "baseline" if plan is None else "optimal"
    if prompt_type == "optimal":
        plan = plan or task.plan
    elif plan is not None:
        msg = f"prompt type {prompt_type!r} shows no plan, but one was given"
        raise ValueError(msg)
    messages = build_messages(task, prompt_type=prompt_type, difficulty=difficulty, plan=plan)
    conversation = Conversation(task, tool_success_rate=tool_success_rate, seed=seed)
    stop = None
    while stop is None:
        reply = await llm.chat(messages)
        parsed = parse_reply(
            reply.text,
            reply.reasoning,
            reply.tool_calls,
            is_cut=reply.finish_reason == "length",
            is_refusal=reply.refusal is not None,
        )
        feedback, stop = conversation.take(parsed, last=conversation.n_turns + 1 >= max_turns)
        messages += [
            {"role": "assistant", "content": _as_said(parsed)},
            {"role": "user", "content": feedback},
        ]
    return Episode(
        task_id=task.task_id,
        task_type=task.task_type,
        prompt_type=prompt_type,
        difficulty=difficulty,
        tool_success_rate=tool_success_rate,
        given=plan,
        sound=task.required,
        calls=tuple(conversation.calls),
        n_turns=conversation.n_turns,
        n_searches=conversation.n_searches,
        n_infos=conversation.n_infos,
        n_helped=conversation.n_helped,
        n_unclosed=conversation.n_unclosed,
        completed=conversation.completed,
        stop=stop,
        reachable=is_reachable(
            task, tool_success_rate=tool_success_rate, seed=seed, max_turns=max_turns
        ),
        substitute=substitute,
        n_cut=conversation.n_cut,
    )


def _as_said(parsed: ParsedReply) -> str:
    """The model's message for the history: never empty, and without native calls.

    Some APIs refuse empty messages, and calls of tools that the request does not offer.
    """
    if parsed.text.strip():
        return parsed.text
    calls = [
        f"<tool_{a.kind}>{a.text} {json.dumps(a.arguments or {})}</tool_{a.kind}>"
        for a in parsed.actions
    ]
    return "\n".join(calls) or "(no text)"
