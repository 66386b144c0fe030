"""Store the long strings in a run's exchanges in `parts/`: each string once, in its own file.

Several processes of a run may store the same string, such as an image, at the same time. So each
writes to a temporary file, which gets its final name when it is complete. The final name is the
digest of the content, so a file that a power loss left incomplete is detected.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.exchanges import part_name
from pytest_ultrapar.system.disk import Disk
from pytest_ultrapar.system.files import cannot, read_file, sync_path, temporary_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PARTS_NAME = "parts"


class PartWriter:
    """Stores a run's parts. Call `keep` from a single thread; any thread may call `sync`.

    Args:
        run_dir: The run directory.
        redact: Removes known secrets from bytes (`Redactor.bytes`).
    """

    def __init__(self, run_dir: Path, redact: Callable[[bytes], bytes]) -> None:
        self._directory = run_dir / PARTS_NAME
        self._redact = redact
        self._kept: dict[str, str] = {}
        self._unsynced: list[Path] = []
        self._failure: str | None = None

    def keep(self, content: bytes) -> str:
        """Remove secrets from a part, store it, and return its name.

        If the disk is full, the episode continues. The next `sync` raises the error, which ends the
        run.
        """
        name = part_name(content)
        kept = self._kept.get(name)
        if kept is None:
            plain = self._redact(content)
            kept = self._kept[name] = name if plain is content else part_name(plain)
            try:
                self._write(self._directory / kept, plain)
            except OSError as error:
                self._failure = f"cannot write {self._directory / kept}: {error.strerror}"
        return kept

    def _write(self, path: Path, content: bytes) -> None:
        try:
            # Another process, or the session that is resumed, has written it.
            if Disk.stat(path).st_size == len(content):
                return
        except FileNotFoundError:
            with suppress(FileExistsError):
                Disk.mkdir(self._directory, 0o700)
        temporary = temporary_for(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(Disk.open_fd(temporary, flags, 0o600), "wb") as file:
            file.write(content)
        # Sync later: a sync takes milliseconds, and this thread serves all requests.
        Disk.replace(temporary, path)
        self._unsynced.append(path)

    def sync(self) -> None:
        """Wait until all parts kept so far are on disk.

        Raises:
            ResultsError: A part could not be written, or the disk reports an error.
        """
        if self._failure is not None:
            raise ResultsError(self._failure)
        paths, self._unsynced = self._unsynced, []
        if not paths:
            return
        try:
            for path in (*paths, self._directory):
                sync_path(path)
        except OSError as error:
            self._failure = f"cannot sync the files in {self._directory}: {error.strerror}"
            raise ResultsError(self._failure) from error


def read_part(run_dir: Path, name: str) -> bytes:
    """The content of a part.

    Args:
        run_dir: The run directory.
        name: The part's name as it appears in the body, in hexadecimal digits.

    Raises:
        ResultsError: The part does not exist, or is damaged.
    """
    path = run_dir / PARTS_NAME / name
    with cannot(f"read {path}"):
        content = read_file(path)
    if part_name(content) != name:
        raise ResultsError(f"{path} is damaged: its content does not match its name")
    return content
