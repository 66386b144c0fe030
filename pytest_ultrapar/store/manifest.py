"""The manifest: the conditions under which results were produced.

It contains no secrets, and names a host only if the run has several hosts.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from datetime import datetime
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from pytest_ultrapar.broker.protocol import LaneStatus
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.pool.model import EffectiveValue, Lane, Limit, answer_settings
from pytest_ultrapar.pool.money import USD, ModelPrice
from pytest_ultrapar.pool.roles import roles_differ
from pytest_ultrapar.pool.settings import Recording, StorageFormat
from pytest_ultrapar.store.cases_file import MANIFEST_NAME, Generated
from pytest_ultrapar.store.lower_bound import Bound
from pytest_ultrapar.store.run_lock import LOCK_NAME, read_holder
from pytest_ultrapar.store.timing import MeasuredPart
from pytest_ultrapar.system.files import (
    NOT_THAT_JSON,
    cannot,
    digest_of,
    is_changed,
    read_file,
    with_checksum,
    write_whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_ultrapar.pool.model import Pool


FILE_NAME = MANIFEST_NAME
SCHEMA = 1
Aware = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its time zone. Without the zone, it is unknown how long ago the time was."""
_PACKAGES = (
    "pytest-ultrapar",
    "pytest",
    "pytest-xdist",
    "pytest-benchmark",
    "httpx",
    "aiohttp",
    "pyarrow",
    "msgspec",
    "uvloop",
)


_SUITE = frozenset({".csv", ".j2", ".json", ".jsonl", ".parquet", ".py", ".txt", ".yaml", ".yml"})
_MOST_BYTES = 50_000_000


class Machine(msgspec.Struct, frozen=True):
    """The facts about a machine that affect speed.

    Attributes:
        cpus: Cores that this process may run on.
        platform: Kernel and architecture, such as `Linux-6.1-x86_64`.
    """

    cpus: int
    platform: str


class MergedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is part of a merged run.

    Attributes:
        run_id: The id of the part.
        host: Its manifest's `host`.
        shard: Its manifest's `shard`.
        n_cases: How many cases it planned; all hosts of one run plan the same cases.
        n_results: For how many cases the merged run uses the result from this part. None if an
            earlier version merged the runs.
        started_at: When it began, according to the wall clock of its host.
        ended_at: When it ended; None if it did not end.
        resumed: Whether it ran in more than one session.
        exceeded: The limits that its own requests exceeded, such as `lab/key0 (qps)`.
    """

    run_id: str
    host: str | None = None
    shard: str | None = None
    n_cases: int
    n_results: int | None = None
    started_at: Aware
    ended_at: Aware | None = None
    resumed: bool = False
    exceeded: tuple[str, ...] = ()


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of a merged run.

    Attributes:
        parts: The runs that were merged; shards are in the order of their numbers.
        missing: The missing shards, such as `3/4`.
        n_missing: The maximum number of cases in all missing shards together; None if unknown.
        n_repeated: The number of cases with a result in more than one part.
        n_clocks: The number of clocks from which the parts' times come.
        clock_error_s: The maximum error in seconds when times from different hosts are compared by
            the clock of their common server. None if they were compared by wall-clock times.
        not_compared: Why the hosts' clocks could not be compared by means of their common server.
            Empty if they were compared, or if not all parts come from hosts of a cluster run.
        asked_otherwise: The differences between the parts' pools that affect answers, each as a
            clause.
    """

    parts: tuple[MergedPart, ...]
    missing: tuple[str, ...] = ()
    n_missing: int | None = None
    n_repeated: int = 0
    n_clocks: int = 1
    clock_error_s: float | None = None
    not_compared: str = ""
    asked_otherwise: tuple[str, ...] = ()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """All facts needed to read, resume and compare a run.

    Attributes:
        run_id: The id of the run: the time when it began, and six hex digits.
        mode: `serial`, `rotate`, `phase` or `ultra`.
        rate_mode: `fixed` or `adaptive`.
        models: The names of the pool's models, in the order of the pool file.
        answered_by: The provider of each model's answers, as `pool.answered_by` describes it.
        simulated: Whether any answer came from the simulated provider.
        policy: Name of the assignment policy.
        seed: The run seed.
        repeats: The number of repetitions of each cell.
        n_planned: The number of planned cases.
        suite_digest: `suite_digest` of the planned cases.
        cases_digest: SHA-256 (hex) of `cases.json`, the file with the planned cases; empty if there
            is no such file yet.
        arguments: pytest's command line with secrets masked. Options from configuration files are
            not included.
        effective: Each setting in force and its source.
        record: Which parts of conversations are stored. In a resumed run, this is the choice in the
            last session.
        data: Facts that the suites report about their data, such as digests, by name.
        files: The result of `describe_files` for the suites.
        reused: Id of the run whose answers were reused; None if there is no such run.
        regraded: Id of the run whose episodes were graded again. Times, requests and limits are
            from that run. None if they are from this run.
        replayed: Id of the run whose answers were replayed; a replay has no measured times. None if
            all answers came from the pool's lanes.
        summary_by: The names by which the summary is grouped: `model`, `suite`, `repeat` or
            parameters.
        collected_s: Seconds that pytest took to collect; None if not measured.
        asked_by_others: Whether the requests came from other programs, through `ultrapar gateway`.
            The run's time then includes the pauses that these programs made. So makespan, bound and
            speed-up are not reported.
        restricted: Whether assignment rules may have prevented episodes from using free lanes.
        measured_from: In a resumed run, the time from which episodes are measured. The scores
            include earlier episodes, but makespan, throughput and speed-up do not. None if all
            episodes are measured.
        serial_sample: Ids of the cases that ran one at a time, before all others. The scores
            include these cases. The speed-up of the other cases is measured against them.
        pool_lanes: All lanes that the run could use.
        pool_limits: All limits that apply to these lanes, with the numbers that were in force.
        currency: The currency of all prices.
        prices: The known token prices, each with its source.
        faults: SHA-256 (hex) of the simulated provider's fault file; None if there is no such file.
        generated: The set of all cases, from which the shards or the sample were selected. None for
            a run of all cases.
        bound: The lower bound on the makespan, computed after the run, and the prices that prove
            it. None before the tables are made, or if nothing was measured.
        lanes: The final state of each lane; empty until the end.
        segments: The size of each journal segment in bytes when the manifest was last written, by
            segment name. A segment that is now shorter has lost records.
        ended_at: When the run ended; None while it is in progress, or if it was killed.
        host: Name of this host if the run has several hosts or shards; otherwise None.
        shard: The part of the cases that this run contains, such as `2/4`; None if it contains all
            cases.
        cluster_run: Name of the run that several hosts share; None if it runs on one host.
        merged: The sources of a merged run; None if the run was not merged.
    """

    run_id: str
    started_at: Aware
    pool_path: str
    pool_digest: str
    models: tuple[str, ...]
    simulated: bool
    rate_mode: str
    mode: str
    policy: str
    seed: int
    repeats: int
    n_planned: int
    suite_digest: str
    cases_digest: str = ""
    schema: int = SCHEMA
    answered_by: dict[str, str] = {}
    arguments: tuple[str, ...] = ()
    effective: tuple[EffectiveValue, ...] = ()
    versions: dict[str, str] = {}
    python: str = ""
    machine: Machine | None = None
    storage_format: StorageFormat = "parquet"
    record: Recording = "text"
    data: dict[str, str] = {}
    files: dict[str, str] = {}
    reused: str | None = None
    regraded: str | None = None
    replayed: str | None = None
    summary_by: tuple[str, ...] = ("model",)
    resumed: bool = False
    measured_from: Aware | None = None
    asked_by_others: bool = False
    restricted: bool = False
    collected_s: float | None = None
    serial_sample: tuple[str, ...] = ()
    pool_lanes: tuple[Lane, ...] = ()
    pool_limits: tuple[Limit, ...] = ()
    currency: str = USD
    prices: tuple[ModelPrice, ...] = ()
    faults: str | None = None
    generated: Generated | None = None
    bound: Bound | None = None
    lanes: list[LaneStatus] = []
    segments: dict[str, int] = {}
    ended_at: Aware | None = None
    host: str | None = None
    shard: str | None = None
    cluster_run: str | None = None
    merged: Merged | None = None

    @property
    def drawn_from(self) -> int:
        """The number of cases from which the sample was drawn; 0 if the run is not a sample."""
        found = self.generated
        return 0 if found is None or found.digest else found.n_cases

    @property
    def measured_part(self) -> MeasuredPart:
        """The part of the run that its makespan covers."""
        since = self.measured_from
        from_us = int(since.timestamp() * 1e6) if since is not None else 0
        return MeasuredPart(from_us, frozenset(self.serial_sample), self.replayed is not None)


def describe_machine() -> Machine:
    """The facts about this machine."""
    system = os.uname()
    libc = "".join(platform.libc_ver())
    # Make the text of `platform.platform()` here, because that function starts a process (`uname
    # -p`) and waits for it.
    parts = [system.sysname, system.release, system.machine, *(["with", libc] if libc else ())]
    return Machine(len(os.sched_getaffinity(0)), "-".join(parts).replace(" ", "_"))


def conditions(pool: Pool) -> dict[str, Any]:
    """The manifest fields that describe the pool and this machine, for any kind of run."""
    return {
        "pool_path": pool.path,
        "pool_digest": pool.digest,
        "models": pool.models,
        "rate_mode": pool.rate_mode,
        "currency": pool.currency,
        "prices": pool.prices,
        "versions": describe_versions(),
        "python": describe_python(),
        "machine": describe_machine(),
    }


