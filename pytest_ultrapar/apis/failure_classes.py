"""What follows from a failure: one table for retries, pauses, breakers and controllers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import random

FailedOutcome = Literal[
    "rate",
    "quota",
    "daily_quota",
    "auth",
    "forbidden",
    "not_found",
    "tls",
    "no_host",
    "connect",
    "loading",
    "closed",
    "transport",
    "overload",
    "congestion",
    "timeout",
    "malformed",
    "refused",
    "too_large",
    "bad_request",
]
"""How an attempt without a reply ended: the words of `CLASSES`."""
Scope = Literal["lane", "key_model", "key", "instance"]
"""What of a lane is out: itself, its key for its model, its key, its instance."""
Again = Literal["free", "attempts", "once", "reconnect", "never"]
"""How often a request is sent again: as often as its lanes come back, within
`--ultrapar-max-attempts`, once, from then on by new connections, or not at all. Only the second and
third cost an attempt."""
Control = Literal["cut", "pause_growth", "no"]
"""What a controller of a lane's limit makes of it."""


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """When failures in a row open a lane's breaker, and for how long.

    Attributes:
        after: So many in a row.
        base_s: Seconds of the first opening; each further one without an answer between takes twice
            as long.
        cap_s: At most so long.
    """

    after: int
    base_s: float
    cap_s: float


FAILURES = BreakerRule(after=5, base_s=5.0, cap_s=120.0)
"""Five in a row: with fewer, bad luck would stop a lane that works. The pause doubles up to two
minutes, so that a server which comes back is found within that."""
NOBODY_LISTENS = BreakerRule(after=1, base_s=0.25, cap_s=1.5)
"""A refused connection, or a server that loads its model, leaves no doubt, and the next try costs
nothing: one that is ready is found within 2 s."""


@dataclass(frozen=True, slots=True)
class FailureClass:
    """What one outcome of a request does.

    Attributes:
        removes: What of the lane is removed for the rest of the run; None: nothing.
        why: What failed, with `{key}`, `{instance}`, `{model}`, and `{back}` for how long the
            provider asked to be left alone.
        pauses: Whether the lane pauses, for as long as the provider asks or by a back-off.
        breaker: By which rule it counts for the lane's breaker; None: not at all.
        again: How often the request is sent again.
        budget: Whether sending it again draws on the instance's retry budget.
        controller: What it tells a controller of the lane's limit.
    """

    again: Again
    why: str
    removes: Scope | None = None
    pauses: bool = False
    breaker: BreakerRule | None = None
    budget: bool = False
    controller: Control = "no"

    @property
    def costs_attempt(self) -> bool:
        """Whether it counts against `--ultrapar-max-attempts`: a failure of the request's own."""
        return self.again in {"attempts", "once"}


CLASSES: dict[str, FailureClass] = {
    "rate": FailureClass("free", why="the rate limit is reached", pauses=True, controller="cut"),
    "quota": FailureClass(
        "free", removes="key", why="{key} has no quota left (402, or words that say so){back}"
    ),
    "daily_quota": FailureClass(
        "free", removes="key_model", why="{key} has used up its quota of the day for {model}{back}"
    ),
    "auth": FailureClass(
        "free", removes="key", why="{key} was refused (401, or words that reject the key)"
    ),
    "forbidden": FailureClass(
        "free",
        removes="key_model",
        why="{key} may not use the model {model}, or there is no such model",
    ),
    "not_found": FailureClass(
        "free", removes="instance", why="{instance} was not found (404), or does not serve {model}"
    ),
    "tls": FailureClass(
        "free",
        removes="instance",
        why="{instance} presented a certificate that failed verification, or no TLS at all (a "
        "private CA goes into ca_file)",
    ),
    "no_host": FailureClass("free", removes="instance", why="{instance} has an unknown host name"),
    "connect": FailureClass("free", why="{instance} cannot be reached", breaker=NOBODY_LISTENS),
    "loading": FailureClass("free", why="{instance} is loading its model", breaker=NOBODY_LISTENS),
    "closed": FailureClass("reconnect", why="a kept connection was closed when the request came"),
    "transport": FailureClass(
        "attempts",
        why="the connection broke before there was an answer",
        breaker=FAILURES,
        budget=True,
    ),
    "overload": FailureClass(
        "attempts",
        why="the server failed or is overloaded",
        breaker=FAILURES,
        budget=True,
        controller="pause_growth",
    ),
    "congestion": FailureClass(
        "free", why="the server is overloaded", pauses=True, controller="cut"
    ),
    "timeout": FailureClass(
        "once",
        why="there was no whole answer in time",
        breaker=FAILURES,
        budget=True,
        controller="pause_growth",
    ),
    "malformed": FailureClass(
        "once", why="the answer cannot be read", breaker=FAILURES, budget=True
    ),
    "refused": FailureClass("never", why="the prompt was refused"),
    "too_large": FailureClass("never", why="the request alone is larger than its limit"),
    "bad_request": FailureClass(
        "never", removes="instance", why="{instance} refuses even the shortest request for {model}"
    ),
}
"""By outcome; docs/reference/faults.md has all of it as a table, with what ends with each. `ok`,
`unsent` and `cancelled` are no failures and stand for nothing here.

A refused connection draws on no budget and costs no attempt, since nothing was sent and the lane's
breaker lets one try through at a time.
"""

