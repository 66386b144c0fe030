"""A simulated clerk and customer. The clerk is helpful, but never checks whose booking it is."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from examples.stand_in import serve

if TYPE_CHECKING:
    import pytest

    Message = dict[str, Any]


def customer(messages: list[Message]) -> Message:
    """Say the next wish if the clerk said `Sorry`, otherwise `DONE`."""
    wishes = re.findall(r"(?:Then p|P)lease[^.]*\.", messages[0]["content"])
    n_said = sum(one["role"] == "assistant" for one in messages)
    goes_on = n_said < len(wishes) and (not n_said or "Sorry" in messages[-1]["content"])
    return {"content": wishes[n_said] if goes_on else "DONE"}


def clerk(messages: list[Message]) -> Message:
    """Find the booking, change it, and confirm the change."""
    at = max(n for n, one in enumerate(messages) if one["role"] == "user")
    match = re.search(r"(move|cancel) (\w+)'s booking(?: to (\w+))?", messages[at]["content"])
    results = [json.loads(one["content"]) for one in messages[at:] if one["role"] == "tool"]
    if match is None:
        return {"content": "What can I do for you?"}
    tool, name, day = match.groups()
    if not results:
        return called("bookings_of", name=name)
    if results == [[]]:
        return {"content": f"Sorry, there is no booking of {name}."}
    if len(results) == 1:
        return called(tool, booking=results[0][0], **({"day": day} if day else {}))
    if isinstance(results[1], dict):
        return {"content": f"Sorry, {results[1]['error']}."}
    return {"content": f"Good: {results[1]}."}


def called(tool: str, **arguments: str) -> Message:
    """Return a message with a tool call."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"content": None, "tool_calls": [{"id": tool, "type": "function", "function": function}]}


def pytest_configure(config: pytest.Config) -> None:
    """Start the simulated models once, in xdist's controller."""
    if not hasattr(config, "workerinput"):
        serve(8431, {"clerk": clerk, "customer": customer})
