"""Environments of their own for clients that are compared: made on first use, then kept."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.overhead.command import ROOT
from benchmarks.overhead.command_line import note
from pytest_ultrapar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROJECT = ROOT / "pyproject.toml"
_SHOWN_CHARACTERS = 2000


def tool_python() -> Path:
    """An interpreter that has this checkout, editable, and no extra: what its users have.

    Raises:
        ConfigError: The environment cannot be made.
    """
    return environment("tool", ["-e", str(ROOT)])


def cooperative_python(given: Path | None) -> Path:
    """An interpreter that has what `cooperative_client` imports.

    Args:
        given: The user's own (`--cooperative`); without one, what the dependency group
            `cooperative` of pyproject.toml names is installed.

    Raises:
        ConfigError: The user's own lacks something, or the environment cannot be made.
    """
    if given is None:
        groups = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["dependency-groups"]
        return environment("cooperative", groups["cooperative"])
    needed = "import aiohttp, pytest, pytest_asyncio_cooperative"
    try:
        # S603: the user named that interpreter.
        subprocess.run([given, "-P", "-c", needed], capture_output=True, check=True, cwd="/")
    except (OSError, subprocess.CalledProcessError) as error:
        msg = (
            f"--cooperative: {given} is no Python that has pytest-asyncio-cooperative and aiohttp "
            f"installed ({error})"
        )
        raise ConfigError(msg) from error
    return given


def environment(name: str, requirements: Sequence[str]) -> Path:
    """The interpreter of an environment with these requirements and nothing else.

    It stands in `$XDG_CACHE_HOME/ultrapar/overhead`, else in `~/.cache/ultrapar/overhead`, one for
    each checkout, and is made anew when that checkout's `pyproject.toml` has changed.

    Raises:
        ConfigError: It cannot be made; the message ends with what pip said.
    """
    what = repr((sys.version, str(ROOT), *requirements))
    folder = _cache_directory() / f"{name}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"
    python, made_for = folder / "bin" / "python", folder / "pyproject.toml"
    project = _PROJECT.read_bytes()
    if made_for.is_file() and made_for.read_bytes() == project:
        return python
    note(f"{name}: makes an environment of its own, once, in {folder}")
    # A pip of its own would take as long to install as all the rest.
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    try:
        venv.create(folder, clear=True)
        # S603: the requirements are the project's own.
        subprocess.run([*pip, *requirements], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "")[-_SHOWN_CHARACTERS:]
        msg = f"{folder} cannot be made: {error}\n{said}"
        raise ConfigError(msg) from error
    made_for.write_bytes(project)
    return python


def _cache_directory() -> Path:
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification: a relative path is invalid and to be ignored.
    base = Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache"
    return base / "ultrapar" / "overhead"
