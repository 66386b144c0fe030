"""The loop that all episodes of a process share, and what keeps one from ending the others."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_ultrapar.engine.output import EpisodeOutput, current_output
from pytest_ultrapar.system.clock import boot_s

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
_is_engine: ContextVar[bool] = ContextVar("is_engine", default=False)
"""Whether this is the engine's own code. All else on its loop is a suite's: what a thread that an
episode started has the loop call knows of no episode."""


def engine_context() -> Context:
    """A context for code of the engine, whoever asks for it."""
    context = copy_context()
    context.run(current_output.set, None)
    context.run(_is_engine.set, True)
    return context


class EngineTask(asyncio.Task[T]):
    """A task that ends only by itself, by the engine, or by the episode that it is.

    A suite's code that cancels `asyncio.all_tasks()` gets a `RuntimeError`.

    Attributes:
        output: That of the episode that it is; None for a task of the engine.
    """

    output: EpisodeOutput | None = None

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ANN401 - as asyncio has it
        """Cancel it; called on the loop's thread.

        Raises:
            RuntimeError: Neither the engine nor the episode called.
        """
        caller = current_output.get()
        if not _is_engine.get() and (caller is None or caller is not self.output):
            raise RuntimeError(
                "an episode may cancel no task of another episode, nor one of the engine"
            )
        return super().cancel(msg)


def episode_task(run: Coroutine[Any, Any, T], output: EpisodeOutput) -> EngineTask[T]:
    """The task of an episode; called by the engine, on its loop."""
    context = copy_context()
    context.run(current_output.set, output)
    context.run(_is_engine.set, False)
    task = EngineTask(run, loop=asyncio.get_running_loop(), context=context)
    task.output = output
    return task


class _PlainLoop(asyncio.SelectorEventLoop):
    """asyncio's own, by a clock that no test fakes; uvloop's is none of Python's."""

    def time(self) -> float:
        return boot_s()


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop for episodes: uvloop's where that is installed."""
    kind: Any = _PlainLoop
    try:
        import uvloop  # noqa: PLC0415 - absent on some platforms, and costs 41 ms that plain tests need not pay
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
    """Run a coroutine to its end, whatever tasks and callbacks of episodes raise meanwhile.

    asyncio lets `SystemExit` and `KeyboardInterrupt` out of the loop, which stops it. Here they are
    logged as other exceptions are, and the loop goes on with its tasks.

    Raises:
        BaseException: What the coroutine raised, or a loop that cannot run.
    """
    task = loop.create_task(main)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt, RuntimeError):
            # The last one is asyncio's word for a loop that an episode stopped.
            if task.done() or loop.is_closed():
                raise
            logging.getLogger("asyncio").exception("An episode left a task or callback behind")
