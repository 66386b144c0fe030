"""The command line of measurements: their names and rounds, and the output as text and JSON."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.overhead.command import (
    CLIENT_CORE,
    SERVER_CORE,
    Checkout,
    measured_environment,
    pin_clients,
    said_by,
)
from benchmarks.overhead.measurement import Found, Measurement, Options, measure, note
from pytest_ultrapar.errors import ConfigError, UltraparError

_FAILED = 1
_BAD_INPUT = 4
_PACKAGES = ("pytest-ultrapar", "pytest", "pytest-xdist", "httpx", "aiohttp", "uvloop")


def describe_machine() -> dict[str, str | int | float]:
    """Date, cores, load, Python and versions, without the name of the machine."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,
        "load_average": round(os.getloadavg()[0], 2),
        "system": platform.system(),
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }


def run_measurements(
    parser: argparse.ArgumentParser,
    measurements: Mapping[str, Measurement],
    argv: Sequence[str] | None,
    how: Callable[[Measurement, Options], Found] = measure,
) -> int:
    """Measure, print tables, and write JSON if requested. The result is the exit code.

    Args:
        parser: A parser with the name and description of the command, and with `--before` or
            `--cooperative` if the command has them.
        measurements: By name.
        argv: Arguments, by default the arguments of the process.
        how: The function that runs each measurement.
    """
    _add_options(parser, measurements)
    arguments = parser.parse_args(argv)
    document: dict[str, Any] = {
        "machine": describe_machine(),
        "simulated": True,
        "pinned": arguments.pinned,
        "results": {},
    }
    _say(", ".join(f"{name} {value}" for name, value in document["machine"].items()))
    try:
        if arguments.pinned:
            pin_clients()
        with measured_environment() as variables:
            options = _options(arguments, Checkout(variables))
            for name in arguments.names:
                note(name)
                lines, document["results"][name] = how(measurements[name], options)
                _say("", *lines)
    except UltraparError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return _BAD_INPUT if isinstance(error, ConfigError) else _FAILED
    if arguments.json is not None:
        pretty = msgspec.json.format(msgspec.json.encode(document), indent=1)
        arguments.json.write_bytes(pretty + b"\n")
    return 0


def _options(arguments: argparse.Namespace, checkout: Checkout) -> Options:
    before = getattr(arguments, "before", None)
    cooperative = getattr(arguments, "cooperative", None)
    if cooperative is not None:
        said_by(cooperative, "import aiohttp, pytest_asyncio_cooperative", "--cooperative")
    return Options(
        checkout,
        tuple(arguments.n or ()),
        arguments.runs,
        pinned=arguments.pinned,
        cases=arguments.cases,
        before=checkout.of_python(before) if before is not None else None,
        cooperative=cooperative,
    )


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _add_options(parser: argparse.ArgumentParser, measurements: Mapping[str, object]) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.allow_abbrev = False
    parser.add_argument("names", nargs="+", metavar="NAME", choices=measurements)
    parser.add_argument(
        "-n",
        type=_count(0),
        action="append",
        metavar="N",
        help="pytest-xdist's -n; may be repeated (default: depends on NAME)",
    )
    parser.add_argument(
        "--pinned",
        action="store_true",
        help=f"bind the server to core {SERVER_CORE} and all clients to core {CLIENT_CORE}",
    )
    parser.add_argument(
        "--runs",
        type=_count(1),
        metavar="K",
        help="number of rounds; each runs every client once (default: depends on NAME)",
    )
    parser.add_argument(
        "--cases",
        type=_count(2),
        metavar="N",
        help="number of cases, for a trial without goals (default: depends on NAME)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round as JSON")


def _count(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if number < least:
            msg = f"must be at least {least} (got {number})"
            raise argparse.ArgumentTypeError(msg)
        return number

    return parse