def describe_versions() -> dict[str, str]:
    """Versions of the installed packages that affect a run's behaviour and speed."""
    versions = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def describe_files(root: Path, tests: Iterable[str]) -> dict[str, str]:
    """Digests of the suites' files: files next to tests or one folder below them, and conftests.

    Args:
        root: pytest's root directory.
        tests: Node ids.

    Returns:
        The digests, by path from the root. Only readable files are included, up to `_MOST_BYTES` in
        total. Files in run directories are left out.
    """
    folders = {(root / one).parent for one in {test.partition("::")[0] for test in tests}}
    above = {above for folder in folders for above in folder.parents if above.is_relative_to(root)}
    paths = {one / "conftest.py" for one in above}
    for folder in folders:
        paths |= {*folder.glob("*"), *folder.glob("[!._]*/*")}
    found = {}
    room = _MOST_BYTES
    for path in sorted(one for one in paths if one.suffix in _SUITE):
        with suppress(OSError):
            is_of_run = (path.parent / LOCK_NAME).exists()
            if not is_of_run and (size := path.stat().st_size) <= room:
                digest = digest_of(path)
                name = path.relative_to(root).as_posix().encode(errors="backslashreplace")
                found[name.decode()] = digest
                room -= size
    return found


def describe_python() -> str:
    """Implementation and version, such as `CPython 3.11.7`."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest of a run directory, completely or not at all.

    Raises:
        ResultsError: It cannot be written.
    """
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    write_whole(directory / FILE_NAME, with_checksum(text + b"\n"))


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a run directory.

    Raises:
        ResultsError: It is missing or damaged, or belongs to another version or another run.
    """
    path = directory / FILE_NAME
    with cannot(f"read {path}"):
        text = read_file(path)
    try:
        # Check this first: a newer manifest may lack fields that this version needs.
        schema = msgspec.json.decode(text, type=_Version).schema
        if schema > SCHEMA:
            raise ResultsError(
                f"{path} comes from a newer version: its schema is {schema}, and this version reads"
                f" {SCHEMA}; update pytest-ultrapar"
            )
        manifest = msgspec.json.decode(text, type=Manifest)
    except NOT_THAT_JSON as error:
        raise ResultsError(f"{path} is not a manifest of this version: {error}") from error
    if is_changed(text):
        raise ResultsError(f"{path} is damaged: its checksum is wrong; restore the file")
    holder = read_holder(directory)
    if holder is not None and holder.run_id != manifest.run_id:
        raise ResultsError(
            f"{path} is from run {manifest.run_id}, but {LOCK_NAME} next to it is from run "
            f"{holder.run_id}; restore the files of one run"
        )
    return manifest


class _Version(msgspec.Struct):
    schema: int = SCHEMA


def resume_differences(old: Manifest, new: Manifest) -> list[str]:
    """The reasons why `new` cannot finish `old`, one sentence each; empty if it can.

    The cases, their seeds, the models, the token limits of answers and the models of roles must be
    the same. So must the facts that all rows of a run share: mode, currency and storage format.
    Limits, keys, instances, policy and the number of workers may differ: no case depends on them. A
    new address is also allowed: your own server may move between two sessions.
    """
    differences: list[str] = []
    if set(old.models) != set(new.models):
        gone = ", ".join(sorted(set(old.models) - set(new.models))) or "none"
        added = ", ".join(sorted(set(new.models) - set(old.models))) or "none"
        differences.append(f"the pool's models are not the same (gone: {gone}; new: {added})")
    if old.simulated == new.simulated:
        differences += answers_differ(old.answered_by, new.answered_by)
    differences += roles_differ(old.effective, new.effective)
    then, now = _facts(old), _facts(new)
    for name in sorted({*old.data, *new.data}):
        then[name], now[name] = old.data.get(name, "none"), new.data.get(name, "none")
    if not (old.prices and new.prices):
        del then["currency of prices"]
    return differences + settings_differ(then, now)


def _facts(manifest: Manifest) -> dict[str, str]:
    """The facts that all rows of a run share, by the names under which they are displayed."""
    return {
        "run seed": str(manifest.seed),
        "mode": manifest.mode,
        "format of tables": manifest.storage_format,
        "kind of answers": "simulated" if manifest.simulated else "real",
        "replayed run": manifest.replayed or "none",
        "currency of prices": manifest.currency,
        **answer_settings(manifest.effective, manifest.pool_lanes),
    }


def shards_differ(old: str | None, new: str | None) -> str:
    """A sentence that reports that a run of one shard is to be resumed as another shard."""
    then, now = (f"shard {one}" if one else "all shards" for one in (old, new))
    return f"the run started with {then} and is resumed with {now} (--ultrapar-shard)"


def answers_differ(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """A sentence for each model that both runs have and whose provider has changed."""
    return [
        f"{model}'s answers came from {old[model]} and now come from {who}"
        for model, who in new.items()
        if model in old and old[model] != who
    ]


def settings_differ(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """A sentence for each fact (`answer_settings`) that both runs have and that has changed."""
    return [
        f"the {name} was {old[name]} and is {now} now"
        for name, now in new.items()
        if old.get(name, now) != now
    ]
