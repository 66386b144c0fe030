"""The file of one count per day: read, locked, and written whole before its units are spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DIRECTORY_VARIABLE = "ULTRAPAR_STATE_DIR"


def state_directory(environ: Mapping[str, str]) -> Path:
    """`$ULTRAPAR_STATE_DIR`, else `$XDG_STATE_HOME/ultrapar`, else `~/.local/state/ultrapar`."""
    raise NotImplementedError


def file_name(counted: str, level: str, name: str, key: str = "") -> str:
    """The name of the file of one counted thing, the same in all runs of a host.

    Args:
        counted: `requests` or `tokens`.
        level: Of the limit: `key`, `provider`, ...
        name: What identifies it within its level and key: for `key` nothing, for `key_model` the
            family, for `lane` provider and instance, for `instance` and `provider` the limit's
            name, for `pool` the providers' names.
        key: `key_identity` of the key for levels at or below a key, else empty. A key with several
            identities (it is used on several servers) has one file, and so one ledger, for each;
            all of them must allow a send, so that a server more or less forgets nothing.
    """
    raise NotImplementedError


class DayMemory:
    """One file; several processes may have it open, each write is done under a lock."""

    def __init__(self, directory: Path, name: str, shown: str) -> None:
        """Touch nothing yet.

        Args:
            directory: `state_directory`; made, private, with the first write.
            name: `file_name`.
            shown: What is counted, for messages: "requests per day of lab/key0".
        """
        raise NotImplementedError

    @property
    def exists(self) -> bool:
        """Whether there is a file; if not, the day begins at zero (a new host or container)."""
        raise NotImplementedError
