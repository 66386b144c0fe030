"""The command that runs cases of a run again; pure."""

from __future__ import annotations

import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_CHOOSE = frozenset({"--lf", "--last-failed", "--nf", "--new-first", "--sw", "--stepwise"})


def options_again(arguments: Sequence[str], tests: Collection[str]) -> str:
    """What follows cases that a command names: its options, without the tests of an earlier one.

    Args:
        arguments: pytest's command line.
        tests: Node ids, or paths, of the run's tests.
    """
    names = {part for test in tests for part in PurePath(test.split("::")[0]).parts}
    kept = [
        one
        for one in arguments
        if one not in _CHOOSE
        and (one.startswith("-") or PurePath(one.split("::")[0]).name not in {"", *names})
    ]
    return shlex.join(kept)
