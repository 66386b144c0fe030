"""The words that every client says to the simulated models, and how a bare client says them."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import aiohttp

N_TURNS = 6
"""Turns of a case of several turns."""

FILLER = "The quick brown fox jumps over the lazy dog near the quiet river bank. " * 12


class Lane(TypedDict):
    """Where some of the slots send, how many, and with which token and model name."""

    url: str
    token: str
    api_name: str
    n_slots: int


class Orders(TypedDict):
    """What a bare client is to do."""

    lanes: list[Lane]
    n_cases: int
    n_turns: int


def opening(number: int) -> dict[str, str]:
    """The first message of a case: 0.9 kB, different for every case."""
    return {"role": "user", "content": f"{number}: {FILLER}"}


def answer(text: str) -> dict[str, str]:
    """The model's message, as the next request repeats it."""
    return {"role": "assistant", "content": text}


def follow_up(turn: int) -> dict[str, str]:
    """The message after the answer of that turn, counted from 0."""
    return {"role": "user", "content": f"go on, {turn}"}


async def converse(session: aiohttp.ClientSession, lane: Lane, number: int, n_turns: int) -> None:
    """All turns of a case by aiohttp alone, each reply checked.

    Raises:
        RuntimeError: An answer is not 200 or has no text.
    """
    headers = {"authorization": f"Bearer {lane['token']}", "content-type": "application/json"}
    messages = [opening(number)]
    for turn in range(n_turns):
        body = json.dumps({"model": lane["api_name"], "messages": messages}).encode()
        async with session.post(lane["url"], data=body, headers=headers) as response:
            content = await response.read()
        if response.status != HTTPStatus.OK:
            msg = f"the server answered {response.status}: {content[:200]!r}"
            raise RuntimeError(msg)
        text = json.loads(content)["choices"][0]["message"]["content"]
        if not text:
            msg = f"case {number}, turn {turn}: the answer has no text"
            raise RuntimeError(msg)
        messages += [answer(text), follow_up(turn)]
