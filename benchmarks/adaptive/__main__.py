"""`python -m benchmarks.adaptive NAME`: how close estimated limits and forecast times come."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.adaptive.forecast import FORECAST
from benchmarks.adaptive.runs import RUNS
from benchmarks.adaptive.search import SEARCH
from benchmarks.overhead.command_line import run_measurements

MEASURED = {"search": SEARCH, "runs": RUNS, "forecast": FORECAST}
_DESCRIPTION = """\
Measures how close estimates come, on simulated providers: search, runs, forecast.

search plays adaptive mode against providers in virtual time; --runs is the number of seeds. runs
compares whole runs in adaptive mode with fixed mode (some nine minutes a round). forecast compares
the plans of four pools with the runs that follow, once.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print tables, write JSON if asked; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adaptive", description=_DESCRIPTION)
    return run_measurements(parser, MEASURED, argv)


if __name__ == "__main__":
    sys.exit(main())
