"""The case whose item pytest is running now: one per process, as pytest runs one at a time."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_ultrapar.errors import UltraparError

if TYPE_CHECKING:
    # Every pytest run imports this module; the records bring msgspec along (25 ms).
    import msgspec

    from pytest_ultrapar.suite.case_state import CaseState
    from pytest_ultrapar.suite.prefetched import Prefetched

state: CaseState | None = None
"""What is known of it; None while a plain test runs. Set by `ahead` before the item's set-up."""


class EpisodeError(UltraparError):
    """An episode failed; its own traceback, as text, is the message."""


def take_value(prefetched: Prefetched) -> object:
    """The value of the running case's episode, as the prefetched fixture hands it to the test.

    Raises:
        EpisodeError: The episode failed, or its value does not fit its annotation.
    """
    if state is None or state.ended is None or state.prefetched is not prefetched:
        _no_episode(prefetched)
    ended = state.ended
    if ended.ending == "infra":
        pytest.skip(f"infra: {ended.kind}: {ended.detail}")
    if ended.ending == "refused":
        pytest.skip(f"refused by the provider: {ended.kind}: {ended.detail}")
    if ended.ending == "skipped":
        pytest.skip(ended.detail or "skipped by its episode")
    if ended.ending != "returned" or ended.value is None:
        raise EpisodeError(ended.detail or ended.kind or "the episode failed")
    import msgspec  # noqa: PLC0415

    try:
        return _decoder(prefetched).decode(ended.value)
    except (msgspec.MsgspecError, RecursionError) as error:
        hint = " (NaN and infinity are stored as null)" if "got `null`" in str(error) else ""
        msg = (
            f"{prefetched.place}: the value that {prefetched.name!r} returned does not fit its "
            f"annotation: {error}{hint}"
        )
        raise EpisodeError(msg) from None


@cache
def _decoder(prefetched: Prefetched) -> msgspec.json.Decoder[Any]:
    # Made once per function: for every item anew it would cost 60 us.
    import msgspec  # noqa: PLC0415

    return msgspec.json.Decoder(prefetched.return_type())


def _no_episode(prefetched: Prefetched) -> NoReturn:
    msg = (
        f"prefetched fixture {prefetched.name!r} has no episode: it must be named by the test or "
        "its fixtures, not asked for with request.getfixturevalue()"
    )
    raise EpisodeError(msg)
