"""Which workers have given no sign for so long that they must be stopped for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Silence:
    """Counts for how long each worker has given no sign, looked at every now and then.

    A look counts for twice the usual distance between two at most: where the watcher itself stood
    still (Ctrl-Z, a closed lid, a machine that swaps), so may the workers have, through no fault of
    theirs.
    """

    def __init__(self, patience_s: float, look_s: float) -> None:
        """Begin with no worker.

        Args:
            patience_s: For how long a worker may be silent, > 0 seconds.
            look_s: The usual time between two looks, > 0 seconds.
        """
        self._patience_s = patience_s
        self._look_s = look_s
        self._looked_s: float | None = None
        self._signs: dict[str, float] = {}
        self._silent_s: dict[str, float] = {}

    def look(self, signs: Mapping[str, float | None], now_s: float) -> list[str]:
        """The workers that have been silent for longer than they may, in order of their names.

        Args:
            signs: By worker, when it gave its last sign, on any clock; None for no sign at all.
                Workers that are not named are forgotten.
            now_s: Monotonic seconds.
        """
        passed_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        silent_s: dict[str, float] = {}
        for worker, sign_s in signs.items():
            is_new = sign_s is not None and sign_s != self._signs.get(worker)
            before_s = self._silent_s.get(worker)
            if is_new or before_s is None:
                silent_s[worker] = 0.0
            else:
                silent_s[worker] = before_s + min(passed_s, 2 * self._look_s)
            if sign_s is not None:
                self._signs[worker] = sign_s
        self._silent_s = silent_s
        return sorted(name for name, one_s in silent_s.items() if one_s > self._patience_s)
