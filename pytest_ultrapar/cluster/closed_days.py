"""Days and budgets that are closed: the server forgot what was spent, and hosts that know are gone.

They open by themselves when all hosts have told what they know, or when all that may have been
spent counts no more. Sooner only a person can say so: `ultrapar cluster reset-day`.
"""

from __future__ import annotations

import secrets
import struct
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.clock import boot_s
from pytest_ultrapar.cluster.ledger import EXPIRE_MS, Renewal, RowSpec, RowUse
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.report.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_ultrapar.cluster.server import ClusterServer

_HEADER = struct.Struct("<ddddd")
_REST = msgspec.msgpack.Decoder(list[str | int | float])
_KIND, _EPOCH, _AMOUNT, _WINDOW, _AWAITS = 0, 1, 2, 3, 9
"""Where `text_of_row` of the script writes what is read here."""
_SHOWN = 8


def closed_rows(ledger: Mapping[bytes, bytes], rows: Mapping[bytes, bytes]) -> tuple[RowSpec, ...]:
    """The counted rows that are closed.

    Args:
        ledger: What the server keeps of the ledger.
        rows: What it keeps of each row, by name.

    Raises:
        ConfigError: Somebody else wrote there.
    """
    try:
        age_ms = float(ledger.get(b"now", 0)) - float(ledger.get(b"begun", 0))
        if age_ms < EXPIRE_MS:
            return ()
        found = []
        for name, text in rows.items():
            rest = _REST.decode(text[_HEADER.size :])
            is_now = int(rest[_EPOCH]) == int(float(ledger[b"epoch"]))
            if rest[_KIND] == "counted" and rest[_AWAITS] and is_now:
                spec = RowSpec(
                    name=name.decode(),
                    kind="counted",
                    amount=int(rest[_AMOUNT]),
                    window_ms=int(rest[_WINDOW]),
                )
                found.append(spec)
    except (msgspec.MsgspecError, ValueError, KeyError, IndexError, struct.error) as error:
        msg = f"the rows of limits on the server are not those of this version: {error}"
        raise ConfigError(msg) from None
    return tuple(sorted(found, key=lambda spec: spec.name))


def closed_lines(server: ClusterServer) -> Iterator[str]:
    """What people should know of closed rows; nothing where there are none."""
    found = closed_rows(*server.ledger())
    if found:
        yield (
            f"{counted(len(found), 'limit')} closed, as the server forgot what was spent and hosts "
            f"that know are gone: {_names(found)}; ultrapar cluster reset-day opens all with what "
            "is known"
        )


def reset_day(server: ClusterServer) -> Iterator[str]:
    """Open all of them with what is known.

    Raises:
        NoAnswerError, ConfigError: As `ClusterServer.renew`.
    """
    found = closed_rows(*server.ledger())
    if not found:
        yield "no limit per day and no budget is closed"
        return
    facts = server.facts
    assert facts is not None
    token = secrets.token_hex(8)
    server.renew(
        Renewal(
            host="operator",
            incarnation=token,
            seq=1,
            run="",
            server_run_id=facts.run_id,
            clock=f"operator:{token}",
            clock_ms=round(boot_s() * 1000),
            rows=found,
            uses=(RowUse(),) * len(found),
            lanes=(),
            leaving=True,
            open_days=True,
        )
    )
    yield (
        f"{counted(len(found), 'limit')} opened: {_names(found)}; what the server forgot and "
        "no host told may be spent a second time"
    )


def _names(rows: tuple[RowSpec, ...]) -> str:
    shown = [_shown(spec.name) for spec in rows[:_SHOWN]]
    more = [f"and {len(rows) - _SHOWN} more"] if len(rows) > _SHOWN else []
    return ", ".join([*shown, *more])


def _shown(name: str) -> str:
    """A row's name for people: digests cut."""
    return ":".join(part[:8] if len(part) in {32, 64} else part for part in name.split(":"))
