"""`ultrapar clean`: remove old runs."""

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
SUMMARY = "list runs that are old, interrupted or surplus, and remove them if you add --yes"
DESCRIPTION = """\
Show the runs in a folder that match all given rules, and their size; --yes removes them. This
command never removes runs in use, benches in the folder, other files, runs that contain other runs,
or targets of symbolic links. To remove runs in a bench, pass the bench as the folder.

    ultrapar clean --keep 10
    ultrapar clean --older-than 30d --keep 3 --yes
    ultrapar clean /data/runs --interrupted
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar clean`."""
    add_folder(parser)
    parser.add_argument("--keep", metavar="N", type=_number, help="keep the N newest runs")
    parser.add_argument(
        "--older-than",
        metavar="AGE",
        type=_age,
        help="only runs last started or resumed more than AGE ago; AGE is, for example, 12h, "
        "30d or 8w",
    )
    parser.add_argument("--interrupted", action="store_true", help="only interrupted runs")
    parser.add_argument("--yes", action="store_true", help="remove the listed runs")


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of runs; write a whole number such as 10"
        )
    return int(text)


def _age(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,6})([hdw])", text)
    age = int(match[1]) * _UNITS[match[2]] if match else None
    if age is None or age > _LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an age; write hours, days or weeks, such as 12h, 30d or 8w"
        )
    return age


def run(arguments: argparse.Namespace) -> int:
    """List or remove the chosen runs. Return `EXIT_UNUSABLE` if a run could not be removed.

    Raises:
        ConfigError: The folder does not exist, or the user gave no rule.
    """
    # Import these here: they are slow to load, and `--help` does not need them.
    from pytest_ultrapar.report.browse.run_folder import find_runs  # noqa: PLC0415
    from pytest_ultrapar.store.run_directory import remove_latest_link, remove_run  # noqa: PLC0415

    if arguments.keep is None and arguments.older_than is None and not arguments.interrupted:
        refuse("no rule is given: add --keep N, --older-than AGE or --interrupted")
    now = datetime.now(UTC)
    # The runs of a bench are in a subfolder.
    runs = [one for one in find_runs(arguments.folder, now) if "/" not in one.name]
    going = chosen(
        runs,
        now,
        keep=arguments.keep,
        older_than=arguments.older_than,
        interrupted=arguments.interrupted,
    )
    if not going:
        write(f"nothing to remove among {sum_line(runs)}\n")
        return 0
    if not arguments.yes:
        lines = [
            *run_table(going, width=table_width()),
            f"would remove {sum_line(going)}; add --yes to remove them",
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
    remove_latest_link(arguments.folder, {Path(one.directory) for one in removed})
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
    """Return the runs that match all given rules, newest first, but never a run in progress.

    Args:
        runs: All runs in a folder, newest first.
        now: The current time, with a time zone.
        keep: How many of the newest runs to keep; None to apply no such rule.
        older_than: A run matches if its last session began longer ago than this; None to apply no
            such rule.
        interrupted: Whether to match only interrupted runs.
    """
    return [
        run
        for run in runs[keep or 0 :]
        if run.verdict != "running"
        and (older_than is None or now - run.started_at > older_than)
        and (run.verdict == "interrupted" or not interrupted)
    ]
