"""The providers with which adaptive mode is tested, and the aims for the results."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.adaptive.provider import Bears, Provider

SPAN_S = 300.0
CHANGE_S = 120.0
_STORM_S = 10.0
_LARGE, _SMALL = 40, 5


@dataclass(frozen=True, slots=True)
class Scenario:
    """One provider and its client.

    Attributes:
        ceiling: Declared seats over all lanes: at least four times the capacity of the provider.
        n_lanes: Lanes that share the provider. The broker does not know that they share it.
        stall_s: When the client pauses, and for how many seconds.
        least_used: Aim for the used share of the capacity; 0 means no aim.
        most_refused: Aim for the share of refused attempts; 1 means no aim.
        most_t90_s: Aim for the time to 90 %, from the start and after a change.
    """

    name: str
    provider: Provider
    ceiling: int
    n_lanes: int = 1
    stall_s: tuple[float, float] = (math.inf, 0.0)
    least_used: float = 0.0
    most_refused: float = 1.0
    most_t90_s: float = math.inf


def _seats(n: int, *, errors: float = 0.0, slow: float = 0.0) -> Provider:
    return Provider((Bears(seats=n),), errors=errors, slow=slow)


def _aimed(name: str, provider: Provider, size: float, ceiling: int) -> Scenario:
    """A scenario with the aims for a provider of this size."""
    if size >= _LARGE:
        return Scenario(name, provider, ceiling, least_used=0.93, most_refused=0.02, most_t90_s=30)
    if size >= _SMALL:
        return Scenario(name, provider, ceiling, least_used=0.90, most_refused=0.04, most_t90_s=30)
    return Scenario(name, provider, ceiling)


def _changing(name: str, *bears: Bears, ceiling: int) -> Scenario:
    return Scenario(name, Provider(bears), ceiling, most_t90_s=30)


SCENARIOS = (
    *(
        _aimed(f"{n} at once", _seats(n), n, max(20, 4 * n))
        for n in (1, 2, 5, 10, 20, 40, 100, 500)
    ),
    *(
        _aimed(f"{rate:g} per second", Provider((Bears(rate=rate),)), rate, max(20, int(4 * rate)))
        for rate in (0.2, 5, 20, 40, 400)
    ),
    _aimed("40 at once, 20 per second", Provider((Bears(seats=40, rate=20),)), 20, 160),
    _changing("100 at once, halved", Bears(seats=100), Bears(CHANGE_S, seats=50), ceiling=400),
    _changing("50 at once, doubled", Bears(seats=50), Bears(CHANGE_S, seats=100), ceiling=400),
    _changing("40 per second, halved", Bears(rate=40), Bears(CHANGE_S, rate=20), ceiling=160),
    _changing("20 per second, doubled", Bears(rate=20), Bears(CHANGE_S, rate=40), ceiling=160),
    _changing(
        "10 s of nothing but 429",
        Bears(seats=100),
        Bears(CHANGE_S, refuses=True),
        Bears(CHANGE_S + _STORM_S, seats=100),
        ceiling=400,
    ),
    _aimed("5 % answered 500", _seats(100, errors=0.05), 100, 400),
    _aimed("a tenth takes 8 times as long", _seats(40, slow=0.1), 40, 160),
    Scenario("two lanes, one quota of 40", _seats(40), 160, n_lanes=2),
    Scenario("client is suspended for 5 s", _seats(40), 160, stall_s=(150.0, 5.0)),
    Scenario("queues beyond 8", Provider(knee=8), 64),
    Scenario("queues beyond 64", Provider(knee=64), 512),
    Scenario("ceiling of 40 below 400", _seats(400), 40),
)
