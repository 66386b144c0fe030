"""What a broker starts with, be it an object in the process or a process of its own."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.broker.daily_limits import DailyLimit
from pytest_ultrapar.broker.protocol import KnownLane
from pytest_ultrapar.pool.model import Pool
from pytest_ultrapar.pool.settings import EPISODE_TIMEOUT_S


class SharesSettings(msgspec.Struct, frozen=True):
    """Who tells a broker its shares: loaded where the broker is, and nowhere else.

    Attributes:
        factory: `package.module:name` of a function that is given the `BrokerHost` and `config`,
            and returns what `host.Shares` says.
        config: For that function; no secret.
        variables: Of the environment, that it reads in the broker's process.
    """

    factory: str
    config: str = ""
    variables: tuple[str, ...] = ()


class BrokerSettings(msgspec.Struct, frozen=True):
    """What whoever starts a broker says; crosses to its process as JSON and holds no secret.

    Attributes:
        pool: The lanes and limits.
        episode_timeout_s: How long an episode may last, > 0 seconds: a lane that has answered
            nothing for so long is removed.
        wait_for_servers_s: How long a server is waited for that is not there, >= 0 seconds.
        history: Directory where what became of limits and lanes is written; None for nowhere.
        known: Lanes that are removed or pause when the first worker connects.
        days: What counts units per day.
        spending_path: Where the run remembers what it spent; None: no budget counts.
        shared: Rows that hosts share, by limit and word (`shares.rows_of`): closed until somebody
            tells the broker its shares.
        shares: Who that is; None: nobody.
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
