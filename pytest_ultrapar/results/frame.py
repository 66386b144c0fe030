r"""One line of an append-only file: `<length, 8 hex> <CRC-32, 8 hex> <JSON>\n`.

Length and checksum come first, so that a reader knows a whole line from a torn or changed one
without understanding its JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER_LENGTH = 18
OVERHEAD = HEADER_LENGTH + 1
MAX_PAYLOAD_LENGTH = 0xFFFFFFFF


class Stretch(NamedTuple):
    """Bytes of the file: a whole line when `payload` is there, else what is none."""

    offset: int
    length: int
    payload: bytes | None


def frame(payload: bytes) -> bytes:
    """The line of one JSON text.

    Raises:
        ValueError: The payload holds a line feed or is longer than 4 GiB.
    """
    if b"\n" in payload or len(payload) > MAX_PAYLOAD_LENGTH:
        msg = "a framed payload has no line feed and at most 4 GiB"
        raise ValueError(msg)
    return b"%08x %08x %b\n" % (len(payload), crc32(payload), payload)


def unframe(line: bytes) -> bytes | None:
    """The payload of a line that is whole and unchanged, else None.

    What stands in the place of the line feed does not matter: the checksum does not cover it.
    """
    payload = _leading_payload(line)
    return payload if payload is not None and len(line) == len(payload) + OVERHEAD else None


def iter_stretches(file: BinaryIO) -> Iterator[Stretch]:
    """All stretches of the rest of a file, one line in memory at a time.

    A last line that ends before its line feed is torn: whoever wrote it died while writing, so it
    is left out. Everything else that is no line is there with `payload` None, and the line after it
    is found again.
    """
    offset = file.tell()
    line = file.readline()
    while line:
        payload = _leading_payload(line)
        if payload is None:
            if not line.endswith(b"\n"):
                return
            yield Stretch(offset, len(line), None)
            taken = len(line)
        else:
            taken = len(payload) + OVERHEAD
            yield Stretch(offset, taken, payload)
            if line[taken - 1 : taken] != b"\n":
                # Only the line feed was changed: this line is good, the next one hangs on to it.
                yield Stretch(offset + taken - 1, 1, None)
        offset += taken
        line = line[taken:] or file.readline()


def _leading_payload(line: bytes) -> bytes | None:
    try:
        length = int(line[:8], 16)
        checksum = int(line[9:17], 16)
    except ValueError:
        return None
    payload = line[HEADER_LENGTH : HEADER_LENGTH + length]
    whole = len(payload) == length and len(line) > HEADER_LENGTH + length
    if not whole or crc32(payload) != checksum or line[:HEADER_LENGTH] != _header(payload):
        return None
    return payload


def _header(payload: bytes) -> bytes:
    return b"%08x %08x " % (len(payload), crc32(payload))
