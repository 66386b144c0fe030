"""Ports of several servers on one host, as seed 004 lists them: `8001,8002,8003`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.pool.bounds import PORT
from pytest_ultrapar.pool.place import Place, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_PORTS = 1_000
_ENTRY_CHARS = 12
"""What is longer is no port and not shown: `ports_env` may name a key's variable by mistake."""


def parse_ports(place: Place, text: str) -> tuple[int, ...]:
    """The ports of a comma-separated list, in its order; blanks around an entry do not matter.

    Raises:
        ConfigError: An entry is not a number, out of range or there twice.
    """
    ports = []
    for entry in (part.strip() for part in text.split(",")):
        # isdecimal() alone admits digits of other scripts, which int() would accept too.
        if not (entry.isascii() and entry.isdecimal() and len(entry) <= _ENTRY_CHARS):
            found = shown(entry) if len(entry) <= _ENTRY_CHARS else "a longer text"
            place.refuse(f'must be a list of ports such as "8001,8002" (got {found} in it)')
        ports.append(int(entry))
    return check_ports(place, ports)


def check_ports(place: Place, ports: Sequence[int]) -> tuple[int, ...]:
    """The ports themselves, all between 1 and 65535 and different.

    Raises:
        ConfigError: There is none, one is out of range, one is there twice, or there are too many.
    """
    if not ports:
        place.refuse("must name at least one port (got none)")
    if len(ports) > MAX_PORTS:
        place.refuse(f"must name at most {MAX_PORTS} ports (got {len(ports)})")
    for index, port in enumerate(ports):
        PORT.check(place.item(index), port)
        if port in ports[:index]:
            place.item(index).refuse(f"names port {port} a second time")
    return tuple(ports)
