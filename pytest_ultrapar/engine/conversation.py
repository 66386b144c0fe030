"""What an episode has said and spent so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.engine.endpoints import without_surrogates
from pytest_ultrapar.errors import BadRequestError, InfraError, PromptRefused
from pytest_ultrapar.records import Attempt, TurnMessage

if TYPE_CHECKING:
    from pytest_ultrapar.apis.reply import Messages, Reply


class Conversation(msgspec.Struct):
    """What an episode has said and spent so far: the raw material of its record.

    Attributes:
        failure: What ends the episode, whatever it does next.
        last_trouble: Why the request that is under way has to be sent again; empty if it has not.
    """

    attempts: list[Attempt] = []
    messages: list[TurnMessage] = []
    n_turns: int = 0
    backoff_s: float = 0.0
    failure: InfraError | PromptRefused | BadRequestError | None = None
    last_trouble: str = ""
    _said: list[Mapping[str, Any]] = []

    def note(self, turn: int, messages: Messages) -> None:
        """Keep what is new: a conversation that grows is stored once, not once per turn.

        Args:
            turn: Which call of the client it is, from 0.
            messages: The whole conversation so far.
        """
        said, noted = self._said, self.messages
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

    def heard(self, turn: int, reply: Reply) -> None:
        """Keep what the model said."""
        calls = None
        if reply.tool_calls:
            calls = msgspec.json.encode(
                [{"name": call.name, "arguments": call.arguments} for call in reply.tool_calls]
            ).decode()
        self.messages.append(TurnMessage(turn, "assistant", reply.text, calls))


def _as_text(content: object) -> str:
    if isinstance(content, str):
        return content if content.isascii() else str(without_surrogates(content))
    if content is None:
        return ""
    try:
        return msgspec.json.encode(content).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(without_surrogates(content)).decode()
