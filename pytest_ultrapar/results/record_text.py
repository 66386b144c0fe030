"""Applies a change to the free text of a journal record, and to nothing that identifies it."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import msgspec

from pytest_ultrapar.records import (
    EngineSpent,
    EpisodeEnded,
    EpisodeStarted,
    Grade,
    JournalRecord,
    TurnMessage,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def map_text(record: JournalRecord, change: Callable[[str], str]) -> JournalRecord:
    """The record with `change` applied to every text that a model, a suite or an exception wrote.

    Ids, times, endings, outcomes and the lanes of attempts stay as they are.
    """
    match record:
        case EpisodeStarted() | EngineSpent():
            return record
        case EpisodeEnded():
            return msgspec.structs.replace(
                record,
                value=None if record.value is None else _map_json(record.value, change),
                kind=_map_optional(record.kind, change),
                detail=_map_optional(record.detail, change),
                messages=[_map_message(message, change) for message in record.messages],
                stdout=change(record.stdout),
                log=change(record.log),
            )
        case Grade():
            return msgspec.structs.replace(
                record,
                kind=_map_optional(record.kind, change),
                error=_map_optional(record.error, change),
                scores={change(name): score for name, score in record.scores.items()},
            )
        case _:
            assert_never(record)


def without_surrogates(text: str) -> str:
    r"""`text` with lone surrogates, which UTF-8 cannot hold, shown as `\udcff`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _map_optional(text: str | None, change: Callable[[str], str]) -> str | None:
    return None if text is None else change(text)


def _map_message(message: TurnMessage, change: Callable[[str], str]) -> TurnMessage:
    return TurnMessage(
        turn=message.turn,
        role=change(message.role),
        content=change(message.content),
        tool_calls=_map_optional(message.tool_calls, change),
    )


def _map_json(value: msgspec.Raw, change: Callable[[str], str]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(_map_strings(msgspec.json.decode(value), change)))


def _map_strings(value: object, change: Callable[[str], str]) -> object:
    match value:
        case str():
            return change(value)
        case list():
            return [_map_strings(item, change) for item in value]
        case dict():
            return {change(name): _map_strings(item, change) for name, item in value.items()}
        case _:
            return value
