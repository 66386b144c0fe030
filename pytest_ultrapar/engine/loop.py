"""The loop that all episodes of a process share, protected from each of them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_ultrapar.engine.forks import Steps
from pytest_ultrapar.engine.output import EpisodeOutput, current_output

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
_NOT_FOR_EPISODES = ("stop", "set_task_factory", "shutdown_default_executor")


class EngineTask(asyncio.Task[T]):
    """A task that ends only by itself, by the engine, or by the episode that it is.

    An episode that cancels `asyncio.all_tasks()` gets a `RuntimeError`.

    Attributes:
        output: That of the episode that it is; None for a task of the engine.
    """

    output: EpisodeOutput | None = None

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ANN401 - as asyncio has it
        """Cancel it; called on the loop's thread.

        Raises:
            RuntimeError: Code of another episode called.
        """
        caller = current_output.get()
        if caller is not None and caller is not self.output:
            msg = "an episode may cancel no task of another episode, nor one of the engine"
            raise RuntimeError(msg)
        return super().cancel(msg)


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop for episodes: uvloop's where that is installed.

    Code of an episode that stops it, changes its task factory or ends its threads gets a
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
        if current_output.get() is not None:
            msg = f"loop.{name}() in an episode: all episodes of the process share this loop"
            raise RuntimeError(msg)
        return method(*args, **options)

    return refuse


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Any,  # noqa: ANN401 - a coroutine or a generator
    **options: Any,  # noqa: ANN401
) -> asyncio.Task[Any]:
    if current_output.get() is None:
        return EngineTask(coroutine, loop=loop, **options)
    # asyncio itself refuses what is no coroutine.
    steps = Steps(coroutine) if asyncio.iscoroutine(coroutine) else coroutine
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
