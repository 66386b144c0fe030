"""Keeps the run's API keys to itself on this host, and waits for those that another run has."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.headroom import longest_spare_s
from pytest_ultrapar.broker.lane_table import free_s
from pytest_ultrapar.coordinator.claims.key_lock import Holder, KeyLocks, lock_directory, take_all
from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.keys import key_identity
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.pool.secret import read_secrets
from pytest_ultrapar.report.text import duration, visible
from pytest_ultrapar.system.clock import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_ultrapar.coordinator.claims.key_lock import KeyGroup, Taken
    from pytest_ultrapar.pool.model import Lane, LaneId, Pool
    from pytest_ultrapar.pool.settings import KeyLock
    from pytest_ultrapar.report.wait_notice import WaitingLine
    from pytest_ultrapar.system.clock import Clock


_LOOK_S = 0.1
_EARLIER = "an earlier run's requests"
_STILL_COUNT = "with the same keys they still count against the limits"
_SAID_S = 1.0
_PATIENCE_S = 0.5
"""For `fail`: two runs that begin at once may meet for an instant, and a run that was just killed
takes some 50 ms to end its broker."""


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


@dataclass(frozen=True, slots=True)
class LockedKey:
    """A key as people know it, and the limits on which requests with it fall."""

    shown: str
    limits: tuple[Limit, ...]


def locked_keys(
    pool: Pool, lanes: Sequence[Lane], environ: Mapping[str, str], simulator: str | None
) -> dict[str, LockedKey]:
    """The keys that a run must have for itself, by the names of their files.

    A server that needs no key is locked itself. A simulated provider that the run starts is nobody
    else's; one that runs already is locked by its URL, provider and key.

    Args:
        pool: The pool.
        lanes: Those that the run may use.
        environ: The environment's variables, which hold the secrets.
        simulator: URL of a simulated provider that already runs.
    """
    identities = key_identities(pool, lanes, environ, simulator)
    shown: dict[str, str] = {}
    limits: dict[str, dict[str, Limit]] = {}
    for lane in lanes:
        name = identities.get(lane.lane_id)
        if name is None:
            continue
        shown.setdefault(name, lane.key_name)
        limits.setdefault(name, {}).update({one: pool.limits[one] for one in lane.limits})
    return {name: LockedKey(shown[name], tuple(limits[name].values())) for name in shown}


def key_identities(
    pool: Pool, lanes: Sequence[Lane], environ: Mapping[str, str], simulator: str | None
) -> dict[LaneId, str]:
    """The identity of each lane's key, as for `locked_keys`.

    Lanes of a simulated provider that the run starts have none.
    """
    secrets = read_secrets(pool, environ, {lane.model for lane in lanes})
    simulated = {provider.name for provider in pool.providers if provider.is_simulated}
    url_of = pool.urls
    found: dict[LaneId, str] = {}
    for lane in lanes:
        if lane.provider not in simulated:
            secret = secrets.get((lane.provider, lane.key))
            url = url_of[lane.provider, lane.instance]
            found[lane.lane_id] = key_identity(url, "" if secret is None else secret.reveal())
        elif simulator is not None:
            found[lane.lane_id] = key_identity(simulator, lane.key_name)
    return found


class KeptKeys:
    """The run's keys, from `keep_keys` to `give_back`.

    Attributes:
        fds: What a process that grants leases inherits, so that the keys stay kept while it lives.
        waited_s: Seconds until they were ours and free; `waited_for` says for whom.
    """

    def __init__(
        self, keys: Mapping[str, LockedKey], locks: KeyLocks, waited_s: float, waited_for: str
    ) -> None:
        self._keys = keys
        self._locks = locks
        self.fds = locks.fds
        self.waited_s = waited_s
        self.waited_for = waited_for

    def give_back(self, clock: Clock) -> None:
        """Let other runs have them, when no lease is out any more. Idempotent."""
        now_s = clock.now_s()
        self._locks.give_back({name: free_s(key.limits, now_s) for name, key in self._keys.items()})

    def give_back_unused(self) -> None:
        """Let other runs have them; nothing was sent. Idempotent."""
        self._locks.give_back({})


def keep_keys(
    keys: Mapping[str, LockedKey],
    run: Path | None,
    how: KeyLock,
    line: WaitingLine,
    *,
    clock: Clock,
    pause: Callable[[float], object] = _pause,
    option: str = "--ultrapar-key-lock",
    group: KeyGroup | None = None,
) -> KeptKeys:
    """Take all keys for this run, and wait until what earlier runs sent does not count any more.

    An interrupt ends the waiting at once and takes nothing.

    Args:
        keys: By the names of their files.
        run: The run's directory, which others are told; None for a check, which has none.
        how: Whether to wait for a run that has one of them.
        line: Tells people who is waited for.
        clock: Of the host.
        pause: Lets so many seconds pass.
        option: Which option gave `how`, for messages.
        group: With whom this run may have the keys at the same time, as they keep the limits
            together: each has its part of them.

    Raises:
        ConfigError: Another run has one and `how` is `fail`, or keys cannot be locked here.
    """
    with line:
        directory = lock_directory(os.environ)
        began_s = clock.now_s()
        waited_for = ""
        who = "" if run is None else str(run)
        while True:
            holder = Holder(os.getpid(), who, utc_now().replace(microsecond=0))
            locks = take_all(directory, keys, holder, group)
            if isinstance(locks, KeyLocks):
                break
            waited_s = clock.now_s() - began_s
            key = f"key {keys[locks.name].shown}"
            if how == "fail" and waited_s >= _PATIENCE_S:
                refuse(
                    f"{key} is in use by {_who(locks)}; two runs would send "
                    "twice as much as it allows: wait for the end of that run, or drop "
                    f"{option} fail to make this one wait"
                )
            if how == "wait":
                waited_for = f"{key}, which was in use by {_who(locks)}"
                line.say(key, f", which is in use by {_who(locks)}", waited_s)
            pause(_LOOK_S)
        try:
            free_at_s = max((_free_s(keys[name], locks, name, clock) for name in keys), default=0.0)
            wait_until_free(free_at_s, _EARLIER, line, since_s=began_s, clock=clock, pause=pause)
        except BaseException:
            locks.give_back({})
            raise
        return KeptKeys(keys, locks, clock.now_s() - began_s, waited_for)


def wait_until_free(
    free_at_s: float,
    whose: str,
    line: WaitingLine,
    *,
    since_s: float,
    clock: Clock,
    pause: Callable[[float], object] = _pause,
) -> None:
    """Wait until requests that were sent before do not count against the limits any more.

    Args:
        free_at_s: When that is, by the clock.
        whose: Whose requests they are, for people.
        line: Tells people, where it takes longer than a second.
        since_s: When the waiting began.
        clock: Of the host.
        pause: Lets so many seconds pass.
    """
    total_s = free_at_s - clock.now_s()
    while (left_s := free_at_s - clock.now_s()) > 0:
        if total_s > _SAID_S:
            more = f", {duration(total_s)}: {_STILL_COUNT}"
            line.say(whose, more, clock.now_s() - since_s)
        pause(min(left_s, _LOOK_S))


def _free_s(key: LockedKey, locks: KeyLocks, name: str, clock: Clock) -> float:
    earlier = locks.earlier.get(name)
    is_same = locks.group is not None
    free_at_s = 0.0 if earlier is None else _until_s(key, earlier, clock, is_same=is_same)
    before_s = locks.before_s.get(name, 0.0)
    if before_s != 0.0:
        # Members send without knowing of each other, so their first sends may fall together, those
        # of a whole window at once. So all that was sent before has to be out of every window.
        latest_s = _latest_s(key, clock)
        last_s = latest_s if before_s is None else min(before_s, latest_s)
        free_at_s = max(free_at_s, last_s + _windows_s(key))
    return free_at_s


def _until_s(key: LockedKey, earlier: Holder, clock: Clock, *, is_same: bool = False) -> float:
    """From when on what an earlier holder sent keeps a run waiting no more.

    Args:
        key: With the limits of the run.
        earlier: Who had it.
        clock: Of the host.
        is_same: Whether it had these limits, too. A member of a group had a part of them, and its
            sends were further apart.
    """
    latest_s = _latest_s(key, clock)
    if earlier.group and not is_same:
        latest_s += _windows_s(key)
    # A run that was killed may have sent until now. A time later than any that could have been
    # written now is of an earlier boot of the host; a smaller one from there is past on both.
    return latest_s if earlier.free_s is None else min(earlier.free_s, latest_s)


def _latest_s(key: LockedKey, clock: Clock) -> float:
    return free_s(key.limits, clock.now_s())


def _windows_s(key: LockedKey) -> float:
    """The longest window in which sends are spaced."""
    return max(
        (
            kind.window_s + longest_spare_s(kind.window_s)
            for limit in key.limits
            for kind, _ in limit.rows
            if kind.is_spaced and kind.is_rate
        ),
        default=0.0,
    )


def _who(taken: Taken) -> str:
    if taken.holder is None:
        return "another process"
    holder = taken.holder
    since = f"since {holder.since:%Y-%m-%d %H:%M:%S} UTC"
    if not holder.run:
        return f"a check of lanes with process id {holder.pid} ({since})"
    who = holder.member or "the run"
    return f"{who} with process id {holder.pid} (results in {visible(holder.run)}, {since})"
