"""How late an engine's loop is, and what its process spends while it has work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.records import EngineSpent

if TYPE_CHECKING:
    from collections.abc import Callable

HEARTBEAT_S = 0.005


class Pulse:
    """Counts heartbeats; beaten by the engine's loop, read by any thread.

    A busy main thread holds the interpreter lock: what the loop then loses is seen as lag, too.

    Args:
        now_s: Reads the engine's clock.
        cpu_s: Reads the CPU seconds of the process so far.
    """

    def __init__(self, now_s: Callable[[], float], cpu_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._cpu_s = cpu_s
        self._due_s: float | None = None
        self._began_s = now_s()
        self._cpu_began_s = cpu_s()
        self._busy = False
        self._wall_s = 0.0
        self._spent_s = 0.0
        self._n_beats = 0
        self._late_s = 0.0
        self._latest_s = 0.0

    @property
    def lag_s(self) -> float:
        """Seconds by which the next beat is overdue now, >= 0."""
        due_s = self._due_s
        return 0.0 if due_s is None else max(0.0, self._now_s() - due_s)

    def beat(self, *, busy: bool) -> float:
        """Count a beat, and return after how many seconds the next one is due.

        Args:
            busy: Whether an episode is open from now on.
        """
        now_s, cpu_s = self._now_s(), self._cpu_s()
        if self._busy and self._due_s is not None:
            late_s = max(0.0, now_s - self._due_s)
            self._n_beats += 1
            self._late_s += late_s
            self._latest_s = max(self._latest_s, late_s)
            self._wall_s += now_s - self._began_s
            self._spent_s += cpu_s - self._cpu_began_s
        self._began_s, self._cpu_began_s = now_s, cpu_s
        self._busy = busy
        self._due_s = now_s + HEARTBEAT_S
        return HEARTBEAT_S

    def spent(self, worker: str) -> EngineSpent:
        """All that was counted so far."""
        return EngineSpent(
            worker, self._wall_s, self._spent_s, self._n_beats, self._late_s, self._latest_s
        )
