"""The settings of a broker, which runs inside a process or as a separate process."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.broker.daily_limits import DailyLimit
from pytest_ultrapar.broker.protocol import KnownLane
from pytest_ultrapar.pool.model import Pool
from pytest_ultrapar.pool.settings import EPISODE_TIMEOUT_S


class SharesSettings(msgspec.Struct, frozen=True):
    """The source of a broker's shares. Only the broker's process imports it.

    Attributes:
        factory: `package.module:name` of a function that takes the `BrokerLoop` and `config` and
            returns a `event_loop.Shares`.
        config: The function's configuration, without secrets.
        variables: The environment variables that it reads in the broker's process.
    """

    factory: str
    config: str = ""
    variables: tuple[str, ...] = ()


class BrokerSettings(msgspec.Struct, frozen=True):
    """The settings that start a broker. They reach its process as JSON and hold no secret.

    Attributes:
        pool: The lanes and limits.
        episode_timeout_s: How long an episode may last, > 0 seconds. A lane that has answered
            nothing for that long is removed.
        wait_for_servers_s: How long to wait for an absent server, >= 0 seconds.
        history: The directory for the history of limits and lanes; None: no history is written.
        known: Lanes that are removed or paused when the first worker connects.
        days: The daily limits.
        spending_path: The run's spending file; None: no budget applies.
        shared: Rows that hosts share, by limit and word (`shares.rows_of`). They are closed until
            the broker receives its shares.
        shares: The source of its shares; None if hosts share no row.
    """

    pool: Pool
    episode_timeout_s: float = EPISODE_TIMEOUT_S
    wait_for_servers_s: float = 0.0
    history: str | None = None
    known: tuple[KnownLane, ...] = ()
    days: tuple[DailyLimit, ...] = ()
    spending_path: str | None = None
    shared: tuple[tuple[str, str], ...] = ()
    shares: SharesSettings | None = None
