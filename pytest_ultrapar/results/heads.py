"""The little of each journal record that tells what stands where, conversations left undecoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.records import EngineSpent, Grade
from pytest_ultrapar.results.journal import Damage, Position, scan_payloads, undecodable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class StartedHead(msgspec.Struct, frozen=True, tag="started"):
    """Of an `EpisodeStarted`."""

    case_id: str


class EndedHead(msgspec.Struct, frozen=True, tag="ended"):
    """Of an `EpisodeEnded`."""

    case_id: str
    worker: str
    ending: str
    started_at_us: int
    ended_at_us: int


Head = StartedHead | EndedHead | Grade | EngineSpent

_decode = msgspec.json.Decoder(Head).decode


def scan_heads(path: Path) -> Iterator[tuple[Position, Head | Damage]]:
    """The heads of one segment's records, in the order written; damage as in `scan_segment`."""
    for position, payload in scan_payloads(path):
        if isinstance(payload, Damage):
            yield position, payload
            continue
        try:
            yield position, _decode(payload)
        except msgspec.DecodeError as error:
            yield position, undecodable(position, error)
