"""`python -m benchmarks.adaptive NAME`: the accuracy of estimated limits and forecasts."""

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
Measure the accuracy of estimates with simulated providers.

search: adaptive mode against providers in virtual time; --runs is the number of seeds
runs: whole runs in adaptive mode, compared with fixed mode; about nine minutes a round
forecast: the plans of four pools, compared with the runs that follow; one round
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print tables, and write JSON if requested. The result is the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adaptive", description=_DESCRIPTION)
    return run_measurements(parser, MEASURED, argv)


if __name__ == "__main__":
    sys.exit(main())
