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
_RAW = -zlib.MAX_WBITS


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
            msg = f"the answer's content-encoding {coding[:40]!r} is none that was asked for"
            raise httpx.DecodingError(msg)
        self._is_deflate = words == "deflate"
        self._zlib = zlib.decompressobj(zlib.MAX_WBITS if self._is_deflate else _GZIP)
        self._begins = True

    def steps(self, piece: bytes) -> Iterator[bytes]:
        """What a piece of the body stands for, at most 64 KiB at a time.

        Raises:
            httpx.DecodingError: It cannot be unpacked.
        """
        while not self._zlib.eof:
            unpacked = self._unpack(piece)
            piece = self._zlib.unconsumed_tail
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
        if not self._zlib.eof:
            msg = "the compressed answer ends before its end"
            raise httpx.DecodingError(msg)

    def _unpack(self, piece: bytes) -> bytes:
        try:
            unpacked = self._zlib.decompress(piece, _STEP_BYTES)
        except zlib.error as error:
            if not (self._is_deflate and self._begins):
                msg = f"the answer cannot be unpacked: {error}"
                raise httpx.DecodingError(msg) from error
            # "deflate" means zlib's format (RFC 9110, 8.4.1.2), and some servers send it bare.
            self._zlib = zlib.decompressobj(_RAW)
            self._begins = False
            return self._unpack(piece)
        self._begins = False
        return unpacked
