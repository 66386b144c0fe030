"""What kept an episode from being solved: one class, by rule, from what happened.

The original counts nine figures: the total and eight classes. Here the total is the number of
unsolved and partial cases, so it needs no class. Five are ours: `luck`, which is nobody's fault,
`needless_calls`, and `cut`, `refusal` and `no_call`, since a model that calls nothing made no error
of form. A failed request is no class: it never comes here.
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
"""What the prompt has in a tool's place: a model that sends it repeats the prompt."""

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
    "cut": "answers were cut off at their limit of tokens before {tool} was done",
    "refusal": "the model refused to go on",
    "no_call": "nothing was called",
    "tool_call_format": "{tool} was not called in the right form",
    "max_turns": "the turns ran out before {tool} was called",
    "timeout": "{tool} timed out and was given up",
    "tool_selection": "{tool}, which the task needs, was never called",
    "parameter_config": "{tool} was not called with the task's arguments",
    "sequence_order": "{tool} was called before what it needs was done",
    "dependency": "{tool} was never called, and what needs it was refused",
    "luck": "no model could have solved it with this luck",
    "other": "{tool} failed and was given up",
}

_NONE_FORMED: dict[ErrorKind, str] = {
    "tool_selection": "no tool was named that exists",
    "tool_call_format": "no call was well formed",
}


def classify_error(episode: Episode, sound: Plan) -> ErrorKind:
    """Why an episode that is not solved went wrong; the first rule that fits decides.

    1. No well-formed call at all: `cut` or `refusal` if the model ended so or most of its answers
       were cut, `no_call` if none was tried but the prompt's own example, `tool_selection` if tools
       were named that do not exist, else `tool_call_format`.
    2. No model could have solved it: `luck`.
    3. Everything was done, and more: `needless_calls`.
    4. `cut` or `refusal`, as above.
    5. The first step of the sound plan that was not done was called: its tool succeeded last with
       other arguments than the task's (`parameter_config`) or too early (`sequence_order`), or it
       failed last: `parameter_config`, `tool_call_format`, `sequence_order` (it came before what it
       needs), `timeout` or `other` (it was given up).
    6. It was not called, and the model ran out of turns: `max_turns`.
    7. It was not called: `dependency` where a call that needs it was refused, else
       `tool_selection`.
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
    """What `classify_error` found, in a sentence."""
    came_to, n_steps = work(sound, episode.calls), len(sound.steps)
    if kind == "needless_calls":
        return f"all {n_steps} steps done, and {came_to.n_needless} calls were needless"
    lacking = next((one.tool for one in sound.steps if one.tool not in came_to.done), "a tool")
    why = _WHY[kind].format(tool=lacking)
    if not _well_formed(episode) and kind in _NONE_FORMED:
        why = _NONE_FORMED[kind]
    return f"{len(came_to.done)} of {n_steps} steps done: {why}"


def _well_formed(episode: Episode) -> list[Call]:
    return [call for call in episode.calls if call.error not in {UNKNOWN_TOOL, MALFORMED_CALL}]


def _wanting(episode: Episode) -> set[str]:
    """Tools for want of which a call was refused."""
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
