"""`ultrapar clean`: remove old runs, after saying which."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.report.text import bytes_text, counted, text_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_ultrapar.browse.runs import RunLine

NAME = "clean"
SUMMARY = "remove old runs of a folder; says which, and removes them with --yes"
DESCRIPTION = """\
Remove runs of a folder. Without --yes nothing is removed: it says what would be. A run that is
going on, or that cannot be read, always stays, and so does whatever is no run.

    ultrapar clean --keep 10
    ultrapar clean --older-than 30d --yes
    ultrapar clean --interrupted --yes
"""
_AGE = re.compile(r"(\d{1,6})([dhw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar clean`."""
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", help="where the runs are (default: .ultrapar)"
    )
    parser.add_argument("--keep", metavar="N", type=int, help="all but the N newest")
    parser.add_argument(
        "--older-than", metavar="AGE", help="those that began so long ago: 12h, 30d, 4w"
    )
    parser.add_argument("--interrupted", action="store_true", help="only those not finished")
    parser.add_argument("--yes", action="store_true", help="remove them")


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit code.

    Raises:
        ConfigError: Nothing says which runs, or there is no such folder.
    """
    from pytest_ultrapar.browse.runs import runs_in  # noqa: PLC0415 - 60 ms, not for `--help`
    from pytest_ultrapar.browse.runs_command import HEADER, N_NAMES, row_of  # noqa: PLC0415
    from pytest_ultrapar.store.run_directory import DEFAULT_PARENT, remove_run  # noqa: PLC0415

    if arguments.keep is None and arguments.older_than is None and not arguments.interrupted:
        msg = "say which runs: --keep N, --older-than AGE, --interrupted"
        raise ConfigError(msg)
    if arguments.keep is not None and arguments.keep < 0:
        msg = f"--keep must be >= 0 (got {arguments.keep})"
        raise ConfigError(msg)
    age = _age(arguments.older_than) if arguments.older_than is not None else None
    before = datetime.now(UTC) - age if age is not None else None
    folder = Path(arguments.folder) if arguments.folder else DEFAULT_PARENT
    chosen = list(
        old_runs(
            runs_in(folder), arguments.keep or 0, before, only_interrupted=arguments.interrupted
        )
    )
    if not chosen:
        sys.stdout.write("no run is to be removed\n")
        return 0
    lines = text_table(HEADER, [row_of(one) for one in chosen], n_names=N_NAMES, width=10_000)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    size = bytes_text(sum(one.n_bytes for one in chosen))
    if not arguments.yes:
        sys.stdout.write(f"{counted(len(chosen), 'run')}, {size}: --yes removes them\n")
        return 0
    for one in chosen:
        remove_run(Path(one.path))
    sys.stdout.write(f"removed {counted(len(chosen), 'run')}, {size}\n")
    return 0


def old_runs(
    runs: Sequence[RunLine], n_kept: int, before: datetime | None, *, only_interrupted: bool
) -> Iterator[RunLine]:
    """Those to be removed.

    Args:
        runs: The newest first.
        n_kept: So many of the newest stay, whatever else is wanted.
        before: Only those that began earlier; None: whenever that was.
        only_interrupted: Leave those that are complete.
    """
    for one in runs[n_kept:]:
        is_wanted = one.state == "interrupted" or (one.state == "complete" and not only_interrupted)
        is_old = before is None or (one.started_at is not None and one.started_at < before)
        if is_wanted and is_old:
            yield one


def _age(text: str) -> timedelta:
    found = _AGE.fullmatch(text)
    if found is None:
        msg = f"--older-than must be an age such as 12h, 30d or 4w (got {text})"
        raise ConfigError(msg)
    return timedelta(hours=int(found[1]) * _HOURS[found[2]])
