"""Where the answers of a run come from, decided once: what it sends, needs and measures follows.

Whoever would ask whether a run is graded anew or replayed asks here what that means instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pytest_ultrapar.pool.settings import Options


@dataclass(frozen=True, slots=True)
class PoolLanes:
    """The pool's lanes answer; the attributes mean the same in all sources.

    Attributes:
        sends: Whether a request may be sent: then the run needs keys, servers and a broker.
        runs_episodes: Whether episodes run; else their values are those of an earlier run.
    """

    sends: ClassVar[bool] = True
    runs_episodes: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Regrade:
    """An earlier run has the episodes, and they are graded anew.

    Attributes:
        run: That run, as it was named.
    """

    run: str
    option: ClassVar[str] = "--ultrapar-regrade"
    sends: ClassVar[bool] = False
    runs_episodes: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Replay:
    """An earlier run has the answers, and episodes run on them.

    Attributes:
        run: That run, as it was named.
        sends: Whether what it has no answer to is sent.
    """

    run: str
    sends: bool
    option: ClassVar[str] = "--ultrapar-replay"
    runs_episodes: ClassVar[bool] = True


Source = PoolLanes | Regrade | Replay


def source_of(options: Options) -> Source:
    """The source that settled options name."""
    if options.regrade is not None:
        return Regrade(options.regrade)
    if options.replay is not None:
        return Replay(options.replay, sends=options.replay_misses == "ask")
    return PoolLanes()
