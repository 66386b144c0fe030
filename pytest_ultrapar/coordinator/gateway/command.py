"""`ultrapar gateway`: a pool at one address, for harnesses that are not pytest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.coordinator.check.command import add_key_lock

if TYPE_CHECKING:
    import argparse

NAME = "gateway"
SUMMARY = "serve a pool at one address, within its limits, to harnesses that are not pytest"
DESCRIPTION = """\
Serve all models of a pool at one address, until Ctrl-C. Whatever takes an address and a key (an
SDK, inspect_ai, promptfoo, lm-eval, a script) asks for models by their names in the pool; the
gateway chooses keys and instances, holds all limits, tries again where that helps, and writes each
request down as a case of a run, with tables and summary at its end.

    ultrapar gateway --pool pool.toml --port 8080

    export OPENAI_BASE_URL=http://127.0.0.1:8080/v1
    export OPENAI_API_KEY=...            # the token that the gateway prints at its start

Or have it run a command with these variables, and what else clients read, and end with it:

    ultrapar gateway --pool pool.toml -- inspect eval task.py --model openai/m

A request waits for the limits as long as its client does. The first Ctrl-C ends what was sent, and
answers what waits with 503.

Exit code 0 at its end, or that of the command (127: it was not found, 126: it cannot be run, 128
and its number where a signal ended it); 4 when the pool or an option cannot be used, a key is not
set, or the port is in use.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar gateway`."""
    parser.add_argument("--pool", required=True, metavar="FILE", help="the pool to serve")
    parser.add_argument(
        "--port",
        help="port to listen on (default: 8080, with a COMMAND any free one); 0 takes any free one",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on; any but the loopback's needs --allow (default: %(default)s)",
    )
    parser.add_argument(
        "--allow",
        action="store_true",
        help="let other machines in: whoever has the token then spends with the pool's keys, and "
        "all goes over the network in the clear",
    )
    parser.add_argument(
        "--max-wait",
        type=float,
        metavar="SECONDS",
        help="answer 429 to who has waited so long for a request to be sent, and keep its place "
        "(default: hold it as long as its client waits)",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=86_400.0,
        metavar="SECONDS",
        help="how long a request may take in all from its first lease (default: %(default)s)",
    )
    parser.add_argument(
        "--token-env",
        metavar="NAME",
        help="take the token from this environment variable (default: a new one)",
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
        help="share the limits of keys and instances with all runs and gateways at this Redis or "
        "Valkey server; without a URL, and for one with a password, that of the environment "
        "variable ULTRAPAR_CLUSTER (needs the extra 'cluster')",
    )
    parser.add_argument(
        "--cluster-run",
        metavar="NAME",
        help="share the limits of the pool and of its providers, too, with the hosts of this run",
    )
    add_key_lock(parser)
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="what to run, behind --")


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C or the command's end, then write tables and summary.

    Raises:
        ConfigError: The pool, an option, or the environment cannot be used; nothing was sent then.
        ResultsError: The run cannot be written.
    """
    from pytest_ultrapar.coordinator.gateway.serving import serve  # noqa: PLC0415 - light `--help`

    return serve(arguments)
