"""Publish files whole or not at all, even if the power fails; read files.

The order matters: sync the content, then rename the file, then sync the directory. A file that was
renamed before its sync may be empty after a power failure. If the directory was not synced, the old
file may reappear.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

import msgspec

from pytest_ultrapar.errors import ResultsError, UltraparError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path


T = TypeVar("T")
M = TypeVar("M")


@contextmanager
def cannot(
    do: str, advice: str = "", *, option: str = "", error: type[UltraparError] = ResultsError
) -> Iterator[None]:
    """Turn an `OSError` in the block into an error with one sentence: `cannot <do>: <why>`.

    Args:
        do: The action. If this text does not name the file that the error is about, the file's name
            is added to the message.
        advice: Text to append to the sentence.
        option: The option that named the file. The sentence begins with the option.
        error: The class to raise.

    Raises:
        UltraparError: The block raised an `OSError`.
    """
    try:
        yield
    except OSError as cause:
        # A file descriptor's number is not a file name.
        name = cause.filename if isinstance(cause.filename, str) else ""
        is_named = any(f"{name}{end}" in f"{do} " for end in (" ", ","))
        # For a temporary file, `do` names the file that it replaces.
        is_said = not name or is_named or name.endswith(TEMPORARY_SUFFIX)
        where = "" if is_said else f"{name}: "
        # Errors from pyarrow have neither a number nor a file name.
        why = cause.strerror or cause
        raise error(f"{option and f'{option}: '}cannot {do}: {where}{why}{advice}") from cause


TEMPORARY_SUFFIX = ".tmp"
NOT_THAT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that msgspec raises if bytes are not the expected JSON, including bytes that are not
text and JSON that is nested too deeply."""


def temporary_for(path: Path) -> Path:
    """Return a name for this process's unfinished file: next to `path`, in the same file system."""
    return path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")


def sweep_temporaries(directory: Path) -> None:
    """Remove the temporary files of killed processes from a directory.

    The temporary files of live processes stay. A killed process's file also stays if another
    process now has the same id.
    """
    for path in directory.glob(f".*{TEMPORARY_SUFFIX}"):
        pid = path.stem.rpartition(".")[2]
        if pid.isdecimal() and not _lives(int(pid)):
            path.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def publish(temporary: Path, path: Path) -> None:
    """Move a finished temporary file to `path`.

    Raises:
        OSError: The file cannot be synced or moved. Then `path` is unchanged.
    """
    sync_path(temporary)
    os.replace(temporary, path)  # noqa: PTH105 - as its neighbours
    sync_path(path.parent)


def replace_content(path: Path, content: bytes, temporary: Path) -> None:
    """Replace `path` with a new file that only its owner can read.

    Raises:
        OSError: The file cannot be written, synced or moved. The caller must then remove
            `temporary`. If the process is killed before that, the next call overwrites it.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(content)
    publish(temporary, path)


def write_whole(path: Path, content: bytes | None) -> None:
    """Write a small file that only its owner can read. With None, remove the file if it exists.

    Raises:
        ResultsError: The file cannot be written. An earlier file with the same name is unchanged.
    """
    temporary = temporary_for(path)
    with cannot(f"write {path}"):
        if content is None:
            path.unlink(missing_ok=True)
            return
        try:
            replace_content(path, content, temporary)
        finally:
            temporary.unlink(missing_ok=True)


_SUMMED = b'{"checksum":"'


def with_checksum(text: bytes) -> bytes:
    """Add a JSON object's CRC-32 to its text, as the first field. The object must not be empty."""
    return b'%b%08x",%b' % (_SUMMED, crc32(text[1:]), text[1:])


def is_changed(text: bytes) -> bool:
    """Whether a text was changed after `with_checksum`.

    Always false for a text without a checksum, such as earlier versions wrote.
    """
    rest = b"{" + text[len(with_checksum(b"")) :]
    return text.startswith(_SUMMED) and text != with_checksum(rest)


def read_whole(path: Path, kind: type[T], missing: M, wrong: str) -> T | M:
    """Return the content of a small JSON file of a run.

    Args:
        path: The file.
        kind: The type that the file must contain.
        missing: The value to return if the file does not exist.
        wrong: The error message if the file contains something else, such as "is not a summary".

    Raises:
        ResultsError: The file cannot be read, is damaged, or contains something else.
    """
    try:
        text = read_file(path)
        if is_changed(text):
            raise ResultsError(f"{path} is damaged: its checksum is wrong")
        return msgspec.json.decode(text, type=kind)
    except FileNotFoundError:
        return missing
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from error
    except NOT_THAT_JSON as error:
        raise ResultsError(f"{path} {wrong}: {error}") from error


def open_file(path: Path | str) -> BufferedReader:
    """Open a regular file for reading; links are followed.

    Use this function for every file that a user names: reading a pipe might block forever, and
    `/dev/zero` never ends.

    Raises:
        OSError: The file cannot be read, or is not a regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
    raise OSError(errno.EINVAL, f"it is {kind}", str(path))


def read_file(path: Path | str) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: As in `open_file`.
    """
    with open_file(path) as file:
        return file.read()


def check_private(directory: Path) -> None:
    """Check that only this user can create files in a directory or see their names.

    Raises:
        OSError: Other users have access, the directory is a link, or it does not exist.
    """
    found = directory.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_ours or found.st_mode & 0o077:
        why = "it must be a directory (not a link) that you own, with mode 0700"
        raise OSError(errno.EACCES, why, str(directory))


def digest_of(path: Path) -> str:
    """Return the SHA-256 (hex) of a file.

    Raises:
        OSError: The file cannot be read.
    """
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_path(path: Path) -> None:
    """Wait until a file's content, or a directory's entries, are on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
