"""Where a page may go: a new file or an earlier page, outside of all runs."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.store.run_lock import run_id_of

_PAGES = frozenset({".html", ".htm", ".md", ".markdown", ".txt"})
"""How a page's name ends."""


def out_file(text: str, option: str) -> Path:
    """The file that an option names, links followed; nothing is made or removed.

    Args:
        text: As it was given.
        option: Its name, for messages.

    Raises:
        ConfigError: It stands in no directory or in one of a run, is no regular file, or exists and
            is no page.
    """
    if not text:
        msg = f"{option} is empty; name a file"
        raise ConfigError(msg)
    # A link such as /dev/stdout may lead to what has no name: its kind is asked of the link.
    named, path = Path(text), Path(os.path.realpath(text))
    if named.exists() and not named.is_file():
        msg = f"{option} {text} is {'a folder' if named.is_dir() else 'no file'}; name a file"
        raise ConfigError(msg)
    if not path.parent.is_dir():
        msg = f"{option} {text}: there is no directory {path.parent}"
        raise ConfigError(msg)
    run = next((one for one in path.parents if run_id_of(one) is not None), None)
    if run is not None:
        msg = f"{option} {text} is in the run {run}, which stays as it is; name a file elsewhere"
        raise ConfigError(msg)
    if path.exists() and path.stat().st_size and path.suffix.lower() not in _PAGES:
        msg = f"{option} {text} exists and is no page; name a new file, or one that ends in .html"
        raise ConfigError(msg)
    return path
