"""The source of a run's answers, which determines what the run sends, needs and measures.

The rest of the code reads these facts here, so it need not check for a regrade or a replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pytest_ultrapar.pool.settings import Options


@dataclass(frozen=True, slots=True)
class PoolLanes:
    """The pool's lanes provide the answers.

    All sources have these attributes, with the same meaning.

    Attributes:
        sends: Whether the run may send requests, and therefore needs keys, servers and a broker.
        runs_episodes: Whether episodes run. If not, their values come from an earlier run.
    """

    sends: ClassVar[bool] = True
    runs_episodes: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Regrade:
    """An earlier run provides the episodes, and this run grades them again.

    Attributes:
        run: The earlier run, as the user named it.
    """

    run: str
    option: ClassVar[str] = "--ultrapar-regrade"
    sends: ClassVar[bool] = False
    runs_episodes: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Replay:
    """An earlier run provides the answers, and the episodes run again with these answers.

    Attributes:
        run: The earlier run, as the user named it.
        sends: Whether requests without a stored answer are sent.
    """

    run: str
    sends: bool
    option: ClassVar[str] = "--ultrapar-replay"
    runs_episodes: ClassVar[bool] = True


Source = PoolLanes | Regrade | Replay


def source_of(options: Options) -> Source:
    """The source of answers that the options select. The options have already been checked."""
    if options.regrade is not None:
        return Regrade(options.regrade)
    if options.replay is not None:
        return Replay(options.replay, sends=options.replay_misses == "ask")
    return PoolLanes()
