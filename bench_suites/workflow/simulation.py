"""Simulates tool calls: first the arguments decide whether a call succeeds, then a seeded draw.

The draw depends only on the seed of the task and repetition (`luck`), the tool and how often it has
run. Model, phase and other calls have no influence. The first run of a tool therefore has the same
draw for every model. A lower success rate can only turn successes into failures.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench_suites.workflow.arguments import check_arguments
from bench_suites.workflow.tool import Tool, tool_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_suites.workflow.tool import Value

UNKNOWN_TOOL = "UNKNOWN_TOOL"
MALFORMED_CALL = "MALFORMED_CALL"
NOT_READY = "NOT_READY"
"""A tool that this tool needs has not succeeded yet. This error does not depend on chance."""
ARGUMENT_ERRORS = ("INVALID_INPUT", "FILE_NOT_FOUND")
"""Codes that only wrong arguments cause. Random failures use the tool's other codes."""
REFUSALS = frozenset({UNKNOWN_TOOL, MALFORMED_CALL, NOT_READY, *ARGUMENT_ERRORS})
"""Codes of calls that did not run. All other failures are random."""

LOWEST_CHANCE = 0.1
FAILED_NEED_FACTOR = 0.7
RECENT_FAILURE_FACTOR = 0.9
N_RECENT = 3


def luck(run_seed: int, task_id: str, repeat: int) -> int:
    """The seed of tool failures in a repetition of a task.

    It is the same for all models, phases and rates.

    Args:
        run_seed: Seed of the run.
        task_id: The task.
        repeat: Number of the repetition, from 0.
    """
    digest = hashlib.blake2b(f"{run_seed}/{task_id}/{repeat}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call.

    Attributes:
        tool: The name in the registry, or the model's text if there is no such tool.
        error: Error code; None for a success.
        output: The answer to the model: the result as JSON, or the reason for the failure.
    """

    tool: str
    error: str | None
    output: str

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.error is None


@dataclass(slots=True)
class ToolSimulation:
    """The tools of one episode, and their runs so far.

    Attributes:
        success_rate: Nominal chance of a success, 0 to 1.
        seed: The seed of tool failures, from `luck`.
        inputs: The inputs of the task. Only the resources that they name exist.
    """

    success_rate: float
    seed: int
    inputs: Mapping[str, Value]
    _runs: dict[str, list[bool]] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not 0 <= self.success_rate <= 1:
            msg = f"tool_success_rate must be from 0 to 1 (got {self.success_rate})"
            raise ValueError(msg)
        self._known.update(value for value in self.inputs.values() if isinstance(value, str))

    def run(self, name: str, arguments: Mapping[str, object] | None) -> ToolResult:
        """Run a tool once.

        Args:
            name: The name as the model wrote it.
            arguments: The arguments; None if the model did not write a JSON object.
        """
        tool = tool_named(name)
        if tool is None:
            return ToolResult(name, UNKNOWN_TOOL, "there is no tool of this name")
        if arguments is None:
            return ToolResult(
                tool.name,
                MALFORMED_CALL,
                'the arguments must be one JSON object, as in {"name": "value"}',
            )
        fault = check_arguments(tool, arguments, self._known)
        if fault is not None:
            return ToolResult(tool.name, fault.code, fault.message)
        if not all(any(self._runs.get(need, ())) for need in tool.dependencies):
            return ToolResult(tool.name, NOT_READY, "what this tool builds on is not there yet")
        # Refused calls are not runs.
        runs = self._runs.setdefault(tool.name, [])
        chance = self.chance_of(tool)
        runs.append(self._uniform(tool.name, len(runs), "run") < chance)
        if not runs[-1]:
            code = self._error_code(tool, len(runs))
            return ToolResult(tool.name, code, tool.errors[code])
        destination = arguments.get("destination")
        if isinstance(destination, str):
            self._known.add(destination)
        return ToolResult(tool.name, None, self._output(tool, arguments, len(runs)))

    def chance_of(self, tool: Tool) -> float:
        """The chance that the tool's next run succeeds, if its arguments are right.

        It is the nominal rate, times 0.7 if a dependency's last run failed. Once the tool has run
        three times, each failure among its last three runs multiplies the chance by 0.9. These
        factors do not reduce it below 0.1. Source: the original's rule, but without its factor of
        0.5 for a dependency that never succeeded: a call before its dependency is refused instead.
        """
        chance = self.success_rate
        if not all(self._runs[need][-1] for need in tool.dependencies):
            chance *= FAILED_NEED_FACTOR
        own = self._runs.get(tool.name, [])
        if len(own) >= N_RECENT:
            chance *= RECENT_FAILURE_FACTOR ** own[-N_RECENT:].count(False)
        return max(chance, min(LOWEST_CHANCE, self.success_rate))

    def _error_code(self, tool: Tool, n_runs: int) -> str:
        codes = [code for code in tool.errors if code not in ARGUMENT_ERRORS]
        return codes[int(self._uniform(tool.name, n_runs, "code") * len(codes))]

    def _output(self, tool: Tool, arguments: Mapping[str, object], n_runs: int) -> str:
        digest = hashlib.blake2b(f"{self.seed}/{tool.name}/{n_runs}".encode(), digest_size=3)
        result = {"with": dict(arguments), "returns": tool.returns, "ref": digest.hexdigest()}
        return json.dumps(result)

    def _uniform(self, tool: str, number: int, what: str) -> float:
        text = f"{self.seed}/{tool}/{number}/{what}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return (int.from_bytes(digest, "big") >> 11) / 2**53
