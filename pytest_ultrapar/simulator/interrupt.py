"""How a server in the foreground is ended."""

from __future__ import annotations

import asyncio
import signal


async def interrupted() -> None:
    """Return at the first SIGINT or SIGTERM."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, came.set)
    await came.wait()
