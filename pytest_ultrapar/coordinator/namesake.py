"""Whether a host of one's own name is at work in a run: known before anything is waited for.

Two hosts on one machine that both go by its name would else wait for each other: the second for the
keys, which the first has under that name until it ends.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError, UltraparError
from pytest_ultrapar.report.text import visible
from pytest_ultrapar.report.waiting_line import WaitingLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.cluster.server import ClusterServer
    from pytest_ultrapar.report.waiting_line import Screen

SPEAKS_S = 1.2
"""A host at work is heard of at least so often."""
_DEAD_S = 3.0
"""One that is silent for longer may be dead, and its name free soon: joining waits for that."""


class Namesake:
    """Looks for a host of this name, now and then; a process that was killed is none."""

    def __init__(
        self,
        server: ClusterServer,
        run: str,
        host: str,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server, self._run, self._host = server, run, host
        self._now_s = now_s
        self._last: tuple[float, float] | None = None

    def look(self) -> bool:
        """Look at the server; whether a host of this name may be at work.

        Raises:
            ConfigError: One is: it was heard of since the last look.
        """
        now_s = self._now_s()
        silent_s = self._silent_s()
        last, self._last = self._last, None if silent_s is None else (now_s, silent_s)
        if silent_s is None or silent_s > _DEAD_S:
            return False
        if last is not None and silent_s < last[1] + (now_s - last[0]) / 2:
            msg = (
                f'--ultrapar-cluster-host: a host named "{visible(self._host)}" is at work in run '
                f'"{visible(self._run)}"; give this one a name of its own with '
                "--ultrapar-cluster-host NAME"
            )
            raise ConfigError(msg)
        return True

    def look_now(self) -> None:
        """Look as often as it takes to know.

        Raises:
            ConfigError: As `look`.
        """
        while self.look():
            time.sleep(SPEAKS_S)

    def _silent_s(self) -> float | None:
        # Trouble with the server is said by who joins the run.
        with suppress(UltraparError):
            state = self._server.run(self._run)
            if state is not None:
                own = [host.seen_s for host in state.hosts if host.name == self._host]
                return min(own, default=None)
        return None


class WatchfulLine(WaitingLine):
    """Tells what is waited for, and meanwhile looks for a host of the same name."""

    def __init__(self, reporter: Screen | None, namesake: Namesake) -> None:
        super().__init__(reporter)
        self._namesake = namesake
        self._looks_s = 0.0

    def say(self, what: str, more: str, waited_s: float) -> None:
        """As `WaitingLine.say`.

        Raises:
            ConfigError: There is such a host.
        """
        super().say(what, more, waited_s)
        if waited_s >= self._looks_s:
            self._looks_s = waited_s + SPEAKS_S
            self._namesake.look()
