"""Make the commands that finish a run or rerun some of its cases."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.settings import Options
from pytest_ultrapar.store.run_directory import DEFAULT_PARENT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from pytest_ultrapar.store.manifest import Manifest

_MAKING_CASES = (Options.pool, Options.models, Options.repeats, Options.seed, Options.simulator)
_AGAIN = ("unsolved", "partial", "infra", "error")
_UNFINISHED = ("interrupted", "never ran", "not graded")


def rerun_command(manifest: Manifest, *what: str) -> str:
    """Return the shell command that reruns the cases that `what` selects by node ids or options."""
    kept, _ = _parted(manifest.arguments, [row.option for row in _MAKING_CASES])
    return shlex.join(["pytest", *kept, *what])


def rerun_lines(manifest: Manifest, counts: Mapping[str, int], directory: Path) -> Iterator[str]:
    """Yield the commands that finish the run and that rerun unsolved cases, each in a sentence."""
    is_near = directory.parent.name == DEFAULT_PARENT.name
    run = directory.name if is_near else str(directory)
    resume, only, of = Options.resume.option, Options.only.option, Options.only_of.option
    is_own = not (manifest.cluster_run or manifest.merged or manifest.regraded)
    if is_own and not manifest.asked_by_others and any(map(counts.get, _UNFINISHED)):
        _, words = _parted(manifest.arguments, [resume, Options.out.option, "--maxfail"])
        same = [word for word in words if word not in {"-x", "--exitfirst"}]
        yield f"finish the run: {shlex.join(['pytest', *same, f'{resume}={run}'])}"
    if ends := ",".join(end for end in _AGAIN if counts.get(end)):
        said = rerun_command(manifest, f"{only}={ends}", f"{of}={run}")
        yield f"rerun cases that were not solved: {said}"


def _parted(arguments: Iterable[str], options: Collection[str]) -> tuple[list[str], list[str]]:
    """Split a command line into the given options with their values, and all other words."""
    kept, others, words = list[str](), list[str](), iter(arguments)
    for word in words:
        option, _, value = word.partition("=")
        if option in options:
            kept.append(f"{option}={value or next(words, '')}")
        else:
            others.append(word)
    return kept, others
