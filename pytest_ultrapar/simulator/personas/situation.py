"""Where a conversation stands, as far as its messages say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.personas.feedback_text import Answered, Seen, read_feedback
from pytest_ultrapar.simulator.personas.prompt_text import Prompt, read_prompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.simulator.persona import ChatMessage


@dataclass(frozen=True, slots=True)
class Situation:
    """What a persona knows at its turn.

    Attributes:
        hits: By query, the tools found.
        known: Tools that were shown, by name, with their parameters.
        described: Names that were asked about with tool_info.
        answered: All calls so far.
        n_turns: The persona's own messages so far.
    """

    prompt: Prompt
    hits: dict[str, tuple[Seen, ...]]
    known: dict[str, Seen]
    described: frozenset[str]
    answered: tuple[Answered, ...]
    n_turns: int


def read_situation(messages: Sequence[ChatMessage]) -> Situation:
    """Where a conversation stands; takes any conversation."""
    users = [message.content for message in messages if message.role in {"user", "tool"}]
    hits: dict[str, tuple[Seen, ...]] = {}
    known: dict[str, Seen] = {}
    described: set[str] = set()
    answered: list[Answered] = []
    for text in users[1:]:
        feedback = read_feedback(text)
        hits.update(feedback.hits)
        for seen in (
            *(hit for found in feedback.hits.values() for hit in found),
            *feedback.described,
        ):
            known[seen.tool] = seen
        described.update(seen.tool for seen in feedback.described)
        answered += feedback.answered
    return Situation(
        prompt=read_prompt(users[0] if users else ""),
        hits=hits,
        known=known,
        described=frozenset(described),
        answered=tuple(answered),
        n_turns=sum(message.role == "assistant" for message in messages),
    )
