"""`ultrapar cluster`: what the hosts of a cluster are doing, and what an operator may change."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pytest_ultrapar.cluster.shards import whole_of, with_shards
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.report.text import counted, visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from pytest_ultrapar.cluster.server import ClusterServer, HostState, RunState
    from pytest_ultrapar.cluster.status import Status

NAME = "cluster"
SUMMARY = "show hosts and runs of a cluster, drain a host, forget or reopen a run, open a day"
DESCRIPTION = """\
What the hosts that share runs and limits on a Redis or Valkey server are doing.

    ultrapar cluster status [RUN]        runs and their hosts, limits and who has them
    ultrapar cluster drain RUN HOST      the host begins nothing more, and ends
    ultrapar cluster forget RUN          remove what the server knows of a run that is over
    ultrapar cluster reopen RUN DIR      cases that are done, of which the merged run in DIR has no
                                         result, are to be run again: join the run once more
    ultrapar cluster reset-day           limits per day and budgets that closed when the server lost
                                         what was spent, open with what is known: other hosts may
                                         have spent more

A run whose hosts are given --ultrapar-shard is the name of a RUN for status and forget; of its
shards each is one of its own, such as nightly:2/4.

The server is that of --cluster or of the environment variable ULTRAPAR_CLUSTER.
"""
_ACTIONS = ("status", "drain", "forget", "reopen", "reset-day")
_WORDS = {
    "status": (0, 1),
    "drain": (2, 2),
    "forget": (1, 1),
    "reopen": (2, 2),
    "reset-day": (0, 0),
}
"""How many words follow each."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("action", choices=_ACTIONS, help="what to do")
    parser.add_argument("words", nargs="*", metavar="RUN", help="as shown above")
    parser.add_argument("--json", action="store_true", help="status as JSON")
    parser.add_argument("--all", action="store_true", help="status of every host, not the first 20")
    parser.add_argument("--cluster", metavar="URL", help="the server; a password is refused here")


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit code.

    Raises:
        UltraparError: There is no such server, run or host.
    """
    action, words = arguments.action, arguments.words
    least, most = _WORDS[action]
    if not least <= len(words) <= most:
        n = str(least) if least == most else f"{least} or {most}"
        msg = f"{action} takes {n} words after it (got {len(words)}); see ultrapar cluster --help"
        raise ConfigError(msg)
    for name in ("json", "all"):
        if getattr(arguments, name) and action != "status":
            msg = f"--{name} is for status, not for {action}"
            raise ConfigError(msg)
    server = _server(arguments.cluster)
    try:
        if action == "status":
            sys.stdout.write(_shown(_status(server, words), arguments))
            return 0
        for line in _do(server, action, words):
            sys.stdout.write(f"{visible(line)}\n")
    finally:
        server.close()
    return 0


def _server(url: str | None) -> ClusterServer:
    from pytest_ultrapar.cluster.address import VARIABLE, read_address  # noqa: PLC0415 - not for --help

    try:
        from pytest_ultrapar.cluster.server import ClusterServer  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError:
        msg = "redis-py is missing: pip install 'pytest-ultrapar[cluster]'"
        raise ConfigError(msg) from None
    address = read_address(url, os.environ)
    if address is None:
        msg = f"no server is named: set the environment variable {VARIABLE}, or give --cluster URL"
        raise ConfigError(msg)
    server = ClusterServer(address)
    server.look()
    return server


def _do(server: ClusterServer, action: str, words: list[str]) -> Iterator[str]:
    if action == "reset-day":
        from pytest_ultrapar.cluster.closed_days import reset_day  # noqa: PLC0415 - not for --help

        yield from reset_day(server)
        return
    if action == "forget":
        yield from _forget(server, words[0])
        return
    state = _find(server, words[0])
    if action == "drain":
        names = [host.name for host in state.hosts]
        if words[1] not in names:
            there = ", ".join(names) or "none"
            msg = f'run {state.name} has no host "{words[1]}"; it has {there}'
            raise ConfigError(msg)
        server.drain(state.name, words[1])
        yield f"{words[1]} begins nothing more of run {state.name}"
    else:
        yield from _reopen(server, state, words[1])


def _forget(server: ClusterServer, run: str) -> Iterator[str]:
    names = with_shards(server.runs(), run)
    # The shards first: what is left of a run that is forgotten in part is found by its own name.
    for name in reversed(names or [run]):
        yield from _forget_one(server, name)


def _forget_one(server: ClusterServer, name: str) -> Iterator[str]:
    hosts: tuple[HostState, ...] = ()
    try:
        hosts = _find(server, name).hosts
    except ConfigError:
        # What somebody else wrote there can only be removed.
        if name not in server.runs():
            raise
    _refuse_living(name, hosts)
    server.forget(name)
    yield f"run {name} is forgotten; the directories of its hosts stay"


def _refuse_living(run: str, hosts: Iterable[HostState]) -> None:
    """Make sure that no host of a run is at work.

    Raises:
        ConfigError: Some are.
    """
    from pytest_ultrapar.cluster.claims import SILENT_MS  # noqa: PLC0415 - not for --help

    living = [host.name for host in hosts if host.seen_s * 1000 < SILENT_MS]
    if living:
        msg = f"run {run} goes on: {', '.join(living)}; end or drain its hosts first"
        raise ConfigError(msg)


def _find(server: ClusterServer, name: str) -> RunState:
    state = server.run(name)
    if state is None:
        there = ", ".join(server.runs()[:20]) or "none"
        msg = f'{server.address.shown} knows no run "{name}"; it knows {there}'
        raise ConfigError(msg)
    return state


def _status(server: ClusterServer, words: list[str]) -> Status:
    from pytest_ultrapar.cluster.status import Status  # noqa: PLC0415 - not for --help

    names = server.runs()
    shown = (with_shards(names, words[0]) or words) if words else names
    facts = server.facts
    assert facts is not None
    runs: list[RunState] = []
    unreadable: list[tuple[str, str]] = []
    for name in shown:
        try:
            shards = with_shards(names, name)[1:]
            states = [state for one in shards if (state := server.run(one)) is not None]
            runs.append(whole_of(_find(server, name), states))
        except ConfigError as error:
            if words:
                raise
            # One that cannot be read hides no other.
            unreadable.append((name, str(error)))
    ledger, problem = None, ""
    try:
        ledger = server.ledger()
    except ConfigError as error:
        problem = str(error)
    return Status(
        server.address.shown,
        facts.name,
        facts.forgets,
        tuple(runs),
        tuple(unreadable),
        ledger,
        problem,
    )


def _shown(status: Status, arguments: argparse.Namespace) -> str:
    from pytest_ultrapar.cluster.status import status_json, status_lines  # noqa: PLC0415 - as above

    if arguments.json:
        return f"{status_json(status)}\n"
    lines = status_lines(status, everything=arguments.all)
    return "".join(f"{visible(line)}\n" for line in lines)


def _reopen(server: ClusterServer, state: RunState, directory: str) -> Iterator[str]:
    from pytest_ultrapar.cluster.reopening import cases_without_result  # noqa: PLC0415 - pyarrow

    _refuse_living(state.name, state.hosts)
    n = server.reopen(state.name, cases_without_result(state, directory))
    yield f"{counted(n, 'case')} of run {state.name} are to be run again: join it once more"
