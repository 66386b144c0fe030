"""What kept an episode from being solved: one class, by rule, from what happened.

The original counts nine figures: the total and these eight classes. Here the total is the number of
unsolved and partial cases, so it needs no class. A failed request is no class: it never comes here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from bench_suites.workflow.simulation import ARGUMENT_ERRORS, MALFORMED_CALL, UNKNOWN_TOOL
from bench_suites.workflow.tool import load_tools, needed_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_suites.workflow.episode import Call, Episode

ErrorKind = Literal[
    "tool_call_format",
    "max_turns",
    "timeout",
    "tool_selection",
    "parameter_config",
    "sequence_order",
    "dependency",
    "other",
]
ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)


def classify_error(episode: Episode) -> ErrorKind:
    """Why an episode that is not solved went wrong; the first rule that fits decides.

    1. No well-formed call at all: `tool_call_format`, or `tool_selection` if tools were named that
       do not exist.
    2. The first required tool without success was called: the cause of its last failure, which is
       `parameter_config`, `tool_call_format`, `dependency` (something it needs had never
       succeeded), `timeout` or `other` (bad luck).
    3. It was not called, and the model ran out of turns: `max_turns`.
    4. It was not called: `tool_selection`.
    5. All required tools succeeded, but not in order: `sequence_order`.
    6. Anything else, such as too many failed calls on the way: the most frequent cause of failures.
    """
    well_formed = [c for c in episode.calls if c.error not in {UNKNOWN_TOOL, MALFORMED_CALL}]
    if not well_formed:
        named = any(call.tool and call.error == UNKNOWN_TOOL for call in episode.calls)
        return "tool_selection" if named else "tool_call_format"
    lacking = next((tool for tool in episode.sound if tool not in episode.succeeded), None)
    if lacking is not None:
        causes = [cause for tool, cause in _causes(episode.calls) if tool == lacking]
        if causes:
            return causes[-1]
        return "max_turns" if episode.stop == "max_turns" else "tool_selection"
    if [tool for tool in episode.first_successes if tool in episode.sound] != list(episode.sound):
        return "sequence_order"
    causes = [cause for _, cause in _causes(episode.calls)]
    return max(ERROR_KINDS, key=causes.count) if causes else "other"


def _causes(calls: Sequence[Call]) -> list[tuple[str, ErrorKind]]:
    """Tool and cause of each failed call, in order."""
    causes: list[tuple[str, ErrorKind]] = []
    succeeded: set[str] = set()
    for call in calls:
        if call.ok:
            succeeded.add(call.tool)
        else:
            causes.append((call.tool, _cause(call, succeeded)))
    return causes


def _cause(call: Call, succeeded: set[str]) -> ErrorKind:
    if call.error == UNKNOWN_TOOL or call.tool not in load_tools():
        return "tool_selection"
    if call.error == MALFORMED_CALL:
        return "tool_call_format"
    if call.error in ARGUMENT_ERRORS:
        return "parameter_config"
    if not succeeded.issuperset(needed_by(call.tool)):
        return "dependency"
    return "timeout" if call.error == "TIMEOUT" else "other"
