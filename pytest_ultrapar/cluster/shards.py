"""Cluster runs that are divided into shards, which share the limits of the run.

If a run has a million cases, no process needs all of them: each host collects and claims only the
cases in one shard. On the server, a shard is named `RUN:K/N` and is stored like a
separate run. Limits belong to the whole run. The facts that all shards must agree on are stored
under the run's own name. A host that has different cases or uses no shards cannot join.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.cluster.run_identity import RunIdentity, refuse_other

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ultrapar.cluster.server import ClusterServer, RunState
    from pytest_ultrapar.pool.settings import Shard
    from pytest_ultrapar.store.cases_file import Generated

_CLAIMS = re.compile(r"(?P<run>[^:]+):(?P<k>[0-9]{1,9})/(?P<n>[0-9]{1,9})")


def claims_name(run: str, shard: Shard | None) -> str:
    """Return the name that the server uses for the cases of a run, or of one of its shards."""
    return run if shard is None else f"{run}:{shard}"


def agree(
    server: ClusterServer, run: str, shard: Shard, own: RunIdentity, generated: Generated | None
) -> None:
    """Check that a shard belongs to the same set of cases as the other shards of its run.

    Args:
        server: The server.
        run: The run's name.
        shard: This host's shard.
        own: The identity of the shard's hosts.
        generated: The number and digest of the cases in the whole run; None if unknown.

    Raises:
        NoAnswerError: There was no answer; the call may be repeated.
        ConfigError: The run has no shards, or differs in its number of shards, its cases or its
            settings.
    """
    whole = msgspec.structs.replace(
        own,
        shard=f"one of {shard.n}",
        n_cases=0 if generated is None else generated.n_cases,
        suite="" if generated is None else generated.digest,
        order="",
        numbers="",
        groups="",
    )
    theirs = server.agree(run, whole.text())
    if theirs != whole.text():
        raise refuse_other(run, whole, theirs)


def with_shards(names: Iterable[str], run: str) -> list[str]:
    """Return the names on the server that belong to a run: the run, then its shards in order."""
    found = [(0, name) for name in names if name == run]
    for name in names:
        cut = _CLAIMS.fullmatch(name)
        if cut is not None and cut["run"] == run:
            found.append((int(cut["k"]), name))
    return [name for _, name in sorted(found)]


def whole_of(run: RunState, shards: Sequence[RunState]) -> RunState:
    """Return the state of a whole run, including the cases and hosts of its shards."""
    if not shards:
        return run
    counts = {
        name: sum(getattr(one, name) for one in shards)
        for name in ("n_cases", "n_done", "n_failed", "n_open", "n_unclaimed")
    }
    hosts = tuple(host for one in shards for host in one.hosts)
    return replace(run, hosts=hosts, **counts)
