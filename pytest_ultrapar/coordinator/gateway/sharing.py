"""A gateway that shares limits with runs and other gateways through a cluster's server."""

from __future__ import annotations

import os
import secrets
import socket
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.day_file import state_directory
from pytest_ultrapar.cluster.address import check_installed, check_name, read_address
from pytest_ultrapar.coordinator.daily_limits_left import run_days
from pytest_ultrapar.coordinator.keys.acquire_keys import key_identities
from pytest_ultrapar.coordinator.keys.key_lock_file import KeyGroup
from pytest_ultrapar.errors import ConfigError, UltraparError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from pytest_ultrapar.broker.daily_limits import DailyLimit
    from pytest_ultrapar.broker.settings import SharesSettings
    from pytest_ultrapar.broker.shares import Row
    from pytest_ultrapar.pool.model import Pool


def sharing_of(arguments: argparse.Namespace, pool: Pool) -> GatewaySharing | None:
    """Return the sharing that the arguments request; None if the gateway shares no limits.

    Raises:
        ConfigError: The arguments contradict each other, no server is named, or the server cannot
            be used.
    """
    if arguments.cluster is None and arguments.cluster_run is None:
        return None
    name = arguments.cluster_run
    if name is not None:
        check_name(name, "--cluster-run")
    check_installed("--cluster")
    return GatewaySharing(arguments.cluster or None, name, pool)


class GatewaySharing:
    """A gateway's share of the limits that a server divides.

    Attributes:
        address: Address of the server.
        own: The name under which the gateway gets its share of the limits. It is never the name of
            a run. If a limit is too small for all hosts of a run, only some of them get units.
            Under a run's name, the gateway's clients might have to wait until those hosts end.
    """

    def __init__(self, url: str | None, run: str | None, pool: Pool) -> None:
        """Check the server.

        Args:
            url: URL of the server; None uses the URL in the environment.
            run: The run with which the gateway shares the limits of the pool and of providers; None
                if it does not share those limits.
            pool: The pool with the limits.

        Raises:
            ConfigError: No server is named, or the server cannot be used.
        """
        from pytest_ultrapar.cluster.server import ClusterServer  # noqa: PLC0415 - with a cluster only

        self.own = f"gateway-{secrets.token_hex(8)}"
        self._run = run
        self._url = url
        self.address = read_address(url, os.environ, option="--cluster")
        self._pool = pool
        server = ClusterServer(self.address)
        try:
            server.read_facts()
        except UltraparError as error:
            raise ConfigError(str(error)) from None
        finally:
            server.close()

    def days(self) -> tuple[DailyLimit, ...]:
        """Return the daily limits, whose counts only the users of this server share."""
        return run_days(self._pool, self._pool.lanes, os.environ, None, self.address.label)

    def settings(self, days: Iterable[DailyLimit]) -> tuple[tuple[Row, ...], SharesSettings]:
        """Return the rows of the shared limits, and settings with which the broker gets its shares.

        Args:
            days: The daily limits.
        """
        from pytest_ultrapar.cluster.earlier_daily_use import day_files  # noqa: PLC0415 - with a cluster only
        from pytest_ultrapar.cluster.host_shares import Line, SharingSettings, epoch_path  # noqa: PLC0415 - as above
        from pytest_ultrapar.cluster.ledger_rows import shared_rows  # noqa: PLC0415 - as above

        lanes = self._pool.lanes
        models = tuple(dict.fromkeys(lane.model for lane in lanes))
        identities = key_identities(self._pool, lanes, os.environ, None)
        rows = shared_rows(self._pool, lanes, identities, self._run or self.own)
        config = SharingSettings(
            # A URL with a password is in the environment, where the broker also finds it.
            url=self._url,
            run=self.own,
            # The gateway claims no cases of a run.
            claims="",
            host=f"{socket.gethostname()}-gateway",
            rows=rows,
            days=day_files(rows, days, self.address.label),
            lines=tuple(map(Line, models)),
            n_cases=(0,) * len(models),
            epoch_path=str(epoch_path(state_directory(os.environ), self.address)),
            model_of={lane.lane_id: lane.model for lane in lanes},
        )
        return rows.limits, config.for_broker()

    def key_group(self) -> KeyGroup:
        """The group of all runs that share limits through this server and so may share keys."""
        return KeyGroup(self.address.digest, self.own)
