"""Read the fields that determine the tokens and the cost of a request to any API.

They are read once, for token estimates, budgets and stored conversations. Callers need not name the
API, because each field has the same meaning in all APIs. Fields with unexpected types are skipped,
because the provider refuses a request that contains one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import msgspec

from pytest_ultrapar.apis.reply import Message

BOUNDS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
"""The parameters with which a suite can limit the length of an answer."""
_ALL_BOUNDS = BOUNDS | {"maxOutputTokens"}
_CONFIG = ("generationConfig", "generation_config")
_INSTRUCTIONS = ("system", "instructions", "systemInstruction", "system_instruction")
_SAID = ("messages", "input", "contents", "prompt")
_BESIDE = ("tools", "functions", "response_format", "text", *_CONFIG)
"""Fields that are not messages, but belong to the prompt or may contain parts of it."""
_KEPT = ("previous_response_id", "conversation", "cachedContent", "cached_content")
_NAMED = frozenset({"file_id", "file_url", "fileUri", "file_uri"})
_ADDRESSED = frozenset({"url", "image_url"})
_AT_HAND = "data:"


class Asked(msgspec.Struct, frozen=True):
    """The facts about one request that determine its tokens and cost.

    Attributes:
        messages: The messages to the model.
        beside: Other parts of the prompt: tools, and schemas for the answer.
        bound: The maximum number of tokens in one answer, including reasoning; None if the request
            does not limit them.
        leaves_bound: Whether the request has no field for such a maximum, not even one with null.
            If the plugin writes such a request, the pool's maximum applies.
        n_answers: The number of answers that are billed.
        n_named: The number of attachments that the request only refers to: files stored at the
            provider, and addresses.
        goes_on: The name of the state at the provider whose content is billed with the prompt; None
            if the request does not use any.
    """

    messages: Sequence[Message]
    beside: tuple[Any, ...] = ()
    bound: int | None = None
    leaves_bound: bool = True
    n_answers: int = 1
    n_named: int = 0
    goes_on: str | None = None


def asked_of(fields: Mapping[str, Any]) -> Asked:
    """Read the content of a request.

    Args:
        fields: The decoded body; for `llm.chat()`, the parameters together with the `messages`.
    """
    configs = [one for name in _CONFIG if isinstance(one := fields.get(name), dict)]
    bounds = [
        bound
        for of in (fields, *configs)
        for name in _ALL_BOUNDS
        if _is_count(bound := of.get(name)) and bound > 0
    ]
    prompts: Any = fields.get("prompt")
    # A completion may have several prompts: texts or lists of tokens.
    is_several = isinstance(prompts, list) and prompts and not isinstance(prompts[0], int)
    n_prompts = len(prompts) if is_several else 1
    wanted = [fields.get("n"), fields.get("best_of")]
    wanted += [of.get(name) for of in configs for name in ("candidateCount", "candidate_count")]
    return Asked(
        tuple(_messages(fields)),
        tuple(fields[name] for name in _BESIDE if fields.get(name) is not None),
        min(bounds, default=None),
        not any(name in of for of in (fields, *configs) for name in _ALL_BOUNDS),
        n_prompts * max((one for one in wanted if _is_count(one)), default=1),
        _n_named([fields.get(name) for name in _SAID]),
        next((name for field in _KEPT if (name := _name_of(fields.get(field)))), None),
    )


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _name_of(value: object) -> str | None:
    name = value.get("id") if isinstance(value, dict) else value
    return name if isinstance(name, str) and name else None


def _messages(fields: Mapping[str, Any]) -> Iterator[Message]:
    for name in _INSTRUCTIONS:
        if said := fields.get(name):
            yield {"role": "system", "content": _parts_of(said)}
    for name in _SAID:
        said = fields.get(name)
        if isinstance(said, list | tuple) and all(isinstance(one, Mapping) for one in said):
            for one in said:
                yield {**one, "content": one["parts"]} if "parts" in one else one
        elif isinstance(said, list) and all(isinstance(one, str) for one in said):
            yield {"role": "user", "content": "\n".join(said)}
        elif said is not None:
            yield {"role": "user", "content": said}


def _parts_of(said: object) -> object:
    """The `parts` of content in Gemini's format; any other content unchanged."""
    return said["parts"] if isinstance(said, dict) and "parts" in said else said


def _n_named(said: list[Any]) -> int:
    # A stack instead of recursion, because a request may be nested deeply.
    stack, n_named = said, 0
    while stack:
        value = stack.pop()
        if isinstance(value, list | tuple):
            stack += value
        elif isinstance(value, Mapping):
            n_named += any(isinstance(value.get(name), str) for name in _NAMED) or any(
                isinstance(address := value.get(name), str) and not address.startswith(_AT_HAND)
                for name in _ADDRESSED
            )
            stack += value.values()
    return n_named
