"""Which finished case pytest runs next: in order of completion, without thrashing fixtures."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable


class ReadyQueue:
    """Finished items, taken in the order of completion but same place by same place.

    An item's place is its module together with its higher-scoped parameters. As long as items of
    the place last taken are ready they go first, so that fixtures of that place are set up once and
    not once per item.
    """

    def __init__(self) -> None:
        self._by_place: dict[Hashable, deque[int]] = {}
        self._last: Hashable = None

    def __len__(self) -> int:
        return sum(len(line) for line in self._by_place.values())

    def add(self, index: int, place: Hashable) -> None:
        """Put a finished item at the end of its place's line."""
        self._by_place.setdefault(place, deque()).append(index)

    def pop(self) -> int | None:
        """The next item to run, or None when none is ready."""
        line = self._by_place.get(self._last)
        if not line:
            # Places stand in the order in which their oldest ready item finished.
            self._last = next(iter(self._by_place), None)
            line = self._by_place.get(self._last)
            if not line:
                return None
        index = line.popleft()
        if not line:
            del self._by_place[self._last]
        return index
