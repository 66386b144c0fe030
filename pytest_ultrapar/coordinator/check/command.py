"""`ultrapar check`: which lanes of a pool answer, before thousands of cases are paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.fields import Location
from pytest_ultrapar.pool.settings import WAIT_FOR_SERVERS, Options

if TYPE_CHECKING:
    import argparse

NAME = "check"
SUMMARY = "ask each lane of a pool once: which keys, deployments and servers answer"
DESCRIPTION = """\
Send the smallest request to each lane of a pool (each key on each deployment or server) and say
which of them answer, how fast, and what failed and why.

    ultrapar check --pool pool.toml
    ultrapar check --pool pool.toml --model 'qwen*' --timeout 20

Requests keep all limits of the pool, and only a server that is not there yet is asked again. A
line per lane begins with

    ok         it answers
    limited    rate-limited right now (429, or 503 that says when to come back)
    unsure     it failed, perhaps only for now (another 5xx, no answer in time, a broken
               connection), and a run would ask again
    failed     it does not answer, or not as it should; the line says why

Exit code 0 when a lane is ok and none failed; 1 when one failed or none is ok; 2 when interrupted;
4 when the pool or an option cannot be used or a key is not set: nothing was sent then.

pytest --ultrapar-check does the same before a run, for the lanes that the selected cases need.
"""
_LONGEST_S = 86_400.0
_OK, _FAILED, _INTERRUPTED = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar check`."""
    parser.add_argument(
        "--pool", metavar="FILE", help="the pool to check (default: what --model stands for)"
    )
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only lanes of models whose name matches, such as 'qwen*'; may be repeated (default: "
        "all of the pool); without a pool a model such as openai/gpt-5-mini",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="how long an answer may take at most, where the pool's timeout_s is longer (default: "
        "as the pool says)",
    )
    parser.add_argument(
        "--wait-for-servers",
        type=float,
        default=Options.wait_for_servers_s.default,
        metavar="SECONDS",
        help="how long to wait for a server that takes no connection or is loading its model "
        "(default: %(default)g)",
    )
    parser.add_argument(
        "--simulator",
        metavar="URL",
        help="ask a simulated provider that 'ultrapar simulate' already runs (default: one is "
        'started for providers with api = "simulated")',
    )
    add_key_lock(parser)


def add_key_lock(parser: argparse.ArgumentParser) -> None:
    """Declare `--key-lock`, of all commands that send."""
    parser.add_argument(
        "--key-lock",
        choices=Options.key_lock.choices,
        default=Options.key_lock.default,
        help="what to do while a run of this host sends with one of the keys: wait for its end, "
        "or fail with exit code 4 (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a line per lane as it becomes known, then a summary; 1 if a lane failed or none is ok.

    Raises:
        ConfigError: The pool, an option, or the environment cannot be used; nothing was sent then.
    """
    timeout_s = arguments.timeout
    if timeout_s is not None and not 0 < timeout_s <= _LONGEST_S:
        refuse(f"--timeout must be above 0 and at most {_LONGEST_S:.0f} (got {timeout_s:g})")
    if arguments.pool is None and not arguments.model:
        refuse("--pool FILE or --model VENDOR/NAME is needed")
    WAIT_FOR_SERVERS.check(Location("--wait-for-servers"), arguments.wait_for_servers)
    try:
        from pytest_ultrapar.coordinator.check.pool_check import check_pool  # noqa: PLC0415 - light `--help`

        return _OK if check_pool(arguments) else _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
