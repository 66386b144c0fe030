"""How a server's process notices that whoever started it has gone."""

from __future__ import annotations

import asyncio
import os
import signal

_LOOK_EVERY_S = 0.5


async def parent_gone(pipe: int, parent_pid: int | None) -> None:
    """Return at the end of file of `pipe`, at SIGTERM, or when the parent is not the controller.

    The kernel closes the pipe however the controller ends. The parent is looked at as well, since a
    process that the controller forked, and that outlives it, holds the pipe open.
    """
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()

    def read() -> None:
        if not os.read(pipe, 4096):
            loop.remove_reader(pipe)
            gone.set()

    loop.add_reader(pipe, read)
    loop.add_signal_handler(signal.SIGTERM, gone.set)
    while parent_pid in {None, os.getppid()}:
        try:
            await asyncio.wait_for(gone.wait(), _LOOK_EVERY_S)
        except TimeoutError:
            continue
        return
