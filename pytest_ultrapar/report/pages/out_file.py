"""Where a page may go: a new file or an earlier page, outside of all runs."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_ultrapar.errors import refuse
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
        refuse(f"{option} is empty; name a file")
    # A link such as /dev/stdout may lead to what has no name: its kind is asked of the link.
    named, path = Path(text), Path(os.path.realpath(text))
    if named.exists() and not named.is_file():
        refuse(f"{option} {text} is {'a folder' if named.is_dir() else 'no file'}; name a file")
    if not path.parent.is_dir():
        refuse(f"{option} {text}: there is no directory {path.parent}")
    run = next((one for one in path.parents if run_id_of(one) is not None), None)
    if run is not None:
        refuse(f"{option} {text} is in the run {run}, which stays as it is; name a file elsewhere")
    if path.exists() and path.stat().st_size and path.suffix.lower() not in _PAGES:
        refuse(f"{option} {text} exists and is no page; name a new file, or one that ends in .html")
    return path
