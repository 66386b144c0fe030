"""`python -m bench_suites.adaptive NAME`: how close estimated limits and forecast times come."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from bench_suites.adaptive.forecast import measure_forecasts
from bench_suites.adaptive.runs import measure_runs
from bench_suites.adaptive.search import measure_searches
from bench_suites.overhead.command_line import run_measurements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_suites.overhead.command_line import Command

MEASUREMENTS: dict[str, Command] = {
    "search": measure_searches,
    "runs": measure_runs,
    "forecast": measure_forecasts,
}
_DESCRIPTION = """\
Measures how close estimates come, on simulated providers: search, runs, forecast.

search plays adaptive mode against providers in virtual time; --runs is the number of seeds. runs
compares whole runs in adaptive mode with fixed mode (some nine minutes a round). forecast compares
the plans of eight pools with the runs that follow, once.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print tables, write JSON if asked; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench_suites.adaptive", description=_DESCRIPTION
    )
    return run_measurements(parser, MEASUREMENTS, argv)


if __name__ == "__main__":
    sys.exit(main())
