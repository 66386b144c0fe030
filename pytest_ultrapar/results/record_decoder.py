"""JSON of the journal back into records."""

from __future__ import annotations

from typing import Any

import msgspec

from pytest_ultrapar.records import (
    EngineSpent,
    EpisodeEnded,
    EpisodeStarted,
    Grade,
    JournalRecord,
)


def decode_record(payload: bytes) -> JournalRecord:
    """The record of one line's JSON.

    Raises:
        msgspec.DecodeError: It is no record, or one of another version.
    """
    line = _decode(payload)
    if isinstance(line, EpisodeStarted | Grade | EngineSpent):
        return line
    fields: list[Any] = list(msgspec.structs.astuple(line))
    fields[_VALUE] = fields[_VALUE] or None
    return EpisodeEnded(*fields)


_FIELDS = msgspec.structs.fields(EpisodeEnded)
_VALUE = [field.name for field in _FIELDS].index("value")


def _twin_field(field: msgspec.structs.FieldInfo) -> tuple[Any, ...]:
    if field.name == "value":
        return (field.name, msgspec.Raw, msgspec.Raw())
    if field.default is not msgspec.NODEFAULT:
        return (field.name, field.type, field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return (field.name, field.type, msgspec.field(default_factory=field.default_factory))
    return (field.name, field.type)


# msgspec 0.22 takes JSON unread into a field of type `Raw`, but refuses it for `Raw | None`. So
# lines are decoded into a twin of `EpisodeEnded` where an absent value is empty.
_EndedLine = msgspec.defstruct("_EndedLine", map(_twin_field, _FIELDS), tag="ended")
_decode = msgspec.json.Decoder(EpisodeStarted | _EndedLine | Grade | EngineSpent).decode
