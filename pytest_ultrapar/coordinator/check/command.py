"""`ultrapar check`: see which lanes of a pool answer, before you pay for thousands of cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.field_checks import Location
from pytest_ultrapar.pool.settings import WAIT_FOR_SERVERS, Options

if TYPE_CHECKING:
    import argparse

NAME = "check"
SUMMARY = (
    "send one request to each lane in a pool to see which keys, deployments and servers answer"
)
DESCRIPTION = """\
Send the smallest possible request to each lane in a pool (each key on each deployment or server).
Print which lanes answer, how fast they are, and what failed and why.

    ultrapar check --pool pool.toml
    ultrapar check --pool pool.toml --model 'qwen*' --timeout 20

Requests stay within all limits in the pool. A request is repeated only if its server is
unavailable. Each lane's line begins with one of these words.

    ok:        the lane answers
    limited:   it is rate-limited now (429, or 503 with Retry-After)
    unsure:    it failed, perhaps only temporarily (another 5xx, no answer in time, a broken
               connection); a run would send the request again
    failed:    it gives no valid answer; the line names the cause

Exit codes: 0, a lane is ok and no lane failed; 1, a lane failed or no lane is ok; 2, interrupted.
Exit code 4: nothing was sent, because the pool or an option cannot be used, a key is not set, or a
key is in use (--key-lock fail).

pytest --ultrapar-check does the same before a run, for the lanes that the selected cases need.
"""
_LONGEST_S = 86_400.0
_OK, _FAILED, _INTERRUPTED = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar check`."""
    parser.add_argument(
        "--pool", metavar="FILE", help="the pool to check (default: check the models in --model)"
    )
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="PATTERN",
        help="check only lanes of models whose names match PATTERN, such as 'qwen*'; may be "
        "repeated (default: all models in the pool). Without a pool, specify a model, such as "
        "openai/gpt-5-mini",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="maximum time to wait for an answer (default: the pool's timeout_s, which also "
        "applies if it is shorter)",
    )
    parser.add_argument(
        "--wait-for-servers",
        type=float,
        default=Options.wait_for_servers_s.default,
        metavar="SECONDS",
        help="how long to wait for a server that accepts no connections or is still loading its "
        "model (default: %(default)g)",
    )
    parser.add_argument(
        "--simulator",
        metavar="URL",
        help="use the simulated provider that 'ultrapar simulate' is already running at this URL "
        '(default: start one for providers with api = "simulated")',
    )
    add_key_lock(parser)


def add_key_lock(parser: argparse.ArgumentParser) -> None:
    """Declare `--key-lock`, an option of all commands that send requests."""
    parser.add_argument(
        "--key-lock",
        choices=Options.key_lock.choices,
        default=Options.key_lock.default,
        help="if a run on this machine is using one of the keys: wait until that run ends, "
        "or fail with exit code 4 (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each lane as results arrive, then a summary; return the exit code.

    Raises:
        ConfigError: The pool, an option, or the environment cannot be used; nothing was sent.
    """
    timeout_s = arguments.timeout
    if timeout_s is not None and not 0 < timeout_s <= _LONGEST_S:
        refuse(f"--timeout must be above 0 and at most {_LONGEST_S:.0f} (got {timeout_s:g})")
    if arguments.pool is None and not arguments.model:
        refuse("specify what to check: --pool FILE or --model VENDOR/NAME")
    WAIT_FOR_SERVERS.check(Location("--wait-for-servers"), arguments.wait_for_servers)
    try:
        from pytest_ultrapar.coordinator.check.pool_check import check_pool  # noqa: PLC0415 - light `--help`

        return _OK if check_pool(arguments) else _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
