"""Lanes that always answer with an error: dead keys and missing deployments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.simulator.api_error import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.simulator.served import ServedLane

_INSTANCE = "instance:"
_LOWEST, _HIGHEST = 400, 599


class Interference(Protocol):
    """What may step in before limits and persona; the seam for scripts of faults."""

    def decide(self, lane: ServedLane, now_s: float) -> ApiError | None:
        """The answer to give instead of the persona's, or None to let the request pass."""
        ...


class Refusals:
    """Answers requests on some lanes with one status each, before any limit is asked."""

    def __init__(self, pool: Pool, status_of: Mapping[str, int]) -> None:
        """Take statuses by `KEY`, `PROVIDER/KEY`, `instance:NAME` or `instance:PROVIDER/NAME`.

        Raises:
            ConfigError: A name is not in the pool, or a status is none of an error.
        """
        self._error_of: dict[tuple[str, str, str], ApiError] = {}
        for name, status in status_of.items():
            if not _LOWEST <= status <= _HIGHEST:
                msg = f"--refuse {name}={status}: the status must be {_LOWEST} to {_HIGHEST}"
                raise ConfigError(msg)
            places = [
                (lane.provider, lane.instance, lane.key)
                for lane in pool.lanes
                if name in _names(lane.provider, lane.instance, lane.key)
            ]
            if not places:
                known = sorted(
                    {word for lane in pool.lanes for word in (lane.key, _INSTANCE + lane.instance)}
                )
                msg = (
                    f"--refuse {name}={status}: no such key or instance; "
                    f"the pool has {', '.join(known)}"
                )
                raise ConfigError(msg)
            for place in places:
                self._error_of.setdefault(
                    place, ApiError.of_status(status, f"Refused as asked for by {name}={status}")
                )

    def decide(self, lane: ServedLane, now_s: float) -> ApiError | None:
        """The lane's refusal, if it has one; the first one given, if it has several."""
        del now_s
        return self._error_of.get((lane.provider, lane.instance, lane.key))


def parse_refusal(text: str) -> tuple[str, int]:
    """Name and status of `NAME=STATUS`.

    Raises:
        ValueError: The text has another form.
    """
    name, equals, status = text.rpartition("=")
    if not (name and equals and status.isascii() and status.isdigit()):
        msg = f"{text!r} is not KEY=STATUS or instance:NAME=STATUS, such as key1=401"
        raise ValueError(msg)
    return name, int(status)


def _names(provider: str, instance: str, key: str) -> tuple[str, str, str, str]:
    return (
        key,
        f"{provider}/{key}",
        f"{_INSTANCE}{instance}",
        f"{_INSTANCE}{provider}/{instance}",
    )
