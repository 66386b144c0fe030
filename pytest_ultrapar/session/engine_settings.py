"""The settings of an engine, for a run or for a gateway."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.engine.conversation import Conversation
from pytest_ultrapar.engine.engine import SPARE_CONNECTIONS, EngineSettings
from pytest_ultrapar.engine.file_descriptors import connections_allowed
from pytest_ultrapar.engine.retry import RetryPolicy
from pytest_ultrapar.engine.token_estimate import TokenEstimates
from pytest_ultrapar.exchanges import ExchangeLog
from pytest_ultrapar.system.clock import MonotonicClock

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import Pool
    from pytest_ultrapar.pool.settings import Recording
    from pytest_ultrapar.store.redact import Redactor
    from pytest_ultrapar.store.string_parts import PartWriter

_MOST_OPEN = 1000
"""The maximum number of open episodes in one process. It is lower if the pool has few seats, or if
the process may open only a few files."""
_LONGEST_FAILURE = 300
"""How many characters of a server's error message are stored."""


def engine_settings(
    pool: Pool,
    redactor: Redactor,
    parts: PartWriter,
    *,
    record: Recording,
    max_attempts: int,
    n_clients: int = 0,
    **own: Any,  # noqa: ANN401 - further fields of the settings
) -> EngineSettings:
    """The settings of an engine.

    Args:
        pool: The pool whose models the engine uses.
        redactor: Removes secrets.
        parts: Stores the long strings in conversations.
        record: How much of each conversation is stored.
        max_attempts: See `RetryPolicy`.
        n_clients: In a gateway, the maximum number of connections from clients.
        own: The other fields of `EngineSettings`.
    """

    def conversation() -> Conversation:
        if record == "full":
            return Conversation(exchanges=ExchangeLog(parts.keep, redactor.bytes))
        return Conversation(keeps_text=record == "text")

    seats = pool.seats(pool.lanes)
    # Allow twice as many episodes as seats, because an episode has no seat between two requests.
    most_open = min(_MOST_OPEN, 2 * seats + 16) if seats is not None else _MOST_OPEN
    n_allowed = connections_allowed(most_open + SPARE_CONNECTIONS + n_clients)
    return EngineSettings(
        retry=RetryPolicy(max_attempts),
        most_open=max(1, min(most_open, n_allowed - SPARE_CONNECTIONS)),
        clock=MonotonicClock(),
        tokens=TokenEstimates.of(pool),
        shown=partial(redactor.short, most=_LONGEST_FAILURE),
        masked=redactor.bytes,
        conversation=conversation,
        **own,
    )
