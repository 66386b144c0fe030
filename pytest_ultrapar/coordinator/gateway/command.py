"""`ultrapar gateway`: serve a pool at one address to harnesses other than pytest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.coordinator.check.command import add_key_lock

if TYPE_CHECKING:
    import argparse

NAME = "gateway"
SUMMARY = "serve a pool to tools other than pytest, at one address and within the pool's limits"
DESCRIPTION = """\
Serve all models in a pool at one address, until Ctrl-C. Any client that takes an address and a key
(an SDK, inspect_ai, promptfoo, lm-eval, a script) can use the gateway. Each request names a model.
The gateway chooses keys and instances, stays within all limits, and retries failed requests if
that may help. It records each request as a case of a run, and writes tables and a summary when
it ends.

    ultrapar gateway --pool pool.toml --port 8080

    export OPENAI_BASE_URL=http://127.0.0.1:8080/v1
    export OPENAI_API_KEY=...            # the token that the gateway prints when it starts

The gateway can also run a command with these and similar variables set. The gateway then ends
when the command ends:

    ultrapar gateway --pool pool.toml -- inspect eval task.py --model openai/m

If the limits do not yet allow a request, it waits for as long as its client does. After the first
Ctrl-C, the gateway waits for requests in flight, and answers waiting requests with 503.

The exit code is 0, or the exit code of the command (127: not found; 126: cannot be run; 128 plus
the number of a signal: ended by that signal). It is 4 if the pool or an option cannot be used, a
key is not set, or the port is in use.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar gateway`."""
    parser.add_argument("--pool", required=True, metavar="FILE", help="the pool to serve")
    parser.add_argument(
        "--port",
        help="port to listen on; 0 means any free port (default: 8080, or any free port with a "
        "COMMAND)",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on; requires --allow unless it is a loopback address (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--allow",
        action="store_true",
        help="accept requests from other machines: every client with the token can then spend "
        "money with the pool's keys, and requests are not encrypted",
    )
    parser.add_argument(
        "--max-wait",
        type=float,
        metavar="SECONDS",
        help="if a request has waited this long to be sent, answer 429 but keep its place in the "
        "queue (default: hold the request as long as its client waits)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=86_400.0,
        metavar="SECONDS",
        help="maximum time for a request and its retries, from the moment the limits first allow "
        "it (default: %(default)s)",
    )
    parser.add_argument(
        "--token-env",
        metavar="NAME",
        help="read the token from this environment variable (default: create a new token)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="the run's directory (default: a new one in .ultrapar)",
    )
    parser.add_argument(
        "--cluster",
        nargs="?",
        const="",
        metavar="URL",
        help="share the limits of keys and instances with all runs and gateways that use this "
        "Redis or Valkey server. If the URL contains a password, do not pass it here; set "
        "ULTRAPAR_CLUSTER instead. Requires the 'cluster' extra",
    )
    parser.add_argument(
        "--cluster-run",
        metavar="NAME",
        help="also share the pool's and its providers' limits with the hosts of this cluster run",
    )
    add_key_lock(parser)
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="command to run, after --")


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C or until the command ends; then write the tables and the summary.

    Raises:
        ConfigError: The pool, an option, or the environment cannot be used; nothing was sent.
        ResultsError: The run cannot be written.
    """
    from pytest_ultrapar.coordinator.gateway.serving import serve  # noqa: PLC0415 - light `--help`

    return serve(arguments)
