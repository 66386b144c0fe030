"""What a model answered, in one shape for all APIs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# At run time too, for msgspec reads the annotations of a reply that an episode returns.
Message = Mapping[str, Any]
"""One message as the chat-completions API has it: `role`, `content`, perhaps `tool_calls`."""
Messages = Sequence[Message]
NATIVE = "native"
"""The field of an assistant's message that holds `Reply.native`."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A native function call of the model.

    Attributes:
        call_id: By which the message with the function's result refers to this call
            (`tool_call_id`); empty when the server sends none.
        name: The function.
        arguments: The arguments as the model wrote them: JSON text, perhaps broken.
    """

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the model.

    Attributes:
        text: The content, or the refusal in place of one; empty when the model sent neither.
        reasoning: Reasoning content where the API sends it apart, else None.
        tool_calls: The calls that the model asks for, in its order; empty for none.
        finish_reason: As the API says: `stop`, `length`, `tool_calls`, ...
        tokens_in: Prompt tokens as counted by the API; None when it does not say.
        tokens_out: Completion tokens as counted by the API; None when it does not say.
        lane: Which lane answered: `provider/instance/key`.
        latency_s: Send to last byte of the attempt that succeeded, in seconds.
        refusal: The model's own words for not answering where the API sends them apart, else None.
        reasoning_tokens: How many of `tokens_out` were reasoning; None when the API does not say.
        id: What the API calls the answer.
        model: Which model answered, in the API's own words.
        cached_tokens: How many of `tokens_in` came from a cache; None when the API does not say.
        stop_reason: Why the model ended, in the API's own word.
        native: The model's turn as its API has it: `api`, and `turn` with its blocks or items. None
            where text and calls say all: chat completions, and answers without reasoning.
    """

    text: str
    reasoning: str | None
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str | None
    tokens_in: int | None
    tokens_out: int | None
    lane: str
    latency_s: float
    refusal: str | None = None
    reasoning_tokens: int | None = None
    id: str | None = None
    model: str | None = None
    cached_tokens: int | None = None
    stop_reason: str | None = None
    native: Mapping[str, Any] | None = None

    @property
    def message(self) -> dict[str, Any]:
        """The reply as the next message of its conversation, tool calls and their ids included.

        Reasoning is part of it where its API wants it back, as `native`: what another API gets is
        text and calls.
        """
        said: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            said["content"] = self.text or None
            said["tool_calls"] = [_sent_back(call) for call in self.tool_calls]
        if self.native is not None:
            said[NATIVE] = self.native
        return said


def _sent_back(call: ToolCall) -> dict[str, Any]:
    own_id = {"id": call.call_id} if call.call_id else {}
    function = {"name": call.name, "arguments": call.arguments}
    return {**own_id, "type": "function", "function": function}
