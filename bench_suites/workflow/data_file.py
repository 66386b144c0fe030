"""Reads the data files of the repository, which users may edit, and reports errors in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

_T = TypeVar("_T")


class LibraryError(ValueError):
    """A file of the task library is unusable. The message names the file and the field."""


def read_data(path: Path, kind: type[_T]) -> _T:
    """The content of a JSON file.

    Raises:
        LibraryError: The file is missing, unreadable or not JSON, or has another type.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        msg = f"{path.name} cannot be read: {error.strerror or error}"
        raise LibraryError(msg) from error
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        said = str(error)
        if "truncated" in said:
            said = f"the JSON ends too early (after {len(content):,} bytes)"
        msg = f"{path.name}: {said}"
        raise LibraryError(msg) from error
