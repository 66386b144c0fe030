"""`python -m benchmarks.overhead NAME`: measures what the tool itself costs."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.overhead.command_line import run_measurements
from benchmarks.overhead.comparison import measurement_of
from benchmarks.overhead.end import END
from benchmarks.overhead.gate import measure_gate
from benchmarks.overhead.growth import GROWTH, MEMORY_OF_PROCESSES
from benchmarks.overhead.lease import LEASE
from benchmarks.overhead.matrix import MATRIX
from benchmarks.overhead.peers import PEERS, measure_peers
from benchmarks.overhead.rounds import compare, measure
from benchmarks.overhead.start import COLLECTION, IMPORTS, START
from benchmarks.overhead.workload import COMPARISONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.overhead.command_line import Command

ROUNDS = {
    **{name: measurement_of(workload) for name, workload in COMPARISONS.items()},
    "lease": LEASE,
    "growth": GROWTH,
    "memory": MEMORY_OF_PROCESSES,
    "matrix": MATRIX,
    "start": START,
    "collection": COLLECTION,
    "imports": IMPORTS,
    "end": END,
}
MEASURED: dict[str, Command] = {
    **{name: partial(measure, each) for name, each in ROUNDS.items()},
    "gate": measure_gate,
}
COMPARED = {name: partial(compare, each) for name, each in ROUNDS.items()}
BESIDE_PEERS = {name: partial(measure_peers, each) for name, each in PEERS.items()}
_DESCRIPTION = f"""\
Measures what the tool itself costs, on the simulated provider: {", ".join(MEASURED)}.

small, wide, long-tail, episodes and many run the same cases with the tool and with a raw aiohttp
client in turn, each against a fresh server, and compare both with the pool's ideal time; small also
with a plain xdist session of sleeping tests. lease measures the broker alone. growth compares a
case among 3,000 others with one among 100,000 (some ten minutes). memory compares each process's
peak with that of as many empty tests; both run once. matrix runs an uneven pool under the default
policy and under an even split in advance. start is a whole command in an empty folder, and one of
one case. collection collects few cases, many, and the five phases, and as many empty tests without
the plugin. imports compares `pytest --collect-only` with and without it, 20 times. end says how
long a command goes on after the last report, of 300 cases and of 50,000. gate runs the same code, a
slower server and a worse model, and counts what the default gate catches; its number of runs is
fixed.

`compare --before PYTHON NAME...` runs another checkout and this one in turn, `peers NAME...` other
clients and this one.
"""
_COMPARE = f"""\
Runs another checkout and this one in turn, K pairs, and says of each figure by what factor it
changed, with an interval: {", ".join(COMPARED)}.

The raw client and the runs of empty or sleeping tests are left out. Both environments should have
the same extras installed.
"""
_PEERS = f"""\
Runs the tool, pytest-asyncio-cooperative with aiohttp (which holds no limits and keeps no results)
and a raw aiohttp client in turn, each against a fresh server, and divides the tool's figures by the
others': {", ".join(BESIDE_PEERS)}.

The tool runs with `-n 0` unless told, in an environment with this checkout and no extra;
pytest-asyncio-cooperative in another one. pip makes both on first use, below the user's cache
directory. Goals are judged with --pinned.
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
        return run_measurements(parser, COMPARED, argv[1:])
    if argv[:1] == ["peers"]:
        parser = argparse.ArgumentParser(prog=f"{prog} peers", description=_PEERS)
        parser.add_argument(
            "--cooperative",
            type=Path,
            metavar="PYTHON",
            help="the interpreter of an environment with pytest-asyncio-cooperative and aiohttp "
            "(default: one that is made on first use)",
        )
        return run_measurements(parser, BESIDE_PEERS, argv[1:])
    parser = argparse.ArgumentParser(prog=prog, description=_DESCRIPTION)
    return run_measurements(parser, MEASURED, argv)


if __name__ == "__main__":
    sys.exit(main())
