"""The pool file as bytes and as TOML: what can be wrong with it before any field means anything."""

from __future__ import annotations

import re
import stat
import tomllib
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.place import Place, looks_like_secret, shown_text

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 1024 * 1024

_AT_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)|\s*\(at end of document\)")
_SECRET_FIELD = re.compile(
    r"(?i)((?:\b|_)(?:key|api[_-]?key|secret|token|password|authorization|env)[\"']?\s*=(?!\s*\{)\s*)([^,}\n]+)"
)
_VARIABLE = re.compile(r"[\"']?[A-Z_][A-Z0-9_]*[\"']?\s*")
_USERINFO = re.compile(r"://[^/\s\"']*@")


@dataclass(frozen=True, slots=True)
class PoolText:
    """A pool file's text and the SHA-256 (hex) of its bytes."""

    text: str
    digest: str


def read_pool_file(path: Path, place: Place) -> PoolText:
    """The file's text, of at most 1 MiB.

    Raises:
        ConfigError: It is missing, unreadable, no regular file, too large or not UTF-8.
    """
    try:
        # A pipe would be empty for the workers, which read the file again.
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            found = "a directory" if stat.S_ISDIR(mode) else "no regular file"
            place.refuse(f"must be a TOML file (got {found})")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        place.refuse("there is no such file")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the path is malformed"
        place.refuse(f"cannot be read ({reason})")
    if len(content) > MAX_BYTES:
        place.refuse(f"must have at most {MAX_BYTES} bytes (it has more)")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        place.refuse(f"must be UTF-8 (line {line} is not)")
    return PoolText(text, sha256(content).hexdigest())


def parse_toml(text: str, place: Place) -> dict[str, object]:
    """The file's tables.

    Raises:
        ConfigError: The text is not TOML; the message shows the line, without any secret in it.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        place.refuse("is nested too deeply")
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at_line = _AT_LINE.search(message)
        lines = text.splitlines() or [""]
        number = int(at_line[1]) if at_line and at_line[1] else len(lines)
        what = shown_text(_AT_LINE.sub("", message))
        line = _masked(lines[min(number, len(lines)) - 1].strip())
        place.refuse(f"line {number} is not TOML: {what}: {shown_text(line)}")
    except ValueError:
        # tomllib lets the interpreter's own limit on digits through as it is.
        place.refuse("holds a number that is too long")


def _masked(line: str) -> str:
    """The line without anything that could be a secret: it is shown exactly when it is broken."""

    def value(match: re.Match[str]) -> str:
        return match[0] if _VARIABLE.fullmatch(match[2]) else f"{match[1]}***"

    line = _USERINFO.sub("://***@", _SECRET_FIELD.sub(value, line))
    words = re.split(r"([\s\"'=,{}\[\]]+)", line)
    return "".join("***" if looks_like_secret(word) else word for word in words)
