"""Which runs of a folder may go; pure."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pytest_ultrapar.report.browse.run_folder import FoundRun

_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_LONGEST = timedelta(days=36_500)


class Rules(NamedTuple):
    """What a run must be to go: all of what is given.

    Attributes:
        keep: So many of the newest runs stay; None: no run stays for being new.
        older_than: Its last session began longer ago; None: at any time.
        interrupted: Whether only interrupted ones go.
    """

    keep: int | None = None
    older_than: timedelta | None = None
    interrupted: bool = False


def parse_age(text: str) -> timedelta:
    """An age such as `30d`.

    Raises:
        ConfigError: It is none, or more than a hundred years.
    """
    match = re.fullmatch(r"([0-9]{1,6})([hdw])", text)
    age = int(match[1]) * _UNITS[match[2]] if match else None
    if age is None or age > _LONGEST:
        msg = f"--older-than: {text!r} is no age; write hours, days or weeks as 12h, 30d or 8w"
        raise ConfigError(msg)
    return age


def parse_keep(text: str) -> int:
    """A number of runs.

    Raises:
        ConfigError: It is none.
    """
    if not re.fullmatch(r"[0-9]{1,9}", text):
        msg = f"--keep: {text!r} is no number of runs; write a whole number such as 10"
        raise ConfigError(msg)
    return int(text)


def chosen(runs: Sequence[FoundRun], rules: Rules, now: datetime) -> list[FoundRun]:
    """The runs that go, newest first; one that goes on never does.

    Args:
        runs: All of a folder, newest first.
        rules: At least one is given.
        now: An aware time.
    """
    return [
        run
        for run in runs[rules.keep or 0 :]
        if run.verdict != "going on"
        and (rules.older_than is None or now - run.started_at > rules.older_than)
        and (run.verdict == "interrupted" or not rules.interrupted)
    ]
