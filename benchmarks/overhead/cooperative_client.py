"""pytest-asyncio-cooperative with aiohttp, as its users use it: no limits, no stored results.

`python -m benchmarks.overhead peers` runs this as a separate process, in an environment without
pytest-ultrapar. The only argument is JSON (see `conversation.Orders`). pytest collects this file
in the same process, so the tests also read the argument.
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
"""A lane for each test that may run at the same time: the provider refuses more requests."""


@pytest.fixture(scope="session")
async def session() -> aiohttp.ClientSession:
    """A session that is never closed: the plugin ends a yield fixture whenever no test uses it."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=len(FREE)), cookie_jar=aiohttp.DummyCookieJar()
    )


@pytest.mark.asyncio_cooperative
@pytest.mark.parametrize("number", range(ORDERS["n_cases"]))
async def test_case(session: aiohttp.ClientSession, number: int) -> None:
    """Check that all answers arrive."""
    lane = FREE.pop()
    try:
        await converse(session, lane, number, ORDERS["n_turns"])
    finally:
        FREE.append(lane)


def main() -> int:
    """Run this file's tests, one per slot at the same time. The result is pytest's exit code."""
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
