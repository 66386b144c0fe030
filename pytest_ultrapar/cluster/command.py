"""`ultrapar cluster`: show the hosts of a cluster, and let an operator manage them."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.cluster.shards import whole_of, with_shards
from pytest_ultrapar.errors import ConfigError, refuse
from pytest_ultrapar.report.text import counted, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_ultrapar.cluster.server import ClusterServer, HostState, RunState

NAME = "cluster"
SUMMARY = (
    "show a cluster's hosts and runs, drain a host, forget or reopen a run, reset a daily limit"
)
DESCRIPTION = """\
Show the hosts that share runs and limits through a Redis or Valkey server, or manage these hosts,
runs and limits.

    ultrapar cluster status
    ultrapar cluster drain nightly-17 ci-3

If a run is divided into shards, status and forget accept the name of the run and apply to all its
shards. You can also name a single shard, such as nightly-17:2/4.

Specify the server with --cluster or the environment variable ULTRAPAR_CLUSTER.
"""
_RUN = "name of a run, as given with --ultrapar-cluster-run"


class _Action(NamedTuple):
    """One action of the command, such as `drain`.

    Attributes:
        summary: One line for `ultrapar cluster --help`.
        declare: Declares the arguments of the action.
        do: Runs the action, and yields human-readable lines.
        more: Additional sentences for the help of the action.
    """

    summary: str
    declare: Callable[[argparse.ArgumentParser], object]
    do: Callable[[ClusterServer, argparse.Namespace], Iterator[str]]
    more: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    server = "server's URL, without a password (default: the environment variable ULTRAPAR_CLUSTER)"
    parser.add_argument("--cluster", metavar="URL", help=server)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, action in _ACTIONS.items():
        child = actions.add_parser(
            name,
            help=action.summary,
            description=f"{action.summary[0].upper()}{action.summary[1:]}.{action.more}",
            allow_abbrev=False,
        )
        action.declare(child)
        # The option is allowed before and after the action.
        child.add_argument("--cluster", metavar="URL", default=argparse.SUPPRESS, help=server)
        child.set_defaults(do=action.do, parser=child)


def run(arguments: argparse.Namespace) -> int:
    """Run the action and return the exit code.

    Raises:
        UltraparError: The server cannot be used, or there is no such run or host.
    """
    server = _server(arguments.cluster)
    try:
        for line in arguments.do(server, arguments):
            sys.stdout.write(f"{line}\n")
    finally:
        server.close()
    return 0


def _server(url: str | None) -> ClusterServer:
    from pytest_ultrapar.cluster.address import check_installed, read_address  # noqa: PLC0415 - not for --help

    check_installed("ultrapar cluster")
    from pytest_ultrapar.cluster.server import ClusterServer  # noqa: PLC0415 - needs an extra

    server = ClusterServer(read_address(url, os.environ, option="--cluster"))
    server.read_facts()
    return server


def _status(server: ClusterServer, arguments: argparse.Namespace) -> Iterator[str]:
    from pytest_ultrapar.cluster.status import Status, status_json, status_lines  # noqa: PLC0415 - not for --help

    names, run, facts = server.runs(), arguments.run, server.facts or server.read_facts()
    runs: list[RunState] = []
    unreadable: list[tuple[str, str]] = []
    for name in names if run is None else with_shards(names, run) or [run]:
        try:
            shards = [server.run(one) for one in with_shards(names, name)[1:]]
            runs.append(whole_of(_find(server, name), [one for one in shards if one is not None]))
        except ConfigError as error:
            if run is not None:
                raise
            # An unreadable run must not hide the others.
            unreadable.append((name, str(error)))
    shown = server.address.shown
    ledger = server.ledger()
    status = Status(shown, facts.name, facts.forgets, tuple(runs), tuple(unreadable), ledger)
    if arguments.json:
        yield status_json(status)
    else:
        yield from map(visible, status_lines(status, everything=arguments.all))


def _drain(server: ClusterServer, arguments: argparse.Namespace) -> Iterator[str]:
    state, host = _find(server, arguments.run), arguments.host
    names = [each.name for each in state.hosts]
    if host not in names:
        there = ", ".join(names) or "none"
        refuse(f'run {state.name} has no host "{host}"; its hosts are: {there}')
    server.drain(state.name, host)
    yield visible(f"host {host} will start no more cases of run {state.name}")


def _forget(server: ClusterServer, arguments: argparse.Namespace) -> Iterator[str]:
    run = arguments.run
    names = with_shards(server.runs(), run)
    # Forget the shards first. If the call is interrupted, it can then be repeated with the run's
    # name.
    for name in reversed(names or [run]):
        yield from _forget_one(server, name)


def _forget_one(server: ClusterServer, name: str) -> Iterator[str]:
    hosts: tuple[HostState, ...] = ()
    try:
        hosts = _find(server, name).hosts
    except ConfigError:
        # Data of another program cannot be read, only removed.
        if name not in server.runs():
            raise
    _refuse_living(name, hosts)
    server.forget(name)
    yield visible(f"removed run {name} from the server; its run directories on the hosts remain")


def _refuse_living(run: str, hosts: Iterable[HostState]) -> None:
    """Check that no host of a run is alive.

    Raises:
        ConfigError: Some hosts are alive.
    """
    living = [host.name for host in hosts if host.is_alive]
    if living:
        refuse(f"run {run} is in progress on {', '.join(living)}; stop or drain its hosts first")


def _reopen(server: ClusterServer, arguments: argparse.Namespace) -> Iterator[str]:
    from pytest_ultrapar.cluster.missing_results import cases_without_result  # noqa: PLC0415 - pyarrow

    state = _find(server, arguments.run)
    _refuse_living(state.name, state.hosts)
    n = server.reopen(state.name, cases_without_result(state, arguments.dir))
    then = "; to run them, join the run again" if n else ""
    yield visible(f"reopened {counted(n, 'case')} of run {state.name}{then}")


def _reset_day(server: ClusterServer, _: argparse.Namespace) -> Iterator[str]:
    from pytest_ultrapar.cluster.closed_limits import reset_day  # noqa: PLC0415 - not for --help

    yield from map(visible, reset_day(server))


def _find(server: ClusterServer, name: str) -> RunState:
    state = server.run(name)
    if state is None:
        there = ", ".join(server.runs()[:20]) or "none"
        refuse(f'{server.address.shown} has no run "{name}"; its runs are: {there}')
    return state


def _declare_status(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help=f"{_RUN} (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--all", action="store_true", help="show all hosts, limits and notices")


def _declare_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=_RUN)


def _declare_drain(parser: argparse.ArgumentParser) -> None:
    _declare_run(parser)
    parser.add_argument(
        "host", metavar="HOST", help="name of a host, as shown by ultrapar cluster status"
    )


def _declare_reopen(parser: argparse.ArgumentParser) -> None:
    _declare_run(parser)
    parser.add_argument(
        "dir", metavar="DIR", help="directory of the merged run; cases with no result are reopened"
    )


_ACTIONS = {
    "status": _Action(
        "show runs with their hosts, and limits with each host's share", _declare_status, _status
    ),
    "drain": _Action("let a host finish its cases in progress, then stop", _declare_drain, _drain),
    "forget": _Action(
        "remove a run from the server if no host is working on it",
        _declare_run,
        _forget,
        " The run directories on the hosts remain. The server also forgets how much the run spent.",
    ),
    "reopen": _Action(
        "reopen cases that are done but have no result, for example because a disk was lost",
        _declare_reopen,
        _reopen,
        " To run these cases, join the run again.",
    ),
    "reset-day": _Action(
        "reopen daily limits and budgets that are closed because the server lost the amounts spent",
        lambda _: None,
        _reset_day,
        " They continue with the spending that is still known. If a host is gone, the amount that "
        "it reserved last may be spent twice.",
    ),
}
