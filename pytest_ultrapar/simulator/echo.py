"""The plainest persona: it says what it heard."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pytest_ultrapar.simulator.persona import ChatMessage, PersonaReply

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

_HEARD_CHARACTERS = 40


class Echo:
    """Answers `echo: ` and the first 40 characters of the last user message, whatever its skill."""

    __slots__ = ()
    draws: ClassVar[bool] = False

    def reply(
        self, messages: Sequence[ChatMessage], rng: random.Random, skill: float
    ) -> PersonaReply:
        """The beginning of the last user message; only `echo: ` where no user spoke."""
        del rng, skill
        heard = next((m.content for m in reversed(messages) if m.role == "user"), "")
        return PersonaReply(f"echo: {heard[:_HEARD_CHARACTERS]}")
