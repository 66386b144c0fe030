"""`ultrapar cluster`: what the hosts of a cluster are doing, and what an operator may change."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.report.text import counted, duration, visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from pytest_ultrapar.cluster.server import ClusterServer, HostState, RunState

NAME = "cluster"
SUMMARY = "show hosts and runs of a cluster, drain a host, forget or reopen a run, open a day"
DESCRIPTION = """\
What the hosts that share runs and limits on a Redis or Valkey server are doing.

    ultrapar cluster status              all runs and their hosts
    ultrapar cluster drain RUN HOST      the host begins nothing more, and ends
    ultrapar cluster forget RUN          remove what the server knows of a run that is over
    ultrapar cluster reopen RUN DIR      cases that are done, of which the merged run in DIR has no
                                         result, are to be run again: join the run once more
    ultrapar cluster reset-day           limits per day and budgets that closed when the server lost
                                         what was spent, open with what is known: other hosts may
                                         have spent more

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
    server = _server(arguments.cluster)
    try:
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
    if action == "status":
        yield from _status(server, words)
        return
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


def _forget(server: ClusterServer, name: str) -> Iterator[str]:
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


def _status(server: ClusterServer, words: list[str]) -> Iterator[str]:
    names = words or server.runs()
    facts = server.facts
    assert facts is not None
    forgets = ", appendonly no: killed, it forgets its runs" if facts.forgets else ""
    yield f"{server.address.shown}: {facts.name}{forgets}; {counted(len(names), 'run')}"
    from pytest_ultrapar.cluster.closed_days import closed_lines  # noqa: PLC0415 - not for --help

    yield from closed_lines(server)
    for name in names:
        yield ""
        try:
            state = _find(server, name)
        except ConfigError as error:
            if words:
                raise
            # One that cannot be read hides no other.
            yield f"run {name}: {error}"
            continue
        yield (
            f"run {state.name}, began {duration(state.began_s)} ago: {state.n_done} of "
            f"{counted(state.n_cases, 'case')} done, {state.n_open} under way"
        )
        for host in state.hosts:
            drained = ", begins nothing more" if host.drained else ""
            said = f"; {host.said}" if host.said else ""
            yield (
                f"  {host.name}: {host.n_done} done, {host.n_open} under way, heard of "
                f"{host.seen_s:.0f} s ago{drained}{said}"
            )


def _reopen(server: ClusterServer, state: RunState, directory: str) -> Iterator[str]:
    from pytest_ultrapar.cluster.reopening import cases_without_result  # noqa: PLC0415 - pyarrow

    _refuse_living(state.name, state.hosts)
    n = server.reopen(state.name, cases_without_result(state, directory))
    yield f"{counted(n, 'case')} of run {state.name} are to be run again: join it once more"
