"""Compressed answers, unpacked in small steps, so that a small bomb stays small."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCEPTED = "gzip, deflate"
_STEP_BYTES = 64 * 1024
"""64 KiB of gzip can stand for 64 MiB: nobody may ask zlib for all of it at once."""

_GZIP = 16 + zlib.MAX_WBITS
_HEADER_BYTES = 2
_DEFLATE = 8
"""Compression method in the first byte of zlib's header."""


class Unpacker:
    """Unpacks one body."""

    def __init__(self, coding: str) -> None:
        """Make one for a coding.

        Args:
            coding: The value of `content-encoding`.

        Raises:
            httpx.DecodingError: It is none that we asked for.
        """
        words = coding.strip().lower()
        if words not in {"gzip", "x-gzip", "deflate"}:
            msg = f"the answer's content-encoding {coding!r} was not requested"
            raise httpx.DecodingError(msg)
        self._begin = b""
        self._zlib = None if words == "deflate" else zlib.decompressobj(_GZIP)

    def steps(self, piece: bytes) -> Iterator[bytes]:
        """What a piece of the body stands for, at most 64 KiB at a time.

        Raises:
            httpx.DecodingError: It cannot be unpacked.
        """
        unpacking = self._zlib
        if unpacking is None:
            piece = self._begin = self._begin + piece
            if len(piece) < _HEADER_BYTES:
                return
            unpacking = self._zlib = zlib.decompressobj(_format_of(piece))
        while not unpacking.eof:
            try:
                unpacked = unpacking.decompress(piece, _STEP_BYTES)
            except zlib.error as error:
                msg = f"the answer cannot be unpacked: {error}"
                raise httpx.DecodingError(msg) from error
            piece = unpacking.unconsumed_tail
            if unpacked:
                yield unpacked
            # A full step may have left output inside although all input is taken.
            if not piece and len(unpacked) < _STEP_BYTES:
                return

    def end(self) -> None:
        """Make sure that the body was whole.

        Raises:
            httpx.DecodingError: It was cut off.
        """
        if self._zlib is None or not self._zlib.eof:
            msg = "the compressed answer ends before its end"
            raise httpx.DecodingError(msg)


def _format_of(begin: bytes) -> int:
    """Whether a "deflate" body has zlib's header, as it should, or is bare, as some send it.

    Source: RFC 9110, section 8.4.1.2; RFC 1950, section 2.2 (CMF and FLG).
    """
    has_header = begin[0] & 0x0F == _DEFLATE and int.from_bytes(begin[:2], "big") % 31 == 0
    return zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS
