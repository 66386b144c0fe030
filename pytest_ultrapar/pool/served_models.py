"""The models on local servers, as listed by `GET /models`."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pytest_ultrapar.pool.field_checks import Location, check_api_name, shown_text
from pytest_ultrapar.pool.model import SERVED
from pytest_ultrapar.system.clock import boot_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.pool.model import Instance, Pool, Provider

_MOST_BYTES = 1024 * 1024
_AGAIN_S = 0.25


class Wait(NamedTuple):
    """The maximum wait for a server that refuses connections, and a callback to report progress."""

    at_most_s: float
    tell: Callable[[str, str, float], object] = lambda *_: None


NO_WAIT = Wait(0.0)


def served_models(
    base_url: str, *, timeout_s: float = 5.0, how: str = "", wait: Wait = NO_WAIT
) -> list[str]:
    """Return the model names of a server that needs no key, unchecked and in the server's order.

    Args:
        base_url: An http URL on this machine.
        timeout_s: The time-out for each network operation, and for the whole answer if it arrives
            in pieces.
        how: Advice to append to an error message.
        wait: How long to keep trying if no connection can be made.

    Raises:
        ConfigError: No server answers, or the server does not list its models.
    """
    from http.client import HTTPConnection, HTTPException  # noqa: PLC0415 - for few pools

    parts, where = urlsplit(base_url), Location(f"{base_url}/models")
    began_s, most_s = boot_s(), wait.at_most_s + timeout_s
    while True:
        connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout_s)
        try:
            connection.request("GET", f"{parts.path}/models")
            with connection.getresponse() as answer:
                if answer.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                    how = "set VLLM_API_KEY and VLLM_BASE_URL (server address), and write vllm/NAME"
                    where.refuse(f"the server requires a key; {how}")
                told = piece = answer.read1(_MOST_BYTES)
                while piece and len(told) < _MOST_BYTES and boot_s() - began_s < most_s:
                    told += (piece := answer.read1(_MOST_BYTES))
            return [str(one["id"]) for one in json.loads(told)["data"]]
        except OSError as error:
            said, waited_s = f"no server answers ({error.strerror or error})", boot_s() - began_s
            if waited_s >= wait.at_most_s:
                where.refuse(f"{said}{how}")
            wait.tell(base_url, f": {said}; giving up after {wait.at_most_s:g} s", waited_s)
            time.sleep(_AGAIN_S)
        except (HTTPException, ValueError, LookupError, TypeError, RecursionError):
            where.refuse(f"the answer does not list models{how}")
        finally:
            connection.close()


def unnamed(pool: Pool) -> set[str]:
    """The names of the models whose API names must still be read from a server."""
    models = (model for provider in pool.providers for model in provider.models)
    return {one.name for one in models if any(own.api_name == SERVED for own in one.instances)}


def with_served_names(pool: Pool, wait: Wait = NO_WAIT) -> Pool:
    """Return the pool, with each placeholder `SERVED` replaced by the API name that a server lists.

    Only servers that have a lane in the pool get a request, so the pool may be reduced to the lanes
    that the run uses.

    Args:
        pool: The pool with the servers' addresses.
        wait: How long to wait for each server that does not answer yet.

    Raises:
        ConfigError: A server does not answer, or does not list exactly one model.
    """
    asked = {(lane.provider, lane.instance) for lane in pool.lanes}

    def named(provider: Provider, one: Instance) -> Instance:
        if one.api_name != SERVED or (provider.name, one.name) not in asked:
            return one
        return replace(one, api_name=_only_model(one.base_url, wait))

    def settled(provider: Provider) -> Provider:
        models = (
            replace(model, instances=tuple(named(provider, one) for one in model.instances))
            for model in provider.models
        )
        return replace(provider, models=tuple(models))

    return replace(pool, providers=tuple(map(settled, pool.providers)))


def _only_model(base_url: str, wait: Wait) -> str:
    how = f"name the model (as {base_url}#NAME, or as api_name in the pool)"
    names = served_models(base_url, how=f"; start the server, or {how}", wait=wait)
    where = Location(f"{base_url}/models")
    if len(names) != 1:
        has = shown_text(", ".join(names)) or "none"
        where.refuse(f"lists {len(names)} models ({has}); {how}")
    return check_api_name(where, names[0])
