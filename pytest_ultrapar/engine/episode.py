"""Run one episode, from its first lease to its record."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.broker.protocol import TAKEN
from pytest_ultrapar.engine.captured_output import EpisodeOutput
from pytest_ultrapar.engine.llm import Llm
from pytest_ultrapar.engine.loop import episode_task
from pytest_ultrapar.engine.sdk_clients import fault_behind
from pytest_ultrapar.engine.sender import Sender
from pytest_ultrapar.errors import BadRequestError, ConfigError, InfraError, PromptRefused
from pytest_ultrapar.records import NO_VALUE, Ending, EpisodeEnded, EpisodeProgress
from pytest_ultrapar.system.clock import utc_now_us

if TYPE_CHECKING:
    from types import TracebackType

    from pytest_ultrapar.broker.protocol import Lease
    from pytest_ultrapar.engine.conversation import Conversation
    from pytest_ultrapar.engine.sender import EngineParts

_OUR_FOLDER = str(Path(__file__).parents[1])


def _fields(value: Any) -> Any:  # noqa: ANN401 - of a type that msgspec does not know
    """Convert a pydantic model to plain data."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


_encoder = msgspec.json.Encoder(enc_hook=_fields)
CLEAN_UP_S = 4.0
"""How long a cancelled episode may take to clean up, in seconds. After that, the engine no longer
waits for it."""


class EpisodeSkipped(Exception):  # noqa: N818 - not an error
    """The episode is skipped. pytest's own skip exception is converted to this exception."""


class Work(msgspec.Struct, frozen=True):
    """An episode that has not started.

    Attributes:
        index: The caller's number for the episode. The engine only returns it to the caller.
        group: The case's group in the assignment; empty if it is in no group.
        start: Makes the episode's coroutine; called once, on the engine's loop.
    """

    index: int
    case_id: str
    model: str
    group: str
    seed: int
    start: Callable[[Llm], Coroutine[Any, Any, Any]]


class _End(msgspec.Struct, frozen=True):
    ending: Ending
    kind: str | None = None
    detail: str | None = None
    value: msgspec.Raw = NO_VALUE


async def run_episode(
    work: Work, lease: Lease | None, parts: EngineParts, *, timeout_s: float, worker: str
) -> EpisodeEnded:
    """Run an episode to its end, whether it succeeds or fails, and return its record.

    Args:
        work: The episode to run.
        lease: The episode's first lease; None in a replay, where requests may not need a lease.
        parts: The parts that all clients of the engine share.
        timeout_s: The time limit for the whole episode in seconds, including all waiting.
        worker: The name of the process, for the record.
    """
    output = EpisodeOutput()
    started_at_us = utc_now_us()
    started_s = parts.clock.now_s()

    case_id = work.case_id
    begun = parts.begun(case_id)
    before = None if begun is None else begun.case(case_id).episode
    began_us = 0 if before is None else before.began_us or before.started_at_us

    # Do not refer to `work` or to the sender here: that would keep each ended episode in a
    # reference cycle.
    def keep(conversation: Conversation) -> None:
        if (news := conversation.news()) is not None:
            own = (case_id, worker, started_at_us, utc_now_us())
            parts.record(EpisodeProgress(*own, *news, began_us))

    sender = Sender(
        parts,
        model=work.model,
        group=work.group,
        case_id=case_id,
        seed=work.seed,
        first=lease,
        until_s=started_s + timeout_s,
        begun=begun,
        keep=keep,
    )
    llm = Llm(sender)
    try:
        end = await _ended(work, llm, output, timeout_s)
        await Llm.close(llm)
    except Exception as error:  # noqa: BLE001 - a suite may have changed its client in any way
        end = _error(error)
        await sender.close()
    duration_s = parts.clock.now_s() - started_s
    conversation = sender.conversation
    return EpisodeEnded(
        case_id=case_id,
        worker=worker,
        started_at_us=started_at_us,
        # Derive the end from the start and the duration. If the wall clock is set meanwhile, the
        # episode must not seem to end before it began.
        ended_at_us=started_at_us + round(duration_s * 1e6),
        duration_s=duration_s,
        attempts=conversation.attempts,
        messages=conversation.messages,
        n_turns=conversation.n_turns,
        backoff_s=conversation.backoff_s,
        stdout=output.stdout,
        log=output.log,
        exchanges=conversation.noted(),
        began_us=began_us,
        n_unused=sum(one.n_unused for one in sender.sends.replays),
        **msgspec.structs.asdict(end),
    )


