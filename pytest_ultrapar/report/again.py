"""The command that runs some of a run's cases again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.settings import Options
from pytest_ultrapar.store.run_directory import DEFAULT_PARENT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_ultrapar.store.manifest import Manifest

_MAKING_CASES = (Options.pool, Options.models, Options.repeats, Options.seed, Options.simulator)
_KEPT = {row.option for row in _MAKING_CASES}
_AGAIN = ("unsolved", "partial", "infra", "error")


def again_command(manifest: Manifest, *what: str) -> str:
    """The command, for a shell, that runs of a run's cases those with these node ids or options."""
    kept, words = [], iter(manifest.arguments)
    for word in words:
        option, _, value = word.partition("=")
        if option in _KEPT:
            kept.append(f"{option}={value or next(words, '')}")
    return shlex.join(["pytest", *kept, *what])


def again_all(manifest: Manifest, counts: Mapping[str, int], directory: Path) -> str:
    """The command for all of a run's cases that are not solved; empty where `counts` has none."""
    ends = ",".join(end for end in _AGAIN if counts.get(end))
    is_near = directory.parent.name == DEFAULT_PARENT.name
    run = directory.name if is_near else str(directory)
    only, of = Options.only.option, Options.only_of.option
    return again_command(manifest, f"{only}={ends}", f"{of}={run}") if ends else ""
