"""The consequences of a failure for retries, pauses, breakers and controllers, in one table."""

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
"""The outcome of an attempt without a reply: one of the keys of `CLASSES`."""
Scope = Literal["lane", "key_model", "key", "instance"]
"""The part that a failure removes: lane, key for one model, whole key, or instance."""
Again = Literal["free", "attempts", "once", "reconnect", "never"]
"""How often a request is sent again. `free`: whenever a lane is up; `attempts`: within
`--ultrapar-max-attempts`; `once`: one more time; `reconnect`: over new connections; `never`: not at
all. Only `attempts` and `once` cost an attempt."""
Control = Literal["cut", "pause_growth", "no"]
"""How the controller of a lane's limit reacts to a failure."""


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """How many failures in a row open a lane's circuit breaker, and how long it stays open.

    Attributes:
        after: The number of failures in a row after which the breaker opens.
        base_s: How long the breaker stays open the first time, in seconds. The time doubles with
            each further opening until an answer comes.
        cap_s: The maximum time that the breaker stays open, in seconds.
    """

    after: int
    base_s: float
    cap_s: float


FAILURES = BreakerRule(after=5, base_s=5.0, cap_s=120.0)
"""Five failures in a row: with fewer, a working lane might be stopped by chance. Each pause is
about twice as long as the last one, up to two minutes. So the run notices within two minutes that a
server is back."""
NOBODY_LISTENS = BreakerRule(after=1, base_s=0.25, cap_s=1.5)
"""After a refused connection, or while a model is loading, the server is certainly not ready, and
the next try costs nothing. The run notices within 2 s that a server has become ready."""


@dataclass(frozen=True, slots=True)
class FailureClass:
    """The consequences of one outcome of a request.

    Attributes:
        again: How often the request is sent again.
        why: The reason as text, with the placeholders `{key}`, `{instance}`, `{model}`, and
            `{back}` for the wait that the provider asked for.
        removes: The part of the lane that is removed for the rest of the run, or None.
        pauses: Whether the lane pauses, either as long as the provider asks or with a back-off.
        breaker: The rule for the lane's circuit breaker; None if the breaker ignores the outcome.
        budget: Whether a retry draws on the instance's retry budget.
        controller: How the controller of the lane's limit reacts.
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
        """Whether the failure is the request's own, so that `--ultrapar-max-attempts` counts it."""
        return self.again in {"attempts", "once"}


CLASSES: dict[str, FailureClass] = {
    "rate": FailureClass("free", why="the rate limit is reached", pauses=True, controller="cut"),
    "quota": FailureClass(
        "free",
        removes="key",
        why="{key} has no quota left (402, or a message that means the same){back}",
    ),
    "daily_quota": FailureClass(
        "free", removes="key_model", why="{key} has used up its daily quota for {model}{back}"
    ),
    "auth": FailureClass(
        "free", removes="key", why="{key} was refused (401, or a message that rejects the key)"
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
        why="{instance} presented a certificate that failed verification, or does not use TLS "
        "(for a private CA, set ca_file)",
    ),
    "no_host": FailureClass("free", removes="instance", why="{instance} has an unknown host name"),
    "connect": FailureClass("free", why="{instance} cannot be reached", breaker=NOBODY_LISTENS),
    "loading": FailureClass("free", why="{instance} is loading its model", breaker=NOBODY_LISTENS),
    "closed": FailureClass("reconnect", why="the server closed a keep-alive connection"),
    "transport": FailureClass(
        "attempts",
        why="the connection broke before the answer was complete",
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
        why="no complete answer arrived in time",
        breaker=FAILURES,
        budget=True,
        controller="pause_growth",
    ),
    "malformed": FailureClass(
        "once", why="the answer cannot be read", breaker=FAILURES, budget=True
    ),
    "refused": FailureClass("never", why="the prompt was refused"),
    "too_large": FailureClass("never", why="the request by itself exceeds a limit"),
    "bad_request": FailureClass(
        "never", removes="instance", why="{instance} refuses even the shortest request for {model}"
    ),
}
"""The classes by outcome. A table in docs/reference/faults.md lists them with their effect on
cases. `ok`, `unsent` and `cancelled` are not failures and are not listed here.

A refused connection uses no retry budget and costs no attempt, because nothing was sent. The lane's
breaker allows one try at a time.
"""

_BASE_S, _CAP_S = 1.0, 30.0


def backoff_s(n: int, rng: random.Random) -> float:
    """Seconds to wait if the server states no time: full jitter, U(0, min(30, 1 * 2^(n-1))).

    A request waits that long after failures of its own, and a lane after rate limit errors.

    Args:
        n: The number of failures in a row, >= 1.
        rng: The source of one random number.

    Source: the AWS Architecture Blog, "Exponential Backoff And Jitter" (2015), "full jitter".
    """
    # The exponent is bounded because 2.0**1024 overflows; the cap works without the bound.
    return rng.uniform(0.0, min(_CAP_S, _BASE_S * 2.0 ** min(n - 1, 16)))


# `bad_request` removes an instance only if the instance has never returned anything else.
DOUBTED: frozenset[str] = frozenset(("quota", "daily_quota", "auth", "forbidden", "not_found"))
"""Outcomes that reject a key, model or instance, although the request itself may be the cause (see
`broker.refusal_cause`)."""

ANSWERED: frozenset[str] = frozenset(("ok", "refused", "too_large", "bad_request"))
"""Outcomes that show that a lane works."""

AWAITED: frozenset[str] = frozenset(
    word for word, one in CLASSES.items() if one.breaker is NOBODY_LISTENS
)
"""Outcomes that mean that a server is not ready or is gone."""

OF_LANE: frozenset[str] = frozenset(CLASSES) - {"closed"}
"""Failures that say something about the lane. `closed` does not, because the server did not read
the request."""

OF_HOST: frozenset[str] = frozenset(("no_host", "tls"))
"""Outcomes that depend on this host's own network (name resolution, certificates)."""

COUNTED: frozenset[str] = frozenset(word for word, one in CLASSES.items() if one.costs_attempt)
"""Outcomes after which the request itself waits before a retry."""

LIMITED: frozenset[str] = frozenset(
    word for word, one in CLASSES.items() if one.controller == "cut"
)
"""Outcomes that mean that a limit was exceeded."""

OWN = LIMITED | {"loading"}
"""Outcomes that may affect only one request, while its lane serves others (see `engine.retry`)."""

MAX_RETRY_AFTER_S = 120.0
"""The longest pause that a server can ask for, in seconds, unless an episode may last longer.

The OpenAI SDK for Python also waits at most two minutes.
"""


def is_doubted(outcome: str, retry_after_s: float | None, patience_s: float) -> bool:
    """Whether a failure would remove a lane, although it may concern only this request.

    For example, Azure asks clients to wait for a day after a request that is larger than a limit.

    Args:
        outcome: The outcome of the request.
        retry_after_s: The wait that the provider asked for, in seconds.
        patience_s: The maximum time that an episode may take, in seconds.
    """
    is_too_long = (retry_after_s or 0.0) > max(MAX_RETRY_AFTER_S, patience_s)
    return outcome in DOUBTED or (is_too_long and outcome in LIMITED)
