"""Functions that block, each in a thread of its own, and how they ask.

A thread cannot be stopped. So the function of a case that has ended is told when it asks next, and
neither its case nor the end of the run waits for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
Wait = Callable[[Coroutine[Any, Any, Any]], Any]
"""What a coroutine comes to on an episode's loop, for a thread that blocks until then.

It raises `asyncio.CancelledError` once nothing waits for the thread any more, and `RuntimeError` on
that loop, which it would block."""
_CANCELLED = "the case, or its `await llm.run(...)`, was cancelled"


class _Call:
    """A function in its thread, as the loop sees it.

    Attributes:
        is_over: Whether its episode no longer waits for it.
        asking: The requests that it waits for.
    """

    def __init__(self) -> None:
        self.is_over = False
        self.asking: set[asyncio.Task[Any]] = set()

    def cancel(self) -> None:
        self.is_over = True
        for task in self.asking:
            task.cancel()


_of_thread: ContextVar[_Call | None] = ContextVar("of_thread", default=None)


async def run_blocking(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:  # noqa: ANN401 - the function's own
    """What a function returns or raises, called in a new thread in a copy of our context."""
    call, context = _Call(), copy_context()
    context.run(_of_thread.set, call)
    done: concurrent.futures.Future[T] = concurrent.futures.Future()
    done.set_running_or_notify_cancel()  # from now on `cancel` leaves it alone

    def work() -> None:
        try:
            done.set_result(context.run(function, *args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            ended = RuntimeError("the function raised StopIteration")  # which no future takes
            ended.__cause__ = error
            done.set_exception(ended if isinstance(error, StopIteration) else error)

    # A pool's threads would be waited for when Python ends.
    Thread(target=work, name=f"ultrapar-{function!r:.50}", daemon=True).start()
    try:
        return await asyncio.wrap_future(done)
    finally:
        call.cancel()


def waiting(loop: asyncio.AbstractEventLoop, has_ended: Callable[[], bool]) -> Wait:
    """What threads ask an episode's client by.

    Args:
        loop: The episode's, on which coroutines run.
        has_ended: Whether the episode has; called there.
    """

    def wait(asked: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - whatever it returns
        if asyncio._get_running_loop() is loop:  # noqa: SLF001 - the public one raises where there is none
            asked.close()
            raise RuntimeError(
                "llm.sync blocks: use it in a function that `await llm.run(function)` calls"
            )
        call = _of_thread.get() or _Call()

        async def under_way() -> Any:  # noqa: ANN401 - as above
            task: Any = asyncio.current_task()
            if call.is_over or has_ended():
                asked.close()
                raise asyncio.CancelledError
            call.asking.add(task)
            try:
                return await asked
            finally:
                call.asking.discard(task)

        try:
            return asyncio.run_coroutine_threadsafe(under_way(), loop).result()
        except concurrent.futures.CancelledError:
            # Its class is an `Exception`, which an agent would take for a failed request.
            raise asyncio.CancelledError(_CANCELLED) from None

    return wait
