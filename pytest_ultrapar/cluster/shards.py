"""A run whose cases are cut into shards, and whose shards share its limits.

No process has all cases of a run of a million. So each host collects those of one shard, and the
shard's cases are what it claims: on the server a shard is called `RUN:K/N`, as if it were a run of
its own. Limits know the run alone. Under the run's own name stands what all its shards agree on, so
that hosts that mean another whole, or no shards at all, are refused at joining.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.cluster.identity import RunIdentity, refuse_other

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ultrapar.cluster.server import ClusterServer, RunState
    from pytest_ultrapar.pool.settings import Shard
    from pytest_ultrapar.store.cases_file import Generated

_CLAIMS = re.compile(r"(?P<run>[^:]+):(?P<k>[0-9]{1,9})/(?P<n>[0-9]{1,9})")


def claims_name(run: str, shard: Shard | None) -> str:
    """What the cases of a run, or of its shard, are called on the server."""
    return run if shard is None else f"{run}:{shard}"


def agree(
    server: ClusterServer, run: str, shard: Shard, own: RunIdentity, generated: Generated | None
) -> None:
    """Make sure that a shard is cut from the same whole as the others of its run.

    Args:
        server: Where that is kept.
        run: The run's name.
        shard: This host's.
        own: What the hosts of the shard agree on.
        generated: All cases of which the shard has some.

    Raises:
        NoAnswerError: There was no answer; it may be asked again.
        ConfigError: The run is cut into another number of shards or none, or from something else.
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
    """Which of the names on a server are of a run: it itself, then its shards in their order."""
    found = [(0, name) for name in names if name == run]
    for name in names:
        cut = _CLAIMS.fullmatch(name)
        if cut is not None and cut["run"] == run:
            found.append((int(cut["k"]), name))
    return [name for _, name in sorted(found)]


def whole_of(run: RunState, shards: Sequence[RunState]) -> RunState:
    """What the server knows of a run, and of the cases and hosts of its shards as one."""
    if not shards:
        return run
    counts = {
        name: sum(getattr(one, name) for one in shards)
        for name in ("n_cases", "n_done", "n_failed", "n_open", "n_unclaimed")
    }
    hosts = tuple(host for one in shards for host in one.hosts)
    return replace(run, hosts=hosts, **counts)
