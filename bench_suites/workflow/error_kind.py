"""The error class of an episode that is not solved, determined from its calls by rules.

The original counts nine figures: the total and eight classes. Here the total is the number of
unsolved and partial cases, so it is not a class. Five classes are new: `luck`, which is not an
error of the model; `needless_calls`; and `cut`, `refusal` and `no_call`, since a model without a
call makes no formal error. Episodes with failed requests are not classified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from bench_suites.workflow.simulation import (
    ARGUMENT_ERRORS,
    MALFORMED_CALL,
    NOT_READY,
    UNKNOWN_TOOL,
)
from bench_suites.workflow.steps import as_asked, work
from bench_suites.workflow.tool import needed_by

if TYPE_CHECKING:
    from bench_suites.workflow.episode import Call, Episode
    from bench_suites.workflow.plan import Plan

_EXAMPLE = "tool_name"
"""The placeholder for a tool in the prompt. A model that sends it repeats the prompt."""

ErrorKind = Literal[
    "cut",
    "refusal",
    "no_call",
    "tool_call_format",
    "max_turns",
    "timeout",
    "tool_selection",
    "parameter_config",
    "sequence_order",
    "dependency",
    "needless_calls",
    "luck",
    "other",
]
_WHY: dict[ErrorKind, str] = {
    "cut": "answers were truncated at their token limit before {tool} was done",
    "refusal": "the model refused to continue",
    "no_call": "the model called no tool",
    "tool_call_format": "the call to {tool} was malformed",
    "max_turns": "the turns ran out before {tool} was called",
    "timeout": "{tool} timed out and was not called again",
    "tool_selection": "{tool}, which the task needs, was never called",
    "parameter_config": "{tool} was not called with the task's arguments",
    "sequence_order": "{tool} was called before the steps that it needs",
    "dependency": "{tool} was never called, so a tool that needs it was refused",
    "luck": "no model can solve the task with these tool failures",
    "other": "{tool} failed and was not called again",
}

_NONE_FORMED: dict[ErrorKind, str] = {
    "tool_selection": "the model called only unknown tools",
    "tool_call_format": "no call was well formed",
}


def classify_error(episode: Episode, sound: Plan) -> ErrorKind:
    """The class of the error in an episode that is not solved, by the first rule that applies.

    1. No call was well formed. `cut` or `refusal` if the model ended that way or most of its
       answers were truncated; `no_call` if it tried no call except the prompt's example. Otherwise
       `tool_selection` if it named an unknown tool, and `tool_call_format` if not.
    2. No model can solve it: `luck`.
    3. All steps were done, with unnecessary calls: `needless_calls`.
    4. `cut` or `refusal`, as in rule 1.
    5. The first missing step of the sound plan was called. The last call of its tool succeeded,
       but its arguments differ from the task's (`parameter_config`) or it came too early
       (`sequence_order`). Or that call failed: `parameter_config`, `tool_call_format`,
       `sequence_order` (before a step that it needs), `timeout` or `other`.
    6. The first missing step was not called, and the model ran out of turns: `max_turns`.
    7. The first missing step was not called: `dependency` if a call that needs it was refused,
       otherwise `tool_selection`.
    """
    given_up: ErrorKind | None = "refusal" if episode.stop == "refusal" else None
    if episode.stop == "cut" or 2 * episode.n_cut > episode.n_turns:
        given_up = "cut"
    if not _well_formed(episode):
        own = [call for call in episode.calls if call.tool != _EXAMPLE]
        named = any(call.tool and call.error == UNKNOWN_TOOL for call in own)
        tried: ErrorKind = "tool_selection" if named else "tool_call_format"
        return given_up or (tried if own else "no_call")
    if not episode.reachable:
        return "luck"
    done = work(sound, episode.calls).done
    lacking = next((step for step in sound.steps if step.tool not in done), None)
    if lacking is None:
        return "needless_calls"
    if given_up is not None:
        return given_up
    its = [number for number, call in enumerate(episode.calls) if call.tool == lacking.tool]
    if not its:
        if episode.stop == "max_turns":
            return "max_turns"
        return "dependency" if lacking.tool in _wanting(episode) else "tool_selection"
    last = episode.calls[its[-1]]
    if last.ok:
        return "sequence_order" if as_asked(lacking, last) else "parameter_config"
    return _cause(last)


def explain(kind: ErrorKind, episode: Episode, sound: Plan) -> str:
    """The result of `classify_error` as a sentence."""
    came_to, n_steps = work(sound, episode.calls), len(sound.steps)
    if kind == "needless_calls":
        return f"all {n_steps} steps done, but {came_to.n_needless} calls were unnecessary"
    lacking = next((one.tool for one in sound.steps if one.tool not in came_to.done), "a tool")
    why = _WHY[kind].format(tool=lacking)
    if not _well_formed(episode) and kind in _NONE_FORMED:
        why = _NONE_FORMED[kind]
    return f"{len(came_to.done)} of {n_steps} steps done: {why}"


def _well_formed(episode: Episode) -> list[Call]:
    return [call for call in episode.calls if call.error not in {UNKNOWN_TOOL, MALFORMED_CALL}]


def _wanting(episode: Episode) -> set[str]:
    """The tools that never succeeded, and without which calls were refused."""
    refused = (call.tool for call in episode.calls if call.error == NOT_READY)
    return {need for tool in refused for need in needed_by(tool)} - {*episode.succeeded}


def _cause(call: Call) -> ErrorKind:
    if call.error == MALFORMED_CALL:
        return "tool_call_format"
    if call.error in ARGUMENT_ERRORS:
        return "parameter_config"
    if call.error == NOT_READY:
        return "sequence_order"
    return "timeout" if call.error == "TIMEOUT" else "other"
