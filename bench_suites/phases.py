"""Which phases a command line names; light, since every pytest run in this tree asks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_SUITES = Path(__file__).resolve().parent


def phases_named(config: pytest.Config) -> tuple[str, ...]:
    """Phases in which the arguments of the command line may find tests, in their order."""
    start = config.invocation_params.dir
    named = [(start / argument.split("::")[0]).resolve() for argument in config.args]
    return tuple(
        path.name
        for path in sorted(_SUITES.glob("phase5?"))
        if any(each.is_relative_to(path) or path.is_relative_to(each) for each in named)
    )
