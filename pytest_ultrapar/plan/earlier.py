"""What an earlier run tells of the episodes that a new one is going to have."""

from __future__ import annotations

import msgspec


class EarlierEpisode(msgspec.Struct, frozen=True, array_like=True):
    """A graded episode of an earlier run.

    Attributes:
        services_s: Send to answer of each of its requests that took the model's time, in their
            order, at least one.
        tokens_in: Over all its requests; None when no answer said so.
        tokens_out: As `tokens_in`.
        test: Node id of its test function, as `Case.test`.
    """

    case_id: str
    suite: str
    model: str
    services_s: tuple[float, ...]
    tokens_in: int | None = None
    tokens_out: int | None = None
    test: str = ""


class EarlierRun(msgspec.Struct, frozen=True):
    """All that an earlier run tells.

    Attributes:
        before_send_s: Median time from a lease to its request's sending, while it holds its seat.
        between_s: Median time from an answer to the asking for the next lease; None where no
            episode had two requests.
    """

    episodes: tuple[EarlierEpisode, ...]
    before_send_s: float
    between_s: float | None = None
