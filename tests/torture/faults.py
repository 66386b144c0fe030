"""The fault: the victim, and the signals sent to it."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.torture.session import HANG_S, POLL_S, pids_of, send

if TYPE_CHECKING:
    from tests.torture.kinds import Kind
    from tests.torture.plan import Strike
    from tests.torture.session import Session


@dataclass(frozen=True)
class Hit:
    """A fault that reached a process.

    Attributes:
        t_s: Its time, in monotonic seconds of the machine.
        what: Its description in messages.
    """

    t_s: float
    what: str


def strike_at(session: Session, kind: Kind, strike: Strike) -> Hit | None:
    """Apply the fault to a running session; return None if its victim was gone."""
    before = set(pids_of(session.folder).get("worker", []))
    victims = _victims(session, kind, strike)
    now_s = time.monotonic()
    reached: list[int] = []
    for number, what in enumerate(kind.signals):
        if number:
            time.sleep(strike.gap_s)
        if session.has_said_all:
            break
        reached = _send(session, kind, strike, what, victims) or reached
    if kind.pauses:
        time.sleep(strike.gap_s)
        send(signal.SIGCONT, victims)
    if not reached:
        return None
    if kind.victim == "replacement":
        reached += _replacement(session, before, strike)
    names = "+".join(one.name for one in kind.signals)
    return Hit(now_s, f"{names} to {kind.victim} {reached} at {strike.moment!r}")


def _victims(session: Session, kind: Kind, strike: Strike) -> list[int]:
    if kind.victim == "controller":
        return [session.pid]
    pids = pids_of(session.folder)
    if kind.victim in {"group", "all"}:
        everyone = [pid for role in pids.values() for pid in role]
        random.Random(strike.which).shuffle(everyone)
        return everyone
    workers = pids.get("worker", [])
    if kind.victim == "workers":
        return workers
    there = workers if kind.victim == "replacement" else pids.get(kind.victim, [])
    return [there[int(strike.which * len(there))]] if there else []


def _replacement(session: Session, before: set[int], strike: Strike) -> list[int]:
    """Kill the worker that replaces a killed one, as soon as it exists."""
    deadline_s = time.monotonic() + HANG_S
    while session.code is None and time.monotonic() < deadline_s:
        fresh = [pid for pid in pids_of(session.folder).get("worker", []) if pid not in before]
        if fresh:
            time.sleep(strike.delay_s)
            return send(signal.SIGKILL, fresh)
        time.sleep(POLL_S)
    return []


def _send(
    session: Session, kind: Kind, strike: Strike, what: signal.Signals, victims: list[int]
) -> list[int]:
    if kind.victim != "group":
        return send(what, victims)
    if session.code is not None:
        return []
    # Until the leader is waited for, no other process can get its id.
    return send(what, [session.pid if strike.directly and what != signal.SIGKILL else -session.pid])
