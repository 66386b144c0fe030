"""pytest-asyncio-cooperative and aiohttp, as its users write tests: no limits, no results kept.

Run by `python -m benchmarks.overhead peers` as a process of its own, in an environment without
pytest-ultrapar. Its one argument is JSON, see `conversation.Orders`; pytest collects this file in
the same process, so the tests find their orders there, too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import aiohttp
import pytest

from benchmarks.overhead.conversation import Orders, converse

ORDERS: Orders = json.loads(sys.argv[1])
FREE = [lane for lane in ORDERS["lanes"] for _ in range(lane["n_slots"])]
"""A lane for each test that may run at once: the provider refuses what is beyond a lane's seats."""


@pytest.fixture(scope="session")
async def session() -> aiohttp.ClientSession:
    """Never closed: the plugin ends a fixture that yields whenever no test happens to hold it."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=len(FREE)), cookie_jar=aiohttp.DummyCookieJar()
    )


@pytest.mark.asyncio_cooperative
@pytest.mark.parametrize("number", range(ORDERS["n_cases"]))
async def test_case(session: aiohttp.ClientSession, number: int) -> None:
    """All answers came."""
    lane = FREE.pop()
    try:
        await converse(session, lane, number, ORDERS["n_turns"])
    finally:
        FREE.append(lane)


def main() -> int:
    """Run this file's tests, as many at once as there are slots; pytest's exit code."""
    return pytest.main(
        [
            "-qq",
            "-p",
            "no:cacheprovider",
            f"--max-asyncio-tasks={len(FREE)}",
            # The project's conftests need pytest-ultrapar.
            f"--confcutdir={Path(__file__).parent}",
            __file__,
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
