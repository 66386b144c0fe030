"""The messages to the model between its turns. They never reveal which tools its task requires.

Help names no tool. The answer to a search names the tools that were found, and the answer to a
question about a tool names that tool. Both also name the dependencies of these tools. All this
information comes from the registry and the model's words, never from the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_suites.workflow.plan import shown
from bench_suites.workflow.prompts import COMPLETED
from bench_suites.workflow.tool import Constraints, Parameter, Tool, tool_named
from bench_suites.workflow.tool_search import search_tools

if TYPE_CHECKING:
    from bench_suites.workflow.simulation import ToolResult

_WRITE_ONE_OF = f"""\
Write exactly one of:
<tool_search>a few words</tool_search>
<tool_info>tool_name</tool_info>
<tool_call>tool_name {{"parameter": "value"}}</tool_call>
{COMPLETED} if everything is done, and nothing else."""
HELP = f"Your message asked for nothing. {_WRITE_ONE_OF}"
"""The answer to a message without an action; it counts as help."""
CUT = f"Your message was cut off at its limit of length. Be brief. {_WRITE_ONE_OF}"
"""The answer to a message that has no action because it was truncated."""

ONE_CALL_PER_MESSAGE = "Only one tool_call was run: one tool_call per message."


def describe_search(query: str) -> str:
    """The answer to a search: a line for each hit."""
    hits = search_tools(query)
    if not hits:
        return f'Tools for "{query}": none found. Try other words.'
    lines = [f"{number}. {_line(tool)}" for number, tool in enumerate(hits, 1)]
    return f'Tools for "{query}":\n' + "\n".join(lines)


def describe_tool(name: str) -> str:
    """The answer to a question about one tool."""
    tool = tool_named(name)
    if tool is None:
        return f'Tool "{name}": there is no tool of this name. Find names with tool_search.'
    parameters = "\n".join(f"- {_parameter(p)}: {p.description}" for p in tool.parameters)
    return (
        f"Tool {tool.name}: {tool.description}\nParameters:\n{parameters}\n"
        f"Returns: {tool.returns}\nErrors: {', '.join(tool.errors)}\nNeeds: {_needs(tool)}"
    )


def describe_result(result: ToolResult, n_succeeded: int) -> str:
    """The answer to a call.

    Args:
        result: The result of the call.
        n_succeeded: Number of calls that succeeded so far, including this one. The model does not
            learn how many are required.
    """
    if result.ok:
        return f"Result of {result.tool}: success\n{result.output}\nSuccessful calls: {n_succeeded}"
    return (
        f"Result of {result.tool or '(no name)'}: failed ({result.error})\n{result.output}\n"
        f"Successful calls: {n_succeeded}"
    )


def _line(tool: Tool) -> str:
    parameters = ", ".join(_brief(parameter) for parameter in tool.parameters)
    return f"{tool.name}: {tool.description} Parameters: {parameters}. Needs: {_needs(tool)}."


def _needs(tool: Tool) -> str:
    return ", ".join(tool.dependencies) or "nothing"


def _brief(parameter: Parameter) -> str:
    return f"{parameter.name} ({parameter.type}{', required' if parameter.required else ''})"


def _parameter(parameter: Parameter) -> str:
    text = _brief(parameter)
    if parameter.default is not None:
        text += f", default {shown(parameter.default)}"
    return text + _limits(parameter.constraints) + f", such as {shown(parameter.example)}"


def _limits(limits: Constraints) -> str:
    text = ""
    if limits.enum is not None:
        text += f", one of {', '.join(limits.enum)}"
    if limits.minimum is not None:
        text += f", from {limits.minimum:g}"
    if limits.maximum is not None:
        text += f", to {limits.maximum:g}"
    return text
