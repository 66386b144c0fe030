"""Whether a tool call succeeds: the arguments decide first, then seeded chance.

All chance comes from the luck of a task and repetition (`luck`), the tool and how often it was run,
never from the model, the phase or the order of other calls: whoever runs a tool of that task for
the first time meets the same luck, and a lower success rate can only turn successes into failures.
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
"""What the tool needs has not been done; no chance is in that."""
ARGUMENT_ERRORS = ("INVALID_INPUT", "FILE_NOT_FOUND")
"""Codes that only arguments cause; chance draws from a tool's other codes."""
REFUSALS = frozenset({UNKNOWN_TOOL, MALFORMED_CALL, NOT_READY, *ARGUMENT_ERRORS})
"""Codes of calls that did not run; every other failure is chance."""

LOWEST_CHANCE = 0.1
FAILED_NEED_FACTOR = 0.7
RECENT_FAILURE_FACTOR = 0.9
N_RECENT = 3


def luck(run_seed: int, task_id: str, repeat: int) -> int:
    """The seed of all chance in a repetition of a task: the same for every model, phase and rate.

    Args:
        run_seed: Seed of the run.
        task_id: The task.
        repeat: Number of the repetition, from 0.
    """
    digest = hashlib.blake2b(f"{run_seed}/{task_id}/{repeat}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call came to.

    Attributes:
        tool: The registry's name of the tool; what the model wrote if there is none.
        error: Error code, None for a success.
        output: What the model is told: the result as JSON, or why there is none.
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
    """The tools of one episode, with what was run so far.

    Attributes:
        success_rate: Nominal chance of a success, 0 to 1.
        seed: The luck of the episode, as `luck` has it.
        inputs: The task's; what they name exists, and nothing else.
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
            name: As the model wrote it.
            arguments: None if what the model wrote is no JSON object.
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
        # Only what ran counts among its runs.
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
        """The chance that the tool's next run succeeds, its arguments being right.

        Source: the original's rule, without its halving for a dependency that never succeeded,
        since that made a call that came too early a matter of luck: the nominal rate, times 0.7
        where a dependency's last run failed, times 0.9 per failure among its own last three runs
        once it had three. These factors take it to 0.1 at least.
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
