"""Ranges of numbers in user input. A range that only one field uses is defined with that field.

Every pytest run imports this module for the ranges of options. Like `pool/settings.py`, it must
import as little as possible, so `check` imports `shown` only when it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from pytest_ultrapar.pool.field_checks import Location

_N = TypeVar("_N", int, float)


class Bounds(NamedTuple):
    """The interval of allowed numbers. Its upper end is finite, so infinity is refused.

    Attributes:
        at_least: Smallest allowed value.
        at_most: Largest allowed value.
    """

    at_least: float
    at_most: float

    def check(self, location: Location, value: _N) -> _N:
        """Return the value, if it is in the interval.

        Raises:
            ConfigError: The value is NaN or out of bounds; the message names the bound.
        """
        from pytest_ultrapar.pool.field_checks import shown  # noqa: PLC0415 - see above

        # Every comparison with NaN is false.
        if not value >= self.at_least:
            location.refuse(f"must be >= {self.at_least:g} (got {shown(value)})")
        if value > self.at_most:
            location.refuse(f"must be <= {_plain(self.at_most)} (got {shown(value)})")
        return value

    def __str__(self) -> str:
        return f">= {_plain(self.at_least)} and <= {_plain(self.at_most)}"


WORKERS = Bounds(at_least=1, at_most=100_000)
# A rate below one send in 11 days must be a typo. The lower end also keeps 1 / rate small.
RATE = Bounds(at_least=1e-6, at_most=1_000_000)
PERCENT = Bounds(at_least=1e-4, at_most=100)
COUNT = Bounds(at_least=1, at_most=10_000_000_000)
MONEY = Bounds(at_least=1e-6, at_most=1_000_000)
PORT = Bounds(at_least=1, at_most=65_535)
SEED = Bounds(at_least=0, at_most=2**63 - 1)
REPEATS = Bounds(at_least=1, at_most=100_000)
PROCESS_NUM = Bounds(at_least=1, at_most=100_000)
SHARDS = Bounds(at_least=1, at_most=100_000)


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"
