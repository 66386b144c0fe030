"""The messages of all clients to the simulated models, and how a bare client sends them."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import aiohttp

N_TURNS = 6
"""The turns of a case with several turns."""

FILLER = "The quick brown fox jumps over the lazy dog near the quiet river bank. " * 12


class Lane(TypedDict):
    """A number of slots, with the URL, token and model name of their requests."""

    url: str
    token: str
    api_name: str
    n_slots: int


class Orders(TypedDict):
    """The work of a bare client."""

    lanes: list[Lane]
    n_cases: int
    n_turns: int


def opening(number: int) -> dict[str, str]:
    """The first message of a case: 0.9 kB, different for every case."""
    return {"role": "user", "content": f"{number}: {FILLER}"}


def answer(text: str) -> dict[str, str]:
    """The model's message in the next request."""
    return {"role": "assistant", "content": text}


def follow_up(turn: int) -> dict[str, str]:
    """The message after the answer of this turn; turns are counted from 0."""
    return {"role": "user", "content": f"go on, {turn}"}


async def converse(session: aiohttp.ClientSession, lane: Lane, number: int, n_turns: int) -> None:
    """Run all turns of a case with aiohttp, and check each reply.

    Raises:
        RuntimeError: An answer does not have status 200, or has no text.
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
