"""Prepare the Redis keys and arguments of a call to the ledger's script, and decode its answer."""

from __future__ import annotations

from importlib import resources
from operator import attrgetter
from typing import cast

import msgspec

from pytest_ultrapar.cluster.ledger import Answer, Notice, Renewal, RowShare
from pytest_ultrapar.errors import ConfigError

_PACK = msgspec.msgpack.Encoder()
_HEAD = msgspec.msgpack.Decoder(tuple[int, bool, int, int, int, int, int])
"""Decodes all fields of an `Answer` except shares and news, which are sent separately."""
_NUMBERS = msgspec.msgpack.Decoder(list[int])
_NEWS = msgspec.msgpack.Decoder(tuple[Notice, ...])


_said = attrgetter(
    *("host", "incarnation", "seq", "run", "server_run_id", "epoch", "clock", "clock_ms"),
    *("peers", "news_seen", "leaving", "fresh", "news", "answered_ms", "open_days"),
)
"""Returns all fields of a call except `rows`, `lanes` and `uses`, in the script's order."""


def script_text(name: str) -> str:
    """Return the text of a script in this folder: `division.lua` or `claims.lua`."""
    return resources.files("pytest_ultrapar.cluster").joinpath(name).read_text(encoding="utf-8")


def keys_of(name: str, call: Renewal) -> list[str]:
    """Return all Redis keys that the call uses. They are in the same slot of a Redis Cluster.

    Args:
        name: The name of the installation.
        call: The call. Each of its rows has a Redis key.
    """
    prefix = f"{{ultrapar:{name}}}:"
    fixed = ("ledger", "seen", "dead", "clocks", "news", "rows", f"host:{call.incarnation}")
    return [prefix + part for part in (*fixed, *(f"row:{spec.name}" for spec in call.rows))]


def arguments_of(call: Renewal) -> list[bytes]:
    """Encode the call for the script."""
    uses = [n for use in call.uses for n in (use.held, use.want, use.unit, use.spent, use.told)]
    return [_PACK.encode(_said(call)), _PACK.encode((call.rows, call.lanes)), _PACK.encode(uses)]


def answer_of(reply: object) -> Answer:
    """Decode the script's answer.

    Raises:
        ConfigError: It is not an answer from this version, because another program writes to these
            Redis keys.
    """
    try:
        head, packed, news = cast("tuple[bytes, bytes, bytes]", reply)
        rows = zip(*[iter(_NUMBERS.decode(packed))] * 6, strict=True)
        shares = tuple(
            RowShare(grant, amount, target, told, spent, bool(closed))
            for grant, amount, target, told, spent, closed in rows
        )
        return Answer(*_HEAD.decode(head), shares, _NEWS.decode(news))
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        problem = f"the server's limit data is not from this version of pytest-ultrapar: {error}"
        raise ConfigError(problem) from error
