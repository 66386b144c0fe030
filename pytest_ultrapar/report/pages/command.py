"""`ultrapar report`: write the HTML report of a run, or print its report as Markdown."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

NAME = "report"
SUMMARY = "write the HTML report of a run, report.html, or print Markdown"
DESCRIPTION = """\
Write the HTML report of a run: one file that neither loads nor sends anything. If a run is in
progress or was killed, you see its results so far. Specify a run by its directory, by its id, or as
latest.

    ultrapar report latest
    ultrapar report .ultrapar/20261122T151326Z-cb39c5 --out run.html
    ultrapar report latest --markdown
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar report`."""
    how = "a run's directory, its id, or latest (default: latest)"
    parser.add_argument("run", metavar="RUN", nargs="?", default="latest", help=how)
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="the file to write (default: report.html in the run's directory)",
    )
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="print Markdown that fits in a GitHub comment, and write no HTML report",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write or print the report, and return the exit code.

    Raises:
        ConfigError: The run does not exist, or has not planned its cases yet.
        ResultsError: A file cannot be read or written.
    """
    from pytest_ultrapar.report.pages.out_file import out_file  # noqa: PLC0415
    from pytest_ultrapar.report.pages.snapshot import at_low_priority  # noqa: PLC0415
    from pytest_ultrapar.store.run_directory import in_use, resolve_run  # noqa: PLC0415

    directory = resolve_run(arguments.run).resolve()
    path = None if arguments.out is None else out_file(arguments.out, "--out")
    work = partial(_write_markdown if arguments.markdown else _write_page, directory, path)
    if in_use(directory):
        at_low_priority(work)
    else:
        work()
    return 0


def _write_page(directory: Path, path: Path | None) -> None:
    from pytest_ultrapar.report.pages.page import write_page  # noqa: PLC0415 - 60 ms
    from pytest_ultrapar.report.pages.snapshot import readable  # noqa: PLC0415
    from pytest_ultrapar.report.report_file import PAGE  # noqa: PLC0415

    path = path or directory / PAGE
    with readable(directory) as found:
        write_page(directory, path, found)
    sys.stdout.write(f"{path}\n")


def _write_markdown(directory: Path, path: Path | None) -> None:
    from pytest_ultrapar.analysis.run_summary import read_summary  # noqa: PLC0415 - 60 ms
    from pytest_ultrapar.report.pages.snapshot import readable  # noqa: PLC0415
    from pytest_ultrapar.report.report_file import run_sections  # noqa: PLC0415
    from pytest_ultrapar.report.sections import MOST_OF_A_COMMENT, markdown_within  # noqa: PLC0415
    from pytest_ultrapar.store.manifest import read_manifest  # noqa: PLC0415
    from pytest_ultrapar.system.files import write_whole  # noqa: PLC0415

    with readable(directory) as found:
        manifest, summary = read_manifest(found.directory), read_summary(found.directory)
        assert summary is not None
        sections = [*run_sections(summary, manifest, directory, goes_on=found.goes_on)]
    if found.state:
        first = sections[0]
        sections[0] = replace(first, notes=(found.state, *first.notes))
    text = markdown_within(sections, MOST_OF_A_COMMENT)
    if path is None:
        sys.stdout.write(text)
        return
    write_whole(path, text.encode())
    sys.stdout.write(f"{path}\n")
