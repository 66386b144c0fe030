"""The practical limit: aiohttp and uvloop, slots that pull cases, nothing kept and nothing held.

Run by `python -m bench_suites.overhead` as a process of its own, so that its whole command is
comparable with a pytest command. Its one argument is JSON, see `Orders`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, TypedDict

import aiohttp
import uvloop

from bench_suites.overhead.conversation import answer, follow_up, opening

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Lane(TypedDict):
    """Where some of the slots send, how many, and with which token and model name."""

    url: str
    token: str
    api_name: str
    n_slots: int


class Orders(TypedDict):
    """What to do."""

    lanes: list[Lane]
    n_cases: int
    n_turns: int


async def run(orders: Orders) -> int:
    """Run all cases and return how many replies came, each of them checked.

    Raises:
        RuntimeError: An answer is not 200 or has no text.
    """
    cases = iter(range(orders["n_cases"]))
    n_slots = sum(lane["n_slots"] for lane in orders["lanes"])
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=n_slots), cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        replies = await asyncio.gather(
            *(
                _slot(session, lane, cases, orders["n_turns"])
                for lane in orders["lanes"]
                for _ in range(lane["n_slots"])
            )
        )
    return sum(replies)


async def _slot(
    session: aiohttp.ClientSession, lane: Lane, cases: Iterator[int], n_turns: int
) -> int:
    headers = {"authorization": f"Bearer {lane['token']}", "content-type": "application/json"}
    n_replies = 0
    for number in cases:
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
            n_replies += 1
    return n_replies


def main(argv: Sequence[str]) -> int:
    """Carry out the orders in the first argument; print the number of replies."""
    orders: Orders = json.loads(argv[1])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        n_replies = runner.run(run(orders))
    sys.stdout.write(f"{n_replies}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
