"""The settings of a broker, which runs inside the pytest process or as a separate process."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.broker.daily_limits import DailyLimit
from pytest_ultrapar.broker.protocol import KnownLane
from pytest_ultrapar.pool.model import Pool
from pytest_ultrapar.pool.settings import EPISODE_TIMEOUT_S


class SharesSettings(msgspec.Struct, frozen=True):
    """Where a broker gets its shares from. Only the broker's process imports the named function.

    Attributes:
        factory: The `package.module:name` of a function that takes the `BrokerLoop` and `config`,
            and returns an `event_loop.Shares`.
        config: The function's configuration. It contains no secrets.
        variables: The environment variables that the function reads in the broker's process.
    """

    factory: str
    config: str = ""
    variables: tuple[str, ...] = ()


class BrokerSettings(msgspec.Struct, frozen=True):
    """The settings that a broker starts with, without secrets.

    They are sent to the broker's process as JSON.

    Attributes:
        pool: The lanes and limits.
        episode_timeout_s: How many seconds an episode may last, > 0. A lane that has answered
            no request for that long is removed.
        wait_for_servers_s: How many seconds to wait for a server that is not available, >= 0.
        history: The directory for the history of limits and lanes; None to write no history.
        known: The lanes to remove or pause when the first worker connects.
        days: The daily limits.
        spending_path: The run's spending file; None if there is no budget.
        shared: The rows of limits that hosts share, each as its limit and kind (`shares.rows_of`).
            They are closed until the broker receives its shares.
        shares: Where the broker gets its shares from; None if hosts share no rows.
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
