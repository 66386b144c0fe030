"""Tools: their parameters, their errors and the tools that they need."""

from __future__ import annotations

from functools import cache, cached_property
from pathlib import Path
from typing import Literal

import msgspec

from bench_suites.workflow.data_file import LibraryError, read_data

Value = str | bool | int | float | tuple[str, ...]
"""An argument, an input or a default."""

ParameterType = Literal["string", "integer", "number", "boolean", "array"]
Resource = Literal["file", "directory", "url", "file_or_url", "new_file"]

_DATA = Path(__file__).parent / "data" / "tools.json"


class Constraints(msgspec.Struct, frozen=True):
    """The constraints on a parameter's value, in addition to its type.

    Attributes:
        resource: The kind of resource that the value names. The resource must exist, unless the
            kind is `new_file`.
    """

    enum: tuple[str, ...] | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    pattern: str | None = None
    resource: Resource | None = None


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a tool.

    Parameters with the same name have the same meaning in all tools, so a task's inputs use that
    name.

    Attributes:
        example: A value of the right form. The resource that it names exists in no task.
    """

    name: str
    type: ParameterType
    description: str
    required: bool
    example: Value
    default: Value | None = None
    constraints: Constraints = Constraints()


class Tool(msgspec.Struct, frozen=True, dict=True):
    """One tool of the registry.

    Attributes:
        name: `category_operation`.
        errors: Error codes and what they mean.
        dependencies: Names of tools that must succeed before this one.
        keywords: Additional words with which a search finds it.
        takes: Names of tools whose results this tool uses if they come before it in a task.
    """

    name: str
    category: str
    operation: str
    description: str
    parameters: tuple[Parameter, ...]
    returns: str
    errors: dict[str, str]
    dependencies: tuple[str, ...]
    keywords: tuple[str, ...]
    takes: tuple[str, ...] = ()

    def parameter(self, name: str) -> Parameter | None:
        """The parameter with that name, or None."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for parameter in self.parameters}


@cache
def load_tools() -> dict[str, Tool]:
    """The registry: the 30 tools by name, in the order of the file.

    Raises:
        LibraryError: The file is unusable.
    """
    tools: dict[str, Tool] = {}
    for tool in read_data(_DATA, tuple[Tool, ...]):
        if tool.name in tools:
            msg = f"{_DATA.name}: tool {tool.name!r} occurs twice"
            raise LibraryError(msg)
        tools[tool.name] = tool
    return tools


def tool_named(name: str) -> Tool | None:
    """The tool with that name, regardless of case; None for any other text, never a guess."""
    return load_tools().get(name) or load_tools().get(name.casefold())


def needed_by(name: str) -> tuple[str, ...]:
    """The dependencies of a tool; empty for an unknown name."""
    tool = load_tools().get(name)
    return tool.dependencies if tool else ()
