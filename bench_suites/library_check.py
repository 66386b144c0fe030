"""Refuses an edited task library that the phases of a run cannot use.

The check runs before collection. During collection, each xdist worker shows an error with a
traceback.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from bench_suites import workflow
from bench_suites.phases import phases_named

if TYPE_CHECKING:
    from bench_suites.selection import Selection

_RESTORE = "restore it with git restore bench_suites/workflow/data"


def check_library(config: pytest.Config, chosen: Selection) -> None:
    """Make sure that the named phases can use an edited library.

    Raises:
        pytest.UsageError: The phases cannot use it, or a selected flaw of 5.3 can change no task of
            a selected type.
    """
    phases = phases_named(config)
    edited = ", ".join(workflow.TASKS.edited()) if phases else ""
    if not edited:
        return
    try:
        workflow.TASKS.check()
        if "phase53" in phases:
            _check_room(chosen)
    except workflow.LibraryError as error:
        msg = f"the task library was edited ({edited}) and cannot be used: {error}; {_RESTORE}"
        raise pytest.UsageError(msg) from error


def _check_room(chosen: Selection) -> None:
    reasons: dict[str, str] = {}
    every = itertools.product(chosen.flaws, chosen.severities, chosen.task_types)
    for name, severity, task_type in every:
        try:
            workflow.check_room(workflow.flaw(name, severity=severity), task_type)
        except workflow.FlawError as error:
            reasons.setdefault(name, str(error))
    if reasons:
        others = ",".join(name for name in chosen.flaws if name not in reasons)
        way_out = f", or run without {', '.join(reasons)}: --flaw-set {others}" if others else ""
        first = next(iter(reasons.values()))
        msg = f"the task library was edited, and {first}; {_RESTORE}{way_out}"
        raise pytest.UsageError(msg)
