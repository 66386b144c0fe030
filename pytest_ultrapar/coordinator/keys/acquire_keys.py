"""Reserve the run's API keys on this machine, and wait for keys that another run holds."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.broker.headroom import longest_spare_s
from pytest_ultrapar.broker.lane_table import free_s
from pytest_ultrapar.coordinator.keys.key_lock_file import (
    Holder,
    KeyLocks,
    lock_directory,
    take_all,
)
from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.keys import key_identity
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.pool.secret import read_secrets
from pytest_ultrapar.report.text import duration, visible
from pytest_ultrapar.system.clock import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_ultrapar.coordinator.keys.key_lock_file import KeyGroup, KeyInUse
    from pytest_ultrapar.pool.model import Lane, LaneId, Pool
    from pytest_ultrapar.pool.settings import KeyLock
    from pytest_ultrapar.report.wait_notice import WaitingLine
    from pytest_ultrapar.system.clock import Clock


_LOOK_S = 0.1
_EARLIER = "an earlier run's requests"
_STILL_COUNT = "to stop counting against the limits of the same keys"
_SAID_S = 1.0
_PATIENCE_S = 0.5
"""How long to wait for a key in use even if the key lock is `fail`, in seconds. Two runs that start
together may collide for an instant, and the broker of a killed run takes about 50 ms to end."""


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


@dataclass(frozen=True, slots=True)
class LockedKey:
    """A key's name in messages, and the limits against which its requests count."""

    shown: str
    limits: tuple[Limit, ...]


def locked_keys(
    pool: Pool, lanes: Sequence[Lane], environ: Mapping[str, str], simulator: str | None
) -> dict[str, LockedKey]:
    """Return the keys that a run must lock, by the names of their lock files.

    If a server has no key, the server itself is locked. A simulated provider that the run starts
    needs no lock. If a simulated provider is already running, each combination of URL, provider and
    key is locked.

    Args:
        pool: The pool.
        lanes: The lanes that the run may use.
        environ: The environment variables, which contain the secrets.
        simulator: URL of a running simulated provider.
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
    """Return the identity of each lane's key, which is also the name of its lock file.

    Lanes of a simulated provider that the run starts are left out.
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
        fds: File descriptors for the process that grants leases. It inherits them, and the keys
            stay locked until it ends.
        waited_s: How long this run waited until it held the keys and could send, in seconds.
        waited_for: The key and the other run that this run waited for; empty if it did not wait.
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
        """Release the keys for other runs. Call it when no lease is open. Idempotent."""
        now_s = clock.now_s()
        self._locks.give_back({name: free_s(key.limits, now_s) for name, key in self._keys.items()})

    def give_back_unused(self) -> None:
        """Release the keys as if this run had never had them: nothing was sent. Idempotent."""
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
    """Reserve all keys, and wait until requests of earlier runs no longer count against the limits.

    Ctrl-C ends the wait immediately, and no key is reserved.

    Args:
        keys: The keys, by the names of their lock files.
        run: The run's directory, which other runs show in their messages; None for a check.
        how: Whether to wait for a run that holds a key.
        line: Shows which run this one is waiting for.
        clock: The machine's clock.
        pause: Waits for the given number of seconds.
        option: Name of the option that sets `how`, for messages.
        group: The group whose members may hold the keys at the same time, because each of them has
            its own part of the limits.

    Raises:
        ConfigError: Another run holds a key and `how` is `fail`, or keys cannot be locked on this
            machine.
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
                    f"{key} is in use by {_who(locks)}; two runs would exceed its limits: wait "
                    f"until that run has ended, or use {option} wait"
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
    """Wait until earlier requests no longer count against the limits.

    Args:
        free_at_s: When the wait ends, in seconds on `clock`.
        whose: A phrase for messages that says whose requests the run is waiting for.
        line: Shows the wait, if it takes longer than a second.
        since_s: When the wait began, in seconds on `clock`.
        clock: The machine's clock.
        pause: Waits for the given number of seconds.
    """
    total_s = free_at_s - clock.now_s()
    while (left_s := free_at_s - clock.now_s()) > 0:
        if total_s > _SAID_S:
            more = f" {_STILL_COUNT} ({duration(total_s)})"
            line.say(whose, more, clock.now_s() - since_s)
        pause(min(left_s, _LOOK_S))


def _free_s(key: LockedKey, locks: KeyLocks, name: str, clock: Clock) -> float:
    earlier = locks.earlier.get(name)
    is_same = locks.group is not None
    free_at_s = 0.0 if earlier is None else _until_s(key, earlier, clock, is_same=is_same)
    before_s = locks.before_s.get(name, 0.0)
    if before_s != 0.0:
        # Members of a group do not communicate, so their first requests may come at the same time
        # and use up a whole window. Therefore wait until all earlier requests have left every
        # window.
        latest_s = _latest_s(key, clock)
        last_s = latest_s if before_s is None else min(before_s, latest_s)
        free_at_s = max(free_at_s, last_s + _windows_s(key))
    return free_at_s


def _until_s(key: LockedKey, earlier: Holder, clock: Clock, *, is_same: bool = False) -> float:
    """Return the time from which a run need not wait for an earlier holder's requests.

    Args:
        key: The key and the run's limits.
        earlier: The earlier holder.
        clock: The machine's clock.
        is_same: Whether the earlier holder had the same limits as the run. If the limits differ and
            the holder was in a group, it had only a part of its limits, so its requests were
            further apart.
    """
    latest_s = _latest_s(key, clock)
    if earlier.group and not is_same:
        latest_s += _windows_s(key)
    # A killed run may have sent requests until now. If the stored time is later than any time that
    # could be stored now, it was stored before the last boot. So use the latest possible time. If
    # it is in the past, no wait is necessary, even if it was stored before the boot.
    return latest_s if earlier.free_s is None else min(earlier.free_s, latest_s)


def _latest_s(key: LockedKey, clock: Clock) -> float:
    return free_s(key.limits, clock.now_s())


def _windows_s(key: LockedKey) -> float:
    """The longest window over which the broker spaces requests, with spare time, in seconds."""
    return max(
        (
            kind.window_s + longest_spare_s(kind.window_s)
            for limit in key.limits
            for kind, _ in limit.rows
            if kind.is_spaced and kind.is_rate
        ),
        default=0.0,
    )


def _who(taken: KeyInUse) -> str:
    if taken.holder is None:
        return "another process"
    holder = taken.holder
    since = f"since {holder.since:%Y-%m-%d %H:%M:%S} UTC"
    if not holder.run:
        return f"a lane check with process id {holder.pid} ({since})"
    who = holder.member or "the run"
    return f"{who} with process id {holder.pid} (results in {visible(holder.run)}, {since})"
