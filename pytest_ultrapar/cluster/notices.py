"""News of hosts as the ledger keeps them: its notices; pure."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.broker.news import News
from pytest_ultrapar.cluster.ledger import Notice


class Told(msgspec.Struct, frozen=True):
    """The text of a notice: with the time of the server when the news were told.

    The ledger's own time stands still while nobody calls: a run that is joined again the next day
    would hear of keys that were mended, and of pauses that are over.
    """

    news: News
    at_ms: int


def notice_of(news: News, run: str, at_ms: int) -> Notice:
    """What a host learned, for the other hosts of its run: they have the same lanes."""
    return Notice(
        name=f"{news.lane_id}:{news.removes or ''}",
        reason=msgspec.json.encode(Told(news, at_ms)).decode(),
        for_ms=round(news.for_s * 1000),
        run=run,
    )


def told(text: str | bytes) -> Told:
    """What a notice says.

    Raises:
        Those of NOT_THAT_JSON: Somebody else wrote it, or another version.
    """
    return msgspec.json.decode(text, type=Told)


def news_of(notice: Notice, server_ms: int) -> News | None:
    """The news as another host hears them; None where they are over.

    Raises:
        As `told`.
    """
    one = told(notice.reason)
    left_s = one.news.for_s - (server_ms - one.at_ms) / 1000
    if left_s <= 0:
        return None
    return msgspec.structs.replace(one.news, for_s=min(left_s, notice.for_ms / 1000))
