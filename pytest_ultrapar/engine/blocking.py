"""Run blocking functions, each in a new thread, and let them send requests.

A thread cannot be stopped. So once the case has ended, every client that the function calls raises
an error. A function that is still running delays neither the case nor the end of the run.
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
"""A function that runs a coroutine on an episode's loop and blocks the calling thread meanwhile.

It returns the coroutine's result. It raises `asyncio.CancelledError` once the result of the thread
is no longer wanted, and `RuntimeError` if it is called on the loop, which it would block."""
_CANCELLED = "the case, or its `await llm.run(...)`, was cancelled"


class _Call:
    """The loop's view of a function that runs in a thread.

    Attributes:
        is_over: Whether the episode no longer waits for the function.
        asking: The tasks of the requests that the function is waiting for.
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
    """Call a function in a new thread and a copy of this context; pass on its result or error."""
    call, context = _Call(), copy_context()
    context.run(_of_thread.set, call)
    done: concurrent.futures.Future[T] = concurrent.futures.Future()
    done.set_running_or_notify_cancel()  # from now on, `done.cancel` has no effect

    def work() -> None:
        try:
            done.set_result(context.run(function, *args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
            ended = RuntimeError("the function raised StopIteration")  # futures refuse the original
            ended.__cause__ = error
            done.set_exception(ended if isinstance(error, StopIteration) else error)

    # Do not use a thread pool: when Python exits, it waits for the pool's threads.
    Thread(target=work, name=f"ultrapar-{function!r:.50}", daemon=True).start()
    try:
        return await asyncio.wrap_future(done)
    finally:
        call.cancel()


def waiting(loop: asyncio.AbstractEventLoop, has_ended: Callable[[], bool]) -> Wait:
    """Return a function with which a thread waits for a coroutine of an episode's client.

    Args:
        loop: The episode's loop, on which coroutines run.
        has_ended: Returns whether the episode has ended; called on that loop.
    """

    def wait(asked: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - the coroutine's result
        if asyncio._get_running_loop() is loop:  # noqa: SLF001 - the public function may raise
            asked.close()
            raise RuntimeError(
                "llm.sync blocks: use it only in a function that `await llm.run(function)` calls"
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
            # `concurrent.futures.CancelledError` is an `Exception`, so an agent would treat it as a
            # failed request.
            raise asyncio.CancelledError(_CANCELLED) from None

    return wait
