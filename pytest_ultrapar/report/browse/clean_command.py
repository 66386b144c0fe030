"""`ultrapar clean`: removes runs that nobody needs any more."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import EXIT_UNUSABLE, UltraparError, refuse
from pytest_ultrapar.report.browse.runs_command import add_folder, run_table, size, sum_line
from pytest_ultrapar.report.browse.screen import table_width, write
from pytest_ultrapar.report.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ultrapar.report.browse.run_folder import FoundRun

_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_LONGEST = timedelta(days=36_500)
NAME = "clean"
SUMMARY = "remove runs that are old, interrupted or too many; shows them first"
DESCRIPTION = """\
Show which runs of a folder would be removed, and what they take; --yes removes them. A run goes
where it meets all rules that are given. Never removed are runs that are in use, the benches of the
folder, what is no run, runs that hold other runs, and anything that a symbolic link in the folder
leads to. To remove runs of a bench, name the bench as the folder.

    ultrapar clean --keep 10
    ultrapar clean --older-than 30d --keep 3 --yes
    ultrapar clean /data/runs --interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar clean`."""
    add_folder(parser)
    parser.add_argument("--keep", metavar="N", type=_number, help="the N newest runs stay")
    parser.add_argument(
        "--older-than",
        metavar="AGE",
        type=_age,
        help="only runs begun or resumed longer ago: 12h, 30d, 8w",
    )
    parser.add_argument("--interrupted", action="store_true", help="only interrupted runs")
    parser.add_argument("--yes", action="store_true", help="remove them")


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of runs; write a whole number such as 10"
        )
    return int(text)


def _age(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,6})([hdw])", text)
    age = int(match[1]) * _UNITS[match[2]] if match else None
    if age is None or age > _LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no age; write hours, days or weeks as 12h, 30d or 8w"
        )
    return age


def run(arguments: argparse.Namespace) -> int:
    """Print or remove them; `EXIT_UNUSABLE` where one could not be removed.

    Raises:
        ConfigError: There is no such folder, or no rule is given.
    """
    # Structs of whole runs; not for `--help`.
    from pytest_ultrapar.report.browse.run_folder import find_runs  # noqa: PLC0415
    from pytest_ultrapar.store.run_directory import remove_run, unpoint_latest  # noqa: PLC0415

    if arguments.keep is None and arguments.older_than is None and not arguments.interrupted:
        refuse("no rule is given: add --keep N, --older-than AGE or --interrupted")
    now = datetime.now(UTC)
    # Those of benches have a folder of their own.
    runs = [one for one in find_runs(arguments.folder, now) if "/" not in one.name]
    going = chosen(
        runs,
        now,
        keep=arguments.keep,
        older_than=arguments.older_than,
        interrupted=arguments.interrupted,
    )
    if not going:
        write(f"nothing to remove of {sum_line(runs)}\n")
        return 0
    if not arguments.yes:
        lines = [
            *run_table(going, width=table_width()),
            f"would remove {sum_line(going)}; --yes removes them",
        ]
        write("".join(f"{line}\n" for line in lines))
        return 0
    removed = []
    for one in going:
        try:
            remove_run(Path(one.directory), now)
        except UltraparError as error:
            sys.stderr.write(f"ultrapar {NAME}: {one_line(str(error))}\n")
            continue
        removed.append(one)
        write(f"removed {one_line(one.name)}, {size(one.bytes)}\n")
    unpoint_latest(arguments.folder, {Path(one.directory) for one in removed})
    write(f"removed {sum_line(removed)}\n")
    return 0 if len(removed) == len(going) else EXIT_UNUSABLE


def chosen(
    runs: Sequence[FoundRun],
    now: datetime,
    *,
    keep: int | None,
    older_than: timedelta | None,
    interrupted: bool,
) -> list[FoundRun]:
    """The runs that go, newest first, by all rules that are given; one that goes on never does.

    Args:
        runs: All of a folder, newest first.
        now: An aware time.
        keep: So many of the newest runs stay; None: no run stays for being new.
        older_than: Its last session began longer ago; None: at any time.
        interrupted: Whether only interrupted ones go.
    """
    return [
        run
        for run in runs[keep or 0 :]
        if run.verdict != "going on"
        and (older_than is None or now - run.started_at > older_than)
        and (run.verdict == "interrupted" or not interrupted)
    ]
