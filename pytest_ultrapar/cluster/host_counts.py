"""Count how many cases a host has claimed, begun and ended in each line, without I/O.

A line consists of the cases of one model that are in the same group, or in no group (free cases).
The counts come from reports by the broker and by pytest. The broker reports when an episode has
ended. pytest reports the case much later, because an xdist worker keeps its last item until it gets
another one. If the broker does not learn that an episode has ended, for example because an engine
failed, pytest's report is used.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.protocol import NO_PART, TAKEN

if TYPE_CHECKING:
    from pytest_ultrapar.broker.protocol import BrokerStatus
    from pytest_ultrapar.cluster.run_identity import NumberedCases


class HostCounts:
    """The counts of one host.

    Attributes:
        claimed: How many cases in each line this host has ever claimed. Free cases that a mark
            skips are not counted, because the broker does not know about them.
        room: For each line, how many more of its requests could be in flight.
        n_ended: How many episodes have ended, as counted by the broker.
    """

    def __init__(self, cases: NumberedCases) -> None:
        n = len(cases.lines)
        self._cases = cases
        self._place = {(line.model, line.name): place for place, line in enumerate(cases.lines)}
        self.claimed = [0] * n
        self.room = [NO_PART] * n
        self.n_ended = 0
        self._n_open_episodes = 0
        self._begun = [0] * n
        self._ended = [0] * n
        self._reported = [0] * n
        self._skipped = [0] * n

    def claim(self, number: int) -> None:
        """Count a case that this host claimed."""
        if (line := self._counted_in(number)) is not None:
            self.claimed[line] += 1

    def report(self, number: int, outcome: str) -> None:
        """Count a case that pytest reported with this outcome."""
        if (line := self._counted_in(number)) is not None:
            self._reported[line] += 1
            # Most cases that other hosts took had not begun. For each case that had begun, this
            # host claims one case more.
            self._skipped[line] += outcome in {"skipped", TAKEN}

    def _counted_in(self, number: int) -> int | None:
        line = self._cases.line_of(number)
        is_free = self._cases.lines[line].group is None
        return None if is_free and self._cases.cases[number].skipped is not None else line

    def update(self, status: BrokerStatus) -> None:
        """Update the counts from the broker's status."""
        self.n_ended = status.ended_episodes
        self._n_open_episodes = status.open_episodes
        lines, place = self._cases.lines, self._place
        of_group = {one.name: one for one in status.groups}
        in_groups: Counter[str] = Counter()
        for at, line in enumerate(lines):
            if (group := of_group.get(line.name)) is not None:
                self._begun[at], self._ended[at] = group.begun, group.ended
                self.room[at] = group.room
                in_groups[line.model] += group.begun
        for model in status.models:
            if (at := place.get((model.model, ""), -1)) >= 0:
                n_begun = sum(model.open.values()) + sum(model.ended.values())
                self._begun[at] = max(0, n_begun - in_groups[model.model])
        room = status.room or {}
        for at, line in enumerate(lines):
            if line.group is None:
                self.room[at] = room.get(line.model, NO_PART)

    def begun(self, n_open: int) -> list[int]:
        """Return how many cases in each line have begun their episodes.

        Some cases end without a request: a test or a fixture skips them, or a fixture fails. The
        broker does not report which line such a case is in. pytest may report the case much later,
        because a worker keeps it. So no line counts as having more cases left to begin than all
        lines have together. Otherwise a host whose workers keep all claimed cases would never claim
        again.

        Args:
            n_open: The number of claimed cases whose episodes have not ended; see `n_open`.
        """
        n_to_begin = max(0, n_open - self._n_open_episodes)
        return [
            max(
                self._begun[at] + (self._skipped[at] if line.group is None else 0),
                self._reported[at],
                self.claimed[at] - n_to_begin,
            )
            for at, line in enumerate(self._cases.lines)
        ]

    def open_of(self) -> list[tuple[int, int]]:
        """Return how many claimed cases have not ended, for each group that has such cases."""
        found: Counter[int] = Counter()
        for at, line in enumerate(self._cases.lines):
            if line.group is not None:
                found[line.group] += self._open(at)
        return [(group, n) for group, n in sorted(found.items()) if n]

    def n_open(self) -> int:
        """Return how many claimed cases have episodes that have not ended."""
        lines = self._cases.lines
        grouped = [at for at, line in enumerate(lines) if line.group is not None]
        n_free = sum(self.claimed) - sum(self.claimed[at] for at in grouped)
        n_free_ended = self.n_ended - sum(self._ended[at] for at in grouped)
        return sum(map(self._open, grouped)) + max(0, n_free - n_free_ended)

    def _open(self, line: int) -> int:
        return max(0, self.claimed[line] - max(self._ended[line], self._reported[line]))
