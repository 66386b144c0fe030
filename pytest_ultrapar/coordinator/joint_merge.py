"""The last host of a run merges it, where it finds the directories of all hosts on its own disk.

Nobody is asked where the others write: a path means something else on another machine. What lies
beside this host's directory, or where runs stand by default, says by its manifest whose it is, and
the server says which hosts there were.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta
from time import sleep
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import UltraparError
from pytest_ultrapar.report.text import visible
from pytest_ultrapar.store.manifest import read_manifest
from pytest_ultrapar.store.run_directory import in_use, new_run_id
from pytest_ultrapar.system.clock import boot_s, utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_ultrapar.cluster.address import ClusterAddress
    from pytest_ultrapar.store.manifest import Manifest

WAIT_S = 30.0
"""For hosts that still make their tables."""
_LOOK_S = 0.25
_BEFORE = timedelta(minutes=30)
"""A host that was killed may have begun to collect so long before it joined."""


def merge_hosts(
    address: ClusterAddress, run: str, own: Path, beside: Iterable[Path], say: Callable[[str], None]
) -> None:
    """Merge all hosts of a run, if they are here; raises nothing, since this host's run is over.

    Args:
        address: Of the server.
        run: The run's name.
        own: This host's directory; its lock is free.
        beside: Directories of runs that may be of other hosts.
        say: Is told what came of it; nothing where hosts are elsewhere.
    """
    try:
        hosts, began_at = _hosts_of(address, run)
        manifest = read_manifest(own)
        found = directories_of(manifest, manifests_of(beside), began_at)
        missing = sorted(hosts - {name for name, _ in found})
        if missing or len(found) < 2:  # noqa: PLR2004 - one host alone is the whole
            return
        directories = [path for _, path in found]
        whole = own.parent / f"merged-{run}-{new_run_id(utc_now())}"
        late = _wait(directories)
        if late:
            names = ", ".join(str(path) for path in late)
            say(f"run {run} is not merged yet: after {WAIT_S:g} s {names} is still written to")
            return
        say(f"run {run}: merging {len(directories)} directories of its hosts")
        say(_merge(directories, whole, run))
    except KeyboardInterrupt:
        say(f"run {run} is not merged: interrupted; ultrapar merge does it")
    except (UltraparError, OSError) as error:
        say(f"run {run} is not merged: {error}; ultrapar merge does it")


def directories_of(
    own: Manifest, beside: Mapping[Path, Manifest | None], began_at: datetime
) -> list[tuple[str, Path]]:
    """The hosts of a run that are here, each with its directory; pure.

    Args:
        own: Manifest of one of them.
        beside: Those of all directories that may be of others.
        began_at: When the run began: what ended before is of an earlier one of its name.
    """
    found = []
    for path, other in sorted(beside.items()):
        if other is None or other.host is None or other.merged is not None:
            continue
        alike = (other.cluster_run, other.suite_digest, other.seed, other.pool_digest)
        if alike != (own.cluster_run, own.suite_digest, own.seed, own.pool_digest):
            continue
        is_of_now = (
            other.started_at >= began_at - _BEFORE
            if other.ended_at is None
            else other.ended_at >= began_at
        )
        if is_of_now:
            found.append((other.host, path))
    return found


def _hosts_of(address: ClusterAddress, run: str) -> tuple[frozenset[str], datetime]:
    """The hosts that finished cases, and when the run began by this machine's clock."""
    from pytest_ultrapar.cluster.server import ClusterServer  # noqa: PLC0415 - with a cluster only

    server = ClusterServer(address)
    try:
        server.look()
        state = server.run(run)
    finally:
        server.close()
    if state is None:
        raise UltraparError("the server has forgotten it")
    return frozenset(state.finishers), utc_now() - timedelta(seconds=state.began_s)


def manifests_of(beside: Iterable[Path]) -> dict[Path, Manifest | None]:
    """The manifest of each directory, which has one name only: `latest` leads to one of them."""
    return {path: _manifest(path) for path in {each.resolve() for each in beside}}


def _manifest(directory: Path) -> Manifest | None:
    try:
        return read_manifest(directory)
    except UltraparError:
        return None


def _wait(directories: Sequence[Path]) -> list[Path]:
    """Wait until nobody writes into them any more; those of which that is not so."""
    until_s = boot_s() + WAIT_S
    while (late := [path for path in directories if in_use(path)]) and boot_s() < until_s:
        sleep(_LOOK_S)
    return late


def _merge(directories: Collection[Path], whole: Path, run: str) -> str:
    """Merge in a process of its own, which takes its memory with it; a sentence."""
    command = [sys.executable, "-m", "pytest_ultrapar.cli", "merge"]
    done = subprocess.run(  # noqa: S603 - our own command
        [*command, *map(str, directories), "--out", str(whole)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )
    if done.returncode in {0, 1}:
        lacks = [line for line in done.stdout.splitlines() if line.startswith("FAILED: ")]
        return "; ".join([f"run {run} is merged in {whole}", *lacks])
    why = visible((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
    return f"run {run} is not merged: {why}"
