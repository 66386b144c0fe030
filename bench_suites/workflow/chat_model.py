"""The interface of a model for the benchmark: one method, without keys, limits or retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class NativeCall(Protocol):
    """A native function call."""

    @property
    def name(self) -> str:
        """The name of the function."""
        ...

    @property
    def arguments(self) -> str:
        """The arguments as JSON text, which may be invalid."""
        ...


class ChatReply(Protocol):
    """The answer of a model."""

    @property
    def text(self) -> str:
        """The content; may be empty."""
        ...

    @property
    def reasoning(self) -> str | None:
        """The reasoning, if the API sends it separately."""
        ...

    @property
    def tool_calls(self) -> Sequence[NativeCall]:
        """The native function calls."""
        ...

    @property
    def finish_reason(self) -> str | None:
        """`length` if the answer was truncated at its token limit."""
        ...

    @property
    def refusal(self) -> str | None:
        """The model's refusal, if the API sends it separately."""
        ...


class ChatModel(Protocol):
    """A model that answers conversations."""

    async def chat(self, messages: Sequence[Mapping[str, str]], /) -> ChatReply:
        """Send a conversation of messages with `role` and `content`, and return the answer."""
        ...
