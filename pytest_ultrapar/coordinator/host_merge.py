"""Merge a cluster run on its last host, if the directories of all hosts are on this machine.

Hosts do not tell each other their paths, because the same path may be a different directory on
another machine. Instead, the last host reads the manifests next to its own directory and in the
default directory for runs. Each manifest contains the name of its host. The server knows which
hosts took part.
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
"""The longest wait for hosts that are still writing their tables, in seconds."""
_LOOK_S = 0.25
_BEFORE = timedelta(minutes=30)
"""A killed host may have started its collection up to this long before it joined the run."""


def merge_hosts(
    address: ClusterAddress, run: str, own: Path, beside: Iterable[Path], say: Callable[[str], None]
) -> None:
    """Merge all hosts of a run, if all their directories are on this machine.

    This raises no exception, because this host's own run has already ended.

    Args:
        address: Address of the server.
        run: Name of the run.
        own: This host's directory, which it has already unlocked.
        beside: Run directories that may belong to other hosts.
        say: Called with the result. Not called if a host's directory is on another machine.
    """
    try:
        hosts, began_at = _hosts_of(address, run)
        manifest = read_manifest(own)
        found = directories_of(manifest, manifests_of(beside), began_at)
        missing = sorted(hosts - {name for name, _ in found})
        if missing or len(found) < 2:  # noqa: PLR2004 - one host alone is the whole run
            return
        directories = [path for _, path in found]
        whole = own.parent / f"merged-{run}-{new_run_id(utc_now())}"
        late = _wait(directories)
        if late:
            names = ", ".join(str(path) for path in late)
            say(
                f"run {run} is not merged: after {WAIT_S:g} s, a process is still using {names}; "
                "merge it later with ultrapar merge"
            )
            return
        say(f"run {run}: merging {len(directories)} directories of its hosts")
        say(_merge(directories, whole, run))
    except KeyboardInterrupt:
        say(f"the merge of run {run} was interrupted; repeat it with ultrapar merge")
    except (UltraparError, OSError) as error:
        say(f"run {run} is not merged: {error}; merge it with ultrapar merge")


def directories_of(
    own: Manifest, beside: Mapping[Path, Manifest | None], began_at: datetime
) -> list[tuple[str, Path]]:
    """Return the run's hosts that have a directory on this machine, with the directory. Pure.

    Args:
        own: Manifest of one host.
        beside: Manifests of all directories that may belong to other hosts.
        began_at: When the run began. If the run in a directory had ended by then, it was an earlier
            run with the same name.
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
    """The hosts that finished cases, and when the run started, by this machine's clock."""
    from pytest_ultrapar.cluster.server import ClusterServer  # noqa: PLC0415 - with a cluster only

    server = ClusterServer(address)
    try:
        server.read_facts()
        state = server.run(run)
    finally:
        server.close()
    if state is None:
        raise UltraparError("the server no longer knows this run")
    return frozenset(state.finishers), utc_now() - timedelta(seconds=state.began_s)


def manifests_of(beside: Iterable[Path]) -> dict[Path, Manifest | None]:
    """The manifest in each directory. `latest`, a link to one of them, adds no second entry."""
    return {path: _manifest(path) for path in {each.resolve() for each in beside}}


def _manifest(directory: Path) -> Manifest | None:
    try:
        return read_manifest(directory)
    except UltraparError:
        return None


def _wait(directories: Sequence[Path]) -> list[Path]:
    """Wait until no process writes to the directories; return those that remain in use."""
    until_s = boot_s() + WAIT_S
    while (late := [path for path in directories if in_use(path)]) and boot_s() < until_s:
        sleep(_LOOK_S)
    return late


def _merge(directories: Collection[Path], whole: Path, run: str) -> str:
    """Merge in a new process, so that its memory is freed; return a sentence about the result."""
    command = [sys.executable, "-m", "pytest_ultrapar.cli", "merge"]
    done = subprocess.run(  # noqa: S603 - the product's own command
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
        return "; ".join([f"run {run} is merged into {whole}", *lacks])
    why = visible((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
    return f"run {run} is not merged: {why}"
