"""Where a page may go: a new file or an earlier page, never to what a run keeps for itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.store.run_directory import run_id_of

if TYPE_CHECKING:
    from collections.abc import Collection

_PAGES = frozenset({".html", ".md"})
"""No other file of a run ends so, also of those that it writes at its end."""


def out_file(text: str, option: str = "--out") -> Path:
    """The file that an option names, links followed; nothing is made or removed.

    Args:
        text: As it was given.
        option: Its name, for messages.

    Raises:
        ConfigError: It stands in no directory, is no regular file, or is one that a run has or will
            have.
    """
    if not text:
        msg = f"{option} is empty; name a file"
        raise ConfigError(msg)
    path = Path(os.path.realpath(text))
    if path.is_dir():
        msg = f"{option} {text} is a folder; name a file in it"
        raise ConfigError(msg)
    if not path.parent.is_dir():
        msg = f"{option} {text}: there is no directory {path.parent}"
        raise ConfigError(msg)
    if path.exists() and not path.is_file():
        kind = "pipe" if path.is_fifo() else "socket" if path.is_socket() else "device"
        msg = f"{option} {text} is a {kind}; name a file"
        raise ConfigError(msg)
    run = _run_around(path.parents)
    if run is not None and path.suffix not in _PAGES:
        msg = (
            f"{option} {text} is in the run {run}, which keeps its own files there; name one that "
            "ends in .html or .md, or stands elsewhere"
        )
        raise ConfigError(msg)
    return path


def _run_around(folders: Collection[Path]) -> Path | None:
    return next((one for one in folders if run_id_of(one) is not None), None)
