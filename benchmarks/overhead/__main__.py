"""`python -m benchmarks.overhead NAME`: measures what the tool itself costs."""

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
_DESCRIPTION = f"""\
Measures what the tool itself costs, on the simulated provider: {", ".join(MEASURED)}.

small, wide, long-tail, episodes and many run the same cases with the tool and with a raw aiohttp
client in turn, each against a fresh server, and compare both with the pool's ideal time. empty runs
20,000 cases of 50 ms beside as many empty tests. lease measures the broker alone. growth compares a
case among 3,000 others with one among 100,000 (some ten minutes), each beside as many empty tests;
memory does so for 20,000 with and without workers; both run once and give each process's peak.
matrix runs an uneven pool under the default policy and under an even split in advance. start is
`pytest --collect-only` in an empty folder with and without the plugin, and a run of one case, 20
times. collection collects few cases, many, and the five phases, and as many empty tests without the
plugin. gate runs the same code, a slower server and a worse model, and counts what the default gate
catches.

`compare --before PYTHON NAME...` runs another checkout and this one in turn, `peers NAME...` other
clients and this one.
"""
_COMPARE = f"""\
Runs another checkout and this one in turn, K pairs, and says of each figure by what factor it
changed, with an interval: {", ".join(COMPARED)}.

The raw client and the runs of empty tests are left out. Both environments should have
the same extras installed.
"""
_PEERS = f"""\
Runs the tool, pytest-asyncio-cooperative with aiohttp (which holds no limits and keeps no results)
and a raw aiohttp client in turn, each against a fresh server, and divides the tool's figures by the
others': {", ".join(PEERS)}.

The tool runs with `-n 0` unless told, in this environment, which should have no extra.
Goals are judged with --pinned.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print tables, write JSON if asked; the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    prog = "python -m benchmarks.overhead"
    if argv[:1] == ["compare"]:
        parser = argparse.ArgumentParser(prog=f"{prog} compare", description=_COMPARE)
        parser.add_argument(
            "--before",
            type=Path,
            required=True,
            metavar="PYTHON",
            help="the interpreter of an environment that has the other checkout, by pip's -e",
        )
        return run_measurements(parser, COMPARED, argv[1:], compare)
    if argv[:1] == ["peers"]:
        parser = argparse.ArgumentParser(prog=f"{prog} peers", description=_PEERS)
        parser.add_argument(
            "--cooperative",
            type=Path,
            required=True,
            metavar="PYTHON",
            help="the interpreter of an environment with the dependency group `cooperative` of "
            "pyproject.toml",
        )
        return run_measurements(parser, PEERS, argv[1:])
    parser = argparse.ArgumentParser(prog=prog, description=_DESCRIPTION)
    return run_measurements(parser, MEASURED, argv)


if __name__ == "__main__":
    sys.exit(main())
