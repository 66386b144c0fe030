"""The event loop that all episodes of a process share; it protects them from each other."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_ultrapar.engine.captured_output import EpisodeOutput, current_output
from pytest_ultrapar.system.clock import boot_s

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
_is_engine: ContextVar[bool] = ContextVar("is_engine", default=False)
"""Whether the running code is the engine's own. All other code on the engine's loop belongs to a
suite, even if it is unknown to which episode. An example is a callback that an episode's thread has
put on the loop."""


def engine_context() -> Context:
    """Return a context for the engine's own code, which belongs to no episode."""
    context = copy_context()
    context.run(current_output.set, None)
    context.run(_is_engine.set, True)
    return context


class EngineTask(asyncio.Task[T]):
    """A task that only the engine, the task itself, or its own episode may cancel.

    If a suite's code cancels `asyncio.all_tasks()`, it gets a `RuntimeError`.

    Attributes:
        output: The output of the task's episode; None for a task of the engine.
    """

    output: EpisodeOutput | None = None

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ANN401 - as asyncio has it
        """Cancel the task. Call this on the loop's thread.

        Raises:
            RuntimeError: The caller is neither the engine nor the task's episode.
        """
        caller = current_output.get()
        if not _is_engine.get() and (caller is None or caller is not self.output):
            raise RuntimeError(
                "an episode may cancel neither tasks of another episode nor tasks of the engine"
            )
        return super().cancel(msg)


def episode_task(run: Coroutine[Any, Any, T], output: EpisodeOutput) -> EngineTask[T]:
    """Make the task of an episode. The engine calls this on its loop."""
    context = copy_context()
    context.run(current_output.set, output)
    context.run(_is_engine.set, False)
    task = EngineTask(run, loop=asyncio.get_running_loop(), context=context)
    task.output = output
    return task


class _PlainLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, with a clock that tests cannot fake.

    uvloop does not need this, because its clock is native code.
    """

    def time(self) -> float:
        return boot_s()


def new_loop() -> asyncio.AbstractEventLoop:
    """Make a loop for episodes: uvloop's if uvloop is installed."""
    kind: Any = _PlainLoop
    try:
        import uvloop  # noqa: PLC0415 - missing on some platforms; runs without episodes save 41 ms
    except ImportError:
        pass
    else:
        kind = uvloop.Loop
    loop: asyncio.AbstractEventLoop = kind()
    loop.set_task_factory(_make_task)
    return loop


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Any,  # noqa: ANN401 - a coroutine or a generator
    **options: Any,  # noqa: ANN401
) -> asyncio.Task[Any]:
    kind = EngineTask if _is_engine.get() else asyncio.Task
    return kind(coroutine, loop=loop, **options)


def run_to_end(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, even if tasks and callbacks of episodes raise.

    In asyncio, a task that raises `SystemExit` or `KeyboardInterrupt` stops the loop. Here, these
    exceptions are logged like others, and the loop continues with its other tasks.

    Raises:
        BaseException: The coroutine raised it, or the loop cannot run.
    """
    task = loop.create_task(main)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt, RuntimeError):
            # asyncio raises a RuntimeError if an episode has stopped the loop.
            if task.done() or loop.is_closed():
                raise
            logging.getLogger("asyncio").exception("An episode left a task or callback behind")