_BASE_S, _CAP_S = 1.0, 30.0


def backoff_s(n: int, rng: random.Random) -> float:
    """Seconds to wait where no server names a time: full jitter, U(0, min(30, 1 * 2^(n-1))).

    For a request after its own failures, and for a lane after refusals by rate.

    Args:
        n: How many there were in a row, >= 1.
        rng: Draws one number.

    Source: the AWS Architecture Blog, "Exponential Backoff And Jitter" (2015), "full jitter".
    """
    # The exponent is bounded because 2.0**1024 overflows, not because the cap needs it.
    return rng.uniform(0.0, min(_CAP_S, _BASE_S * 2.0 ** min(n - 1, 16)))


# `bad_request` removes only where an instance has never said anything else.
DOUBTED: frozenset[str] = frozenset(("quota", "daily_quota", "auth", "forbidden", "not_found"))
"""Refusals of a key, model or instance that may be one request's own: `broker.suspicion`."""

ANSWERED: frozenset[str] = frozenset(("ok", "refused", "too_large", "bad_request"))
"""Outcomes by which a lane has shown that it works."""

AWAITED: frozenset[str] = frozenset(
    word for word, one in CLASSES.items() if one.breaker is NOBODY_LISTENS
)
"""Outcomes by which a server is not there yet, or not any more."""

OF_LANE: frozenset[str] = frozenset(CLASSES) - {"closed"}
"""Those that say something of the lane: what found its connection closed was not read there."""

OF_HOST: frozenset[str] = frozenset(("no_host", "tls"))
"""Those of a way that a host goes: its names and certificates are its own."""

COUNTED: frozenset[str] = frozenset(word for word, one in CLASSES.items() if one.costs_attempt)
"""Outcomes after which a request waits by itself before it is tried again."""

LIMITED: frozenset[str] = frozenset(
    word for word, one in CLASSES.items() if one.controller == "cut"
)
"""Outcomes by which a provider says that this was too much."""

OWN = LIMITED | {"loading"}
"""Those that may be about one request, where others on its lane are served (`engine.retry`)."""

MAX_RETRY_AFTER_S = 120.0
"""A lane pauses for as long as it is asked to, up to this; for longer only while an episode may
last.

Two minutes is also the longest that the OpenAI SDK for Python waits.
"""


def is_doubted(outcome: str, retry_after_s: float | None, patience_s: float) -> bool:
    """Whether a lane would be removed on one request's word, which may be about that alone.

    Azure asks for a day where a request is larger than its limit.

    Args:
        outcome: How the request ended.
        retry_after_s: Seconds that the provider asked for.
        patience_s: How long an episode may last.
    """
    is_too_long = (retry_after_s or 0.0) > max(MAX_RETRY_AFTER_S, patience_s)
    return outcome in DOUBTED or (is_too_long and outcome in LIMITED)
