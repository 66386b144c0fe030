"""What the domain asks of a model: one method. It knows nothing of keys, limits and retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class NativeCall(Protocol):
    """A native function call."""

    @property
    def name(self) -> str:
        """Name of the function."""
        ...

    @property
    def arguments(self) -> str:
        """Its arguments as JSON text, perhaps broken."""
        ...


class ChatReply(Protocol):
    """What a model answered."""

    @property
    def text(self) -> str:
        """The content; empty if there is none."""
        ...

    @property
    def reasoning(self) -> str | None:
        """Reasoning content, where the API sends it apart."""
        ...

    @property
    def tool_calls(self) -> Sequence[NativeCall]:
        """Native function calls."""
        ...

    @property
    def finish_reason(self) -> str | None:
        """`length` if it ended at its limit of tokens."""
        ...

    @property
    def refusal(self) -> str | None:
        """The model's own words for not answering, where the API sends them apart."""
        ...


class ChatModel(Protocol):
    """A model to talk to."""

    async def chat(self, messages: Sequence[Mapping[str, str]], /) -> ChatReply:
        """The answer to a conversation of messages with `role` and `content`."""
        ...
