"""Find the output file of a page: a new file or an earlier page, never one in a run directory."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.store.run_lock import run_id_of

_PAGES = frozenset({".html", ".htm", ".md", ".markdown", ".txt"})
"""A file that has content may be overwritten with a page only if it has one of these suffixes."""


def out_file(text: str, option: str) -> Path:
    """Return the file that an option names, with links resolved. Nothing is created or removed.

    Args:
        text: The value of the option.
        option: The name of the option, which is shown in messages.

    Raises:
        ConfigError: The value is empty or names something other than a file. The file's directory
            does not exist or belongs to a run. The file has content, and its suffix is not in
            `_PAGES`.
    """
    if not text:
        refuse(f"{option} is empty; pass the name of a file")
    # Check the name, not the resolved path: a link such as /dev/stdout may lead to a pipe, which
    # has no path.
    named, path = Path(text), Path(os.path.realpath(text))
    if named.exists() and not named.is_file():
        refuse(
            f"{option} {text} is {'a folder' if named.is_dir() else 'not a file'}; choose a file"
        )
    if not path.parent.is_dir():
        refuse(f"{option} {text}: directory {path.parent} does not exist; create it")
    run = next((one for one in path.parents if run_id_of(one) is not None), None)
    if run is not None:
        refuse(
            f"{option} {text} is in the run {run}, which must not change; choose a file elsewhere"
        )
    if path.exists() and path.stat().st_size and path.suffix.lower() not in _PAGES:
        refuse(
            f"{option} {text} already exists and its name does not end in .html, .md or .txt; "
            "choose a new file, or one named *.html"
        )
    return path
