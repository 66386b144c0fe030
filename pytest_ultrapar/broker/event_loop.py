"""Runs the broker on an event loop: sets its timers, and handles all events except requests.

The broker only reacts: each of its methods takes the current time and returns the messages to send.
`local.py` (in this process) and `server.py` (over a socket) pass requests to `BrokerLoop.broker`,
and then call `BrokerLoop.arm`. All other events are handled here.
"""

from __future__ import annotations

import asyncio  # noqa: TC003 - this module is about the loop and its timers
import math
import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from pytest_ultrapar.broker.adaptive.observation import LIMITS_FILE, LimitRecord
from pytest_ultrapar.broker.adaptive.server_load import LoadWatch, Place, watched
from pytest_ultrapar.broker.broker import LaneBroker
from pytest_ultrapar.broker.daily_limits import open_days
from pytest_ultrapar.broker.headroom import first_late_s
from pytest_ultrapar.broker.health import PAUSES_FILE, PauseRecord
from pytest_ultrapar.broker.limit_history import WRITE_EVERY_S, HistoryFile
from pytest_ultrapar.system.clock import HostDayClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.broker.adaptive.server_load import ServerLoad
    from pytest_ultrapar.broker.protocol import Action
    from pytest_ultrapar.broker.settings import BrokerSettings, SharesSettings
    from pytest_ultrapar.system.clock import Clock


class Shares(Protocol):
    """Provides a broker's shares of the limits that hosts share. Runs on the broker's loop."""

    def start(self, host: BrokerLoop) -> None:
        """Start. Called once, on the running loop.

        Use `host.move` for calls to `host.broker` that return actions. If this method raises an
        error, the broker ends.
        """

    def close(self) -> None:
        """Stop. Called once, on the loop's thread, even if never started. Must not raise."""


class BrokerLoop:
    """Wakes the broker on time, reports the servers' load to it, and writes the history files.

    Attributes:
        broker: The broker. Call it only on the loop's thread, and then call `arm`.
        loop: The event loop that the timers use.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        carry_out: Callable[[list[Action]], None],
        on_broken: Callable[[Exception], object],
    ) -> None:
        """Start with no requests in flight.

        Args:
            settings: See `BrokerSettings`.
            clock: Source of all times.
            loop: The event loop for the timers. It need not run yet.
            carry_out: Called with the actions that the broker returns for all events except
                requests, such as timers and reports of server load.
            on_broken: Called if the broker fails and cannot serve any more requests.

        Raises:
            ConfigError: A file of daily limits cannot be read or trusted.
        """
        self._budgets = None
        if settings.spending_path is not None:
            # Few runs have a budget.
            from pytest_ultrapar.broker.budget import Budgets  # noqa: PLC0415
            from pytest_ultrapar.broker.spending_file import SpendingFile  # noqa: PLC0415

            self._budgets = Budgets(settings.pool, SpendingFile(Path(settings.spending_path)))
        self.broker = LaneBroker(
            settings.pool,
            episode_timeout_s=settings.episode_timeout_s,
            wait_for_servers_s=settings.wait_for_servers_s,
            known=settings.known,
            days=open_days(settings.pool, settings.days, HostDayClock(), clock.now_s()),
            late_s=first_late_s,
            budgets=self._budgets,
            shared=settings.shared,
        )
        self._clock = clock
        self.loop = loop
        self._carry_out = carry_out
        self._on_broken = on_broken
        self._histories: tuple[HistoryFile, HistoryFile] | None = None
        if settings.history is not None:
            folder = Path(settings.history)
            self._histories = (
                HistoryFile(folder / LIMITS_FILE, LimitRecord),
                HistoryFile(folder / PAUSES_FILE, PauseRecord),
            )
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = math.inf
        self._is_closed = False
        self._watch = LoadWatch(watched(settings.pool, os.environ), loop, self._load_reported)
        if self._histories is not None:
            loop.call_later(WRITE_EVERY_S, self._write_in_time)
        self._shares = None if settings.shares is None else self._load(settings.shares)
        if self._shares is not None:
            loop.call_soon(self._start_shares)

    def now_s(self) -> float:
        """The current time on the clock that all leases use."""
        return self._clock.now_s()

    def arm(self) -> None:
        """Set the timer for the broker's next wake-up. Call this after every call to the broker."""
        wake_s = self.broker.next_wake_s()
        if wake_s is None or wake_s >= self._timer_s:
            # A timer that fires too early costs one call; cancelling it every time costs more.
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = wake_s
        delay_s = max(0.0, wake_s - self.now_s())
        self._timer = self.loop.call_at(self.loop.time() + delay_s, self._tick)

    def close(self) -> None:
        """Stop the timer, and write the rest of the history and the daily counts. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._watch.stop()
        if self._shares is not None:
            self._shares.close()
        self.broker.close(self.now_s())
        if self._budgets is not None:
            self._budgets.close()
        self._write_histories()
        for history in self._histories or ():
            history.close()

    def move(self, move: Callable[[], list[Action]]) -> None:
        """Call the broker and carry out its actions. Use this for all events except requests.

        Does nothing after `close`.

        Args:
            move: Calls the broker and returns its actions.

        Raises:
            Exception: The error that the argument `move` raised. After this error, the broker
                serves no more requests.
        """
        if self._is_closed:
            return
        try:
            self._carry_out(move())
            self.arm()
        except Exception as error:
            # No caller can report this error. If it were not reported here, all requests would wait
            # forever.
            self._watch.stop()
            self._on_broken(error)
            raise

    def _start_shares(self) -> None:
        if self._is_closed or self._shares is None:
            return
        try:
            self._shares.start(self)
        except Exception as error:
            # If the error were not reported here, all requests would wait forever.
            self._watch.stop()
            self._on_broken(error)
            raise

    def _tick(self) -> None:
        self._timer = None
        self._timer_s = math.inf
        self.move(lambda: self.broker.tick(self.now_s()))

    def _load_reported(self, place: Place, load: ServerLoad) -> None:
        self.move(lambda: self.broker.load_reported(*place, load, self.now_s()))

    def _write_in_time(self) -> None:
        if not self._is_closed:
            self._write_histories()
            self.loop.call_later(WRITE_EVERY_S, self._write_in_time)

    def _write_histories(self) -> None:
        if self._histories is not None:
            limits, pauses = self._histories
            limits.append(self.broker.take_changes())
            pauses.append(self.broker.take_pauses())

    def _load(self, settings: SharesSettings) -> Shares:
        module, _, name = settings.factory.partition(":")
        return cast("Shares", getattr(import_module(module), name)(self, settings.config))
