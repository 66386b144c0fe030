"""What a persona means to do next, before skill and manners come in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LookUp:
    """Search for tools and ask about tools."""

    queries: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallTool:
    """Call a tool.

    Attributes:
        following: The call that would come after it, where there is one.
    """

    tool: str
    arguments: dict[str, object]
    following: CallTool | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """Say that everything is done."""


Intent = LookUp | CallTool | Finish
