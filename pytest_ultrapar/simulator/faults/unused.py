"""Which faults of a file never happened: a test of robustness that tested nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.log_line import with_fault

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ultrapar.simulator.faults.script import FaultScript


def unused_faults(script: FaultScript, log: Path) -> tuple[str, ...]:
    """The labels of faults that took no request, in the file's order.

    Args:
        script: What the server followed.
        log: Its log, complete. One that cannot be read says nothing of any fault.
    """
    left = {fault.label: with_fault(b"", fault.label) for fault in script.faults}
    try:
        with log.open("rb") as lines:
            for line in lines:
                for label in [label for label, mark in left.items() if mark in line]:
                    del left[label]
                if not left:
                    break
    except OSError:
        return ()
    return tuple(left)
