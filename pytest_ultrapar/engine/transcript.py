"""What was said in an episode, each message once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.records import TurnMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.engine.reply import Messages, Reply


class Transcript:
    """Adds to a list of messages what is new in each turn."""

    def __init__(self, messages: list[TurnMessage]) -> None:
        """Begin.

        Args:
            messages: Where to add them.
        """
        self._noted = messages
        self._said: list[Mapping[str, Any]] = []

    def note(self, turn: int, messages: Messages) -> None:
        """Keep what is new: a conversation that grows is stored once, not once per turn."""
        said, noted = self._said, self._noted
        known = len(said) if list(messages[: len(said)]) == said else 0
        new = [
            TurnMessage(turn, str(message.get("role", "")), _as_text(message.get("content")))
            for message in messages[known:]
        ]
        # Callers append the last answer to their own list; it was noted when it came.
        if (
            known
            and new
            and noted
            and (new[0].role, new[0].content) == ("assistant", noted[-1].content)
        ):
            del new[0]
        noted.extend(new)
        self._said = [dict(message) for message in messages]

    def note_reply(self, turn: int, reply: Reply) -> None:
        """Keep a model's answer with the names and arguments of its tool calls."""
        calls = None
        if reply.tool_calls:
            calls = msgspec.json.encode(
                [{"name": call.name, "arguments": call.arguments} for call in reply.tool_calls]
            ).decode()
        self._noted.append(TurnMessage(turn, "assistant", reply.text, calls))


def _as_text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "" if content is None else msgspec.json.encode(content).decode()
