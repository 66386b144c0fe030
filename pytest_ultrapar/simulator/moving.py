"""A limit whose numbers change while the server runs, as a faults file says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ultrapar.simulator.limits import Exceeded, Gate, Held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.pool.model import Limit
    from pytest_ultrapar.simulator.faults.script import Capacity
    from pytest_ultrapar.simulator.faults.timeline import Timeline


def held_at(base: Held, steps: Sequence[Capacity], elapsed_s: float) -> Held:
    """What a limit holds at a moment: the file's later entries go before earlier ones.

    Args:
        base: What it holds without any entry.
        steps: All entries about it.
        elapsed_s: Seconds since the script's beginning.
    """
    held = base
    for step in steps:
        if step.span.holds(elapsed_s):
            held = _changed(held, step)
    return held


def next_change_s(steps: Sequence[Capacity], elapsed_s: float) -> float:
    """Seconds after the script's beginning when an entry begins or ends next; infinity for never.

    Before the first request the elapsed time stands at 0, so what begins at 0 has begun.
    """
    edges = [edge for step in steps for edge in (step.span.from_s, step.span.end_s)]
    return min((edge for edge in edges if edge > elapsed_s), default=math.inf)


class MovingGate(Gate):
    """A gate that looks at the time before it judges."""

    __slots__ = ("_base", "_changes_s", "_steps", "_timeline")

    def __init__(self, limit: Limit, steps: Sequence[Capacity], timeline: Timeline) -> None:
        super().__init__(limit)
        self._base = Held.of(limit)
        self._steps = tuple(steps)
        self._timeline = timeline
        self._changes_s = 0.0
        self.counts_tokens |= any(step.tpm is not None for step in self._steps)

    def decide(self, now_s: float) -> Exceeded | None:
        """Why one more request has no place here now; None when it has one."""
        elapsed_s = self._timeline.elapsed_s(now_s)
        if elapsed_s >= self._changes_s:
            self.hold(held_at(self._base, self._steps, elapsed_s), now_s)
            self._changes_s = next_change_s(self._steps, elapsed_s)
        return super().decide(now_s)


def _changed(held: Held, step: Capacity) -> Held:
    factor = step.factor
    workers = held.workers if held.workers is None else max(1, math.floor(held.workers * factor))
    return Held(
        workers if step.workers is None else step.workers,
        _rate(held.qps, factor) if step.qps is None else step.qps,
        _rate(held.rpm, factor) if step.rpm is None else step.rpm,
        _rate(held.tpm, factor) if step.tpm is None else step.tpm,
        held.burst if step.burst is None else step.burst,
        held.burst_tokens if step.burst_tokens is None else step.burst_tokens,
    )


def _rate(rate: float | None, factor: float) -> float | None:
    return None if rate is None else rate * factor
