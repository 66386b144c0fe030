"""`--refuse KEY=STATUS`: simulate dead keys and missing deployments without a faults file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.simulator.api_error import ApiError
from pytest_ultrapar.simulator.faults.kinds import Error
from pytest_ultrapar.simulator.faults.script import Fault, When
from pytest_ultrapar.simulator.faults.timeline import Where

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_ultrapar.pool.model import Pool

_INSTANCE = "instance:"
_LOWEST, _HIGHEST = 400, 599


def refusal_faults(pool: Pool, status_of: Mapping[str, int]) -> Iterator[Fault]:
    """Yield a fault for each refusal: the lanes that it names answer every request with its status.

    Args:
        pool: The pool to serve.
        status_of: The status by `KEY`, `PROVIDER/KEY`, `instance:NAME` or `instance:PROVIDER/NAME`.

    Raises:
        ConfigError: A name is not in the pool, or a status is not an error status.
    """
    for name, status in status_of.items():
        if not _LOWEST <= status <= _HIGHEST:
            refuse(f"--refuse {name}={status}: the status must be from {_LOWEST} to {_HIGHEST}")
        where = _where(name)
        if not any(where.holds(lane) for lane in pool.lanes):
            known = sorted(
                {word for lane in pool.lanes for word in (lane.key, _INSTANCE + lane.instance)}
            )
            refuse(
                f"--refuse {name}={status}: no such key or instance; "
                f"the pool has {', '.join(known)}"
            )
        error = ApiError.of_status(status, f"Refused as requested by --refuse {name}={status}")
        yield Fault(f"refuse {name}={status}", where, When(), Error(error))


def parse_refusal(text: str) -> tuple[str, int]:
    """Parse the name and the status in `NAME=STATUS`.

    Raises:
        ValueError: The text does not have this form.
    """
    name, equals, status = text.rpartition("=")
    if not (name and equals and status.isascii() and status.isdigit()):
        raise ValueError(f"{text!r} is not KEY=STATUS or instance:NAME=STATUS, such as key1=401")
    return name, int(status)


def _where(name: str) -> Where:
    # The names of keys and instances contain no `/`, so the first `/` ends the provider's name.
    place = name.removeprefix(_INSTANCE)
    provider, slash, rest = place.partition("/")
    owner, own = (provider, rest) if slash else (None, place)
    return Where(owner, instance=own) if name != place else Where(owner, key=own)
