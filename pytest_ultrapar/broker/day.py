"""What holds a limit per day: units (requests or tokens) that are counted, not spaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from pytest_ultrapar.broker.day_memory import DayMemory


def day_zone(name: str) -> ZoneInfo:
    """The time zone of that name, such as `America/Los_Angeles`.

    Raises:
        ValueError: There is none.
    """
    raise NotImplementedError


class Instant(NamedTuple):
    """One moment by both clocks of the host.

    Attributes:
        wall_s: Seconds since the epoch; may jump.
        boot_s: Seconds since the host started, times of sleep included.
        boot_id: Names the start of the host; readings of `boot_s` compare within one only.
    """

    wall_s: float
    boot_s: float
    boot_id: str


class DayClock(Protocol):
    """Says by both clocks of the host what a time of the broker is."""

    def at(self, now_s: float) -> Instant:
        """The instant that the broker calls `now_s`, which is now."""
        ...


class HostDayClock:
    """The clocks of this host."""

    def at(self, now_s: float) -> Instant:
        """Read both clocks; `now_s` does not matter."""
        raise NotImplementedError


class PlayedDayClock:
    """Clocks that agree, for virtual time: `start_s` by the wall clock is 0 by the broker's."""

    def __init__(self, start_s: float) -> None:
        self.start_s = start_s

    def at(self, now_s: float) -> Instant:
        """Both clocks stand `now_s` after the start."""
        raise NotImplementedError


class DayReservation:
    """Units of one send; what `DayLedger.take` returns and `correct` wants back.

    Attributes:
        units: Reserved; what was used once that is known.
    """

    __slots__ = ("units",)

    def __init__(self, units: int) -> None:
        self.units = units


class DayLedger:
    """Counts units against an amount per day. Same shape as `TokenPacer`, all times the broker's.

    A file (`DayMemory`) makes it hold over runs; without one it lives as long as the object, for a
    simulated provider that the run starts itself, for forecasts and for tests.
    """

    def __init__(
        self,
        amount: int,
        clock: DayClock,
        *,
        zone: ZoneInfo | None = None,
        memory: DayMemory | None = None,
        late_s: float = 300.0,
    ) -> None:
        """Read the memory, write nothing.

        Args:
            amount: Units per day, >= 1.
            clock: The host's clocks.
            zone: Where days begin at midnight; None counts any 24 hours.
            memory: Where the count is kept over runs; None keeps it in this object only.
            late_s: How long after its grant a request may still be counted by the provider, as long
                as nobody knows what became of it: the longest that a request may take.

        Raises:
            ConfigError: The memory cannot be read or trusted.
        """
        raise NotImplementedError

    @property
    def trouble(self) -> str:
        """Why the memory could not be written when it was last tried (a sentence); else empty."""
        raise NotImplementedError

    def claim(self, now_s: float) -> None:
        """Write the memory once, at the start of a run that will send.

        Raises:
            ConfigError: It cannot be written: no such directory, no permission, a full disk.
        """
        raise NotImplementedError

    def left(self, now_s: float) -> int:
        """Units that may still be sent now; never below 0. Writes nothing."""
        raise NotImplementedError

    def ready_at_s(self, units: int, now_s: float) -> float:
        """The earliest time, not before `now_s`, at which a send of so many units is allowed.

        `now_s` means that the units are on disk; to that end this may write. Later times are when
        units come free by what is known now, and a few seconds ahead where the memory could not be
        written (`trouble`). Infinity when it is larger than the amount.
        """
        raise NotImplementedError

    def take(self, units: int, now_s: float) -> DayReservation:
        """Count one send at `now_s`.

        Raises:
            ValueError: When no such send is allowed at `now_s` (ask `ready_at_s` first).
        """
        raise NotImplementedError

    def correct(self, reservation: DayReservation, units: int, now_s: float) -> None:
        """Say how many units a send took, when its lease comes back; 0 if nothing was sent.

        To be said of requests, too (with 1): until then a send counts for `late_s` longer, and for
        two days when it is near midnight. Not said, all stays reserved. Never writes.
        """
        raise NotImplementedError

    def close(self, now_s: float) -> None:
        """Write what is known now, which gives back what was written ahead; for an orderly end.

        Never raises: what cannot be written stays counted.
        """
        raise NotImplementedError
