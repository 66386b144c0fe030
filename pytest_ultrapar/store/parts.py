"""The long strings of a run's exchanges, each once: `parts/`, a file per content, named by it.

Any process of a run may come upon the same image first, so all write alike: beside the file's
place, then there. What was begun and never finished has a temporary name; what a power cut left
half is told from the whole by its name, which is the digest of its content.
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
    """Keeps parts of a run; `keep` belongs to one thread, `sync` to any.

    Args:
        run_dir: The run's directory.
        redact: Takes known secrets out of bytes (`Redactor.bytes`).
    """

    def __init__(self, run_dir: Path, redact: Callable[[bytes], bytes]) -> None:
        self._directory = run_dir / PARTS_NAME
        self._redact = redact
        self._kept: dict[str, str] = {}
        self._unsynced: list[Path] = []
        self._failure: str | None = None

    def keep(self, content: bytes) -> str:
        """Keep a part, without secrets; returns the name of what is kept.

        An episode has nothing to do with a disk that is full: `sync` says so, which ends the run.
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
            # Of another process, or of the session that is resumed.
            if Disk.stat(path).st_size == len(content):
                return
        except FileNotFoundError:
            with suppress(FileExistsError):
                Disk.mkdir(self._directory, 0o700)
        temporary = temporary_for(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(Disk.open_fd(temporary, flags, 0o600), "wb") as file:
            file.write(content)
        # Synced later: that takes milliseconds, and this is the thread of all requests.
        Disk.replace(temporary, path)
        self._unsynced.append(path)

    def sync(self) -> None:
        """Wait until all parts kept so far are on the disk itself.

        Raises:
            ResultsError: One could not be written, or the disk says no.
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
            self._failure = f"cannot sync the parts in {self._directory}: {error.strerror}"
            raise ResultsError(self._failure) from error


def read_part(run_dir: Path, name: str) -> bytes:
    """A part's content.

    Args:
        run_dir: The run's directory.
        name: As a body has it; hexadecimal digits.

    Raises:
        ResultsError: It is not there, or is not what was kept.
    """
    path = run_dir / PARTS_NAME / name
    with cannot(f"read {path}"):
        content = read_file(path)
    if part_name(content) != name:
        raise ResultsError(f"{path} is damaged: it does not hold what its name says")
    return content
