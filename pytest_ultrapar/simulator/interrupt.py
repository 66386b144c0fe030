"""How a server in the foreground is ended."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


async def until_interrupted(announce: Callable[[], None]) -> None:
    """Return at the first SIGINT or SIGTERM; `announce` is called when they are in hand."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, came.set)
    announce()
    await came.wait()
