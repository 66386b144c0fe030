"""`python -m bench_suites.workflow_results RUN ...`: tables of the phases, and the aggregate."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench_suites.workflow.aggregate import aggregate
from bench_suites.workflow_results.aggregate_files import write_aggregate
from bench_suites.workflow_results.counted import counted
from bench_suites.workflow_results.kinds import kinds
from bench_suites.workflow_results.phase import ALL_PHASES
from bench_suites.workflow_results.run_cases import read_run
from bench_suites.workflow_results.tables import LEGEND, SIMULATED, tables
from pytest_ultrapar.errors import UltraparError
from pytest_ultrapar.report.text import visible

_BAD_INPUT = 2
_DESCRIPTION = """\
Print a Markdown table for each phase of the workflow benchmark (5.1 to 5.5) in the runs, and write
aggregate.parquet and aggregate.csv into the first run's directory. The aggregate has a row for each
combination of model, prompt type, tool success rate, difficulty and task type. It has 51 columns
and the column infra.

If another phase did not run a cell that phase 5.1 ran, the tables use the cell of phase 5.1 and
mark it. They also mark the sound-plan cases that phase 5.3 is compared with. The program sends no
requests and changes no other files. docs/benchmark/tables.md describes the columns.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables, and write the aggregate. The result is the exit code."""
    arguments = _parser().parse_args(argv)
    suites = [
        phase.suite
        for phase in ALL_PHASES
        if not arguments.phase or phase.number in arguments.phase
    ]
    try:
        runs = [read_run(name) for name in arguments.run]
        found = counted(runs, read_run(arguments.reused) if arguments.reused else None)
        first = runs[0]
        rows = aggregate(case.result for case in found.answers())
        files = write_aggregate(first.directory, rows, simulated=first.simulated)
    except UltraparError as error:
        sys.stderr.write(f"workflow_results: {visible(' '.join(str(error).split()))}\n")
        return _BAD_INPUT
    lines = [SIMULATED, ""] if first.simulated else []
    for table in tables(found, first.run_id, suites):
        lines += [*table, ""]
    lines += [*kinds(found, suites), "", LEGEND]
    lines += [f"{len(rows)} row{'s' * (len(rows) != 1)} in {first.directory}: {', '.join(files)}"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench_suites.workflow_results",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "run",
        nargs="+",
        metavar="RUN",
        help="a run's directory, its id below .ultrapar, or latest; the first run gets the files,"
        " later runs add the cases that it did not measure",
    )
    parser.add_argument(
        "--reused",
        metavar="RUN",
        help="the run that the first RUN reused (--ultrapar-reuse); the tables use only its reused "
        "cases, and the cases that phase 5.3 is compared with",
    )
    parser.add_argument(
        "--phase",
        action="append",
        choices=[phase.number for phase in ALL_PHASES],
        help="print only this phase's table; may be repeated; the aggregate always contains all "
        "cases (default: all phases in the runs)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
