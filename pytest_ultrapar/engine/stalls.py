"""Find code in the suite that blocks the event loop on which all episodes run.

A separate thread wakes ten times per second, for 20 us each time. Only if the loop's heartbeat is
late does it look at what the loop's thread is executing.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections import defaultdict
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from pytest_ultrapar.system.clock import CpuWaits

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

STALL_S = 0.1
_STEP_S = 0.02
"""The time between two checks of a blocked loop, in seconds."""
_NOT_OF_SUITES = (
    str(Path(__file__).parents[1]) + os.sep,
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")),
    "<",
)


def watch_stalls(overdue: Callable[[], tuple[float, float]], ended: Event) -> dict[str, float]:
    """Watch the thread that calls this, until `ended` is set.

    Args:
        overdue: The method `LoopLag.overdue`.
        ended: Set when the loop has ended.

    Returns:
        For each place in the suite, such as `answer (test_words.py:12)`, the seconds lost there.
        The watching thread continues to update this dict.
    """
    lost: defaultdict[str, float] = defaultdict(float)
    loop, folder = threading.get_ident(), str(Path.cwd())
    waits = CpuWaits()  # to subtract the time in which other processes had the CPU

    def watch() -> None:
        wait_s, known, said_s, waited_s, before_s = STALL_S, 0.0, 0.0, 0.0, 0.0
        while not ended.wait(wait_s):
            beat, late_s = overdue()
            if beat != known:
                known, said_s, before_s = beat, 0.0, waited_s
            try:
                waited_s = waits.total_s()
            except ProcessLookupError:  # the loop's thread is gone
                break
            stood_s = late_s - (waited_s - before_s)
            wait_s = max(_STEP_S, STALL_S - stood_s)
            if stood_s < STALL_S:
                continue
            if place := place_in_suite(sys._current_frames().get(loop), folder):  # noqa: SLF001
                lost[place] += stood_s - said_s
            said_s = stood_s
        waits.close()

    Thread(target=watch, name="ultrapar-stalls", daemon=True).start()
    return lost


def place_in_suite(frame: FrameType | None, folder: str) -> str:
    """The function, file and line of the suite's innermost frame in a stack; empty if none."""
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_OF_SUITES):
        frame = frame.f_back
    if frame is None:
        return ""
    name = os.path.relpath(frame.f_code.co_filename, folder)
    return f"{frame.f_code.co_qualname} ({name}:{frame.f_lineno})"
