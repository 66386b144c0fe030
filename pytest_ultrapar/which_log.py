"""Which workers write a debug log: none, all, or one that is counted from 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.bounds import PROCESS_NUM
from pytest_ultrapar.pool.place import Place, shown

if TYPE_CHECKING:
    from pytest_ultrapar.pool.environment import Environment

_DIGITS = 18
_WORDS = ("off", "all")


@dataclass(frozen=True, slots=True)
class WhichLog:
    """Which workers write a debug log.

    Attributes:
        is_on: Whether any does.
        number: Only this one, from 1: `gw0` is 1, `gw1` is 2; without xdist `main` is 1. None takes
            all. The documents count their shards so, and their `DEBUG_PROCESS_NUM=1` then means a
            process that there is in every run.
        place: Where `number` stands, for the message when there is no such worker.
    """

    is_on: bool = False
    number: int | None = None
    place: Place | None = None

    @property
    def setting(self) -> int | str:
        """As the user writes it: `off`, `all`, or a number."""
        if not self.is_on:
            return "off"
        return "all" if self.number is None else self.number

    def includes(self, worker: str) -> bool:
        """Whether the worker of that name writes one."""
        return self.is_on and self.number in {None, number_of(worker)}

    def check(self, n_workers: int) -> None:
        """Make sure that the one worker is among those that the run starts.

        Raises:
            ConfigError: There are fewer.
        """
        if self.place is not None and self.number is not None and self.number > n_workers:
            self.place.refuse(
                f"must be between 1 and {n_workers}, the number of worker processes "
                f"(got {self.number})"
            )


def number_of(worker: str) -> int:
    """A worker's number from 1: `gw0` and `main` are 1, `gw1` is 2."""
    digits = worker.removeprefix("gw")
    return int(digits) + 1 if digits.isdecimal() else 1


def parse_which(place: Place, text: str) -> WhichLog:
    """The workers that `all`, `off` or a number from 1 mean.

    Raises:
        ConfigError: It is none of them.
    """
    if text in _WORDS:
        return WhichLog(text == "all")
    if not (text.isascii() and text.isdecimal() and 0 < len(text) <= _DIGITS):
        place.refuse(
            'must be "all", "off" or the number of one worker process, from 1 for the first '
            f"(got {shown(text)})"
        )
    return WhichLog(is_on=True, number=PROCESS_NUM.check(place, int(text)), place=place)


def in_environment(environment: Environment) -> tuple[WhichLog, str]:
    """What `DEBUG_LOG` and `DEBUG_PROCESS_NUM` ask for, and its origin.

    `DEBUG_PROCESS_NUM` alone asks for nothing: it says whose log, not that there is one.
    """
    if environment.debug_log is None:
        return WhichLog(), "default"
    if not environment.debug_log or environment.debug_process_num is None:
        return WhichLog(environment.debug_log), "environment DEBUG_LOG"
    place = Place("environment", "DEBUG_PROCESS_NUM")
    which = WhichLog(is_on=True, number=environment.debug_process_num, place=place)
    return which, "environment DEBUG_LOG and DEBUG_PROCESS_NUM"
