"""What keeps the loop of all episodes from turning: code of the suite, seen where it stands then.

A thread looks at the loop's thread when a beat of the loop is late, and else sleeps: ten wakes of
20 us a second are all that it costs.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.system.clock import CpuWaits

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

STALL_S = 0.1
_STEP_S = 0.02
"""Between two looks at a loop that stands."""
_NOT_OF_SUITES = (
    str(Path(__file__).parents[1]) + os.sep,
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")),
    "<",
)


class StallWatch:
    """Looks at the loop's thread, in which it is made.

    Args:
        overdue: As that of `LoopLag`.

    Attributes:
        lost: Seconds by the place at which they were lost, such as `answer (test_words.py:12)`.
    """

    def __init__(self, overdue: Callable[[], tuple[float, float]]) -> None:
        self.lost: defaultdict[str, float] = defaultdict(float)
        self._overdue = overdue
        self._folder = str(Path.cwd())
        self._loop_thread = threading.get_ident()
        # What was ready to run and had no CPU was kept by other processes.
        self._waits = CpuWaits()
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="ultrapar-stalls", daemon=True).start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()

    def _watch(self) -> None:
        wait_s, known, said_s, waits_s, before_s = STALL_S, 0.0, 0.0, 0.0, 0.0
        while not self._ended.wait(wait_s):
            beat, late_s = self._overdue()
            if beat != known:
                known, said_s, before_s = beat, 0.0, waits_s
            waits_s = self._waits.total_s()
            stood_s = late_s - (waits_s - before_s)
            wait_s = max(_STEP_S, STALL_S - stood_s)
            if stood_s < STALL_S:
                continue
            place = place_in_suite(sys._current_frames().get(self._loop_thread), self._folder)  # noqa: SLF001
            if place:
                self.lost[place] += stood_s - said_s
            said_s = stood_s
        self._waits.close()


def place_in_suite(frame: FrameType | None, folder: str) -> str:
    """Function, file and line of the suite's code that a thread's frame stands in, or empty."""
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_OF_SUITES):
        frame = frame.f_back
    if frame is None:
        return ""
    name = os.path.relpath(frame.f_code.co_filename, folder)
    return f"{frame.f_code.co_qualname} ({name}:{frame.f_lineno})"