async def _ended(work: Work, llm: Llm, output: EpisodeOutput, timeout_s: float) -> _End:
    """Run the suite's code as a separate task, and wait for it until the episode's deadline.

    The task is separate because the code may catch its cancellation and continue forever.
    """
    ended: list[_End] = []

    async def run() -> None:
        # Keep the result here: asyncio loses it if the task cancels itself in its last step.
        ended.append(await _outcome(work, llm))

    episode = episode_task(run(), output)
    is_late = False
    with suppress(asyncio.CancelledError):
        await asyncio.wait({episode}, timeout=timeout_s)
        is_late = True
    if not episode.done():
        cut = _late(llm, timeout_s) if is_late else _End("interrupted")
        episode.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({episode}, timeout=CLEAN_UP_S)
        # The episode counts as cut off, even if it caught the cancellation and returned a value.
        return cut
    if ended:
        return ended[0]
    try:
        episode.result()
    except asyncio.CancelledError as error:
        end = _error(error)
    return _failed(llm.conversation.failure) or end


def _late(llm: Llm, timeout_s: float) -> _End:
    trouble = "; ".join(
        f"role {role}: {said}" if role else said for role, said in llm.conversation.troubles.items()
    )
    why = f"; it was waiting to try again after: {trouble}" if trouble else ""
    return _End("infra", "timeout", f"the episode took longer than {timeout_s:g} s{why}")


async def _outcome(work: Work, llm: Llm) -> _End:
    try:
        value = await work.start(llm)
        if llm.conversation.n_unawaited:
            return _End("error", "NotAwaited", "answer not awaited: write `await llm.chat(...)`")
        # A recorded failure decides the result, even if the episode caught the error and continued.
        return _failed(llm.conversation.failure) or _stored(value)
    except EpisodeSkipped as skipped:
        return _End("skipped", detail=str(skipped))
    # Record any exception of the suite.
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        # If this is a CancelledError, something that the episode waited for was cancelled.
        return end_of_fault(error, llm) or _error(error)


def end_of_fault(error: BaseException, llm: Llm) -> _End | None:
    """Return how an episode that raised `error` ends, if a request failed; otherwise None."""
    wrong = fault_behind(error) or llm.refused
    return _failed(llm.conversation.failure) or _failed(wrong)


def _failed(failure: BaseException | None) -> _End | None:
    if isinstance(failure, InfraError) and failure.kind == TAKEN:
        return _End("interrupted", TAKEN, str(failure))
    if isinstance(failure, InfraError):
        return _End("infra", failure.told_kind, str(failure))
    if isinstance(failure, PromptRefused):
        return _End("refused", failure.kind, str(failure))
    if isinstance(failure, BadRequestError):
        return _End("error", failure.kind, str(failure))
    return None


def _stored(value: object) -> _End:
    try:
        return _End("returned", value=msgspec.Raw(_encoder.encode(value)))
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        detail = f"the episode returned a {type(value).__name__} that cannot be stored: {error}"
        return _End("error", type(error).__name__, detail)


def _error(error: BaseException) -> _End:
    told = traceback.TracebackException(type(error), error, _theirs(error))
    # The message of a ConfigError is enough, so drop the plugin's frames at the end.
    while (
        isinstance(error, ConfigError)
        and told.stack
        and told.stack[-1].filename.startswith(_OUR_FOLDER)
    ):
        told.stack.pop()
    said = list(told.format_exception_only())[-1].strip()
    return _End("error", type(error).__name__, f"{said}\n\n{''.join(told.format())}")


def _theirs(error: BaseException) -> TracebackType | None:
    """Return the traceback without the frames before the suite's first frame."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OUR_FOLDER):
        trace = trace.tb_next
    return trace
