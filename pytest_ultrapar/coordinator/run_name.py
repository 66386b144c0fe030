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

if TYPE_CHECKING:
    from pytest_ultrapar.cluster.server import ClusterServer

_SPEAKS_S = 1.2
"""A host at work is heard of at least so often."""
_DEAD_S = 3.0
"""One that is silent for longer may be dead, and its name free soon: joining waits for that."""


def refuse_namesake(server: ClusterServer, run: str, host: str) -> None:
    """Look at the server for as long as it takes to know; a process that was killed is none.

    Raises:
        ConfigError: A host of this name is at work: it was heard of between two looks.
    """
    before_s = None
    while (silent_s := _silent_s(server, run, host)) is not None and silent_s <= _DEAD_S:
        if before_s is not None and silent_s < before_s + _SPEAKS_S / 2:
            msg = (
                f'--ultrapar-cluster-host: a host named "{visible(host)}" is at work in run '
                f'"{visible(run)}"; give this one a name of its own with '
                "--ultrapar-cluster-host NAME"
            )
            raise ConfigError(msg)
        before_s = silent_s
        time.sleep(_SPEAKS_S)


def _silent_s(server: ClusterServer, run: str, host: str) -> float | None:
    # Trouble with the server is said by who joins the run.
    with suppress(UltraparError):
        state = server.run(run)
        if state is not None:
            return min((one.seen_s for one in state.hosts if one.name == host), default=None)
    return None
