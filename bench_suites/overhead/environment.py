"""What a measured command finds around it: the same on every machine, whatever is set up there."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distributions, requires
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterator

Environment = dict[str, str]
"""Variables of a process."""

_SETTINGS_OF_RUNS = (
    "PYTEST_",
    "RATE_MODE",
    "NUM_INSTANCES",
    "STORAGE_FORMAT",
    "DEBUG_",
    "MAX_WORKERS",
    "USE_CONCURRENT",
    "USE_MULTI_VLLM",
    "VLLM_PORTS",
    "PYTHON",
)
"""Beginnings of variables that change what a run does or how fast Python is."""

_NEEDED = frozenset({"PYTHONPATH", "PYTHONHOME"})
_TOOL = "pytest-ultrapar"


@contextmanager
def measured_environment() -> Iterator[Environment]:
    """The environment of all measured commands while entered.

    It has compiled files of its own: where bytecode may not be written (as in many containers)
    every process would compile the tool and rewrite its tests anew, 0.4 s of CPU each time.
    """
    with tempfile.TemporaryDirectory(prefix="overhead-") as compiled:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _NEEDED or not name.startswith(_SETTINGS_OF_RUNS)
        }
        yield {**kept, "PYTHONPYCACHEPREFIX": compiled}


def foreign_plugins() -> list[str]:
    """Names of the installed pytest plugins that neither are this one nor come along with it.

    They cost whatever they cost with or without the tool: hypothesis, installed for the tool's own
    tests, takes 1 s of CPU at the end of every pytest command.
    """
    ours = _with_requirements(_TOOL)
    return sorted(
        entry_point.name
        for distribution in distributions()
        if canonicalize_name(distribution.metadata["Name"]) not in ours
        for entry_point in distribution.entry_points
        if entry_point.group == "pytest11"
    )


def _with_requirements(name: str) -> set[str]:
    """A package and all that it needs, directly or not, without extras."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = canonicalize_name(waiting.pop())
        if one in found:
            continue
        found.add(one)
        try:
            texts = requires(one) or []
        except PackageNotFoundError:
            continue
        needs = map(Requirement, texts)
        waiting += [
            need.name for need in needs if not need.marker or need.marker.evaluate({"extra": ""})
        ]
    return found
