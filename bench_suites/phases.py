"""The phases that a command line names. Imports little: every pytest run in this tree loads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_SUITES = Path(__file__).resolve().parent


def phases_named(config: pytest.Config) -> tuple[str, ...]:
    """The phases in which the command line's arguments may find tests, in the phases' order."""
    start = config.invocation_params.dir
    named = [(start / argument.split("::")[0]).resolve() for argument in config.args]
    return tuple(
        path.name
        for path in sorted(_SUITES.glob("phase5?"))
        if any(each.is_relative_to(path) or path.is_relative_to(each) for each in named)
    )
