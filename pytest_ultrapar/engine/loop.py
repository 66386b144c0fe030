"""The loop that all episodes of a process share, protected from each of them."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_ultrapar.engine.forks import exit_code
from pytest_ultrapar.engine.output import EpisodeOutput, current_output

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

T = TypeVar("T")
_NOT_FOR_EPISODES = ("stop", "set_task_factory", "shutdown_default_executor")
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
            msg = "an episode may cancel no task of another episode, nor one of the engine"
            raise RuntimeError(msg)
        return super().cancel(msg)


def episode_task(run: Coroutine[Any, Any, T], output: EpisodeOutput) -> EngineTask[T]:
    """The task of an episode; called by the engine, on its loop."""
    context = copy_context()
    context.run(current_output.set, output)
    context.run(_is_engine.set, False)
    task = EngineTask(run, loop=asyncio.get_running_loop(), context=context)
    task.output = output
    return task


class Steps(Coroutine[Any, Any, Any]):
    """Stands for a coroutine of a suite, and looks after each step whether the loop can go on.

    A process that a step forks ends with it: it has no other thread, and the next step of its loop
    would use the sockets of all episodes.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], loop: Any) -> None:  # noqa: ANN401
        self._coroutine = coroutine
        self._loop = loop
        self._output = current_output.get()
        self._pid = os.getpid()

    def send(self, value: Any, /) -> Any:  # noqa: ANN401 - as the next, what coroutines have
        """Go on to the next `await`."""
        return self.step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401
        """Go on to the next `await` with an exception."""
        return self.step(self._coroutine.throw, *error)

    def close(self) -> None:
        """End the coroutine where it is."""
        self._coroutine.close()

    def __await__(self) -> Steps:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        return self.send(None)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - `cr_frame` and the like
        return getattr(self._coroutine, name)

    def step(self, go_on: Callable[..., Any], *given: Any) -> Any:  # noqa: ANN401
        """Go on to the next `await` in this way."""
        if self._output is not None:
            self._output.ran_s = time.monotonic()
        try:
            asked = go_on(*given)
        except BaseException as error:
            self._check(error)
            raise
        self._check(None)
        return asked

    def _check(self, error: BaseException | None) -> None:
        if os.getpid() != self._pid:
            os._exit(0 if isinstance(error, StopIteration) else exit_code(error))
        if asyncio._get_running_loop() is not self._loop:  # noqa: SLF001
            asyncio._set_running_loop(self._loop)  # noqa: SLF001
            msg = "asyncio._set_running_loop() in an episode: all episodes of the process share it"
            raise RuntimeError(msg)


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop for episodes: uvloop's where that is installed.

    Code of a suite that stops it, changes its task factory or ends its threads gets a
    `RuntimeError`.
    """
    kind: Any = asyncio.SelectorEventLoop
    try:
        import uvloop  # noqa: PLC0415 - absent on some platforms, and costs 41 ms that plain tests need not pay
    except ImportError:
        pass
    else:
        kind = uvloop.Loop
    methods = {name: _refusing(name, getattr(kind, name)) for name in _NOT_FOR_EPISODES}
    loop: asyncio.AbstractEventLoop = type("EngineLoop", (kind,), methods)()
    loop.set_task_factory(_make_task)
    return loop


def _refusing(name: str, method: Any) -> Any:  # noqa: ANN401 - any method
    def refuse(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        if not _is_engine.get():
            msg = f"loop.{name}() in an episode: all episodes of the process share this loop"
            raise RuntimeError(msg)
        return method(*args, **options)

    return refuse


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Any,  # noqa: ANN401 - a coroutine or a generator
    **options: Any,  # noqa: ANN401
) -> asyncio.Task[Any]:
    if _is_engine.get():
        return EngineTask(coroutine, loop=loop, **options)
    # asyncio itself refuses what is no coroutine.
    steps = Steps(coroutine, loop) if asyncio.iscoroutine(coroutine) else coroutine
    return asyncio.Task(steps, loop=loop, **options)


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
            # The last one is asyncio's word for a loop that a thread of an episode stopped.
            if task.done() or loop.is_closed():
                raise
            logging.getLogger("asyncio").exception("An episode left a task or callback behind")


_NO_FORK = b"""\
ultrapar: a process that was forked in a callback of the event loop, or in a task that was not made
by asyncio.create_task(), has ended at once: it would go on with the requests of all episodes
"""


def _end_fork_without_step() -> None:
    """End a process that was forked on the loop where nothing could end it later.

    What is neither a step nor called by one gives back to the loop itself.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the only way to the callers
    while frame is not None and frame.f_code is not Steps.step.__code__:
        if frame.f_code is run_to_end.__code__:
            os.write(2, _NO_FORK)
            os._exit(1)
        frame = frame.f_back


os.register_at_fork(after_in_child=_end_fork_without_step)
