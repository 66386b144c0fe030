"""`python -m bench_suites.overhead WORKLOAD`: measures the tool beside a raw client."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench_suites.overhead import cores, machine
from bench_suites.overhead.environment import measured_environment
from bench_suites.overhead.measurements import ALL, LEAST_IMPORT_RUNS, measure
from pytest_ultrapar.errors import ConfigError, UltraparError

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEFAULT_ROUNDS = 5
_FAILED = 1
_BAD_INPUT = 4
_DESCRIPTION = f"""\
Measures what the tool itself costs, on the simulated provider: {", ".join(ALL)}, or all.

small, wide, long-tail and episodes run the same cases with the tool and with a raw aiohttp client
in turn, each against a fresh server, and compare both with the pool's ideal time; small also with a
plain xdist session of sleeping tests. lease measures the broker alone. growth compares a case among
3,000 others with one among 100,000 (some ten minutes). memory compares each process's peak with
that of as many empty tests. matrix runs an uneven pool under the default policy and under an even
split in advance. collection collects the five phases and as many empty tests. imports compares
`pytest --collect-only` with and without the plugin. forecast compares the plans of eight pools with
the runs that follow. gate runs the same code, a slower server and a worse model, and counts what
the default gate catches; its number of runs is fixed. adaptive plays adaptive mode against
providers in virtual time; adaptive-runs compares whole runs of it with fixed mode.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print tables, write JSON if asked; the exit code."""
    arguments = _parser().parse_args(argv)
    names = ALL if arguments.workload == "all" else (arguments.workload,)
    document: dict[str, Any] = {
        "machine": machine.describe(),
        "simulated": True,
        "pinned": arguments.pinned,
        "results": {},
    }
    _say(", ".join(f"{name} {value}" for name, value in document["machine"].items()))
    try:
        if arguments.pinned:
            cores.check_cores()
            cores.pin_clients()
        with measured_environment() as environment:
            for name in names:
                lines, rows = measure(name, arguments, environment)
                document["results"][name] = rows
                _say("", *lines)
    except UltraparError as error:
        sys.stderr.write(f"overhead: {error}\n")
        return _BAD_INPUT if isinstance(error, ConfigError) else _FAILED
    if arguments.json is not None:
        pretty = msgspec.json.format(msgspec.json.encode(document), indent=1)
        arguments.json.write_bytes(pretty + b"\n")
    return 0


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench_suites.overhead",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("workload", choices=(*ALL, "all"))
    parser.add_argument(
        "-n",
        type=_count(0),
        action="append",
        metavar="N",
        help="pytest-xdist's -n; may be given several times (default: those of the targets)",
    )
    parser.add_argument(
        "--pinned",
        action="store_true",
        help=f"the server on core {cores.SERVER_CORE}, all client processes on core "
        f"{cores.CLIENT_CORE}",
    )
    parser.add_argument(
        "--runs",
        type=_count(1),
        default=_DEFAULT_ROUNDS,
        metavar="K",
        help="rounds, each of them one run of every client (default: %(default)s); imports takes "
        f"at least {LEAST_IMPORT_RUNS}, memory and growth always one",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every run as JSON")
    return parser


def _count(least: int) -> Any:  # noqa: ANN401 - argparse's own type for this is internal
    def parse(text: str) -> int:
        number = int(text)
        if number < least:
            msg = f"must be at least {least} (got {number})"
            raise argparse.ArgumentTypeError(msg)
        return number

    return parse


if __name__ == "__main__":
    sys.exit(main())
