"""The endpoints of a pool's lanes, with the secrets from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_ultrapar.engine.endpoints import Endpoint, endpoints
from pytest_ultrapar.pool.secret import read_secrets
from pytest_ultrapar.pool.served_models import NO_WAIT, Wait, with_served_names
from pytest_ultrapar.simulator.address import default_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.pool.model import LaneId, Pool


_NOWHERE = "http://replay.invalid"


def lane_endpoints(
    pool: Pool, base_urls: Mapping[str, str], wait: Wait = NO_WAIT
) -> dict[LaneId, Endpoint]:
    """The endpoint of every lane in the pool.

    Args:
        pool: The pool with the lanes.
        base_urls: The base URLs of simulated providers, by provider.
        wait: How long to wait for each server that must report the name of its model and does not
            answer yet.

    Raises:
        ConfigError: The environment variable of a key or proxy is not set, or a server does not
            report the name of its model.
    """
    secrets = read_secrets(pool, os.environ)
    pool = with_served_names(pool, wait)
    simulated = {provider.name for provider in pool.providers if provider.is_simulated}

    def token_of(provider: str, key: str) -> str:
        if provider in simulated:
            return default_token(provider, key)
        secret = secrets.get((provider, key))
        return secret.reveal() if secret is not None else "none"

    return endpoints(pool, token_of=token_of, base_url_of=base_urls, environ=os.environ)


def unsent_endpoints(pool: Pool) -> dict[LaneId, Endpoint]:
    """The endpoint of every lane, without keys or addresses, for runs that send no requests."""
    return endpoints(
        pool,
        token_of=lambda _provider, _key: "",
        base_url_of=dict.fromkeys((each.name for each in pool.providers), _NOWHERE),
    )
