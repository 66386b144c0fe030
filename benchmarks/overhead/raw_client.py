"""The practical optimum: aiohttp and uvloop with slots that pull cases, and no other work.

`python -m benchmarks.overhead` runs this as a separate process, so that its command is comparable
with a pytest command. The only argument is JSON (see `conversation.Orders`).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence

import aiohttp
import uvloop

from benchmarks.overhead.conversation import Lane, Orders, converse


async def run(orders: Orders) -> None:
    """Run all cases.

    Raises:
        RuntimeError: An answer does not have status 200, or has no text.
    """
    cases = iter(range(orders["n_cases"]))
    n_slots = sum(lane["n_slots"] for lane in orders["lanes"])
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=n_slots), cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        await asyncio.gather(
            *(
                _slot(session, lane, cases, orders["n_turns"])
                for lane in orders["lanes"]
                for _ in range(lane["n_slots"])
            )
        )


async def _slot(
    session: aiohttp.ClientSession, lane: Lane, cases: Iterator[int], n_turns: int
) -> None:
    for number in cases:
        await converse(session, lane, number, n_turns)


def main(argv: Sequence[str]) -> int:
    """Run the orders in the first argument."""
    orders: Orders = json.loads(argv[1])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(orders))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
