"""`python -m benchmarks.overhead NAME`: measures the cost of the tool."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.overhead.beside_empty import BESIDE_EMPTY
from benchmarks.overhead.command_line import run_measurements
from benchmarks.overhead.comparison import measurement_of
from benchmarks.overhead.gate import GATE
from benchmarks.overhead.growth import GROWTH, MEMORY_OF_PROCESSES
from benchmarks.overhead.lease import LEASE
from benchmarks.overhead.matrix import MATRIX
from benchmarks.overhead.measurement import compare
from benchmarks.overhead.peers import PEERS
from benchmarks.overhead.start import COLLECTION, START
from benchmarks.overhead.workload import COMPARISONS

COMPARED = {
    **{name: measurement_of(workload) for name, workload in COMPARISONS.items()},
    "empty": BESIDE_EMPTY,
    "lease": LEASE,
    "growth": GROWTH,
    "memory": MEMORY_OF_PROCESSES,
    "matrix": MATRIX,
    "start": START,
    "collection": COLLECTION,
}
MEASURED = {**COMPARED, "gate": GATE}
_DESCRIPTION = """\
Measure the cost of the tool with the simulated provider.

small, wide, long-tail, episodes, many: the same cases with the tool and with a raw aiohttp client
in turn, each against a fresh server, compared with the pool's ideal time

empty: 20,000 cases of 50 ms, compared with the same number of empty tests

lease: the broker alone

growth: CPU and memory of a case among 3,000 and among 100,000 cases, compared with empty tests; one
round of about ten minutes

memory: CPU and memory of a case among 20,000, with and without workers, compared with empty tests

matrix: an uneven pool under the default policy, and with an even split in advance

start: `pytest --collect-only` in an empty folder with and without the plugin, and a run of one case

collection: few cases, many, and the five phases, compared with empty tests without the plugin

gate: runs of the same code, of a slower server and of a worse model; counts how often the default
gate fails

`compare --before PYTHON NAME...` runs another checkout and this one in turn. `peers NAME...` runs
other clients and the tool in turn.
"""
_COMPARE = f"""\
Run another checkout and this one in turn, in K pairs. Print the factor by which each figure
changed, with an interval.

The raw client and the runs of empty tests are omitted. Install the same extras in both
environments. Names: {", ".join(COMPARED)}.
"""
_PEERS = f"""\
Run three clients in turn, each against a fresh server: the tool, pytest-asyncio-cooperative with
aiohttp (without limits and stored results), and a raw aiohttp client. Divide the tool's figures by
the figures of the others.

The tool runs in this environment, which must have no extras, with `-n 0` by default. Goals are
checked with --pinned. Names: {", ".join(PEERS)}.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print tables, and write JSON if requested. The result is the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    prog = "python -m benchmarks.overhead"
    if argv[:1] == ["compare"]:
        parser = argparse.ArgumentParser(prog=f"{prog} compare", description=_COMPARE)
        parser.add_argument(
            "--before",
            type=Path,
            required=True,
            metavar="PYTHON",
            help="interpreter of an environment with the other checkout, installed with pip's -e",
        )
        return run_measurements(parser, COMPARED, argv[1:], compare)
    if argv[:1] == ["peers"]:
        parser = argparse.ArgumentParser(prog=f"{prog} peers", description=_PEERS)
        parser.add_argument(
            "--cooperative",
            type=Path,
            required=True,
            metavar="PYTHON",
            help="interpreter of an environment with the dependency group `cooperative` of "
            "pyproject.toml",
        )
        return run_measurements(parser, PEERS, argv[1:])
    parser = argparse.ArgumentParser(prog=prog, description=_DESCRIPTION)
    return run_measurements(parser, MEASURED, argv)


if __name__ == "__main__":
    sys.exit(main())
