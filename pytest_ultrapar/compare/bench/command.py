"""`ultrapar bench`: run pytest once in each mode on the same cases, and write one report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.compare.bench.arguments import check_passed_on, parse_modes

if TYPE_CHECKING:
    import argparse

NAME = "bench"
SUMMARY = "run a suite in several modes and compare how long they take"
DESCRIPTION = """\
Run a suite once in each mode, on the same cases with the same seed. The report shows makespans,
cases per second, speed-ups over serial with intervals, and whether the answers are the same.

    ultrapar bench bench_suites/phase53 --pool pool.toml --modes serial,ultra
    ultrapar bench tests/words --pool pool.toml --modes serial,rotate,ultra -n 2 -k apple

The suite comes first. Options that are not listed here are passed on to pytest. Each mode runs
all cases. Modes serial and rotate run them one after another, so try a few cases with -k first.
"""
_MODES = "serial,rotate,ultra"
_INTERRUPTED = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar bench`."""
    parser.usage = "%(prog)s SUITE [--pool FILE] [--modes MODES] [--out DIR] [pytest's options]"
    parser.add_argument(
        "--pool",
        metavar="FILE",
        help="the pool to run on (default: ultrapar_pool in pytest's configuration file)",
    )
    parser.add_argument(
        "--modes",
        default=_MODES,
        metavar="MODES",
        help="the modes to run, separated by commas, in the order in which to run them; allowed: "
        "serial, rotate, phase, ultra (default: %(default)s). Speed-ups are relative to serial or, "
        "without serial, to rotate; with neither, they are estimated",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="a new or empty directory for the report and for a run directory per mode "
        "(default: .ultrapar/bench-<time>-<id>)",
    )
    parser.set_defaults(passed_on=[])


def run(arguments: argparse.Namespace) -> int:
    """Run all modes; return pytest's worst exit code, or 4 if no mode completed a case.

    Raises:
        ConfigError: An argument cannot be used (in this case, no mode has run), or not all modes
            ran the same cases.
        ResultsError: A file of a run cannot be read.
    """
    modes = parse_modes(arguments.modes)
    check_passed_on(arguments.passed_on, has_pool=arguments.pool is not None)
    from pytest_ultrapar.compare.bench.benching import bench  # noqa: PLC0415 - light `--help`

    try:
        return bench(modes, arguments.passed_on, pool=arguments.pool, out=arguments.out)
    except KeyboardInterrupt:
        sys.stdout.write("ultrapar bench: interrupted while no mode was running\n")
        return _INTERRUPTED
