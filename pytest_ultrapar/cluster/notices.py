"""Convert a host's news to the ledger's notices and back, without I/O."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.broker.notices import LaneNotice
from pytest_ultrapar.cluster.ledger import Notice


class NoticeText(msgspec.Struct, frozen=True):
    """The text of a notice: the news, and the server's time when the host sent it.

    The ledger's own time does not advance between calls. If notices used that time, hosts that
    rejoin a run the next day would receive old news. Some removed keys work again by then,
    and pauses are over.
    """

    news: LaneNotice
    at_ms: int


def notice_of(news: LaneNotice, run: str, at_ms: int) -> Notice:
    """Make a notice from a host's news, for all hosts in the run, which have the same lanes."""
    return Notice(
        name=f"{news.lane_id}:{news.removes or ''}",
        reason=msgspec.json.encode(NoticeText(news, at_ms)).decode(),
        for_ms=round(news.for_s * 1000),
        run=run,
    )


def notice_text(text: str | bytes) -> NoticeText:
    """Read the content of a notice.

    Raises:
        NOT_THAT_JSON: Another program or another version wrote it.
    """
    return msgspec.json.decode(text, type=NoticeText)


def news_of(notice: Notice, server_ms: int) -> LaneNotice | None:
    """Return the news for another host; None if it no longer applies.

    Raises:
        NOT_THAT_JSON: As for `notice_text`.
    """
    one = notice_text(notice.reason)
    left_s = one.news.for_s - (server_ms - one.at_ms) / 1000
    if left_s <= 0:
        return None
    return msgspec.structs.replace(one.news, for_s=min(left_s, notice.for_ms / 1000))
